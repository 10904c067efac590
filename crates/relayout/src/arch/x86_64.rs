//! x86-64 code of one function: where its instructions start, and which of its operands are relative to the program counter
//! and leave the function. Those are all that has to change when the function is copied elsewhere byte for byte.

use std::ops::Range;

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

use super::jump_table::{self, TableHint};
use crate::Refusal;

/// Functions keep their address modulo this (loops are aligned inside functions; more than the compilers' 16 is not worth the gaps).
pub(crate) const CODE_ALIGN: u64 = 16;
/// DWARF number of the return address column.
pub(crate) const RETURN_ADDRESS: u16 = 16;
/// `int3`: stands between clones, so that running off the end of one is loud.
pub(crate) const FILLER: u8 = 0xcc;
/// Bytes of `jmp rel32`.
pub(crate) const JUMP_SIZE: u64 = 5;

/// `jmp to`, placed at `from`.
pub(crate) fn jump(from: u64, to: u64) -> Option<[u8; JUMP_SIZE as usize]> {
    let [a, b, c, d] = crate::bytes::displacement(from.wrapping_add(JUMP_SIZE), to)?.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// What an instruction does with the address that a PC-relative operand gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Call,
    /// Conditional or not.
    Jump,
    /// `lea`: the address becomes a value.
    Address,
    /// The address is read or written.
    Memory,
}

/// A 32-bit PC-relative operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Offset of the displacement from the function's start.
    pub(crate) at: u32,
    /// Offset of the next instruction, which the displacement counts from.
    pub(crate) next: u32,
    pub(crate) kind: Kind,
    pub(crate) target: u64,
}

/// A constant in an instruction that could be an absolute address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Constant {
    /// Offset of its bytes from the function's start.
    pub(crate) at: u32,
    pub(crate) value: u64,
    /// It is the 32-bit immediate of an instruction that hands a value on or compares it: all that compilers do with the address of
    /// a function.
    pub(crate) plain: bool,
}

/// A function that may be copied.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    /// Offsets where instructions start, ascending.
    pub(crate) starts: Vec<u32>,
    /// PC-relative operands that leave the function, and every `lea`.
    pub(crate) references: Vec<Reference>,
    /// Where short branches leave the function to: with any it cannot be copied, but what it refers to is known.
    pub(crate) short_exits: Vec<u64>,
    /// The last instruction may go on to the one after the function.
    pub(crate) open_end: bool,
    /// It does, for all that is known: it is not a call, which compilers put last when it does not come back.
    pub(crate) runs_on: bool,
    /// It jumps to its own start.
    pub(crate) repeats: bool,
    pub(crate) tables: Vec<TableHint>,
    /// Of interest without position independence only.
    pub(crate) constants: Vec<Constant>,
}

/// Addresses below this are no code's.
const LOWEST_ADDRESS: u64 = 0x1_0000;

/// Constants of 4 and 8 bytes. A negative one may be subtracted to compare, so that it counts with both signs.
fn constants(i: &Instruction, offset: u32, offsets: ConstantOffsets, out: &mut Vec<Constant>) {
    let mut push = |at: usize, value: u64, plain: bool| {
        for (value, plain) in [(value, plain), (value.wrapping_neg(), false)] {
            if (LOWEST_ADDRESS..1 << 31).contains(&value) {
                out.push(Constant { at: offset + at as u32, value, plain });
            }
        }
    };
    if i.op0_kind() != OpKind::NearBranch64 && offsets.has_immediate() && offsets.immediate_size() >= 4 {
        let operand = (0..i.op_count()).find_map(|n| i.try_immediate(n).ok());
        // 64 bits wide, all of them: what is stored or compared with 32 bits is a number.
        let plain = matches!(
            i.code(),
            Code::Mov_r32_imm32
                | Code::Mov_rm64_imm32
                | Code::Pushq_imm32
                | Code::Cmp_rm64_imm32
                | Code::Cmp_RAX_imm32
        );
        push(offsets.immediate_offset(), operand.unwrap_or_default(), plain);
    }
    if offsets.has_displacement() && offsets.displacement_size() >= 4 && !i.is_ip_rel_memory_operand() {
        push(offsets.displacement_offset(), i.memory_displacement64(), false);
    }
}

/// Decodes code that is to be copied.
pub(crate) fn decode(code: &[u8], start: u64) -> Result<Decoded, Refusal> {
    let decoded = decode_in_place(code, start)?;
    if decoded.short_exits.is_empty() { Ok(decoded) } else { Err(Refusal::ShortBranch) }
}

/// Decodes a function linearly. Refuses what cannot be copied with only its PC-relative operands changed, and what shows that
/// the bytes are not all instructions.
pub(crate) fn decode_in_place(code: &[u8], start: u64) -> Result<Decoded, Refusal> {
    let len = code.len() as u64;
    let end = start + len;
    let inside = |addr: u64| addr >= start && addr < end;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instructions = Vec::with_capacity(code.len() / 4);
    let mut out = Decoded::default();
    // Targets inside the function, which have to be instructions.
    let mut inner = Vec::new();
    let mut computed_jump = false;
    let mut branches_to_start = false;
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.is_invalid() {
            return Err(Refusal::NotDecoded);
        }
        let offset = (i.ip() - start) as u32;
        let offsets = decoder.get_constant_offsets(&i);
        let mut push = |at: usize, kind, target| {
            let at = offset + at as u32;
            out.references.push(Reference { at, next: (i.next_ip() - start) as u32, kind, target });
        };
        out.starts.push(offset);
        if i.op_kinds()
            .any(|k| matches!(k, OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch32))
        {
            return Err(Refusal::Unusual);
        }
        match i.flow_control() {
            FlowControl::XbeginXabortXend if i.code() != Code::Xend => return Err(Refusal::Unusual),
            _ if i.op0_kind() == OpKind::NearBranch64 => {
                let target = i.near_branch_target();
                let call = i.flow_control() == FlowControl::Call;
                if call && target == i.next_ip() {
                    // call; pop: the code computes addresses from its own.
                    return Err(Refusal::OwnAddress);
                }
                if inside(target) {
                    inner.push((target - start) as u32);
                    branches_to_start |= target == start && !call;
                } else if offsets.immediate_size() == 4 {
                    push(offsets.immediate_offset(), if call { Kind::Call } else { Kind::Jump }, target);
                } else {
                    out.short_exits.push(target);
                }
            }
            FlowControl::IndirectBranch => computed_jump = true,
            _ => {}
        }
        if i.memory_base() == Register::EIP {
            return Err(Refusal::Unusual);
        }
        if i.is_ip_rel_memory_operand() {
            let target = i.ip_rel_memory_address();
            let address = i.code() == Code::Lea_r64_m;
            if offsets.displacement_size() != 4 || (i.mnemonic() == Mnemonic::Lea && !address) {
                return Err(Refusal::Unusual);
            }
            if inside(target) {
                if !address {
                    return Err(Refusal::DataInCode);
                }
                inner.push((target - start) as u32);
            }
            push(offsets.displacement_offset(), if address { Kind::Address } else { Kind::Memory }, target);
        }
        constants(&i, offset, offsets, &mut out.constants);
        instructions.push(i);
    }
    let Some(last) = instructions.last() else { return Err(Refusal::NotDecoded) };
    if last.next_ip() != end {
        return Err(Refusal::NotDecoded);
    }
    if inner.iter().any(|offset| out.starts.binary_search(offset).is_err()) {
        return Err(Refusal::DataInCode);
    }
    out.open_end = falls_through(last);
    let call = matches!(last.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    out.runs_on = out.open_end && !call;
    out.repeats = branches_to_start;
    if computed_jump {
        out.tables = jump_table::find(&instructions);
    }
    Ok(out)
}

fn falls_through(i: &Instruction) -> bool {
    let stops = matches!(
        i.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    );
    !stops
}

/// Whether the bytes between two functions are what assemblers and linkers fill gaps with: `nop` of any length, `int3`, zeros.
pub(crate) fn is_padding(bytes: &[u8]) -> bool {
    // Long gaps are looked at as unknown code; no compiler aligns a function that far.
    if bytes.len() > 256 {
        return false;
    }
    let nop = |i: Instruction| matches!(i.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    bytes.iter().all(|b| *b == 0) || Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).into_iter().all(nop)
}

/// Offsets of the instructions that begin basic blocks: the first, targets of branches inside the function, what follows a
/// branch, and what follows the padding behind one (a case of a `switch` lies there). Not what follows a call: it comes back.
pub(crate) fn branch_leaders(code: &[u8], start: u64) -> Vec<u32> {
    let end = start + code.len() as u64;
    let mut leaders = vec![0];
    let mut behind_branch = false;
    for i in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        let padding = i.mnemonic() == Mnemonic::Nop;
        if behind_branch && !padding {
            leaders.push((i.ip() - start) as u32);
        }
        let branch = matches!(
            i.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::ConditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        );
        if branch && i.next_ip() < end {
            leaders.push((i.next_ip() - start) as u32);
        }
        behind_branch = branch || (behind_branch && padding);
        if i.op0_kind() == OpKind::NearBranch64 && (start..end).contains(&i.near_branch_target()) {
            leaders.push((i.near_branch_target() - start) as u32);
        }
    }
    leaders.sort_unstable();
    leaders.dedup();
    leaders
}

/// Branches of 8 bits inside a function: offsets of the instruction and of its target.
pub(crate) fn short_branches(code: &[u8], start: u64) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.op0_kind() == OpKind::NearBranch64 && decoder.get_constant_offsets(&i).immediate_size() == 1 {
            out.push(((i.ip() - start) as u32, i.near_branch_target().wrapping_sub(start) as u32));
        }
    }
    out
}

/// In the start file's `_start`, offset of the 32-bit immediate of `mov $main, %edi` (or `%rdi`): the first argument of
/// `__libc_start_main`. Only where the whole function is the start file's: it ends in `hlt` and calls once, indirectly.
pub(crate) fn is_main_argument(code: &[u8], start: u64) -> Option<(u32, u64)> {
    let mut found = None;
    let mut calls = 0;
    let mut last = Code::INVALID;
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let i = decoder.decode();
        if i.op0_kind() == OpKind::Register && i.op0_register().full_register() == Register::RDI {
            let wide = i.code() == Code::Mov_rm64_imm32;
            if !wide && i.code() != Code::Mov_r32_imm32 {
                return None;
            }
            let at = (i.ip() - start) as u32 + decoder.get_constant_offsets(&i).immediate_offset() as u32;
            found = Some((at, if wide { i.immediate32to64() as u64 } else { u64::from(i.immediate32()) }));
        }
        calls += usize::from(matches!(i.flow_control(), FlowControl::Call | FlowControl::IndirectCall));
        if i.code() != Code::INVALID && !i.code().mnemonic().eq(&Mnemonic::Nop) {
            last = i.code();
        }
    }
    if calls == 1 && last == Code::Hlt { found } else { None }
}

/// FNV-1a over the code with everything that a linker fills in left out: PC-relative operands that leave the function, and absolute
/// operands that are addresses of the image.
pub(crate) fn position_independent_hash(code: &[u8], start: u64, image: &Range<u64>) -> u64 {
    let end = start + code.len() as u64;
    let mut masked = code.to_vec();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    while decoder.can_decode() {
        let i = decoder.decode();
        let at = (i.ip() - start) as usize;
        let offsets = decoder.get_constant_offsets(&i);
        let mut clear = |from: usize, size: usize| masked[at + from..at + from + size].fill(0);
        if i.op0_kind() == OpKind::NearBranch64 && !(start..end).contains(&i.near_branch_target()) {
            clear(offsets.immediate_offset(), offsets.immediate_size());
        } else if offsets.has_immediate() && offsets.immediate_size() >= 4 {
            let value =
                if offsets.immediate_size() == 8 { i.immediate64() } else { u64::from(i.immediate32()) };
            if image.contains(&value) && value >= 0x1_0000 {
                clear(offsets.immediate_offset(), offsets.immediate_size());
            }
        }
        let absolute = i.memory_displacement64() >= 0x1_0000 && image.contains(&i.memory_displacement64());
        if offsets.displacement_size() >= 4 && (i.is_ip_rel_memory_operand() || absolute) {
            clear(offsets.displacement_offset(), offsets.displacement_size());
        }
    }
    masked.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `call` to an address outside, `ret`.
    fn call(rel: i32) -> Vec<u8> {
        let mut code = vec![0xe8];
        code.extend(rel.to_le_bytes());
        code.push(0xc3);
        code
    }

    #[test]
    fn a_call_that_leaves_is_the_only_reference() {
        let decoded = decode(&call(0x100), 0x1000).unwrap();
        assert_eq!(decoded.references, [Reference { at: 1, next: 5, kind: Kind::Call, target: 0x1105 }]);
        assert_eq!(decoded.starts, [0, 5]);
        assert!(!decoded.open_end);
    }

    #[test]
    fn what_cannot_be_moved_is_refused() {
        // jmp short +0x10, out of the function; mov eax, [rip - 6], its own bytes; call the next instruction.
        assert_eq!(decode(&[0xeb, 0x10], 0).unwrap_err(), Refusal::ShortBranch);
        assert_eq!(decode(&[0x8b, 0x05, 0xfa, 0xff, 0xff, 0xff, 0xc3], 0).unwrap_err(), Refusal::DataInCode);
        assert_eq!(decode(&[0xe8, 0, 0, 0, 0, 0x58, 0xc3], 0).unwrap_err(), Refusal::OwnAddress);
        // jmp into the middle of an instruction; cut off.
        assert_eq!(decode(&[0xeb, 0x01, 0xb8, 0, 0, 0, 0, 0xc3], 0).unwrap_err(), Refusal::DataInCode);
        assert_eq!(decode(&[0xe8, 0, 0], 0).unwrap_err(), Refusal::NotDecoded);
    }

    #[test]
    fn blocks_begin_behind_branches_and_their_padding() {
        // je over the ret; ret; 2 nops; nop; ret.
        let code = [0x74, 0x01, 0xc3, 0x66, 0x90, 0x90, 0xc3];
        assert_eq!(branch_leaders(&code, 0), [0, 2, 3, 6]);
    }

    #[test]
    fn a_function_that_runs_off_its_end_is_open() {
        assert!(decode(&[0x90], 0).unwrap().open_end);
        assert!(!decode(&[0x0f, 0x0b], 0).unwrap().open_end, "ud2 does not go on");
    }

    #[test]
    fn the_hash_sees_the_code_but_not_where_it_points() {
        let image = 0x40_0000..0x50_0000;
        let hash = |code: &[u8], at| position_independent_hash(code, at, &image);
        assert_eq!(hash(&call(0x100), 0x40_1000), hash(&call(0x200), 0x40_2000));
        let mut other = call(0x100);
        other[5] = 0xcb;
        assert_ne!(hash(&call(0x100), 0x40_1000), hash(&other, 0x40_1000));
        // mov edi, imm32: an address of the image, and a number.
        assert_eq!(hash(&[0xbf, 0, 0x10, 0x40, 0, 0xc3], 0), hash(&[0xbf, 0, 0x20, 0x40, 0, 0xc3], 0));
        assert_ne!(hash(&[0xbf, 1, 0, 0, 0, 0xc3], 0), hash(&[0xbf, 2, 0, 0, 0, 0xc3], 0));
    }

    #[test]
    fn a_jump_lands_where_it_should() {
        let code = jump(0x1000, 0x2000).unwrap();
        let i = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).decode();
        assert_eq!(i.near_branch_target(), 0x2000);
        assert_eq!(jump(0, 1 << 40), None);
    }
}
