//! Function pointers. Programs compare them, so that one function must not be seen under two addresses: all references to an
//! address are redirected to the clone, or none.
//!
//! In a position-independent program the references are known: every pointer in data is a relocation, an exported function is
//! an entry of `.dynsym`, and the code takes addresses with `lea`. What is not decoded is searched byte by byte: an address
//! that any four bytes there could stand for stays where it is. In a program that is not position-independent a pointer looks like a
//! number: there words whose use is known are redirected (initialisers, vtables, `main`), and what `absolute` proves.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};

mod absolute;
mod company;
mod entered;

use crate::Untreatable;
use crate::arch::{self, Kind};
use crate::bytes::{read_i32, read_u64};
use crate::elf::Program;
use crate::layout::Layout;
use crate::patch::Patches;
use crate::text::Text;

/// What programs add to pointers, to keep a mark in the low bits.
const MARKS: RangeInclusive<u64> = 1..=7;
/// `DT_INIT_ARRAY`, `DT_FINI_ARRAY`, `DT_PREINIT_ARRAY`, each with the tag of its size.
const INITIALISERS: [(u64, u64); 3] = [(25, 27), (26, 28), (32, 33)];

/// Which addresses were redirected, and the words that change for it.
#[derive(Default)]
pub(crate) struct Pointers {
    /// Old address to new one, for every address all references to which are redirected.
    pub(crate) moved: HashMap<u64, u64>,
    /// Without position independence: functions that some word whose use is known leads to.
    pub(crate) known: HashSet<u64>,
    /// Entries of `.dynsym` (file offsets) that have to name the clones' section.
    pub(crate) exported: Vec<u64>,
    /// Absolute addresses in instructions.
    pub(crate) immediates: Vec<Immediate>,
    /// Words of data that hold an address of `moved` without a relocation: link-time address of the word, and what it held.
    pub(crate) words: Vec<(u64, u64)>,
}

/// A 32-bit immediate that becomes a clone's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Immediate {
    /// Index of the function that holds it, and offset there.
    pub(crate) function: usize,
    pub(crate) at: u32,
    /// The address that it becomes.
    pub(crate) to: u64,
}

impl Pointers {
    /// The immediates of a function.
    pub(crate) fn immediates_of(&self, function: usize) -> impl Iterator<Item = &Immediate> {
        let first = self.immediates.partition_point(|i| i.function < function);
        self.immediates[first..].iter().take_while(move |i| i.function == function)
    }
}

impl Pointers {
    /// `started` are the functions whose first instruction was seen to run.
    pub(crate) fn redirect(
        program: &Program<'_>,
        text: &Text,
        layout: &Layout,
        started: &HashSet<usize>,
        patches: &mut Patches,
    ) -> Result<Self, Untreatable> {
        let words = program.relative_words().ok_or(Untreatable::TextRelocations)?;
        let mut out = Self::default();
        if program.position_independent {
            if program.sections.is_empty() {
                // The exported symbols cannot be counted.
                return Ok(out);
            }
            let exported = exported(program);
            let mut referenced: HashSet<u64> = words.iter().map(|w| w.target).collect();
            referenced.extend(exported.iter().map(|(_, value)| *value));
            referenced.extend(addresses_taken(text).map(|(_, target)| target));
            out.moved = movable(program, text, layout, &referenced);
            for word in &words {
                if let Some(new) = out.moved.get(&word.target) {
                    patches.set_u64(word.at, *new);
                    if let Some(at) = word.in_place {
                        patches.set_u64(at, *new);
                    }
                }
            }
            for (entry, value) in exported {
                if let Some(new) = out.moved.get(&value) {
                    patches.set_u64(entry + 8, *new);
                    if let Some(size) = layout.size_in_fragments(text, value) {
                        patches.set_u64(entry + 16, size);
                    }
                    out.exported.push(entry);
                }
            }
        } else {
            let mut vtables = Vec::new();
            for word in known_words(program) {
                let Some(at) = program.offset(word) else { continue };
                let entry =
                    read_u64(program.bytes, at).filter(|addr| text.functions.starting_at(*addr).is_some());
                if entry.is_some() {
                    vtables.push(word);
                }
                let Some((addr, new)) = entry.and_then(|addr| Some((addr, layout.map(text, addr)?))) else {
                    continue;
                };
                patches.set_u64(at, new);
                out.known.insert(addr);
            }
            absolute::redirect(program, text, layout, started, &vtables, patches, &mut out);
            if let Some(main) = main_argument(program, text, layout)
                && !out.immediates.iter().any(|i| (i.function, i.at) == (main.function, main.at))
            {
                out.immediates.push(main);
            }
            out.immediates.sort_unstable_by_key(|i| (i.function, i.at));
        }
        Ok(out)
    }
}

/// The addresses that a value could be with a mark; none if it is a function's own. (Small functions lie at any address, so that any
/// may carry one.)
fn unmarked(text: &Text, value: u64) -> impl Iterator<Item = u64> {
    let marks = MARKS.filter(move |_| text.functions.starting_at(value).is_none());
    marks.filter_map(move |mark| value.checked_sub(mark))
}

/// `lea` operands of cleanly decoded functions: function index and target.
fn addresses_taken(text: &Text) -> impl Iterator<Item = (usize, u64)> + '_ {
    text.clean().flat_map(|(n, _, d)| {
        d.references.iter().filter(|r| r.kind == Kind::Address).map(move |r| (n, r.target))
    })
}

/// Of the referenced addresses, those that are copied and whose references are all understood.
fn movable(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    referenced: &HashSet<u64>,
) -> HashMap<u64, u64> {
    let mut moved: HashMap<u64, u64> =
        referenced.iter().filter_map(|addr| Some((*addr, layout.map(text, *addr)?))).collect();
    for (function, target) in addresses_taken(text) {
        // The address of a label, or of the function itself, may be the base of an address computation (the large code model,
        // hand-written code).
        let entry = text.functions.starting_at(target);
        if entry.is_none() || entry == Some(function) {
            moved.remove(&target);
        }
    }
    // A pointer that carries a mark in its low bits, if it is one, would not follow the function.
    for addr in referenced.iter().flat_map(|addr| unmarked(text, *addr)) {
        moved.remove(&addr);
    }
    // The linker makes `__start_NAME` and `__stop_NAME` for sections whose name is an identifier; the end of one may be the
    // start of the next.
    let identifier = |name: &str| !name.is_empty() && !name.contains('.');
    if program.sections.iter().any(|s| s.executable() && identifier(&s.name)) {
        for s in &program.sections {
            moved.remove(&s.addr);
        }
    }
    for (start, bytes) in text.unknown(program) {
        for (n, window) in bytes.windows(4).enumerate() {
            let value = i32::from_le_bytes(window.try_into().expect("4 bytes"));
            moved.remove(&start.wrapping_add(n as u64 + 4).wrapping_add_signed(i64::from(value)));
        }
    }
    moved
}

/// Functions in `.dynsym`: file offset of the entry, value.
fn exported(program: &Program<'_>) -> Vec<(u64, u64)> {
    let Some(table) = program.sections.iter().find(|s| s.kind == SHT_DYNSYM) else { return Vec::new() };
    program.symbols(table).filter(crate::elf::Symbol::is_function).map(|s| (s.entry, s.value)).collect()
}

/// Addresses of words whose use is known: they are called, and never compared.
fn known_words(program: &Program<'_>) -> Vec<u64> {
    let mut words = Vec::new();
    let mut range = |start: u64, size: u64| {
        if program.at(start, size).is_some() {
            words.extend((0..size / 8).map(|i| start + i * 8));
        }
    };
    for (addr, size) in INITIALISERS {
        if let (Some(addr), Some(size)) = (program.tag(addr), program.tag(size)) {
            range(addr, size);
        }
    }
    for name in [".preinit_array", ".init_array", ".fini_array"] {
        if let Some(s) = program.section(name) {
            range(s.addr, s.size);
        }
    }
    // STT_OBJECT named as the C++ ABI names vtables: pointers to functions, small offsets and a pointer to data.
    for table in program.sections.iter().filter(|s| matches!(s.kind, SHT_SYMTAB | SHT_DYNSYM)) {
        let Some(strings) = program.sections.get(table.link as usize) else { continue };
        for s in program.symbols(table).filter(|s| s.info & 15 == 1 && s.section != 0) {
            if program.string(strings, s.name).is_some_and(|n| n.starts_with("_ZTV") || n.starts_with("_ZTC"))
            {
                range(s.value, s.size);
            }
        }
    }
    words.sort_unstable();
    words.dedup();
    words
}

/// `_start` hands `main` to the C library, which calls it.
fn main_argument(program: &Program<'_>, text: &Text, layout: &Layout) -> Option<Immediate> {
    let start = text.functions.starting_at(program.entry)?;
    text.decoded[start].as_ref().ok()?;
    let f = text.function(start);
    let code = program.at(f.start, f.len)?;
    let (at, main) = arch::is_main_argument(code, f.start)?;
    text.functions.starting_at(main)?;
    let new = layout.map(text, main)?;
    // The immediate is sign-extended or zero-extended; below 2 GB both are the same.
    (i32::try_from(new).is_ok() && read_i32(code, u64::from(at)).is_some()).then_some(Immediate {
        function: start,
        at,
        to: new,
    })
}
