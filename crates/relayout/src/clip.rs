//! Clipping: of a large function only the blocks that were touched are copied, as a few fragments. Instructions are not changed for it: a
//! 32-bit branch that leaves its fragment goes to the other fragment, or to the original; an 8-bit one must not leave, so that what it
//! jumps across comes along. A fragment that would run on into what is missing ends in a jump there.

use std::ops::Range;

use crate::arch;

/// Untouched gaps up to this are copied along: a jump across one and back costs as much, and a line of cache holds 64 bytes.
const GAP: u32 = 48;

/// The fragments of a function (offsets, ascending) for the blocks at the offsets `touched`; `None` if most of it is touched.
pub(crate) fn fragments(code: &[u8], start: u64, touched: &[u32]) -> Option<Vec<Range<u32>>> {
    let leaders = arch::branch_leaders(code, start);
    let len = code.len() as u32;
    let block_of = |offset: u32| leaders.partition_point(|l| *l <= offset).saturating_sub(1);
    let end_of = |block: usize| leaders.get(block + 1).copied().unwrap_or(len);
    let mut keep = vec![false; leaders.len()];
    for offset in touched.iter().chain([&0]) {
        keep[block_of(*offset)] = true;
    }
    // A short branch and its target in one piece, with all between; that may bring other short branches in.
    let short: Vec<(usize, usize)> =
        arch::short_branches(code, start).iter().map(|(from, to)| (block_of(*from), block_of(*to))).collect();
    loop {
        let mut changed = false;
        for (from, to) in short.iter().filter(|(from, _)| keep[*from]).copied().collect::<Vec<_>>() {
            for kept in &mut keep[from.min(to)..=from.max(to)] {
                changed |= !*kept;
                *kept = true;
            }
        }
        // Gaps are filled in the same loop: what fills them may branch, too.
        let mut last_kept = None;
        for block in 0..keep.len() {
            if !keep[block] {
                continue;
            }
            if let Some(last) =
                last_kept.filter(|last| last + 1 < block && leaders[block] - end_of(*last) <= GAP)
            {
                keep[last + 1..block].fill(true);
                changed = true;
            }
            last_kept = Some(block);
        }
        if !changed {
            break;
        }
    }
    let mut out: Vec<Range<u32>> = Vec::new();
    for block in (0..keep.len()).filter(|b| keep[*b]) {
        match out.last_mut() {
            Some(last) if last.end == leaders[block] => last.end = end_of(block),
            _ => out.push(leaders[block]..end_of(block)),
        }
    }
    let kept: u32 = out.iter().map(|r| r.end - r.start).sum();
    (u64::from(kept) * 4 <= u64::from(len) * 3).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(code: &[u8], touched: &[u32]) -> Vec<(u32, u32)> {
        fragments(code, 0, touched).unwrap().iter().map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn untouched_blocks_stay_behind() {
        // je far (6 bytes); ret; 100 nops; far: ret.
        let mut code = vec![0x0f, 0x84, 101, 0, 0, 0, 0xc3];
        code.extend([0x90; 100]);
        code.push(0xc3);
        assert_eq!(bounds(&code, &[0, 6]), [(0, 7)]);
        assert_eq!(bounds(&code, &[0, 107]), [(0, 6), (107, 108)]);
    }

    #[test]
    fn what_a_short_branch_crosses_comes_along() {
        // je +100 (2 bytes); 100 nops; ret; 300 nops behind it.
        let mut code = vec![0x74, 100];
        code.extend([0x90; 100]);
        code.push(0xc3);
        code.extend([0x90; 300]);
        assert_eq!(bounds(&code, &[0]), [(0, 103)]);
    }
}
