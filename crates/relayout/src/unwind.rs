//! Unwind tables for the clones: `.eh_frame` again, with an FDE per clone at its end, and the search header over all of it.
//!
//! A clone is its original byte for byte, so that the original's call frame instructions and its LSDA (whose offsets count from the
//! function's start) hold for it as they are; only the start address changes. The whole table is written again, because debuggers
//! look for one section called `.eh_frame`. Formats: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::HashMap;

use crate::Untreatable;
use crate::bytes::{align_up, displacement, read_u32, slice};
use crate::elf::Program;
use crate::encoding::{Encoding, OMIT, read_sleb, read_uleb};
use crate::functions::{PT_GNU_EH_FRAME, eh_frame};
use crate::lsda::Lsda;
use crate::rows;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, `udata4`, `datarel | sdata4`: what every linker writes into the header.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
#[derive(Debug, Clone, Copy)]
struct Cie {
    code: Encoding,
    lsda: Option<Encoding>,
    /// Offset in the table, and encoding, of the personality routine.
    personality: Option<(u64, Encoding)>,
    augmented: bool,
    code_unit: u64,
    data_unit: i64,
}

#[derive(Debug, Clone, Copy)]
struct Fde {
    /// Offset of the record in the table, and its length with the length field.
    at: u64,
    len: u64,
    cie_at: u64,
    cie: Cie,
    start: u64,
    range: u64,
    /// Offset in the table of the LSDA pointer.
    lsda: Option<u64>,
}

/// The new tables, in the order in which they lie.
pub(crate) struct Unwind {
    pub(crate) lsda_addr: u64,
    /// Language-specific data of fragments.
    pub(crate) lsda: Vec<u8>,
    pub(crate) header_addr: u64,
    pub(crate) header: Vec<u8>,
    pub(crate) table_addr: u64,
    pub(crate) table: Vec<u8>,
}

/// A clone as the unwinder has to know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    /// The original function.
    pub(crate) from: u64,
    pub(crate) from_len: u64,
    /// The part of it that was copied: offset and bytes; `None` for all.
    pub(crate) part: Option<(u64, u64)>,
    pub(crate) to: u64,
    pub(crate) to_len: u64,
}

/// The old tables, read once.
pub(crate) struct Tables<'a> {
    program: &'a Program<'a>,
    addr: u64,
    bytes: &'a [u8],
    fdes: Vec<Fde>,
    cies: Vec<Cie>,
    /// Offset of the end mark.
    end: u64,
    by_range: HashMap<(u64, u64), usize>,
}

/// What a fragment's FDE needs beside its place.
struct Part {
    instructions: Vec<u8>,
    lsda: Option<Lsda>,
}

impl<'a> Tables<'a> {
    pub(crate) fn read(program: &'a Program<'a>) -> Result<Self, Untreatable> {
        let header =
            program.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME).ok_or(Untreatable::NoUnwindHeader)?;
        let (addr, bytes) = eh_frame(program).ok_or(Untreatable::NoUnwindHeader)?;
        let bad = Untreatable::UnwindTables;
        let (fdes, cies, end) = walk(bytes, addr).ok_or(bad("they are not in the usual format"))?;
        let known = program.at(header.addr, header.file_size).and_then(|hdr| {
            // A header with another layout has no count that could be read.
            if hdr.get(..4)? == HEADER { read_u32(hdr, 8) } else { None }
        });
        if known.is_some_and(|count| u64::from(count) > fdes.len() as u64) {
            return Err(bad("the search header knows more than the table shows"));
        }
        let by_range = fdes.iter().enumerate().map(|(n, f)| ((f.start, f.range), n)).collect();
        Ok(Self { program, addr, bytes, fdes, cies, end, by_range })
    }

    /// Whether a part of a function (offset, bytes) can have an FDE.
    pub(crate) fn can_split(&self, function: u64, function_len: u64, from: u64, len: u64) -> bool {
        let fde = self.by_range.get(&(function, function_len)).map(|n| &self.fdes[*n]);
        fde.is_some_and(|fde| {
            let part = self.part(fde, from, len);
            // The address stands for any: that the tables can be written at all is what counts.
            part.is_some_and(|p| p.lsda.is_none_or(|l| l.encode(function, function).is_some()))
        })
    }

    fn part(&self, fde: &Fde, from: u64, len: u64) -> Option<Part> {
        // The instructions that are written count bytes.
        if fde.cie.code_unit != 1 {
            return None;
        }
        let rows = rows::part(&rows::read(self.bytes, self.addr, fde.at)?, fde.start + from, len);
        let instructions = rows::encode(&rows, fde.cie.data_unit)?;
        let lsda = match (fde.lsda, fde.cie.lsda) {
            (Some(at), Some(encoding)) => {
                match encoding.resolve(encoding.read(self.bytes, at)?, self.addr + at) {
                    // Readers differ in what they make of a null pointer here; compilers use a CIE without the field.
                    0 => return None,
                    addr => Some(Lsda::read(self.program, addr, fde.start)?.part(from, len)),
                }
            }
            _ => None,
        };
        Some(Part { instructions, lsda })
    }

    /// Builds the tables for the program with `clones`, from `addr` on.
    pub(crate) fn extend(&self, clones: &[Moved], addr: u64) -> Result<Unwind, Untreatable> {
        let bad = Untreatable::UnwindTables;
        let far = || bad("an address does not reach its target from the new place");
        let fde_of = |clone: &Moved| {
            let index = self.by_range.get(&(clone.from, clone.from_len));
            index.map(|n| &self.fdes[*n]).ok_or(bad("a function has no entry of its own"))
        };
        // First the language-specific data of fragments: their addresses go into the FDEs.
        let mut lsda = Vec::new();
        let mut parts: Vec<Option<(Part, u64)>> = Vec::with_capacity(clones.len());
        for clone in clones {
            let Some((from, len)) = clone.part else {
                parts.push(None);
                continue;
            };
            let part = self.part(fde_of(clone)?, from, len).ok_or(bad("a part has no rules"))?;
            let at = addr + lsda.len() as u64;
            if let Some(data) = &part.lsda {
                lsda.extend(data.encode(at, clone.from).ok_or_else(far)?);
                lsda.resize(lsda.len().next_multiple_of(8), 0);
            }
            parts.push(Some((part, at)));
        }
        let header_addr = align_up(addr + lsda.len() as u64, 8);
        let count = self.fdes.len() + clones.len();
        let table_addr = align_up(header_addr + 12 + count as u64 * 8, 8);
        let mut table = self.bytes[..self.end as usize].to_vec();
        let mut search: Vec<(u64, u64)> = Vec::with_capacity(count);
        let delta = self.addr.wrapping_sub(table_addr) as i64;
        for (at, encoding) in self.cies.iter().filter_map(|c| c.personality) {
            shift(&mut table, at, encoding, delta).ok_or_else(far)?;
        }
        for fde in &self.fdes {
            shift(&mut table, fde.at + 8, fde.cie.code, delta).ok_or_else(far)?;
            if let (Some(at), Some(encoding)) = (fde.lsda, fde.cie.lsda) {
                shift(&mut table, at, encoding, delta).ok_or_else(far)?;
            }
            search.push((fde.start, table_addr + fde.at));
        }
        for (clone, part) in clones.iter().zip(&parts) {
            let fde = fde_of(clone)?;
            let at = table.len() as u64;
            search.push((clone.to, table_addr + at));
            let record = match part {
                None => self.whole(fde, clone, table_addr, at),
                Some((part, lsda)) => fragment(fde, clone, part, *lsda, table_addr, at),
            };
            table.extend(record.ok_or_else(far)?);
        }
        table.extend([0; 4]);
        search.sort_unstable();
        let mut header = HEADER.to_vec();
        header.extend(displacement(header_addr + 4, table_addr).ok_or_else(far)?.to_le_bytes());
        header.extend((search.len() as u32).to_le_bytes());
        for (start, fde) in search {
            for value in [start, fde] {
                header.extend(displacement(header_addr, value).ok_or_else(far)?.to_le_bytes());
            }
        }
        Ok(Unwind { lsda_addr: addr, lsda, header_addr, header, table_addr, table })
    }

    /// The original's record with another start.
    fn whole(&self, fde: &Fde, clone: &Moved, table_addr: u64, at: u64) -> Option<Vec<u8>> {
        let mut record = slice(self.bytes, fde.at, fde.len)?.to_vec();
        set_range(&mut record, fde, clone, table_addr, at)?;
        if let (Some(lsda), Some(encoding)) = (fde.lsda, fde.cie.lsda) {
            let moved_by = (self.addr + fde.at).wrapping_sub(table_addr + at) as i64;
            shift(&mut record, lsda - fde.at, encoding, moved_by)?;
        }
        Some(record)
    }
}

/// A record of its own for a fragment whose language-specific data lies at `lsda`.
fn fragment(fde: &Fde, clone: &Moved, part: &Part, lsda: u64, table_addr: u64, at: u64) -> Option<Vec<u8>> {
    let size = fde.cie.code.size()?;
    let mut record = vec![0; (8 + 2 * size) as usize];
    if fde.cie.augmented {
        match fde.cie.lsda {
            Some(encoding) => {
                record.push(encoding.size()? as u8);
                let field = record.len() as u64;
                record.resize((field + encoding.size()?) as usize, 0);
                let pointer = if part.lsda.is_some() { lsda } else { 0 };
                let value = encoding.unresolve(pointer, table_addr + at + field);
                encoding.write(&mut record, field, value)?;
            }
            None => record.push(0),
        }
    }
    record.extend(&part.instructions);
    // DW_CFA_nop.
    record.resize(record.len().next_multiple_of(8) + 4, 0);
    let len = u32::try_from(record.len() - 4).ok()?;
    record[..4].copy_from_slice(&len.to_le_bytes());
    set_range(&mut record, fde, clone, table_addr, at)?;
    Some(record)
}

/// Sets the CIE pointer, start and range of an FDE record that goes to offset `at` of the table.
fn set_range(record: &mut [u8], fde: &Fde, clone: &Moved, table_addr: u64, at: u64) -> Option<()> {
    let back = u32::try_from(at + 4 - fde.cie_at).ok()?;
    record.get_mut(4..8)?.copy_from_slice(&back.to_le_bytes());
    let code = fde.cie.code;
    code.write(record, 8, code.unresolve(clone.to, table_addr + at + 8))?;
    // The range has the size of the start's encoding, and is never relative.
    Encoding(code.0 & 7).write(record, 8 + code.size()?, clone.to_len as i64)
}

/// Changes a PC-relative field that moves; zero stands for "none".
fn shift(table: &mut [u8], at: u64, encoding: Encoding, by: i64) -> Option<()> {
    let value = encoding.read(table, at)?;
    if !encoding.relative() || value == 0 {
        return Some(());
    }
    encoding.write(table, at, value.wrapping_add(by))
}

/// All FDEs, all CIEs, and the offset of the end mark.
fn walk(table: &[u8], addr: u64) -> Option<(Vec<Fde>, Vec<Cie>, u64)> {
    let mut fdes = Vec::new();
    let mut cies: Vec<(u64, Cie)> = Vec::new();
    let mut at = 0;
    while at < table.len() as u64 {
        let len = u64::from(read_u32(table, at)?);
        if len == 0 {
            break;
        }
        // 0xffffffff starts the 64-bit format, which no compiler emits for .eh_frame.
        if len == 0xffff_ffff || len < 4 {
            return None;
        }
        let record = slice(table, 0, at + 4 + len)?;
        let id = read_u32(record, at + 4)?;
        if id == 0 {
            cies.push((at, cie(record, at)?));
        } else {
            let cie_at = (at + 4).checked_sub(u64::from(id))?;
            let cie = cies[cies.binary_search_by_key(&cie_at, |(at, _)| *at).ok()?].1;
            fdes.push(fde(record, at, addr, cie_at, cie)?);
        }
        at += 4 + len;
    }
    Some((fdes, cies.into_iter().map(|(_, c)| c).collect(), at))
}

fn cie(record: &[u8], at: u64) -> Option<Cie> {
    let byte = |pos: u64| record.get(usize::try_from(pos).ok()?).copied();
    let mut pos = at + 8;
    let version = byte(pos)?;
    pos += 1;
    let name = record.get(pos as usize..)?;
    let augmentation = &name[..name.iter().position(|c| *c == 0)?];
    pos += augmentation.len() as u64 + 1;
    if !matches!(version, 1 | 3) || augmentation.first().is_some_and(|c| *c != b'z') {
        return None;
    }
    let code_unit = read_uleb(record, &mut pos)?;
    let data_unit = read_sleb(record, &mut pos)?;
    if version == 1 {
        pos += 1;
    } else {
        read_uleb(record, &mut pos)?;
    }
    let mut out = Cie {
        code: Encoding(0),
        lsda: None,
        personality: None,
        augmented: !augmentation.is_empty(),
        code_unit,
        data_unit,
    };
    if out.augmented {
        read_uleb(record, &mut pos)?;
    }
    for c in augmentation.iter().skip(1) {
        match c {
            b'R' => out.code = Encoding(byte(pos)?),
            b'L' => out.lsda = Some(Encoding(byte(pos)?)).filter(|e| e.0 != OMIT),
            b'P' => {
                let encoding = Encoding(byte(pos)?);
                if !encoding.known() {
                    return None;
                }
                out.personality = Some((pos + 1, encoding));
                pos += encoding.size()?;
            }
            // Signal frame, pointer authentication, memory tagging: no operand.
            b'S' | b'B' | b'G' => continue,
            _ => return None,
        }
        pos += 1;
    }
    (out.code.known() && out.lsda.is_none_or(Encoding::known)).then_some(out)
}

fn fde(record: &[u8], at: u64, addr: u64, cie_at: u64, cie: Cie) -> Option<Fde> {
    let size = cie.code.size()?;
    let start_at = at + 8;
    let raw = cie.code.read(record, start_at)? as u64;
    let start = if cie.code.relative() { raw.wrapping_add(addr + start_at) } else { raw };
    let range = Encoding(cie.code.0 & 7).read(record, start_at + size)? as u64;
    let mut pos = start_at + 2 * size;
    let mut lsda = None;
    if cie.augmented {
        while *record.get(pos as usize)? & 0x80 != 0 {
            pos += 1;
        }
        pos += 1;
        if let Some(encoding) = cie.lsda {
            slice(record, pos, encoding.size()?)?;
            lsda = Some(pos);
        }
    }
    Some(Fde { at, len: record.len() as u64 - at, cie_at, cie, start, range, lsda })
}
