//! Unwind tables for the clones: `.eh_frame` again, with an FDE per clone at its end, and the search header over all of it.
//!
//! A clone is its original byte for byte, so that the original's call frame instructions and its LSDA (whose offsets count from the
//! function's start) hold for it as they are; only the start address changes. The whole table is written again, because debuggers
//! look for one section called `.eh_frame`. Formats: Linux Standard Base, "Exception Frames"; DWARF 5, section 6.4.

use std::collections::HashMap;

use crate::Untreatable;
use crate::bytes::{align_up, displacement, read_i32, read_u32, read_u64, slice};
use crate::elf::Program;
use crate::functions::{PT_GNU_EH_FRAME, eh_frame};

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`, `udata4`, `datarel | sdata4`: what every linker writes into the header.
const HEADER: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
/// `DW_EH_PE_omit`.
const OMIT: u8 = 0xff;

/// A pointer encoding of `.eh_frame` (`DW_EH_PE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Encoding(u8);

impl Encoding {
    fn size(self) -> Option<u64> {
        match self.0 & 15 {
            2 | 10 => Some(2),
            3 | 11 => Some(4),
            0 | 4 | 12 => Some(8),
            _ => None,
        }
    }

    /// Absolute and PC-relative ones can be moved.
    fn known(self) -> bool {
        self.size().is_some() && matches!(self.0 & 0x70, 0 | 0x10)
    }

    fn relative(self) -> bool {
        self.0 & 0x70 == 0x10
    }

    fn read(self, bytes: &[u8], at: u64) -> Option<i64> {
        Some(match self.0 & 15 {
            2 => i64::from(crate::bytes::read_u16(bytes, at)?),
            10 => i64::from(crate::bytes::read_u16(bytes, at)? as i16),
            3 => i64::from(read_u32(bytes, at)?),
            11 => i64::from(read_i32(bytes, at)?),
            _ => read_u64(bytes, at)? as i64,
        })
    }

    fn write(self, bytes: &mut [u8], at: u64, value: i64) -> Option<()> {
        let size = self.size()?;
        let fits = match (size, self.0 & 8 != 0) {
            (2, true) => i16::try_from(value).is_ok(),
            (2, false) => u16::try_from(value).is_ok(),
            (4, true) => i32::try_from(value).is_ok(),
            (4, false) => u32::try_from(value).is_ok(),
            _ => true,
        };
        let at = usize::try_from(at).ok()?;
        bytes.get_mut(at..at + size as usize)?.copy_from_slice(&value.to_le_bytes()[..size as usize]);
        fits.then_some(())
    }
}

#[derive(Debug, Clone, Copy)]
struct Cie {
    code: Encoding,
    lsda: Option<Encoding>,
    /// Offset in the table, and encoding, of the personality routine.
    personality: Option<(u64, Encoding)>,
    augmented: bool,
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

/// The new tables.
pub(crate) struct Unwind {
    pub(crate) header: Vec<u8>,
    pub(crate) table: Vec<u8>,
    pub(crate) table_addr: u64,
}

/// A clone as the unwinder has to know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) from: u64,
    pub(crate) from_len: u64,
    pub(crate) to: u64,
    pub(crate) to_len: u64,
}

/// Builds the tables for the program with `clones`; the header goes to `addr`, the table right after it.
pub(crate) fn extend(program: &Program<'_>, clones: &[Moved], addr: u64) -> Result<Unwind, Untreatable> {
    let header =
        program.segments.iter().find(|s| s.kind == PT_GNU_EH_FRAME).ok_or(Untreatable::NoUnwindHeader)?;
    let (old_addr, old) = eh_frame(program).ok_or(Untreatable::NoUnwindHeader)?;
    let bad = Untreatable::UnwindTables;
    let (fdes, cies, end) = walk(old, old_addr).ok_or(bad("they are not in the usual format"))?;
    let known = program.at(header.addr, header.file_size).and_then(|hdr| {
        // A header with another layout has no count that could be read.
        if hdr.get(..4)? == HEADER { read_u32(hdr, 8) } else { None }
    });
    if known.is_some_and(|count| u64::from(count) > fdes.len() as u64) {
        return Err(bad("the search header knows more than the table shows"));
    }
    let count = fdes.len() + clones.len();
    let table_addr = align_up(addr + 12 + count as u64 * 8, 8);
    let mut table = old[..end as usize].to_vec();
    let mut search: Vec<(u64, u64)> = Vec::with_capacity(count);
    let delta = old_addr.wrapping_sub(table_addr) as i64;
    let far = || bad("an address does not reach its target from the new place");
    // A field that moves with the table changes by the distance; zero stands for "none".
    let shift = |table: &mut [u8], at: u64, encoding: Encoding, by: i64| {
        let value = encoding.read(table, at)?;
        if !encoding.relative() || value == 0 {
            return Some(());
        }
        encoding.write(table, at, value.wrapping_add(by))
    };
    for (at, encoding) in cies.iter().filter_map(|c| c.personality) {
        shift(&mut table, at, encoding, delta).ok_or_else(far)?;
    }
    for fde in &fdes {
        shift(&mut table, fde.at + 8, fde.cie.code, delta).ok_or_else(far)?;
        if let (Some(at), Some(encoding)) = (fde.lsda, fde.cie.lsda) {
            shift(&mut table, at, encoding, delta).ok_or_else(far)?;
        }
        search.push((fde.start, table_addr + fde.at));
    }
    let by_range: HashMap<(u64, u64), &Fde> = fdes.iter().map(|f| ((f.start, f.range), f)).collect();
    for clone in clones {
        let fde =
            by_range.get(&(clone.from, clone.from_len)).ok_or(bad("a function has no entry of its own"))?;
        let at = table.len() as u64;
        let record = slice(old, fde.at, fde.len).ok_or_else(far)?;
        table.extend_from_slice(record);
        let back = u32::try_from(at + 4 - fde.cie_at).map_err(|_| far())?;
        table[at as usize + 4..at as usize + 8].copy_from_slice(&back.to_le_bytes());
        let code = fde.cie.code;
        let start_at = at + 8;
        let value = if code.relative() { clone.to.wrapping_sub(table_addr + start_at) } else { clone.to };
        code.write(&mut table, start_at, value as i64).ok_or_else(far)?;
        // The range has the size of the start's encoding, and is never relative.
        let size = code.size().ok_or_else(far)?;
        Encoding(code.0 & 7).write(&mut table, start_at + size, clone.to_len as i64).ok_or_else(far)?;
        if let (Some(lsda), Some(encoding)) = (fde.lsda, fde.cie.lsda) {
            let moved_by = (old_addr + fde.at).wrapping_sub(table_addr + at) as i64;
            shift(&mut table, at + (lsda - fde.at), encoding, moved_by).ok_or_else(far)?;
        }
        search.push((clone.to, table_addr + at));
    }
    table.extend([0; 4]);
    search.sort_unstable();
    let mut out = HEADER.to_vec();
    out.extend(displacement(addr + 4, table_addr).ok_or_else(far)?.to_le_bytes());
    out.extend((search.len() as u32).to_le_bytes());
    for (start, fde) in search {
        for value in [start, fde] {
            out.extend(displacement(addr, value).ok_or_else(far)?.to_le_bytes());
        }
    }
    Ok(Unwind { header: out, table, table_addr })
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
    let mut pos = at + 8;
    let mut byte = || {
        pos += 1;
        record.get(pos as usize - 1).copied()
    };
    let version = byte()?;
    let mut augmentation = Vec::new();
    loop {
        match byte()? {
            0 => break,
            c => augmentation.push(c),
        }
    }
    if !matches!(version, 1 | 3) || augmentation.first().is_some_and(|c| *c != b'z') {
        return None;
    }
    let mut leb = || {
        while byte()? & 0x80 != 0 {}
        Some(())
    };
    leb()?;
    leb()?;
    if version == 1 {
        byte()?;
    } else {
        leb()?;
    }
    let mut out =
        Cie { code: Encoding(0), lsda: None, personality: None, augmented: !augmentation.is_empty() };
    if out.augmented {
        let mut leb = || {
            while byte()? & 0x80 != 0 {}
            Some(())
        };
        leb()?;
    }
    for c in augmentation.iter().skip(1) {
        match c {
            b'R' => out.code = Encoding(*record.get(pos as usize)?),
            b'L' => out.lsda = Some(Encoding(*record.get(pos as usize)?)).filter(|e| e.0 != OMIT),
            b'P' => {
                let encoding = Encoding(*record.get(pos as usize)?);
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
