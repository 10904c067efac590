//! Pointers of programs that are not position-independent: words and immediates that equal a function's address.
//!
//! Nothing marks such a word as a pointer. What proves it is that the function *ran*, as the profile says, and that no call, no jump and no
//! exported symbol leads to it: then something else in the file must hold its address. All of the file is searched for
//! that, every four bytes of data and every operand of decoded code. Where all that is found could be a pointer (an aligned word of 64
//! bits; the immediate of a `mov`, a `push` or a `cmp`; a `lea`), it is; and as nothing else refers to the function, all of it is
//! redirected at once, so that comparisons keep their result. One odd occurrence, and the function's pointers stay as they are.
//!
//! A function that is called directly as well, or entered in another way (see `entered`), ran for that reason perhaps, so that its words
//! prove nothing by themselves. They count as pointers where each lies next to one that is proven (a table of functions, a structure of
//! them).
//!
//! If there are several words, at least one is the pointer, and another one may be a number of the same value: in a program with 40 MB of
//! tables some dozens of words are that by accident. So all of them have to lie in the company of pointers (see `company`). Short texts
//! and round numbers are of that size as well: what could be one stays.

use std::collections::{BTreeSet, HashMap, HashSet};

use goblin::elf::section_header::{
    SHT_DYNSYM, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_NOBITS, SHT_PREINIT_ARRAY, SHT_PROGBITS,
};

use super::company::{self, NEAR};
use super::{Immediate, MARKS, Pointers, entered, unmarked};
use crate::arch::Kind;
use crate::bytes::{read_u64, slice};
use crate::elf::{Program, Section};
use crate::layout::Layout;
use crate::patch::Patches;
use crate::text::Text;

/// Where the address of a function was found.
#[derive(Default)]
struct Found {
    /// Link-time addresses of aligned words.
    words: Vec<u64>,
    /// Function index and offset of plain immediates.
    immediates: Vec<(usize, u32)>,
    /// Taken by `lea`, which is how addresses are taken and nothing else.
    taken: bool,
    /// Called, jumped to, or entered in another way.
    called: bool,
    /// How many of the words may be numbers: they do not lie among pointers.
    strays: usize,
    /// Entries of `.dynsym` (file offsets) that export it.
    exported: Vec<u64>,
    /// Found in a place that is not understood.
    pinned: bool,
}

impl Found {
    fn movable(&self, addr: u64) -> bool {
        let places = self.words.len() + self.immediates.len();
        let proven = self.taken || (!self.called && places > 0);
        // With one place there is no doubt about which it is; a library may use an export.
        let certain = places <= 1 && !self.called && self.exported.is_empty();
        proven && !self.pinned && (certain || places == 0 || (!is_number(addr) && self.strays == 0))
    }

    /// Whether all words lie among the proven ones.
    fn among(&self, addr: u64, proven: &BTreeSet<u64>) -> bool {
        let near = |word: &u64| proven.range(word.saturating_sub(NEAR)..=word + NEAR).next().is_some();
        let doubtful = self.pinned || self.strays > 0 || is_number(addr);
        !doubtful && !self.words.is_empty() && self.words.iter().all(near)
    }
}

/// The addresses that can be redirected.
fn movable(found: &HashMap<u64, Found>, known_words: &[u64]) -> HashSet<u64> {
    let mut movable: HashSet<u64> =
        found.iter().filter(|(addr, f)| f.movable(**addr)).map(|(addr, _)| *addr).collect();
    let mut proven: BTreeSet<u64> = movable.iter().flat_map(|addr| &found[addr].words).copied().collect();
    proven.extend(known_words);
    loop {
        let more: Vec<u64> = found
            .iter()
            .filter(|(addr, f)| !movable.contains(addr) && f.among(**addr, &proven))
            .map(|(addr, _)| *addr)
            .collect();
        if more.is_empty() {
            return movable;
        }
        proven.extend(more.iter().flat_map(|addr| &found[addr].words));
        movable.extend(more);
    }
}

/// Adds to `out` what can be redirected.
pub(super) fn redirect(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    started: &HashSet<usize>,
    known_words: &[u64],
    patches: &mut Patches,
    out: &mut Pointers,
) {
    if program.sections.is_empty() {
        return;
    }
    let found = search(program, text, layout, started);
    for addr in &movable(&found, known_words) {
        let found = &found[addr];
        let Some(new) = layout.map(text, *addr).filter(|new| i32::try_from(*new).is_ok()) else { continue };
        out.moved.insert(*addr, new);
        for word in &found.words {
            let Some(at) = program.offset(*word) else { continue };
            patches.set_u64(at, new);
            out.words.push((*word, *addr));
        }
        for entry in &found.exported {
            patches.set_u64(entry + 8, new);
            out.exported.push(*entry);
        }
        out.immediates.extend(found.immediates.iter().map(|&(function, at)| Immediate {
            function,
            at,
            to: new,
        }));
    }
    out.words.sort_unstable();
}

fn search(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    started: &HashSet<usize>,
) -> HashMap<u64, Found> {
    let entries = layout.clones.iter().filter(|c| c.from == 0).map(|c| text.function(c.function).start);
    let mut found: HashMap<u64, Found> = entries.map(|addr| (addr, Found::default())).collect();
    let (low, high) = (found.keys().min().copied(), found.keys().max().copied());
    let (Some(low), Some(high)) = (low, high) else { return found };
    let near = |addr: u64| (low..=high.saturating_add(*MARKS.end())).contains(&addr);
    let known = known_outside(program);
    let entered = entered::otherwise(program, text, started);
    for (addr, found) in &mut found {
        found.pinned = known.contains(addr);
        found.called = text.functions.starting_at(*addr).is_some_and(|index| entered.contains(&index));
    }
    for (entry, value) in super::exported(program) {
        if let Some(found) = found.get_mut(&value) {
            found.exported.push(entry);
        }
    }
    for (n, f, decoded) in text.clean() {
        let taken = decoded.references.iter().filter(|r| r.kind == Kind::Address).map(|r| r.target);
        for addr in taken.chain(decoded.constants.iter().map(|c| c.value)).filter(|addr| near(*addr)) {
            pin_marked(text, &mut found, addr);
        }
        for r in decoded.references.iter().filter(|r| near(r.target)) {
            let Some(found) = found.get_mut(&r.target) else { continue };
            match r.kind {
                Kind::Call | Kind::Jump => found.called = true,
                // Its own address may be the base of an address computation.
                Kind::Address => {
                    found.taken = true;
                    found.pinned |= r.target == f.start;
                }
                Kind::Memory => found.pinned = true,
            }
        }
        for c in decoded.constants.iter().filter(|c| near(c.value)) {
            let Some(found) = found.get_mut(&c.value) else { continue };
            if c.plain {
                found.immediates.push((n, c.at));
            } else {
                found.pinned = true;
            }
        }
    }
    // Code that is not understood.
    for (start, bytes) in text.unknown(program) {
        for (n, window) in bytes.windows(4).enumerate() {
            let value = i32::from_le_bytes(window.try_into().expect("4 bytes"));
            let relative = start.wrapping_add(n as u64 + 4).wrapping_add_signed(i64::from(value));
            for addr in [relative, u64::from(value.cast_unsigned())] {
                if near(addr)
                    && let Some(found) = found.get_mut(&addr)
                {
                    found.pinned = true;
                }
            }
        }
    }
    for section in program.sections.iter().filter(|s| s.allocated() && !s.executable()) {
        match section.kind {
            SHT_NOBITS => {}
            SHT_DYNSYM => {
                for symbol in program.symbols(section).filter(|s| !s.is_function()) {
                    if let Some(found) = found.get_mut(&symbol.value) {
                        found.pinned = true;
                    }
                }
            }
            _ => data(program, text, section, &mut found, near),
        }
    }
    found
}

/// A pointer that carries a mark, if it is one, would not follow the function.
fn pin_marked(text: &Text, found: &mut HashMap<u64, Found>, value: u64) {
    for addr in unmarked(text, value) {
        if let Some(found) = found.get_mut(&addr) {
            found.pinned = true;
        }
    }
}

/// Every four bytes of a section.
fn data(
    program: &Program<'_>,
    text: &Text,
    section: &Section,
    found: &mut HashMap<u64, Found>,
    near: impl Fn(u64) -> bool,
) {
    let bytes = slice(program.bytes, section.offset, section.size).unwrap_or_default();
    // The other kinds, and unwind tables, are tables for somebody else.
    let holds_words =
        matches!(section.kind, SHT_PROGBITS | SHT_INIT_ARRAY | SHT_FINI_ARRAY | SHT_PREINIT_ARRAY)
            && ![".eh_frame", ".eh_frame_hdr", ".gcc_except_table"].contains(&section.name.as_str());
    for (n, window) in bytes.windows(4).enumerate() {
        let value = u64::from(u32::from_le_bytes(window.try_into().expect("4 bytes")));
        if !near(value) {
            continue;
        }
        let addr = section.addr + n as u64;
        let word = holds_words && addr.is_multiple_of(8) && read_u64(bytes, n as u64) == Some(value);
        if word {
            pin_marked(text, found, value);
        }
        let Some(found) = found.get_mut(&value) else { continue };
        if word {
            found.words.push(addr);
            found.strays += usize::from(!company::is_good(program, text, bytes, n as u64));
        } else {
            found.pinned = true;
        }
    }
}

/// Addresses that the headers, `.dynamic` or a relocation name.
fn known_outside(program: &Program<'_>) -> HashSet<u64> {
    let tags = program.dynamic.iter().map(|(_, value)| *value);
    let relative = program.relative_words().unwrap_or_default().into_iter().map(|word| word.target);
    tags.chain(relative).chain([program.entry]).collect()
}

/// Whether the address could as well be a text of up to four characters, or a number that people write: thousands, 4096ths.
fn is_number(addr: u64) -> bool {
    let bytes = addr.to_le_bytes();
    let len = bytes.iter().rposition(|b| *b != 0).map_or(0, |n| n + 1);
    let text = bytes[..len].iter().all(|b| (0x20..0x7f).contains(b) || matches!(b, b'\t' | b'\n' | b'\r'));
    text || addr.is_multiple_of(1000) || addr.is_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_among_pointers_is_one() {
        let called = |words: &[u64]| Found { called: true, words: words.to_vec(), ..Found::default() };
        let table = |second: Found| {
            let first = Found { words: vec![0x60_0000], ..Found::default() };
            movable(&HashMap::from([(0x40_1010, first), (0x40_2010, second)]), &[]).len()
        };
        assert_eq!(table(called(&[0x60_0010])), 2);
        assert_eq!(table(called(&[0x60_0010, 0x61_0000])), 1, "one of the words stands alone");
        assert_eq!(table(called(&[])), 1);
    }

    #[test]
    fn one_word_that_nothing_else_explains_is_the_pointer() {
        let word = |f: Found| Found { words: vec![8], ..f };
        assert!(word(Found::default()).movable(0x0045_4340), "even if it could be a text");
        assert!(!word(Found { called: true, ..Found::default() }).movable(0x0040_1010));
        assert!(word(Found { called: true, taken: true, ..Found::default() }).movable(0x0040_1010));
        assert!(!word(Found { pinned: true, ..Found::default() }).movable(0x0040_1010));
        assert!(!Found::default().movable(0x0040_1010), "nothing leads there that is known");
        let two = || Found { words: vec![8, 16], ..Found::default() };
        assert!(two().movable(0x0040_1010));
        assert!(!two().movable(0x0045_4340), "\"@CE\" may be a text");
        assert!(!Found { strays: 1, ..two() }.movable(0x0040_1010), "one of the two may be a number");
    }
}
