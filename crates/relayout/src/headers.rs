//! Room for one more program header. The table is followed by `.interp` and notes, which nothing addresses but the headers
//! themselves: they move into the new segment and leave their place to the table. That keeps the table where `strip` and old kernels
//! expect it. Where that is not possible the whole table moves.

use goblin::elf::program_header::{PT_INTERP, PT_NOTE, PT_PHDR};
use goblin::elf::section_header::{SHT_NOBITS, SHT_NOTE};

use crate::arch::Kind;
use crate::bytes::{align_up, slice};
use crate::elf::{EHDR_SIZE, PHDR_SIZE, Program, Segment};
use crate::text::Text;

const PT_GNU_PROPERTY: u32 = 0x6474_e553;

/// A range of the file that moves into the new segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Where it goes, from the start of the new segment.
    pub(crate) to: u64,
}

/// How the program header table grows by one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Room {
    /// In place; these give way.
    InPlace(Vec<Piece>),
    /// The table goes to the start of the new segment.
    Moved,
}

impl Room {
    pub(crate) fn find(program: &Program<'_>, text: &Text) -> Self {
        in_place(program, text).map_or(Self::Moved, Self::InPlace)
    }

    /// Bytes that the room takes at the start of the new segment.
    pub(crate) fn size(&self, program: &Program<'_>) -> u64 {
        match self {
            Self::InPlace(pieces) => pieces.iter().map(|p| p.to + p.len).max().unwrap_or(0),
            Self::Moved => (program.segments.len() as u64 + 1) * PHDR_SIZE,
        }
    }

    /// New place of something at a file offset: offset from the start of the new segment.
    pub(crate) fn moved(&self, offset: u64) -> Option<u64> {
        let Self::InPlace(pieces) = self else { return None };
        let piece = pieces.iter().find(|p| offset >= p.offset && offset < p.offset + p.len)?;
        Some(piece.to + (offset - piece.offset))
    }

    /// The program header table with `load` added, everything that moved at its new address, for a segment at `load`.
    pub(crate) fn table(&self, program: &Program<'_>, load: &Segment, unwind: (u64, u64)) -> Vec<Segment> {
        let mut out = program.segments.clone();
        for s in &mut out {
            if let Some(to) =
                matches!(s.kind, PT_INTERP | PT_NOTE | PT_GNU_PROPERTY).then(|| self.moved(s.offset))
            {
                if let Some(to) = to {
                    (s.offset, s.addr) = (load.offset + to, load.addr + to);
                }
            } else if s.kind == crate::functions::PT_GNU_EH_FRAME {
                (s.addr, s.offset) = (unwind.0, load.offset + (unwind.0 - load.addr));
                (s.file_size, s.mem_size) = (unwind.1, unwind.1);
            } else if s.kind == PT_PHDR {
                if *self == Self::Moved {
                    (s.offset, s.addr) = (load.offset, load.addr);
                }
                s.file_size += PHDR_SIZE;
                s.mem_size += PHDR_SIZE;
            }
        }
        let last = out.iter().rposition(|s| s.kind == load.kind).map_or(out.len(), |n| n + 1);
        out.insert(last, *load);
        out
    }
}

fn in_place(program: &Program<'_>, text: &Text) -> Option<Vec<Piece>> {
    let table_end = program.ph_offset + program.segments.len() as u64 * PHDR_SIZE;
    let need = table_end + PHDR_SIZE;
    // The table has to be where it always is, and mapped.
    let first = program.loads().next()?;
    if program.ph_offset != EHDR_SIZE
        || first.offset != 0
        || first.file_size < need
        || program.sections.is_empty()
    {
        return None;
    }
    // Everything that may move: (offset, length, alignment).
    let segments = program
        .segments
        .iter()
        .filter(|s| matches!(s.kind, PT_INTERP | PT_NOTE | PT_GNU_PROPERTY))
        .map(|s| (s.offset, s.file_size, s.align));
    let is_piece = |s: &&crate::elf::Section| s.kind == SHT_NOTE || s.name == ".interp";
    let sections = program.sections.iter().filter(is_piece).map(|s| (s.offset, s.size, s.align));
    let mut ranges: Vec<_> = segments.chain(sections).filter(|r| r.1 > 0).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64, u64)> = Vec::new();
    for (offset, len, align) in ranges {
        match merged.last_mut() {
            Some(last) if offset < last.0 + last.1 => {
                last.1 = last.1.max(offset + len - last.0);
                last.2 = last.2.max(align);
            }
            _ => merged.push((offset, len, align)),
        }
    }
    // What the table will cover must be these, or padding.
    let covered = |at: u64| merged.iter().any(|(offset, len, _)| at >= *offset && at < offset + len);
    let bytes = slice(program.bytes, table_end, PHDR_SIZE)?;
    if (table_end..need).zip(bytes).any(|(at, byte)| !covered(at) && *byte != 0) {
        return None;
    }
    let other =
        |s: &crate::elf::Section| s.allocated() && s.kind != SHT_NOBITS && !is_piece(&s) && s.size > 0;
    if program.sections.iter().any(|s| other(s) && s.offset < need && s.offset + s.size > table_end) {
        return None;
    }
    if is_addressed(program, text, first.addr + table_end, first.addr + need) {
        return None;
    }
    let mut to = 0;
    let mut pieces = Vec::new();
    for (offset, len, align) in merged.into_iter().filter(|(offset, _, _)| *offset < need) {
        // Wider than a note is ever aligned, or longer than one is: not what it seems to be.
        if !align.max(1).is_power_of_two() || align > 64 || offset < table_end || len > crate::PAGE {
            return None;
        }
        slice(program.bytes, offset, len)?;
        to = align_up(to, align.max(1));
        pieces.push(Piece { offset, len, to });
        to += len;
    }
    Some(pieces)
}

/// Whether code or data may refer to an address in the range.
fn is_addressed(program: &Program<'_>, text: &Text, from: u64, to: u64) -> bool {
    let hit = |addr: u64| addr >= from && addr < to;
    let decoded = text.clean().flat_map(|(_, _, d)| &d.references);
    if decoded.into_iter().any(|r| matches!(r.kind, Kind::Address | Kind::Memory) && hit(r.target)) {
        return true;
    }
    if program.relative_words().unwrap_or_default().iter().any(|w| hit(w.target)) {
        return true;
    }
    let relative = text.unknown(program).into_iter().any(|(start, bytes)| {
        bytes.windows(4).enumerate().any(|(n, window)| {
            let value = i32::from_le_bytes(window.try_into().expect("4 bytes"));
            hit(start.wrapping_add(n as u64 + 4).wrapping_add_signed(i64::from(value)))
        })
    });
    let absolute = || {
        program.loads().filter(|s| s.executable()).any(|s| {
            let bytes = slice(program.bytes, s.offset, s.file_size).unwrap_or_default();
            bytes.windows(4).any(|w| hit(u64::from(u32::from_le_bytes(w.try_into().expect("4 bytes")))))
        })
    };
    relative || (!program.position_independent && absolute())
}
