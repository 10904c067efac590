//! Candidates for jump tables: the data addresses that a function with computed jumps takes. Whether one really is a table,
//! and how far it goes, is decided by its content (see `tables.rs`); only a bound that the code checks is found here.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// How far back from the load of an entry the range check is looked for. Compilers put it right before; farther
/// back the chance grows to meet the check of something else (which would only make the table shorter).
const CHECK_WINDOW: usize = 12;

/// An address that may be a jump table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableHint {
    pub(crate) addr: u64,
    /// 8: entries are addresses. 4: entries are offsets from the table's start.
    pub(crate) entry_size: u64,
    /// Number of entries that the range check lets through, where one was found.
    pub(crate) limit: Option<u64>,
}

pub(super) fn find(instructions: &[Instruction]) -> Vec<TableHint> {
    let mut out: Vec<TableHint> = Vec::new();
    let mut add = |hint: TableHint| match out
        .iter_mut()
        .find(|h| h.addr == hint.addr && h.entry_size == hint.entry_size)
    {
        // Two jumps through one table: the shorter bound is certain for both.
        Some(known) => known.limit = [known.limit, hint.limit].into_iter().flatten().min(),
        None => out.push(hint),
    };
    for (n, i) in instructions.iter().enumerate() {
        if i.code() == Code::Lea_r64_m && i.is_ip_rel_memory_operand() {
            add(TableHint {
                addr: i.ip_rel_memory_address(),
                entry_size: 4,
                limit: offset_limit(instructions, n),
            });
        } else if absolute_table(i) {
            add(TableHint {
                addr: i.memory_displacement64(),
                entry_size: 8,
                limit: range_check(instructions, n),
            });
        }
    }
    out
}

/// `jmp *table(,%reg,8)` or `mov table(,%reg,8), %reg`.
fn absolute_table(i: &Instruction) -> bool {
    let loads = i.flow_control() == FlowControl::IndirectBranch || i.code() == Code::Mov_r64_rm64;
    loads
        && (i.op0_kind() == OpKind::Memory || i.op1_kind() == OpKind::Memory)
        && i.memory_base() == Register::None
        && i.memory_index() != Register::None
        && i.memory_index_scale() == 8
}

/// For `lea table(%rip), %base` followed by `movslq (%base,%index,4)`, the bound of the index.
fn offset_limit(instructions: &[Instruction], lea: usize) -> Option<u64> {
    let base = instructions[lea].op0_register();
    let load = instructions.iter().enumerate().skip(lea + 1).take(CHECK_WINDOW).find(|(_, i)| {
        i.mnemonic() == Mnemonic::Movsxd && i.memory_base() == base && i.memory_index_scale() == 4
    })?;
    range_check(instructions, load.0)
}

/// `cmp $imm, x` right before `ja` (or its kin), within a few instructions before the load.
fn range_check(instructions: &[Instruction], load: usize) -> Option<u64> {
    let window = &instructions[load.saturating_sub(CHECK_WINDOW)..load];
    window.windows(2).rev().find_map(|pair| {
        let immediate = (pair[0].mnemonic() == Mnemonic::Cmp && pair[0].op1_kind() >= OpKind::Immediate8)
            .then(|| pair[0].try_immediate(1).ok())??;
        match pair[1].mnemonic() {
            Mnemonic::Ja | Mnemonic::Jbe => immediate.checked_add(1),
            Mnemonic::Jae | Mnemonic::Jb => Some(immediate),
            _ => None,
        }
    })
}
