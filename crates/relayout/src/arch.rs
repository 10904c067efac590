//! Everything that knows an instruction set. x86-64 is the one there is; aarch64 would be a second file with the same functions.

mod jump_table;
mod x86_64;

pub(crate) use jump_table::TableHint;
pub(crate) use x86_64::{
    CODE_ALIGN, Decoded, FILLER, JUMP_SIZE, Kind, RETURN_ADDRESS, Reference, branch_leaders, decode,
    decode_in_place, is_main_argument, is_padding, jump, position_independent_hash, short_branches,
};
