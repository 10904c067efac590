//! What lies around a word that equals a function's address. Compilers put pointers to functions together: in tables, in structures
//! that are arrays, in vtables. Tables of numbers (of 16-bit characters, of offsets) have words of that size too, and in a program with
//! megabytes of them some equal the start of a function; but most of their neighbours then lead into the middle of instructions.

use crate::bytes::read_u64;
use crate::elf::Program;
use crate::text::Text;

/// Bytes to both sides that are looked at: one or two lines of the structures that hold functions.
pub(super) const NEAR: u64 = 64;

/// Whether the word at an offset of a section (aligned in memory) lies beside another function's address, and beside nothing that
/// could be one and is not.
pub(super) fn is_good(program: &Program<'_>, text: &Text, section: &[u8], at: u64) -> bool {
    let mut functions = false;
    for place in (at.saturating_sub(NEAR)..=at + NEAR).filter(|p| *p != at && p % 8 == at % 8) {
        let Some(value) = read_u64(section, place) else { continue };
        if text.functions.starting_at(value).is_some() {
            functions = true;
        } else if program.is_code_section(value) && text.instruction(value).is_none() {
            return false;
        }
    }
    functions
}
