//! What a job that was not profiled would touch. It runs functions that no profile named, which stay among the others, so that the
//! pages of the original are touched beside those of the clones. Where code is dense that is more than before.
//!
//! The model: the other job touches as much as those profiled, and in the same places; a share of its functions was not cloned, and the
//! same share of those that were cut goes on in what was left out. (Of thirteen programs, each with one job profiled and another one
//! measured, the share was 0 to 80 %, a quarter in the median.)

use std::collections::BTreeSet;

use crate::layout::{Layout, Wanted};
use crate::text::Text;
use crate::{PAGE, Touched};

/// Pages of code of another job, before and after, if `unseen` percent of its functions are none of those profiled.
pub(crate) fn another_job(text: &Text, all: &[Wanted], layout: &Layout, unseen: u32) -> (usize, usize) {
    let start = |w: &Wanted| text.function(w.function).start;
    let touched = |w: &Wanted| -> Vec<(u64, u64)> {
        let f = text.function(w.function);
        let part = |r: &std::ops::Range<u32>| (f.start + u64::from(r.start), u64::from(r.end - r.start));
        if w.parts.is_empty() { vec![(f.start, f.len)] } else { w.parts.iter().map(part).collect() }
    };
    let pages = |ranges: &[(u64, u64)]| -> BTreeSet<u64> {
        ranges.iter().flat_map(|(start, len)| start / PAGE..=(start + len - 1) / PAGE).collect()
    };
    let before = Touched::of(all.iter().flat_map(touched)).pages;
    let mut originals = BTreeSet::new();
    let mut clones = BTreeSet::new();
    for w in all {
        let copies = layout.clones_of(w.function);
        if copies.is_empty() || drawn(start(w), unseen) {
            originals.extend(pages(&touched(w)));
            continue;
        }
        clones.extend(pages(&copies.iter().map(|c| (c.start, c.len)).collect::<Vec<_>>()));
        let f = text.function(w.function);
        if !w.parts.is_empty() && drawn(f.end(), unseen) {
            originals.insert(f.start.midpoint(f.end()) / PAGE);
        }
    }
    (before, originals.len() + clones.len())
}

/// Whether a number is among those drawn; always the same ones. (The multiplier is 2^32 divided by the golden ratio, which spreads numbers evenly.)
fn drawn(number: u64, percent: u32) -> bool {
    let spread = (number as u32).wrapping_mul(0x9e37_79b9) >> 16;
    spread * 100 < percent << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_as_many_are_drawn_as_asked_for() {
        for percent in [0, 25, 60, 100] {
            let count = (0..4000u64).filter(|n| drawn(0x40_1000 + n * 48, percent)).count();
            assert!(count.abs_diff(percent as usize * 40) < 80, "{percent} %: {count}");
        }
    }
}
