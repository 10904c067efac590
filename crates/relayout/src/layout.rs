//! Which functions are cloned, and where each clone goes.

use std::collections::HashSet;

use crate::arch::{CODE_ALIGN, JUMP_SIZE};
use crate::elf::Program;
use crate::text::Text;
use crate::{Refusals, Untreatable};

/// A function's copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clone {
    /// Index of the original.
    pub(crate) function: usize,
    pub(crate) start: u64,
    /// Bytes copied from the original.
    pub(crate) copied: u64,
    /// Bytes in all: with the jump back at an open end.
    pub(crate) len: u64,
}

/// All clones, in the order in which they lie.
pub(crate) struct Layout {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) clones: Vec<Clone>,
    /// Beside the functions: index into `clones`.
    by_function: Vec<Option<u32>>,
}

impl Layout {
    /// Places clones of `wanted` (function indices in order) one after the other from `start` on.
    pub(crate) fn place(text: &Text, wanted: &[usize], start: u64) -> Self {
        let mut by_function = vec![None; text.decoded.len()];
        let mut clones: Vec<Clone> = Vec::with_capacity(wanted.len());
        let mut at = start;
        for &function in wanted {
            let (f, Ok(decoded)) = (text.function(function), &text.decoded[function]) else { continue };
            // As aligned as the original, so that what it aligns inside stays aligned.
            let align = (1u64 << f.start.trailing_zeros().min(63)).min(CODE_ALIGN);
            at = crate::bytes::align_up(at, align);
            let len = f.len + if decoded.open_end { JUMP_SIZE } else { 0 };
            by_function[function] = Some(clones.len() as u32);
            clones.push(Clone { function, start: at, copied: f.len, len });
            at += len;
        }
        Self { start, end: at, clones, by_function }
    }

    pub(crate) fn clone_of(&self, function: usize) -> Option<&Clone> {
        self.by_function[function].map(|n| &self.clones[n as usize])
    }

    /// Where the instruction at `addr` was copied to.
    pub(crate) fn map(&self, text: &Text, addr: u64) -> Option<u64> {
        let (function, offset) = text.instruction(addr)?;
        Some(self.clone_of(function)?.start + u64::from(offset))
    }
}

/// The functions to clone: those of `order` that may be, each once. Counts what is refused and why.
pub(crate) fn select(text: &Text, order: &[u64], refusals: &mut Refusals) -> Vec<usize> {
    let mut seen = HashSet::new();
    let mut wanted = Vec::new();
    for addr in order {
        let Some(index) = text.functions.find(*addr) else { continue };
        if !seen.insert(index) {
            continue;
        }
        match &text.decoded[index] {
            Ok(_) => wanted.push(index),
            Err(why) => *refusals.entry(*why).or_default() += 1,
        }
    }
    wanted
}

/// The first page-aligned address after everything the program maps.
pub(crate) fn free_address(program: &Program<'_>) -> Result<u64, Untreatable> {
    let end = program
        .loads()
        .map(|s| s.addr + s.mem_size)
        .max()
        .ok_or(Untreatable::Malformed("nothing to load"))?;
    let addr = crate::bytes::align_up(end, crate::PAGE);
    // Calls reach 2 GB; half of it leaves room for the clones.
    let start = program.loads().map(|s| s.addr).min().unwrap_or(0);
    if addr - start > 1 << 30 { Err(Untreatable::TooLarge) } else { Ok(addr) }
}
