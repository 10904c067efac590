//! Which functions are cloned, and where each clone goes.

use std::collections::HashMap;
use std::ops::Range;

use crate::arch::{self, CODE_ALIGN, Decoded, JUMP_SIZE};
use crate::clip;
use crate::elf::Program;
use crate::functions::Function;
use crate::text::Text;
use crate::{Refusal, Refusals, Untreatable};

/// A function's copy, or the copy of a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clone {
    /// Index of the original.
    pub(crate) function: usize,
    /// Offset in the original of the first byte copied.
    pub(crate) from: u64,
    pub(crate) start: u64,
    /// Bytes copied from the original.
    pub(crate) copied: u64,
    /// Bytes in all: with the jump back at an open end.
    pub(crate) len: u64,
    /// Whether it is all of the function.
    pub(crate) whole: bool,
}

/// All clones, in the order in which they lie.
pub(crate) struct Layout {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) clones: Vec<Clone>,
    /// Beside the functions: which of `clones` are theirs, in ascending order of `from`.
    by_function: Vec<Range<usize>>,
}

/// A function to clone; `parts` are offsets in it, empty for all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) function: usize,
    pub(crate) parts: Vec<Range<u32>>,
}

impl Layout {
    /// Places clones of what is wanted one after the other from `start` on.
    pub(crate) fn place(program: &Program<'_>, text: &Text, wanted: &[Wanted], start: u64) -> Self {
        let mut by_function = vec![0..0; text.decoded.len()];
        let mut clones: Vec<Clone> = Vec::with_capacity(wanted.len());
        let mut at = start;
        for Wanted { function, parts } in wanted {
            let (f, Ok(decoded)) = (text.function(*function), &text.decoded[*function]) else { continue };
            let first = clones.len();
            if parts.is_empty() {
                // As aligned as the original, so that what it aligns inside stays aligned.
                let align = (1u64 << f.start.trailing_zeros().min(63)).min(CODE_ALIGN);
                at = crate::bytes::align_up(at, align);
                let len = f.len + if decoded.open_end { JUMP_SIZE } else { 0 };
                clones.push(Clone {
                    function: *function,
                    from: 0,
                    start: at,
                    copied: f.len,
                    len,
                    whole: true,
                });
                at += len;
            }
            for part in parts {
                let (from, copied) = (u64::from(part.start), u64::from(part.end - part.start));
                let open = part_of(program, f, from, copied).is_some_and(|d| d.open_end);
                // The same place in a line of code as in the original.
                at += f.start.wrapping_add(from).wrapping_sub(at) % CODE_ALIGN;
                let len = copied + if open { JUMP_SIZE } else { 0 };
                clones.push(Clone { function: *function, from, start: at, copied, len, whole: false });
                at += len;
            }
            by_function[*function] = first..clones.len();
        }
        Self { start, end: at, clones, by_function }
    }

    /// The clones of a function: one, or its fragments.
    pub(crate) fn clones_of(&self, function: usize) -> &[Clone] {
        &self.clones[self.by_function[function].clone()]
    }

    /// Bytes from the copy of `addr` to the end of its function's fragments, which lie one after the other; `None` if it was copied
    /// whole. `dladdr` takes a symbol of the original's size for the name of the clones that follow.
    pub(crate) fn size_in_fragments(&self, text: &Text, addr: u64) -> Option<u64> {
        let (function, _) = text.instruction(addr)?;
        let last = self.clones_of(function).last().filter(|clone| !clone.whole)?;
        Some(last.start + last.len - self.map(text, addr)?)
    }

    /// Where the instruction at `addr` was copied to.
    pub(crate) fn map(&self, text: &Text, addr: u64) -> Option<u64> {
        let (function, offset) = text.instruction(addr)?;
        let offset = u64::from(offset);
        let clones = self.clones_of(function);
        let clone = &clones[clones.partition_point(|c| c.from <= offset).checked_sub(1)?];
        (offset - clone.from < clone.copied).then(|| clone.start + (offset - clone.from))
    }
}

/// A part of a function, decoded as if it were a function: branches that leave the part are references.
pub(crate) fn part_of(program: &Program<'_>, f: &Function, from: u64, len: u64) -> Option<Decoded> {
    arch::decode(program.at(f.start + from, len)?, f.start + from).ok()
}

/// The functions to clone: those of `order` that may be, each once, at its first mention. Counts what is refused and why. With
/// `clip_over`, functions larger than that are cut to the blocks that `order` names, where `clippable` allows every part.
pub(crate) fn select(
    program: &Program<'_>,
    text: &Text,
    order: &[u64],
    clip_over: Option<u64>,
    clippable: impl Fn(&Function, &Range<u32>) -> bool,
    refusals: &mut Refusals,
) -> Vec<Wanted> {
    let mut place: HashMap<usize, Option<usize>> = HashMap::new();
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut touched: Vec<Vec<u32>> = Vec::new();
    for addr in order {
        let Some(function) = text.functions.find(*addr) else { continue };
        let place = place.entry(function).or_insert_with(|| match &text.decoded[function] {
            Ok(decoded) if !decoded.short_exits.is_empty() => {
                *refusals.entry(Refusal::ShortBranch).or_default() += 1;
                None
            }
            Ok(_) => {
                wanted.push(Wanted { function, parts: Vec::new() });
                touched.push(Vec::new());
                Some(wanted.len() - 1)
            }
            Err(why) => {
                *refusals.entry(*why).or_default() += 1;
                None
            }
        });
        if let Some(place) = *place {
            touched[place].push((addr - text.function(function).start) as u32);
        }
    }
    for (wanted, touched) in wanted.iter_mut().zip(touched) {
        let f = text.function(wanted.function);
        // Of a function that only its entry is known of, nothing is known about its blocks.
        if touched == [0] {
            continue;
        }
        let Some(code) = program.at(f.start, f.len).filter(|_| clip_over.is_some_and(|over| f.len > over))
        else {
            continue;
        };
        let parts = clip::fragments(code, f.start, &touched).unwrap_or_default();
        let decodes =
            |r: &Range<u32>| part_of(program, f, u64::from(r.start), u64::from(r.end - r.start)).is_some();
        if parts.iter().all(|r| decodes(r) && clippable(f, r)) {
            wanted.parts = parts;
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
