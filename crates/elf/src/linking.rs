//! Which words of a program take the load bias: its relative relocations, brought into the form in which whoever installs a
//! page applies them (page-in linking). Everything else, symbols and `IRELATIVE`, is left to the dynamic linker, which is
//! told so in the dynamic section: tables begin behind the entries that are applied, or are empty.
//!
//! Sources: x86-64 psABI, table 4.9 (`R_X86_64_RELATIVE`); generic ABI, chapter 4, "Relative Relocation Table" (`DT_RELR`);
//! `DT_RELACOUNT` and that the relative entries come first is a convention of GNU ld (`-z combreloc`) that all linkers follow.

use std::collections::BTreeMap;

use pagein_image::{FileOffset, LinkedPage, LinkedPages, Linking, NotLinked, PAGE_SIZE, PageNo, WORD};

use crate::dynamic::Dynamic;
use crate::program::{Kind, Program, VirtAddr};

/// Bytes of an `Elf64_Rela`: address, type and symbol, addend.
const RELA: u64 = 24;
/// `R_X86_64_RELATIVE` without a symbol.
const RELATIVE: u64 = 8;

/// All pages of a program that page-in linking changes, in linked form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPlan {
    pages: BTreeMap<PageNo, LinkedPage>,
    relocations: u64,
}

impl LinkPlan {
    /// Finds the relative relocations of `file`, a whole program. All of them can be applied at page-in, or the program
    /// is left as it is.
    pub fn new(file: &[u8], program: &Program) -> Result<Self, NotLinked> {
        if program.kind == Kind::Fixed {
            return Err(NotLinked::Fixed);
        }
        let dynamic = Dynamic::read(file, program)?.ok_or(NotLinked::NothingToDo)?;
        if dynamic.text_relocations {
            return Err(NotLinked::ReadOnly);
        }
        let mut words = Words { program, shared: shared_bytes(program), pages: BTreeMap::new() };
        words.rela(file, &dynamic)?;
        words.relr(file, &dynamic)?;
        let relocations: usize = words.pages.values().map(|page| page.relative.len()).sum();
        if relocations == 0 {
            return Err(NotLinked::NothingToDo);
        }
        let pages = words.pages.into_iter().map(|(number, changes)| {
            let page = linked_page(file, number, &changes).ok_or(NotLinked::Unforeseen)?;
            Ok((number, page))
        });
        Ok(Self { pages: pages.collect::<Result<_, _>>()?, relocations: relocations as u64 })
    }

    /// A page that is changed.
    pub fn page(&self, page: PageNo) -> Option<&LinkedPage> {
        self.pages.get(&page)
    }

    /// All pages that are changed, ascending.
    pub fn pages(&self) -> impl Iterator<Item = (PageNo, &LinkedPage)> {
        self.pages.iter().map(|(number, page)| (*number, page))
    }

    /// What the manifest says of it.
    pub fn linking(&self) -> Linking {
        let pages: LinkedPages = self.pages.keys().copied().collect();
        Linking::On { pages, relocations: self.relocations }
    }
}

#[derive(Default)]
struct Changes {
    /// Word in the page, addend.
    relative: BTreeMap<u16, u64>,
    /// Word of the dynamic section, its new value.
    patched: BTreeMap<u16, u64>,
}

/// Collects what is to be changed, and refuses what a page-wise loader would get wrong.
struct Words<'a> {
    program: &'a Program,
    /// Parts of the file that two segments hold: each has a copy of its own in memory, and only one of them is relocated.
    shared: Vec<std::ops::Range<u64>>,
    pages: BTreeMap<PageNo, Changes>,
}

impl Words<'_> {
    /// The relative entries at the beginning of `DT_RELA`.
    fn rela(&mut self, file: &[u8], dynamic: &Dynamic) -> Result<(), NotLinked> {
        let (Some(table), Some(size)) = (dynamic.rela, dynamic.rela_size) else { return Ok(()) };
        let mut count = 0;
        while count < size.value / RELA {
            let word = |n: u64| {
                let at = table.value.checked_add(count * RELA + n * 8)?;
                self.program.word_at(file, at)
            };
            let (Some(address), Some(info), Some(addend)) = (word(0), word(1), word(2)) else {
                return Err(NotLinked::Malformed);
            };
            if info != RELATIVE {
                break;
            }
            self.relative(address, addend)?;
            count += 1;
        }
        if dynamic.rela_count.is_some_and(|said| said.value > count) {
            return Err(NotLinked::Malformed);
        }
        if count == 0 {
            return Ok(());
        }
        // The end of the table stays where it is: a dynamic linker may join it with `DT_JMPREL`, which follows.
        self.patch(table.at, table.value + count * RELA)?;
        self.patch(size.at, size.value - count * RELA)?;
        dynamic.rela_count.map_or(Ok(()), |said| self.patch(said.at, 0))
    }

    /// All of `DT_RELR`: an even word is the address of a word to be relocated; an odd one a bitmap for the 63 words after the
    /// last, from bit 1 on. The addends are in place.
    fn relr(&mut self, file: &[u8], dynamic: &Dynamic) -> Result<(), NotLinked> {
        let (Some(table), Some(size)) = (dynamic.relr, dynamic.relr_size) else { return Ok(()) };
        let mut next = 0u64;
        for n in 0..size.value / 8 {
            let at = table.value.checked_add(n * 8).ok_or(NotLinked::Malformed)?;
            let entry = self.program.word_at(file, at).ok_or(NotLinked::Malformed)?;
            if entry & 1 == 0 {
                self.in_place(file, entry)?;
                next = entry.checked_add(8).ok_or(NotLinked::Malformed)?;
                continue;
            }
            for bit in (1..64).filter(|bit| entry >> bit & 1 != 0) {
                self.in_place(file, next.checked_add((bit - 1) * 8).ok_or(NotLinked::Malformed)?)?;
            }
            next = next.checked_add(63 * 8).ok_or(NotLinked::Malformed)?;
        }
        if size.value > 0 { self.patch(size.at, 0) } else { Ok(()) }
    }

    fn in_place(&mut self, file: &[u8], address: u64) -> Result<(), NotLinked> {
        let addend = self.program.word_at(file, address).ok_or(NotLinked::Malformed)?;
        self.relative(address, addend)
    }

    fn relative(&mut self, address: u64, addend: u64) -> Result<(), NotLinked> {
        let (page, word, writable) = self.place(address)?;
        if !writable {
            return Err(NotLinked::ReadOnly);
        }
        let changes = self.pages.entry(page).or_default();
        if changes.relative.insert(word, addend).is_some() {
            return Err(NotLinked::Twice);
        }
        Ok(())
    }

    fn patch(&mut self, address: u64, value: u64) -> Result<(), NotLinked> {
        // In any segment: some linkers make the dynamic section read-only.
        let (page, word, _) = self.place(address)?;
        let changes = self.pages.entry(page).or_default();
        changes.patched.insert(word, value);
        // What is relocated must not be what says that it is.
        if changes.relative.contains_key(&word) { Err(NotLinked::Malformed) } else { Ok(()) }
    }

    /// Page and word of an address whose bytes come from the file, and whether the program may write there.
    fn place(&self, address: u64) -> Result<(PageNo, u16, bool), NotLinked> {
        if !address.is_multiple_of(WORD as u64) {
            return Err(NotLinked::Unaligned);
        }
        let (offset, writable) = self.program.file_place(address, WORD as u64).ok_or(NotLinked::Malformed)?;
        if self.shared.iter().any(|shared| offset.0 < shared.end && offset.0 + WORD as u64 > shared.start) {
            return Err(NotLinked::Twice);
        }
        // Where two segments share a page of memory, only the later one's is there.
        if self.program.page_at(VirtAddr(address)) != Some(offset.page()) {
            return Err(NotLinked::Malformed);
        }
        Ok((offset.page(), (offset.0 as usize % PAGE_SIZE / WORD) as u16, writable))
    }
}

fn linked_page(file: &[u8], number: PageNo, changes: &Changes) -> Option<LinkedPage> {
    let start = number.offset().0 as usize;
    let mut page = file[start..file.len().min(start + PAGE_SIZE)].to_vec();
    page.resize(PAGE_SIZE, 0);
    let list =
        |words: &BTreeMap<u16, u64>| words.iter().map(|(&word, &value)| (word, value)).collect::<Vec<_>>();
    LinkedPage::new(&page, &list(&changes.relative), &list(&changes.patched))
}

fn shared_bytes(program: &Program) -> Vec<std::ops::Range<u64>> {
    let mut ranges: Vec<_> = program
        .segments
        .iter()
        .map(|segment| segment.offset.0..segment.offset.0 + segment.file_size)
        .collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut shared = Vec::new();
    let mut end = 0;
    for range in ranges {
        if range.start < end {
            shared.push(range.start..range.end.min(end));
        }
        end = end.max(range.end);
    }
    shared
}

impl Program {
    /// Where in the file the `len` bytes at `address` are, and whether they may be written to. `None` if they do not all come
    /// from one segment of the file.
    pub(crate) fn file_place(&self, address: u64, len: u64) -> Option<(FileOffset, bool)> {
        let end = address.checked_add(len)?;
        let holds = |s: &&crate::Segment| s.vaddr.0 <= address && end <= s.vaddr.0 + s.file_size;
        let segment = self.segments.iter().find(holds)?;
        Some((FileOffset(address - segment.vaddr.0 + segment.offset.0), segment.permissions[1]))
    }

    /// The word at `address`, as the file has it.
    pub(crate) fn word_at(&self, file: &[u8], address: u64) -> Option<u64> {
        let (offset, _) = self.file_place(address, 8)?;
        let bytes = file.get(offset.0 as usize..offset.0 as usize + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }
}
