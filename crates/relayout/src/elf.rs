//! An ELF64 little-endian program for x86-64: header, segments, sections, dynamic section, symbols. Read only, nothing is
//! copied; every read is bounds-checked, because the input may be any file.

use goblin::elf::dynamic::{DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_TEXTREL};
use goblin::elf::header::{EM_X86_64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::{PF_W, PF_X, PT_DYNAMIC, PT_LOAD};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_NULL, SHT_SYMTAB};

use crate::Untreatable;
use crate::bytes::{read_u16, read_u32, read_u64, slice};

pub(crate) const EHDR_SIZE: u64 = 64;
pub(crate) const PHDR_SIZE: u64 = 56;
pub(crate) const SHDR_SIZE: u64 = 64;
pub(crate) const SYM_SIZE: u64 = 24;
const RELA_SIZE: u64 = 24;
/// `R_X86_64_RELATIVE`: the word becomes load bias + addend.
const R_RELATIVE: u32 = 8;
/// `R_X86_64_IRELATIVE`: the addend is the address of a resolver, which is called.
const R_IRELATIVE: u32 = 37;
const DF_TEXTREL: u64 = 4;
/// Generic ABI, "Relative Relocation Table" (goblin has no names for these).
const DT_RELR: u64 = 36;
const DT_RELRSZ: u64 = 35;

/// Whether a range ends where addresses of programs and sizes of files can be (user space ends below 2^56), so that the
/// arithmetic on it cannot overflow.
fn in_reach(start: u64, len: u64) -> bool {
    start.checked_add(len).is_some_and(|end| end < 1 << 56)
}

/// One entry of the program header table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) addr: u64,
    pub(crate) file_size: u64,
    pub(crate) mem_size: u64,
    pub(crate) align: u64,
}

impl Segment {
    fn parse(bytes: &[u8], at: u64) -> Option<Self> {
        let s = Self {
            kind: read_u32(bytes, at)?,
            flags: read_u32(bytes, at + 4)?,
            offset: read_u64(bytes, at + 8)?,
            addr: read_u64(bytes, at + 16)?,
            file_size: read_u64(bytes, at + 32)?,
            mem_size: read_u64(bytes, at + 40)?,
            align: read_u64(bytes, at + 48)?,
        };
        (in_reach(s.addr, s.mem_size) && in_reach(s.offset, s.file_size)).then_some(s)
    }

    pub(crate) fn encode(&self) -> [u8; PHDR_SIZE as usize] {
        let mut out = [0; PHDR_SIZE as usize];
        out[..4].copy_from_slice(&self.kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.flags.to_le_bytes());
        let words = [self.offset, self.addr, self.addr, self.file_size, self.mem_size, self.align];
        for (word, out) in words.iter().zip(out[8..].chunks_exact_mut(8)) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub(crate) fn executable(&self) -> bool {
        self.kind == PT_LOAD && self.flags & PF_X != 0
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        addr.checked_sub(self.addr).is_some_and(|off| off < self.mem_size)
    }
}

/// One entry of the section header table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entry_size: u64,
}

impl Section {
    pub(crate) fn encode(&self, name: u32) -> [u8; SHDR_SIZE as usize] {
        let mut out = Vec::with_capacity(SHDR_SIZE as usize);
        out.extend(name.to_le_bytes());
        out.extend(self.kind.to_le_bytes());
        for word in [self.flags, self.addr, self.offset, self.size] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.link.to_le_bytes());
        out.extend(self.info.to_le_bytes());
        out.extend(self.align.to_le_bytes());
        out.extend(self.entry_size.to_le_bytes());
        out.try_into().expect("10 fields make 64 bytes")
    }

    pub(crate) fn allocated(&self) -> bool {
        self.flags & u64::from(SHF_ALLOC) != 0
    }

    pub(crate) fn executable(&self) -> bool {
        self.allocated() && self.flags & u64::from(SHF_EXECINSTR) != 0
    }

    pub(crate) fn contains(&self, addr: u64) -> bool {
        addr.checked_sub(self.addr).is_some_and(|off| off < self.size)
    }
}

/// One symbol of `.symtab` or `.dynsym`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    /// File offset of the entry.
    pub(crate) entry: u64,
    pub(crate) name: u32,
    pub(crate) info: u8,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
}

impl Symbol {
    pub(crate) fn is_function(&self) -> bool {
        matches!(self.info & 15, 2 | 10) && self.section != 0
    }
}

/// A word that the dynamic linker makes a pointer to `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RelativeWord {
    /// File offset of the 8 bytes that hold the link-time address of the target: the addend of a RELA entry, or the word
    /// itself for RELR.
    pub(crate) at: u64,
    pub(crate) target: u64,
    /// File offset of the word that a RELA entry relocates, if it holds the target as well. The dynamic linker does not read it; but
    /// GNU ld writes it, and page-in linking stores every word that is not what the relocation says (`pagein-image`, `linking.rs`).
    pub(crate) in_place: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) bytes: &'a [u8],
    /// `ET_DYN`: every pointer in data is a relocation.
    pub(crate) position_independent: bool,
    pub(crate) entry: u64,
    pub(crate) ph_offset: u64,
    pub(crate) sh_offset: u64,
    pub(crate) sh_names: u16,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
    pub(crate) dynamic: Vec<(u64, u64)>,
}

impl<'a> Program<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Untreatable> {
        const MALFORMED: fn(&'static str) -> Untreatable = Untreatable::Malformed;
        let identity = slice(bytes, 0, EHDR_SIZE).ok_or(Untreatable::NotElf)?;
        // EI_CLASS 2 is 64 bits, EI_DATA 1 is little-endian.
        if identity[..4] != *b"\x7fELF" || identity[4..6] != [2, 1] {
            return Err(Untreatable::NotElf);
        }
        let half = |at| read_u16(bytes, at).ok_or(Untreatable::NotElf);
        let word = |at| read_u64(bytes, at).ok_or(Untreatable::NotElf);
        if half(18)? != EM_X86_64 {
            return Err(Untreatable::Machine(half(18)?));
        }
        let position_independent = match half(16)? {
            ET_EXEC => false,
            ET_DYN => true,
            other => return Err(Untreatable::FileType(other)),
        };
        if half(54)? != PHDR_SIZE as u16 {
            return Err(MALFORMED("the program header size is not 56"));
        }
        let (ph_offset, sh_offset) = (word(32)?, word(40)?);
        let segments = (0..u64::from(half(56)?))
            .map(|i| Segment::parse(bytes, ph_offset.checked_add(i * PHDR_SIZE)?))
            .collect::<Option<Vec<_>>>()
            .ok_or(MALFORMED("the program headers lie outside the file"))?;
        for s in segments.iter().filter(|s| s.kind == PT_LOAD) {
            if slice(bytes, s.offset, s.file_size).is_none() || s.file_size > s.mem_size {
                return Err(MALFORMED("a loadable segment lies outside the file"));
            }
            if s.flags & (PF_W | PF_X) == PF_W | PF_X {
                return Err(Untreatable::WritableText);
            }
        }
        let loads: Vec<_> = segments.iter().filter(|s| s.kind == PT_LOAD).collect();
        if loads.windows(2).any(|w| w[1].addr < w[0].addr + w[0].mem_size) {
            return Err(MALFORMED("loadable segments overlap or are not in ascending order"));
        }
        let sections = parse_sections(bytes, sh_offset, half(60)?, half(62)?)
            .ok_or(MALFORMED("the section headers lie outside the file"))?;
        let mut program = Self {
            bytes,
            position_independent,
            entry: word(24)?,
            ph_offset,
            sh_offset,
            sh_names: half(62)?,
            segments,
            sections,
            dynamic: Vec::new(),
        };
        program.dynamic = program.parse_dynamic();
        Ok(program)
    }

    fn parse_dynamic(&self) -> Vec<(u64, u64)> {
        let Some(s) = self.segments.iter().find(|s| s.kind == PT_DYNAMIC) else { return Vec::new() };
        let Some(table) = slice(self.bytes, s.offset, s.file_size) else { return Vec::new() };
        (0..s.file_size / 16)
            .filter_map(|i| Some((read_u64(table, i * 16)?, read_u64(table, i * 16 + 8)?)))
            .take_while(|(tag, _)| *tag != 0)
            .collect()
    }

    pub(crate) fn tag(&self, tag: u64) -> Option<u64> {
        self.dynamic.iter().find(|(t, _)| *t == tag).map(|(_, value)| *value)
    }

    pub(crate) fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|s| s.kind == PT_LOAD)
    }

    /// File offset of an address, if the file holds it.
    pub(crate) fn offset(&self, addr: u64) -> Option<u64> {
        self.loads().find_map(|s| {
            let into = addr.checked_sub(s.addr)?;
            (into < s.file_size).then(|| s.offset + into)
        })
    }

    /// The bytes at an address, all in one segment's file part.
    pub(crate) fn at(&self, addr: u64, len: u64) -> Option<&'a [u8]> {
        self.loads().find_map(|s| {
            let into = addr.checked_sub(s.addr)?;
            if into.checked_add(len)? > s.file_size {
                return None;
            }
            slice(self.bytes, s.offset + into, len)
        })
    }

    pub(crate) fn is_code(&self, addr: u64) -> bool {
        self.segments.iter().any(|s| s.executable() && s.contains(addr))
    }

    /// Like [`Self::is_code`], but knows the read-only data that old linkers put into the executable segment.
    pub(crate) fn is_code_section(&self, addr: u64) -> bool {
        self.is_code(addr) && self.section_at(addr).is_none_or(Section::executable)
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|s| s.name == name)
    }

    pub(crate) fn section_at(&self, addr: u64) -> Option<&Section> {
        self.sections.iter().find(|s| s.allocated() && s.kind != SHT_NOBITS && s.contains(addr))
    }

    /// Relocations in the text: the code itself holds absolute addresses that the dynamic linker changes.
    pub(crate) fn has_text_relocations(&self) -> bool {
        // DT_FLAGS is 30.
        self.tag(DT_TEXTREL).is_some() || self.tag(30).is_some_and(|flags| flags & DF_TEXTREL != 0)
    }

    pub(crate) fn symbols(&self, table: &Section) -> impl Iterator<Item = Symbol> + use<'a> {
        let (bytes, start) = (self.bytes, table.offset);
        let count = if slice(bytes, start, table.size).is_some() { table.size / SYM_SIZE } else { 0 };
        (0..count).filter_map(move |i| {
            let at = start + i * SYM_SIZE;
            let info = slice(bytes, at + 4, 1)?[0];
            let (name, section) = (read_u32(bytes, at)?, read_u16(bytes, at + 6)?);
            Some(Symbol {
                entry: at,
                name,
                info,
                section,
                value: read_u64(bytes, at + 8)?,
                size: read_u64(bytes, at + 16)?,
            })
        })
    }

    pub(crate) fn symbol_table(&self) -> Option<(usize, &Section)> {
        self.sections.iter().enumerate().find(|(_, s)| s.kind == SHT_SYMTAB)
    }

    pub(crate) fn string(&self, table: &Section, index: u32) -> Option<&'a str> {
        let bytes = slice(self.bytes, table.offset, table.size)?;
        string_at(bytes, index)
    }

    /// Every word that the dynamic linker fills with bias + a link-time address: RELATIVE and IRELATIVE entries of `DT_RELA` and
    /// `DT_JMPREL`, and `DT_RELR`.
    pub(crate) fn relative_words(&self) -> Option<Vec<RelativeWord>> {
        let mut words = Vec::new();
        for (table, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let (Some(addr), Some(size)) = (self.tag(table), self.tag(size)) else { continue };
            if size == 0 {
                continue;
            }
            let entries = self.at(addr, size)?;
            let start = self.offset(addr)?;
            for i in 0..size / RELA_SIZE {
                let word = read_u64(entries, i * RELA_SIZE)?;
                if self.is_code(word) {
                    return None;
                }
                if matches!(read_u64(entries, i * RELA_SIZE + 8)? as u32, R_RELATIVE | R_IRELATIVE) {
                    let addend = i * RELA_SIZE + 16;
                    let target = read_u64(entries, addend)?;
                    let in_place = self.offset(word).filter(|at| read_u64(self.bytes, *at) == Some(target));
                    words.push(RelativeWord { at: start + addend, target, in_place });
                }
            }
        }
        if let (Some(addr), Some(size @ 1..)) = (self.tag(DT_RELR), self.tag(DT_RELRSZ)) {
            for word in relr_addresses(self.at(addr, size)?) {
                let at = self.offset(word)?;
                if self.is_code(word) {
                    return None;
                }
                words.push(RelativeWord { at, target: read_u64(self.bytes, at)?, in_place: None });
            }
        }
        Some(words)
    }
}

/// Addresses in a RELR table (generic ABI, "Relative Relocation Table"): an even entry is an address, an odd one a bitmap of the
/// 63 words that follow.
fn relr_addresses(table: &[u8]) -> Vec<u64> {
    let mut out = Vec::new();
    let mut base = 0u64;
    for entry in table.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))) {
        if entry & 1 == 0 {
            out.push(entry);
            base = entry.wrapping_add(8);
        } else {
            out.extend(
                (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1).map(|bit| base.wrapping_add(bit * 8)),
            );
            base = base.wrapping_add(63 * 8);
        }
    }
    out
}

fn string_at(table: &[u8], index: u32) -> Option<&str> {
    let rest = table.get(index as usize..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|b| *b == 0)?]).ok()
}

fn parse_sections(bytes: &[u8], start: u64, count: u16, names: u16) -> Option<Vec<Section>> {
    if start == 0 || count == 0 {
        return Some(Vec::new());
    }
    let mut sections = Vec::with_capacity(usize::from(count));
    let mut name_offsets = Vec::with_capacity(usize::from(count));
    for i in 0..u64::from(count) {
        let at = start.checked_add(i * SHDR_SIZE)?;
        name_offsets.push(read_u32(bytes, at)?);
        let s = Section {
            name: String::new(),
            kind: read_u32(bytes, at + 4)?,
            flags: read_u64(bytes, at + 8)?,
            addr: read_u64(bytes, at + 16)?,
            offset: read_u64(bytes, at + 24)?,
            size: read_u64(bytes, at + 32)?,
            link: read_u32(bytes, at + 40)?,
            info: read_u32(bytes, at + 44)?,
            align: read_u64(bytes, at + 48)?,
            entry_size: read_u64(bytes, at + 56)?,
        };
        if !in_reach(s.addr, s.size) || !in_reach(s.offset, s.size) {
            return None;
        }
        if !matches!(s.kind, SHT_NULL | SHT_NOBITS) {
            slice(bytes, s.offset, s.size)?;
        }
        sections.push(s);
    }
    let table = sections.get(usize::from(names))?;
    if table.kind != SHT_NOBITS && table.kind != SHT_NULL {
        let table = slice(bytes, table.offset, table.size)?;
        for (section, name) in sections.iter_mut().zip(name_offsets) {
            string_at(table, name).unwrap_or_default().clone_into(&mut section.name);
        }
    }
    Some(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relr_bitmaps_count_from_the_word_after_the_address() {
        let entries = [0x1000u64, 0b1011, 0x8000_0000_0000_0001];
        let table: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes()).collect();
        assert_eq!(
            relr_addresses(&table),
            [0x1000, 0x1008, 0x1018, 0x1008 + 63 * 8 + 62 * 8],
            "bit 1 is the first word after the address; the second bitmap starts 63 words on"
        );
    }

    #[test]
    fn a_program_header_survives_a_round_trip() {
        let s = Segment { kind: 1, flags: 5, offset: 2, addr: 3, file_size: 4, mem_size: 5, align: 6 };
        assert_eq!(Segment::parse(&s.encode(), 0), Some(s));
    }
}
