//! Where to put breakpoints, and what pages the code that ran lies on.

use std::collections::BTreeSet;

use crate::elf::Program;
use crate::functions::Functions;
use crate::text::Text;
use crate::{PAGE, Untreatable, arch, tables};

/// Addresses for one-shot breakpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Points {
    /// The program's entry point, which tells the load bias.
    pub entry: u64,
    /// Link-time addresses, ascending: starts of instructions.
    pub addresses: Vec<u64>,
    /// With blocks: the bytes of code that each address stands for, up to the next branch. Otherwise the function's length.
    pub lengths: Vec<u64>,
}

/// Points at every function entry; with `blocks` at the start of every basic block of every function that decodes cleanly. (Only there:
/// a breakpoint in data among instructions would change what the program reads.)
pub fn points(bytes: &[u8], blocks: bool) -> Result<Points, Untreatable> {
    let program = Program::parse(bytes)?;
    let text = Text::read(&program, Functions::of(&program)?);
    let mut out = Points { entry: program.entry, addresses: Vec::new(), lengths: Vec::new() };
    // A block that only a table leads to, a case of a `switch` or the target of a computed `goto`, looks like a part of the one before it.
    let mut tabled = BTreeSet::new();
    if blocks {
        tabled.extend(tables::targets(&program, &text).into_iter().map(|(target, _)| target));
        tabled.extend(program.relative_words().unwrap_or_default().iter().map(|word| word.target));
    }
    for (f, decoded) in text.functions.as_slice().iter().zip(&text.decoded) {
        let Some(code) = program.at(f.start, f.len) else { continue };
        if decoded.is_ok() && blocks {
            let mut leaders: BTreeSet<u32> = arch::branch_leaders(code, f.start).into_iter().collect();
            let inside = tabled.range(f.start..f.end()).filter(|t| text.instruction(**t).is_some());
            leaders.extend(inside.map(|target| (target - f.start) as u32));
            let ends = leaders.iter().skip(1).copied().chain([f.len as u32]);
            for (start, end) in leaders.iter().zip(ends) {
                out.addresses.push(f.start + u64::from(*start));
                out.lengths.push(u64::from(end - *start));
            }
        } else {
            out.addresses.push(f.start);
            out.lengths.push(f.len);
        }
    }
    Ok(out)
}

/// Pages of code that were touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Touched {
    /// Distinct pages.
    pub pages: usize,
    /// Bytes in the blocks or functions.
    pub bytes: u64,
}

impl Touched {
    /// What the ranges (start, length) touch.
    pub fn of(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut pages = BTreeSet::new();
        let mut bytes = 0;
        for (start, len) in ranges.into_iter().filter(|(_, len)| *len > 0) {
            pages.extend(start / PAGE..=(start + len - 1) / PAGE);
            bytes += len;
        }
        Self { pages: pages.len(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_counts_once_and_a_range_touches_all_it_covers() {
        let touched = Touched::of([(0x1000, 16), (0x1ff0, 32), (0x1020, 0)]);
        assert_eq!(touched, Touched { pages: 2, bytes: 48 });
    }
}
