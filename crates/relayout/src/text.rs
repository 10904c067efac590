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

    /// The parts of the executable segments that are neither cleanly decoded functions nor padding: address and bytes. Each reaches 3 bytes into
    /// what follows, so that no operand is cut.
    pub(crate) fn unknown<'a>(&self, program: &Program<'a>) -> Vec<(u64, &'a [u8])> {
        let mut out = Vec::new();
        for s in program.segments.iter().filter(|s| s.executable()) {
            let end = s.addr + s.file_size;
            let mut push = |from: u64, to: u64| {
                if from < to && !program.at(from, to - from).is_some_and(arch::is_padding) {
                    out.extend(program.at(from, (to + 3).min(end) - from).map(|bytes| (from, bytes)));
                }
            };
            let mut at = s.addr;
            for (_, f, _) in self.clean().filter(|(_, f, _)| f.start >= s.addr && f.end() <= end) {
                push(at, f.start);
                at = f.end();
            }
            push(at, end);
        }
        out
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
        Some(s) => {
            s.executable()
                && (s.name == ".text" || s.name.starts_with(".text."))
                && f.end() <= s.addr + s.size
        }
        None => program.sections.is_empty(),
    };
    if !ordinary {
        return Err(Refusal::OtherSection);
    }
    let mut decoded = arch::decode_in_place(program.at(f.start, f.len).ok_or(Refusal::NotDecoded)?, f.start)?;
    if program.position_independent {
        // No instruction can hold an address.
        decoded.constants = Vec::new();
    }
    Ok(decoded)
}
