//! Functions that may have run for another reason than that something holds their address: a jump table leads there, the code before
//! them runs on into them, or they are the cold part of another function (which has bounds of its own) and other code jumps into the
//! middle. That one of them ran proves nothing about a word that equals its address.

use std::collections::HashSet;

use crate::arch;
use crate::elf::Program;
use crate::tables;
use crate::text::Text;

/// Indices of these functions. What calls or jumps to their start with a 32-bit operand is counted elsewhere. `started` are the
/// functions whose first instruction ran: of the others something in the middle did.
pub(super) fn otherwise(program: &Program<'_>, text: &Text, started: &HashSet<usize>) -> HashSet<usize> {
    let mut out: HashSet<usize> = (0..text.decoded.len()).filter(|n| !started.contains(n)).collect();
    for (target, from) in tables::targets(program, text) {
        out.extend(text.functions.starting_at(target).filter(|to| *to != from));
    }
    for (n, f, decoded) in text.clean() {
        out.extend(decoded.short_exits.iter().filter_map(|addr| text.functions.starting_at(*addr)));
        if decoded.repeats {
            out.insert(n);
        }
        if n + 1 < text.decoded.len() && decoded.runs_on {
            let next = text.function(n + 1).start;
            let between = next.checked_sub(f.end()).and_then(|len| program.at(f.end(), len));
            if between.is_some_and(arch::is_padding) {
                out.insert(n + 1);
            }
        }
    }
    out
}
