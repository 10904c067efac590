//! The program's code, decoded function by function. Nothing is known about code outside the functions that decode cleanly; the
//! parts that build on this treat every bit pattern there as if it could be a reference.

use crate::Refusal;
use crate::arch::{self, Decoded};
use crate::elf::Program;
use crate::functions::{Function, Functions};

pub(crate) struct Text {
    pub(crate) functions: Functions,
    /// Beside `functions`.
    pub(crate) decoded: Vec<Result<Decoded, Refusal>>,
}

impl Text {
    pub(crate) fn read(program: &Program<'_>, functions: Functions) -> Self {
        let decoded = functions.as_slice().iter().map(|f| decode(program, f)).collect();
        Self { functions, decoded }
    }

    pub(crate) fn function(&self, index: usize) -> &Function {
        &self.functions.as_slice()[index]
    }

    /// All cleanly decoded functions.
    pub(crate) fn clean(&self) -> impl Iterator<Item = (usize, &Function, &Decoded)> {
        let both = self.functions.as_slice().iter().zip(&self.decoded);
        both.enumerate().filter_map(|(n, (f, d))| Some((n, f, d.as_ref().ok()?)))
    }

    /// The cleanly decoded function in which an instruction starts at `addr`, and its offset there.
    pub(crate) fn instruction(&self, addr: u64) -> Option<(usize, u32)> {
        let index = self.functions.find(addr)?;
        let offset = (addr - self.function(index).start) as u32;
        self.decoded[index].as_ref().ok()?.starts.binary_search(&offset).ok()?;
        Some((index, offset))
    }
}

fn decode(program: &Program<'_>, f: &Function) -> Result<Decoded, Refusal> {
    if !f.unwind {
        return Err(Refusal::NoUnwind);
    }
    // Functions that somebody put into a section of their own may be found by the section's bounds (`__start_`, `__stop_`).
    let ordinary = match program.section_at(f.start) {
        Some(s) => s.executable() && (s.name == ".text" || s.name.starts_with(".text.")) && f.end() <= s.addr + s.size,
        None => program.sections.is_empty(),
    };
    if !ordinary {
        return Err(Refusal::OtherSection);
    }
    arch::decode(program.at(f.start, f.len).ok_or(Refusal::NotDecoded)?, f.start)
}

/// A set of addresses in a range, one bit each.
pub(crate) struct AddressSet {
    base: u64,
    bits: Vec<u64>,
}

impl AddressSet {
    /// A set that can hold addresses of the program's executable segments.
    pub(crate) fn over_code(program: &Program<'_>) -> Self {
        let code = || program.segments.iter().filter(|s| s.executable());
        let base = code().map(|s| s.addr).min().unwrap_or(0);
        // What counts is the part that the file holds: a header may claim any memory size.
        let end = code().map(|s| s.addr + s.file_size).max().unwrap_or(base);
        let spread = code().map(|s| s.file_size).sum::<u64>().saturating_mul(16).saturating_add(1 << 24);
        let len = (end - base).min(spread);
        Self { base, bits: vec![0; (len / 64 + 1) as usize] }
    }

    /// Adds an address; one that lies outside is ignored.
    pub(crate) fn insert(&mut self, addr: u64) {
        let off = addr.wrapping_sub(self.base);
        if let Some(word) = self.bits.get_mut((off / 64) as usize) {
            *word |= 1 << (off % 64);
        }
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        let off = addr.wrapping_sub(self.base);
        self.bits.get((off / 64) as usize).is_some_and(|word| word >> (off % 64) & 1 == 1)
    }
}
