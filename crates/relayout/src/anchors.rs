//! Never worse: functions that are entered through pointers which cannot be redirected run in the original anyway, so that a clone of
//! them is another page and not one less. They stay, and so do all functions on the pages that they keep in use.
//! If what is left would not touch fewer pages than before, the program is left alone.

use std::collections::{BTreeSet, HashSet};

use goblin::elf::section_header::SHT_PROGBITS;

use crate::arch::Kind;
use crate::bytes::slice;
use crate::elf::Program;
use crate::layout::{Layout, Wanted};
use crate::pointers::Pointers;
use crate::text::Text;
use crate::{PAGE, Touched};

/// The functions of `layout` that are better left where they are.
pub(crate) fn find(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    pointers: &Pointers,
) -> HashSet<usize> {
    let entries: HashSet<u64> = layout.clones.iter().map(|c| text.function(c.function).start).collect();
    let mut anchored = HashSet::new();
    let mut note = |addr: u64| {
        if entries.contains(&addr) && !pointers.moved.contains_key(&addr) && !pointers.known.contains(&addr) {
            anchored.extend(text.functions.starting_at(addr));
        }
    };
    for (_, _, decoded) in text.clean() {
        decoded.references.iter().filter(|r| r.kind == Kind::Address).for_each(|r| note(r.target));
    }
    for word in program.relative_words().unwrap_or_default() {
        note(word.target);
    }
    if !program.position_independent {
        for c in text.clean().flat_map(|(_, _, decoded)| &decoded.constants) {
            note(c.value);
        }
        for (_, bytes) in text.unknown(program) {
            let words = bytes.windows(4).map(|w| u32::from_le_bytes(w.try_into().expect("4 bytes")));
            words.for_each(|word| note(u64::from(word)));
        }
        // What is no PROGBITS is a table of the dynamic linker's, which enters nothing: `.dynsym` lists functions without calling them.
        for s in
            program.sections.iter().filter(|s| s.allocated() && s.kind == SHT_PROGBITS && !s.executable())
        {
            let bytes = slice(program.bytes, s.offset, s.size).unwrap_or_default();
            let skip = (s.addr.wrapping_neg() % 8) as usize;
            for word in bytes.get(skip..).unwrap_or_default().chunks_exact(8) {
                note(u64::from_le_bytes(word.try_into().expect("8 bytes")));
            }
        }
    }
    // Of a function that is cut, what ran.
    let pages = |function: usize| {
        let start = text.function(function).start;
        let parts = layout.clones_of(function).iter();
        parts.flat_map(move |c| (start + c.from) / PAGE..=(start + c.from + c.copied - 1) / PAGE)
    };
    let kept: BTreeSet<u64> = anchored.iter().flat_map(|f| pages(*f)).collect();
    layout.clones.iter().map(|c| c.function).filter(|f| pages(*f).all(|page| kept.contains(&page))).collect()
}

/// Pages of code that `order` touches as shipped, and with the functions of `layout` cloned. Of a function that is not wanted, because it
/// cannot be copied, the addresses named count.
pub(crate) fn pages(text: &Text, order: &[u64], all: &[Wanted], layout: &Layout) -> (usize, usize) {
    let wanted: HashSet<usize> = all.iter().map(|w| w.function).collect();
    let refused: Vec<(u64, u64)> = order
        .iter()
        .filter(|addr| text.functions.find(**addr).is_some_and(|f| !wanted.contains(&f)))
        .map(|addr| (*addr, 1))
        .collect();
    let ranges = |w: &Wanted| -> Vec<(u64, u64)> {
        let f = text.function(w.function);
        match w.parts.as_slice() {
            [] => vec![(f.start, f.len)],
            parts => {
                parts.iter().map(|r| (f.start + u64::from(r.start), u64::from(r.end - r.start))).collect()
            }
        }
    };
    let touched =
        |ranges: &mut dyn Iterator<Item = (u64, u64)>| Touched::of(ranges.chain(refused.iter().copied()));
    let before = touched(&mut all.iter().flat_map(ranges));
    let stay = touched(&mut all.iter().filter(|w| layout.clones_of(w.function).is_empty()).flat_map(ranges));
    let clones = Touched::of([(layout.start, layout.end - layout.start)]);
    (before.pages, stay.pages + clones.pages)
}
