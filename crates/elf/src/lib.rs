//! What pagein knows of an ELF program, read with goblin.
//!
//! The crate does no I/O: it asks for the bytes that it needs, so that it works on a whole file as well as on the few
//! pages that have arrived so far. Source of the format: System V ABI, chapters 4 and 5 (<https://gabi.xinuos.com>),
//! and the x86-64 psABI; of the kernel's view of it: `fs/binfmt_elf.c`.

mod arch;
mod dynamic;
mod error;
mod linking;
mod program;

pub use arch::{EM_X86_64, machine_name, supported};
pub use error::ElfError;
pub use linking::LinkPlan;
pub use program::{Interpreter, Kind, Program, Segment, VirtAddr};
