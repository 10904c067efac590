//! From pages of the original file to pages of the new one: where a trace of the original would touch the new file.
//!
//! Nothing of the original moves, so that a page without clones keeps its number. A page of code whose functions were cloned is
//! replaced by the pages of the clones; it stays as well if code in it ran that was not cloned. This is a
//! forecast: what it misses comes in on demand.

use std::collections::{BTreeMap, HashSet};

use crate::elf::Program;
use crate::{Copied, PAGE, Untreatable};

/// The forecast; pages are file offsets / 4096.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageMap {
    /// Page of the original: pages of the clones of code in it, ascending.
    clones: BTreeMap<u64, Vec<u64>>,
    /// Pages of the original with code that ran and was not cloned.
    stay: HashSet<u64>,
    /// The pages of all code that ran, in the new file, in the order of `ran`.
    code: Vec<u64>,
}

impl PageMap {
    /// `ran` are the ranges (link-time address, bytes) of code that a profile saw, in order of first touch, `copies` what was copied.
    pub fn new(new: &[u8], copies: &[Copied], ran: &[(u64, u64)]) -> Result<Self, Untreatable> {
        let program = Program::parse(new)?;
        let mut out = Self::default();
        let sorted: BTreeMap<u64, &Copied> = copies.iter().map(|copy| (copy.from, copy)).collect();
        for copy in copies {
            for (from, to) in pages_of_copy(&program, copy) {
                let list = out.clones.entry(from).or_default();
                if let Err(place) = list.binary_search(&to) {
                    list.insert(place, to);
                }
            }
        }
        let mut seen = HashSet::new();
        for &(start, len) in ran.iter().filter(|(_, len)| *len > 0) {
            let copy = sorted.range(..=start).next_back().map(|(_, copy)| *copy);
            let within = copy.filter(|copy| start + len <= copy.from + copy.len);
            let start = within.map_or(start, |copy| start - copy.from + copy.to);
            let pages: Vec<u64> = pages(&program, start, len).collect();
            if within.is_none() {
                out.stay.extend(&pages);
            }
            out.code.extend(pages.into_iter().filter(|page| seen.insert(*page)));
        }
        Ok(out)
    }

    /// Pages of the new file that take the place of a page of the original.
    pub fn replacing(&self, page: u64) -> Vec<u64> {
        let Some(clones) = self.clones.get(&page) else { return vec![page] };
        let own = self.stay.contains(&page).then_some(page);
        own.into_iter().chain(clones.iter().copied()).collect()
    }

    /// The pages of the new file that hold the code that ran, in order of first touch.
    pub fn code(&self) -> &[u64] {
        &self.code
    }
}

/// File pages of a range of addresses.
fn pages(program: &Program<'_>, start: u64, len: u64) -> impl Iterator<Item = u64> {
    let offset = program.offset(start).filter(|_| program.at(start, len).is_some());
    offset.into_iter().flat_map(move |offset| offset / PAGE..=(offset + len - 1) / PAGE)
}

/// Pairs of file pages: of the original, and of the copy of what is in it.
fn pages_of_copy(program: &Program<'_>, copy: &Copied) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < copy.len {
        // Up to the next page of either.
        let left = |addr: u64| PAGE - addr % PAGE;
        let len = (copy.len - at).min(left(copy.from + at)).min(left(copy.to + at));
        let both = (pages(program, copy.from + at, len).next(), pages(program, copy.to + at, len).next());
        if let (Some(from), Some(to)) = both {
            out.push((from, to));
        }
        at += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::{PHDR_SIZE, Segment};

    /// One segment of 64 KiB, at file offset 0 and address 0x10000.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 0x10000];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        for (at, value) in [(16, 2u16), (18, 62), (54, PHDR_SIZE as u16), (56, 1)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file[32] = 64;
        let size = 0x10000;
        let load = Segment {
            kind: 1,
            flags: 5,
            offset: 0,
            addr: 0x10000,
            file_size: size,
            mem_size: size,
            align: 4096,
        };
        file[64..64 + PHDR_SIZE as usize].copy_from_slice(&load.encode());
        file
    }

    #[test]
    fn pages_of_cloned_code_are_replaced_and_others_stay() {
        let copies = [
            Copied { from: 0x11ff0, to: 0x18000, len: 0x20 },
            Copied { from: 0x13000, to: 0x18020, len: 0x10 },
        ];
        let ran = [(0x13000, 8), (0x11ff0, 0x20), (0x13100, 4), (0x15000, 4)];
        let map = PageMap::new(&file(), &copies, &ran).unwrap();
        assert_eq!(map.replacing(1), [8]);
        assert_eq!(map.replacing(2), [8], "the copy crosses into page 2");
        assert_eq!(map.replacing(3), [3, 8], "something there was not copied");
        assert_eq!(map.replacing(5), [5]);
        assert_eq!(map.replacing(9), [9], "no code that was profiled");
        assert_eq!(map.code(), [8, 3, 5]);
    }
}
