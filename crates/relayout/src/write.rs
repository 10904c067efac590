//! The new file: the old one, patched in place, then one new segment, then the tables that no program reads at run time (symbols, section
//! names, section headers). Nothing that is mapped moves, except what gives way to the program header table.

use goblin::elf::program_header::{PF_R, PF_X, PT_LOAD};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS, SHT_NULL, SHT_PROGBITS, SHT_REL, SHT_RELA,
};

use crate::bytes::{align_up, slice};
use crate::elf::{PHDR_SIZE, Program, SHDR_SIZE, SYM_SIZE, Section, Segment};
use crate::headers::Room;
use crate::layout::Layout;
use crate::patch::Patches;
use crate::text::Text;
use crate::unwind::Unwind;
use crate::{CLONES, PAGE, Untreatable};

/// Beyond this the hole that keeps file offsets and addresses in step is not worth it (it only serves kernels before 5.18).
const LARGEST_HOLE: u64 = 64 << 20;

/// Where the new segment goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) addr: u64,
    pub(crate) offset: u64,
    /// End of what is kept of the old file.
    pub(crate) kept: u64,
}

impl Place {
    pub(crate) fn choose(program: &Program<'_>, room: &Room) -> Result<Self, Untreatable> {
        let kept = kept(program);
        let table_end = program.sh_offset.saturating_add(program.sections.len() as u64 * SHDR_SIZE);
        let known = program.sections.iter().filter(|s| s.kind != SHT_NOBITS).map(|s| s.offset + s.size);
        let known = known.chain([kept, table_end]).max().unwrap_or(kept);
        // Some linkers pad the end of the file.
        if program.bytes.len() as u64 > known + 64 {
            return Err(Untreatable::TrailingData(program.bytes.len() as u64 - known));
        }
        let addr = crate::layout::free_address(program)?;
        let offset = align_up(kept, PAGE);
        if *room == Room::Moved {
            // Before Linux 5.18 the kernel computed the table's address as if file and addresses were in step.
            let base = program.loads().next().map_or(0, |s| s.addr.wrapping_sub(s.offset));
            let in_step = addr.max(offset.wrapping_add(base));
            if in_step.wrapping_sub(base).saturating_sub(offset) < LARGEST_HOLE {
                return Ok(Self { addr: in_step, offset: in_step.wrapping_sub(base), kept });
            }
        }
        Ok(Self { addr, offset, kept })
    }
}

/// The end of what has to stay: everything mapped, and every section that is not written again.
fn kept(program: &Program<'_>) -> u64 {
    let replaced = |n: usize, s: &Section| {
        let symbols = program.symbol_table().is_some_and(|(index, _)| index == n) && can_add_symbols(program);
        symbols || n == usize::from(program.sh_names) || matches!(s.kind, SHT_NOBITS | SHT_NULL)
    };
    let sections =
        program.sections.iter().enumerate().filter(|(n, s)| !replaced(*n, s)).map(|(_, s)| s.offset + s.size);
    let loads = program.loads().map(|s| s.offset + s.file_size);
    let table = program.ph_offset + program.segments.len() as u64 * PHDR_SIZE;
    sections.chain(loads).chain([table]).max().unwrap_or(table).min(program.bytes.len() as u64)
}

/// Adding local symbols changes the numbers of global ones, which relocations (`--emit-relocs`) and groups refer to.
fn can_add_symbols(program: &Program<'_>) -> bool {
    let Some((index, table)) = program.symbol_table() else { return false };
    let numbered = |s: &Section| !s.allocated() && matches!(s.kind, SHT_REL | SHT_RELA | 17 | 18);
    slice(program.bytes, table.offset, table.size).is_some()
        && !program.sections.iter().any(|s| numbered(s) && s.link as usize == index)
}

/// Everything that goes into the file.
pub(crate) struct Parts<'a> {
    pub(crate) room: &'a Room,
    pub(crate) place: Place,
    pub(crate) layout: &'a Layout,
    pub(crate) code: &'a [u8],
    pub(crate) unwind: &'a Unwind,
    pub(crate) entry: u64,
    /// Entries of `.dynsym` that now name the clones' section.
    pub(crate) exported: &'a [u64],
}

/// Writes the file. `patches` gets what changes in the headers, so that it lists every change to the old bytes.
pub(crate) fn write(
    program: &Program<'_>,
    text: &Text,
    parts: &Parts<'_>,
    patches: &mut Patches,
) -> Result<Vec<u8>, Untreatable> {
    let place = parts.place;
    let end = parts.unwind.table_addr + parts.unwind.table.len() as u64;
    let size = end - place.addr;
    let load = Segment {
        kind: PT_LOAD,
        flags: PF_R | PF_X,
        offset: place.offset,
        addr: place.addr,
        file_size: size,
        mem_size: size,
        align: PAGE,
    };
    let mut segment = vec![0; size as usize];
    let mut put = |addr: u64, bytes: &[u8]| {
        let at = (addr - place.addr) as usize;
        segment[at..at + bytes.len()].copy_from_slice(bytes);
    };
    let table =
        parts.room.table(program, &load, (parts.unwind.header_addr, parts.unwind.header.len() as u64));
    let table_bytes: Vec<u8> = table.iter().flat_map(Segment::encode).collect();
    match parts.room {
        Room::InPlace(pieces) => {
            for p in pieces {
                put(place.addr + p.to, slice(program.bytes, p.offset, p.len).unwrap_or_default());
            }
            patches.set(program.ph_offset, &table_bytes);
        }
        Room::Moved => {
            put(place.addr, &table_bytes);
            patches.set_u64(32, place.offset);
        }
    }
    put(parts.layout.start, parts.code);
    put(parts.unwind.lsda_addr, &parts.unwind.lsda);
    put(parts.unwind.header_addr, &parts.unwind.header);
    put(parts.unwind.table_addr, &parts.unwind.table);
    patches.set_u64(24, parts.entry);
    patches.set_u16(56, u16::try_from(table.len()).map_err(|_| Untreatable::TooLarge)?);

    let mut out = program.bytes[..place.kept as usize].to_vec();
    out.resize(place.offset as usize, 0);
    out.extend(segment);
    if !program.sections.is_empty() {
        let sections = sections(program, text, parts, &mut out)?;
        let names = &sections[usize::from(program.sh_names)];
        let (names_at, names_size) = (names.offset, names.size);
        let start = align_up(out.len() as u64, 8);
        out.resize(start as usize, 0);
        let strings = out[names_at as usize..(names_at + names_size) as usize].to_vec();
        let position = |name: &str| {
            let wanted: Vec<u8> = [b"\0", name.as_bytes(), b"\0"].concat();
            strings.windows(wanted.len()).position(|w| w == wanted).map_or(0, |n| n as u32 + 1)
        };
        for s in &sections {
            let name = if s.name.is_empty() { 0 } else { position(&s.name) };
            out.extend(s.encode(name));
        }
        patches.set_u64(40, start);
        patches.set_u16(60, u16::try_from(sections.len()).map_err(|_| Untreatable::TooLarge)?);
        let code_section = program.sections.len() as u16;
        for entry in parts.exported {
            patches.set_u16(entry + 6, code_section);
        }
    }
    patches.apply(&mut out).ok_or(Untreatable::Malformed("a table lies outside what is mapped"))?;
    crate::build_id::renew(program, parts.room, place, patches, &mut out);
    Ok(out)
}

/// All section headers of the new file; appends the contents of the ones that are not mapped.
fn sections(
    program: &Program<'_>,
    text: &Text,
    parts: &Parts<'_>,
    out: &mut Vec<u8>,
) -> Result<Vec<Section>, Untreatable> {
    let place = parts.place;
    let mut sections = program.sections.clone();
    let unwind_kind = program.section(".eh_frame").map_or(SHT_PROGBITS, |s| s.kind);
    for s in &mut sections {
        if s.allocated()
            && s.kind != SHT_NOBITS
            && let Some(to) = parts.room.moved(s.offset).filter(|_| s.size > 0)
        {
            (s.offset, s.addr) = (place.offset + to, place.addr + to);
        }
        // Debuggers read the section of that name; there is a new one.
        if s.name == ".eh_frame" || s.name == ".eh_frame_hdr" {
            s.name.push_str(".orig");
        }
    }
    let mut add = |name: &str, kind, flags, addr: u64, size: u64, align| {
        sections.push(Section {
            name: name.to_owned(),
            kind,
            flags: u64::from(flags),
            addr,
            offset: place.offset + (addr - place.addr),
            size,
            link: 0,
            info: 0,
            align,
            entry_size: 0,
        });
    };
    let (code, unwind) = (parts.layout, parts.unwind);
    add(CLONES, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, code.start, code.end - code.start, 16);
    if !unwind.lsda.is_empty() {
        let size = unwind.lsda.len() as u64;
        add(".gcc_except_table.pagein", SHT_PROGBITS, SHF_ALLOC, unwind.lsda_addr, size, 4);
    }
    add(".eh_frame_hdr", SHT_PROGBITS, SHF_ALLOC, parts.unwind.header_addr, unwind.header.len() as u64, 4);
    add(".eh_frame", unwind_kind, SHF_ALLOC, unwind.table_addr, unwind.table.len() as u64, 8);
    if can_add_symbols(program)
        && let Some((index, table)) = program.symbol_table()
    {
        let (bytes, added) = symbols(program, text, parts.layout, table);
        let at = align_up(out.len() as u64, 8);
        out.resize(at as usize, 0);
        sections[index].offset = at;
        sections[index].size = bytes.len() as u64;
        sections[index].info = table.info.checked_add(added).ok_or(Untreatable::TooLarge)?;
        out.extend(bytes);
    }
    let mut names = vec![0];
    let mut seen = std::collections::HashSet::new();
    for s in sections.iter().filter(|s| !s.name.is_empty()) {
        if seen.insert(&s.name) {
            names.extend(s.name.as_bytes());
            names.push(0);
        }
    }
    let table = &mut sections[usize::from(program.sh_names)];
    (table.offset, table.size) = (out.len() as u64, names.len() as u64);
    out.extend(names);
    Ok(sections)
}

/// `.symtab` with a local symbol for each clone, after the other local ones; it has the original's name.
fn symbols(program: &Program<'_>, text: &Text, layout: &Layout, table: &Section) -> (Vec<u8>, u32) {
    let old = slice(program.bytes, table.offset, table.size).unwrap_or_default();
    let split = (u64::from(table.info) * SYM_SIZE).min(old.len() as u64) as usize;
    let mut out = old[..split].to_vec();
    let mut added = 0;
    let section = program.sections.len() as u16;
    for symbol in program.symbols(table).filter(crate::elf::Symbol::is_function) {
        let Some(function) = text.functions.starting_at(symbol.value) else { continue };
        for clone in layout.clones_of(function) {
            out.extend(symbol.name.to_le_bytes());
            // STB_LOCAL, STT_FUNC.
            out.extend([2, 0]);
            out.extend(section.to_le_bytes());
            out.extend(clone.start.to_le_bytes());
            out.extend(clone.len.to_le_bytes());
            added += 1;
        }
    }
    out.extend(&old[split..]);
    (out, added)
}
