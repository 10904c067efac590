//! Jump tables: their entries are redirected in place, so that a `switch` in a clone, and in the original, goes on in the clone.
//!
//! Nothing depends on finding all entries: one that is missed leads to the original, which is the same code. What must not happen
//! is to change a word that is not an entry. A word counts as one when the function that takes the table's address has computed
//! jumps; when it and all words before it lead to instructions of that function (or of one it jumps to); when no
//! other reference of the program points to it; and when the range check, if there is one, lets its index through.

use std::collections::{BTreeSet, HashSet};

use crate::arch::{Decoded, Kind, TableHint};
use crate::bytes::{read_i32, read_u64, slice};
use crate::elf::Program;
use crate::layout::Layout;
use crate::patch::Patches;
use crate::text::Text;

/// A first word that fits by accident is as likely as 2^-22; two of them are not.
const FEWEST: usize = 2;

/// An entry that was redirected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Address of the table, and of the entry.
    pub(crate) table: u64,
    pub(crate) addr: u64,
    pub(crate) size: u64,
    /// Where it led before.
    pub(crate) target: u64,
}

/// Where the program's jump tables seem to lead: the function that has the table, and instructions of cleanly decoded functions.
pub(crate) fn targets(program: &Program<'_>, text: &Text) -> BTreeSet<(u64, usize)> {
    let mut out = BTreeSet::new();
    for (n, _, decoded) in text.clean() {
        let family = family(text, n, decoded);
        for hint in &decoded.tables {
            out.extend(entries(program, text, hint, &family).iter().map(|(_, target)| (*target, n)));
        }
    }
    out
}

/// The functions that a function's jump tables may lead to: itself, and those that it jumps to (its cold part).
fn family(text: &Text, function: usize, decoded: &Decoded) -> HashSet<usize> {
    let jumps = decoded.references.iter().filter(|r| r.kind == Kind::Jump);
    jumps.filter_map(|r| text.functions.find(r.target)).chain([function]).collect()
}

/// Redirects the entries of the clones' jump tables.
pub(crate) fn redirect(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    patches: &mut Patches,
) -> Vec<Entry> {
    let mut runs = Vec::new();
    for clone in &layout.clones {
        let Ok(decoded) = &text.decoded[clone.function] else { continue };
        let family = family(text, clone.function, decoded);
        for hint in &decoded.tables {
            let run = entries(program, text, hint, &family);
            let own = run.iter().filter(|(_, t)| text.functions.find(*t) == Some(clone.function)).count();
            if run.len() >= FEWEST && own >= FEWEST {
                runs.push((*hint, run));
            }
        }
    }
    let ends = referenced(program, text, &runs);
    let mut edited = Vec::new();
    for (hint, run) in runs {
        let cut = (1..run.len()).find(|n| ends.contains(&(hint.addr + *n as u64 * hint.entry_size)));
        let run = &run[..cut.unwrap_or(run.len())];
        if run.len() < FEWEST {
            continue;
        }
        for (n, (at, target)) in run.iter().enumerate() {
            let Some(new) = layout.map(text, *target) else { continue };
            if hint.entry_size == 8 {
                patches.set_u64(*at, new);
            } else if let Some(offset) = crate::bytes::displacement(hint.addr, new) {
                patches.set_i32(*at, offset);
            } else {
                continue;
            }
            let addr = hint.addr + n as u64 * hint.entry_size;
            edited.push(Entry { table: hint.addr, addr, size: hint.entry_size, target: *target });
        }
    }
    edited
}

/// The words from the table's start on that lead to instructions of the family: file offset, target.
fn entries(program: &Program<'_>, text: &Text, hint: &TableHint, family: &HashSet<usize>) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    // A word of 8 bytes in a position-independent program is a relocation's business.
    if (hint.entry_size == 8 && program.position_independent) || program.is_code_section(hint.addr) {
        return out;
    }
    let limit = hint.limit.unwrap_or(u64::MAX);
    let mut addr = hint.addr;
    while (out.len() as u64) < limit {
        let Some(at) = program.offset(addr) else { break };
        let target = if hint.entry_size == 8 {
            read_u64(program.bytes, at)
        } else {
            read_i32(program.bytes, at).map(|v| hint.addr.wrapping_add_signed(i64::from(v)))
        };
        match target.and_then(|t| Some((t, text.instruction(t)?.0))) {
            Some((target, function)) if family.contains(&function) => out.push((at, target)),
            _ => break,
        }
        addr += hint.entry_size;
    }
    out
}

/// The addresses inside the runs that anything else in the program refers to: an operand or a relocation; elsewhere in the code
/// any four bytes, in data any aligned word that could be the address.
fn referenced(program: &Program<'_>, text: &Text, runs: &[(TableHint, Vec<(u64, u64)>)]) -> HashSet<u64> {
    let wanted: HashSet<u64> = runs
        .iter()
        .flat_map(|(hint, run)| (1..run.len() as u64).map(|n| hint.addr + n * hint.entry_size))
        .collect();
    let (Some(low), Some(high)) = (wanted.iter().min().copied(), wanted.iter().max().copied()) else {
        return HashSet::new();
    };
    let mut found = HashSet::new();
    let mut note = |addr: u64| {
        if (low..=high).contains(&addr) && wanted.contains(&addr) {
            found.insert(addr);
        }
    };
    for r in text.clean().flat_map(|(_, _, decoded)| &decoded.references) {
        note(r.target);
    }
    for (start, bytes) in text.unknown(program) {
        for (n, window) in bytes.windows(4).enumerate() {
            let value = i64::from(i32::from_le_bytes(window.try_into().expect("4 bytes")));
            // The displacement ends the instruction, or an immediate of 1, 2 or 4 bytes follows.
            for size in [4, 5, 6, 8] {
                note(start.wrapping_add(n as u64 + size).wrapping_add_signed(value));
            }
        }
    }
    for s in program.loads() {
        let Some(bytes) = slice(program.bytes, s.offset, s.file_size) else { continue };
        if s.executable() && !program.position_independent {
            for window in bytes.windows(4) {
                note(i64::from(i32::from_le_bytes(window.try_into().expect("4 bytes"))) as u64);
            }
        }
        let skip = (s.addr.wrapping_neg() % 8) as usize;
        for word in bytes.get(skip..).unwrap_or_default().chunks_exact(8) {
            note(u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
    }
    for word in program.relative_words().unwrap_or_default() {
        note(word.target);
    }
    found
}
