//! The clones' bytes, and the way back in: calls in the originals that go to clones from now on.

use crate::Untreatable;
use crate::arch::{self, FILLER, Kind, Reference};
use crate::bytes::displacement;
use crate::elf::Program;
use crate::layout::{Layout, part_of};
use crate::patch::Patches;
use crate::pointers::Pointers;
use crate::text::Text;

/// Where a reference goes from now on, wherever it is made.
pub(crate) fn target(text: &Text, layout: &Layout, pointers: &Pointers, r: &Reference) -> u64 {
    match r.kind {
        Kind::Call | Kind::Jump => layout.map(text, r.target).unwrap_or(r.target),
        Kind::Address => pointers.moved.get(&r.target).copied().unwrap_or(r.target),
        // Data stays where it is.
        Kind::Memory => r.target,
    }
}

/// The code of all clones, from the layout's start to its end.
pub(crate) fn clones(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    pointers: &Pointers,
) -> Result<Vec<u8>, Untreatable> {
    let mut code = vec![FILLER; (layout.end - layout.start) as usize];
    for clone in &layout.clones {
        let f = text.function(clone.function);
        let from = f.start + clone.from;
        let original = program
            .at(from, clone.copied)
            .ok_or(Untreatable::Malformed("a function lies outside the file"))?;
        let part;
        let decoded = match &text.decoded[clone.function] {
            Ok(whole) if clone.whole => whole,
            _ => {
                part = part_of(program, f, clone.from, clone.copied);
                part.as_ref().ok_or(Untreatable::Malformed("a part of a function cannot be decoded"))?
            }
        };
        let base = (clone.start - layout.start) as usize;
        let out = &mut code[base..base + clone.len as usize];
        out[..original.len()].copy_from_slice(original);
        for r in &decoded.references {
            let to = target(text, layout, pointers, r);
            let value = displacement(clone.start + u64::from(r.next), to).ok_or(Untreatable::TooLarge)?;
            out[r.at as usize..r.at as usize + 4].copy_from_slice(&value.to_le_bytes());
        }
        for immediate in pointers.immediates_of(clone.function) {
            let at = u64::from(immediate.at).wrapping_sub(clone.from);
            // Instructions are copied whole, or not at all.
            if at < clone.copied {
                out[at as usize..at as usize + 4].copy_from_slice(&(immediate.to as u32).to_le_bytes());
            }
        }
        if decoded.open_end {
            let next = from + clone.copied;
            let to = layout.map(text, next).unwrap_or(next);
            let jump = arch::jump(clone.start + clone.copied, to).ok_or(Untreatable::TooLarge)?;
            out[original.len()..].copy_from_slice(&jump);
        }
    }
    Ok(code)
}

/// Redirects the references of every cleanly decoded original; returns the number of calls and jumps, and of addresses.
pub(crate) fn way_back(
    program: &Program<'_>,
    text: &Text,
    layout: &Layout,
    pointers: &Pointers,
    patches: &mut Patches,
) -> Result<(usize, usize), Untreatable> {
    let (mut calls, mut addresses) = (0, 0);
    for (_, f, decoded) in text.clean() {
        for r in &decoded.references {
            let to = target(text, layout, pointers, r);
            if to == r.target {
                continue;
            }
            let at =
                program.offset(f.start).ok_or(Untreatable::Malformed("a function lies outside the file"))?;
            let value = displacement(f.start + u64::from(r.next), to).ok_or(Untreatable::TooLarge)?;
            patches.set_i32(at + u64::from(r.at), value);
            *(if r.kind == Kind::Address { &mut addresses } else { &mut calls }) += 1;
        }
    }
    for immediate in &pointers.immediates {
        let Some(start) = program.offset(text.function(immediate.function).start) else { continue };
        patches.set_i32(start + u64::from(immediate.at), immediate.to as i32);
        addresses += 1;
    }
    Ok((calls, addresses))
}
