//! The build ID (`NT_GNU_BUILD_ID`). A relaid file has one of its own: perf, debuginfod and collectors of core dumps take files with one
//! ID for the same, and would look the clones' addresses up in the original's symbols, where others are next to them.

use std::fmt::Write as _;

use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::program_header::PT_NOTE;
use goblin::elf::section_header::SHT_NOTE;

use crate::bytes::{align_up, read_u32, slice};
use crate::elf::{Program, Section};
use crate::headers::Room;
use crate::patch::Patches;
use crate::write::Place;

/// Where the ID lies in the file: offset and length.
fn find(program: &Program<'_>) -> Option<(u64, u64)> {
    for s in program.segments.iter().filter(|s| s.kind == PT_NOTE) {
        let notes = slice(program.bytes, s.offset, s.file_size)?;
        let align = s.align.clamp(4, 8).next_power_of_two();
        let mut at = 0;
        while let (Some(name), Some(len), Some(kind)) =
            (read_u32(notes, at), read_u32(notes, at + 4), read_u32(notes, at + 8))
        {
            let (name, len) = (u64::from(name), u64::from(len));
            let content = align_up(at + 12 + name, align);
            if kind == NT_GNU_BUILD_ID && slice(notes, at + 12, name) == Some(b"GNU\0") {
                return slice(notes, content, len).map(|_| (s.offset + content, len));
            }
            at = align_up(content + len, align);
        }
    }
    None
}

/// The build ID of a program (`NT_GNU_BUILD_ID`), in hexadecimal.
pub fn build_id(bytes: &[u8]) -> Option<String> {
    let (offset, len) = find(&Program::parse(bytes).ok()?)?;
    Some(slice(bytes, offset, len)?.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// Gives the finished file `out` its own ID, as long as the old one: a digest of what it holds, so that equal files have equal ones.
pub(crate) fn renew(old: &Program<'_>, room: &Room, place: Place, patches: &mut Patches, out: &mut [u8]) {
    let Some((offset, len)) = find(old).filter(|id| is_note(old, *id)) else { return };
    let moved = room.moved(offset).map(|to| place.offset + to);
    let at = moved.unwrap_or(offset);
    if moved.is_none() && offset + len > place.kept {
        return;
    }
    let mut id = vec![0; len as usize];
    blake3::Hasher::new().update(out).finalize_xof().fill(&mut id);
    out[at as usize..(at + len) as usize].copy_from_slice(&id);
    if moved.is_none() {
        patches.set(at, &id);
    }
}

/// Whether nothing but a note can be there: a damaged header may point anywhere.
fn is_note(program: &Program<'_>, (offset, len): (u64, u64)) -> bool {
    let within = |s: &Section| s.kind == SHT_NOTE && offset >= s.offset && offset + len <= s.offset + s.size;
    program.sections.iter().any(within)
}
