//! Function bounds: what a profile counts and what hot cloning copies.
//!
//! `.eh_frame` comes first: its FDEs survive stripping, cover 95-99 % of the code, and give exact ranges (a symbol's size
//! may be wrong, and a compiler's cold part has an FDE of its own). Function symbols give names, and bounds where there is no
//! FDE. Go programs bring neither; their bounds come from the pclntab.

use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use goblin::elf::section_header::SHT_DYNSYM;

use crate::elf::Program;
use crate::{Untreatable, arch, gopclntab};

/// `PT_GNU_EH_FRAME`: the search header of the unwind tables.
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;

/// One function: a contiguous range of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Link-time address of the first byte.
    pub start: u64,
    /// Bytes of code.
    pub len: u64,
    /// The (mangled) symbol, where there is one.
    pub name: Option<String>,
    /// Whether an FDE of `.eh_frame` describes exactly this range. Only such functions may be cloned: code without
    /// unwind data is written by hand, or laid out by a runtime that checks addresses against a range (V8's builtins).
    pub unwind: bool,
}

impl Function {
    /// The first address after the function.
    pub fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// Where the bounds of [`Functions`] come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// FDEs of `.eh_frame`, and symbols where there are any.
    UnwindTables,
    /// Symbols only.
    Symbols,
    /// Go's table of functions.
    GoPclntab,
}

/// All functions of a program in ascending order, without overlap.
#[derive(Debug, Clone)]
pub struct Functions {
    list: Vec<Function>,
    bounds: Bounds,
}

impl Functions {
    /// Reads the bounds of every function of an ELF program.
    pub fn read(bytes: &[u8]) -> Result<Self, Untreatable> {
        Self::of(&Program::parse(bytes)?)
    }

    pub(crate) fn of(program: &Program<'_>) -> Result<Self, Untreatable> {
        if gopclntab::is_go(program) {
            let list = gopclntab::functions(program).ok_or(Untreatable::NoBounds)?;
            return Ok(Self { list, bounds: Bounds::GoPclntab });
        }
        let unwind = unwind_ranges(program);
        let bounds = if unwind.is_empty() { Bounds::Symbols } else { Bounds::UnwindTables };
        let symbols = symbol_ranges(program);
        let names: HashMap<u64, &str> =
            symbols.iter().rev().map(|(start, _, name)| (*start, name.as_str())).collect();
        let symbol_at = |start: u64| names.get(&start).map(|n| (*n).to_owned());
        let mut list: Vec<Function> = unwind
            .into_iter()
            .map(|(start, len)| Function { start, len, name: symbol_at(start), unwind: true })
            .collect();
        list.sort_by_key(|f| (f.start, std::cmp::Reverse(f.len)));
        drop_overlaps(&mut list);
        let covered = list.clone();
        let free = |start: u64, end: u64| {
            let next = covered.partition_point(|f| f.end() <= start);
            covered.get(next).is_none_or(|f| f.start >= end)
        };
        for (start, len, name) in &symbols {
            if *len > 0 && free(*start, start + len) {
                list.push(Function { start: *start, len: *len, name: Some(name.clone()), unwind: false });
            }
        }
        list.sort_by_key(|f| (f.start, std::cmp::Reverse(f.len)));
        drop_overlaps(&mut list);
        if list.is_empty() { Err(Untreatable::NoBounds) } else { Ok(Self { list, bounds }) }
    }

    /// The functions, ascending.
    pub fn as_slice(&self) -> &[Function] {
        &self.list
    }

    /// Where the bounds come from.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Index of the function that contains an address.
    pub fn find(&self, addr: u64) -> Option<usize> {
        let i = self.list.partition_point(|f| f.start <= addr).checked_sub(1)?;
        (addr < self.list[i].end()).then_some(i)
    }

    /// Index of the function that starts at an address.
    pub fn starting_at(&self, addr: u64) -> Option<usize> {
        self.list.binary_search_by_key(&addr, |f| f.start).ok()
    }

    /// A hash of the function's code that does not depend on where the linker put the function or what it refers to, so that it
    /// is the same in a rebuilt program as long as the function itself did not change.
    pub fn code_hash(&self, bytes: &[u8], index: usize) -> Option<u64> {
        let program = Program::parse(bytes).ok()?;
        code_hash(&program, &self.list[index])
    }

    /// [`Functions::code_hash`] of every function; `None` where the file does not hold the code.
    pub fn code_hashes(&self, bytes: &[u8]) -> Result<Vec<Option<u64>>, Untreatable> {
        let program = Program::parse(bytes)?;
        Ok(self.list.iter().map(|f| code_hash(&program, f)).collect())
    }
}

fn code_hash(program: &Program<'_>, function: &Function) -> Option<u64> {
    let image = program.loads().map(|s| s.addr).min()?..program.loads().map(|s| s.addr + s.mem_size).max()?;
    Some(arch::position_independent_hash(program.at(function.start, function.len)?, function.start, &image))
}

/// Keeps the longest of the ranges that start first, and cuts nothing: a range that overlaps an earlier one goes.
fn drop_overlaps(list: &mut Vec<Function>) {
    let mut end = 0;
    list.retain(|f| {
        let keep = f.start >= end && f.len > 0;
        if keep {
            end = f.end();
        }
        keep
    });
}

/// `.eh_frame`: address and bytes.
pub(crate) fn eh_frame<'a>(program: &Program<'a>) -> Option<(u64, &'a [u8])> {
    if let Some(section) = program.section(".eh_frame") {
        return Some((section.addr, program.at(section.addr, section.size)?));
    }
    // Without section headers the search header says where the table starts; it ends with a zero length.
    let header = program.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME)?;
    let hdr = EhFrameHdr::new(program.at(header.addr, header.file_size)?, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.addr);
    let gimli::Pointer::Direct(start) = hdr.parse(&bases, 8).ok()?.eh_frame_ptr() else { return None };
    let segment = program.loads().find(|s| s.contains(start))?;
    // What of a segment is not in the file has no table either.
    let rest = (segment.addr + segment.file_size).checked_sub(start)?;
    Some((start, program.at(start, rest)?))
}

/// The ranges of all FDEs that lie in one executable segment of the file.
fn unwind_ranges(program: &Program<'_>) -> Vec<(u64, u64)> {
    let Some((addr, table)) = eh_frame(program) else { return Vec::new() };
    let table = EhFrame::new(table, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(addr);
    let mut entries = table.entries(&bases);
    let mut out = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { break };
        let (start, len) = (fde.initial_address(), fde.len());
        if program.is_code(start) && program.at(start, len).is_some() {
            out.push((start, len));
        }
    }
    out
}

/// Function symbols as (start, size, name); where several name one address, a global one comes first.
fn symbol_ranges(program: &Program<'_>) -> Vec<(u64, u64, String)> {
    let mut out = Vec::new();
    let tables =
        [program.symbol_table().map(|(_, s)| s), program.sections.iter().find(|s| s.kind == SHT_DYNSYM)];
    for table in tables.into_iter().flatten() {
        let Some(strings) = program.sections.get(table.link as usize) else { continue };
        for symbol in program.symbols(table).filter(crate::elf::Symbol::is_function) {
            let inside = symbol.value.checked_add(symbol.size).is_some() && program.is_code(symbol.value);
            let inside = inside && program.at(symbol.value, symbol.size).is_some();
            if let (true, Some(name)) = (inside, program.string(strings, symbol.name)) {
                let local = symbol.info >> 4 == 0;
                out.push((symbol.value, symbol.size, name.to_owned(), local));
            }
        }
    }
    out.sort_by(|a, b| (a.0, a.3, &a.2).cmp(&(b.0, b.3, &b.2)));
    out.into_iter().map(|(start, size, name, _)| (start, size, name)).collect()
}
