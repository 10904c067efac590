//! Which pages travel together, and in which order.

use std::collections::BTreeSet;

use pagein_image::{PageNo, page_count, whole_order};
use pagein_model::{HotPage, Trace, hot_order};

use crate::cold::by_neighbourhood;
use crate::input::Input;

/// Pages of a hot frame after those for exec: an eighth of the pages before it, so that none waits for its neighbours much
/// longer than it waited for its turn, within these bounds. The first must be there soon; each takes 36 bytes of the manifest.
const FRAME_PAGES: std::ops::RangeInclusive<usize> = 8..=64;
/// Pages of a frame behind the hot ones: as many as all before it there, within these bounds. Its pages are of use when all of it has come.
const REST_FRAME_PAGES: std::ops::RangeInclusive<usize> = 64..=512;

/// The decisions of a cut, as lists of pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The hot pages, frame by frame.
    pub hot_frames: Vec<Vec<PageNo>>,
    /// For each hot page how many traces touched it.
    pub hot_touched: Vec<u32>,
    /// Number of the first hot frames that hold what the kernel reads at exec.
    pub exec_frames: u32,
    /// Groups of all pages: first those of touched pages that are not hot, run by run, then the untouched ones by neighbourhood, and last
    /// the hot ones, as in their frames.
    pub groups: Vec<Vec<PageNo>>,
    /// Groups of all pages in file order.
    pub paged: Vec<Vec<PageNo>>,
    /// The pages that are not hot, by [`whole_order`], frame by frame.
    pub rest_frames: Vec<Vec<PageNo>>,
}

impl Plan {
    pub(crate) fn new(input: &Input, min_probability: f64, group_pages: u32) -> Self {
        let count = page_count(input.file.len() as u64);
        Self::of(&input.program.exec_pages(), &input.traces, count, min_probability, group_pages)
    }

    /// The plan for a program of `count` pages, of which the kernel reads `exec_pages` at exec.
    fn of(
        exec_pages: &BTreeSet<PageNo>,
        traces: &[Trace],
        count: u32,
        min_probability: f64,
        group_pages: u32,
    ) -> Self {
        let touched = hot_order(traces, count);
        let traces = traces.len().max(1) as f64;
        let is_exec = |page: &HotPage| exec_pages.contains(&page.page);
        let is_hot = |page: &HotPage| f64::from(page.touched) / traces >= min_probability;
        let (hot, warm): (Vec<HotPage>, Vec<HotPage>) =
            touched.iter().filter(|page| !is_exec(page)).partition(|page| is_hot(page));

        let exec: Vec<PageNo> = exec_pages.iter().copied().collect();
        let touched_of =
            |page: &PageNo| touched.iter().find(|hot| hot.page == *page).map_or(0, |hot| hot.touched);
        let hot_frames = growing(&hot);
        let hot_touched: Vec<u32> =
            exec.iter().map(touched_of).chain(hot_frames.iter().flatten().map(|hot| hot.touched)).collect();
        let hot_frames: Vec<Vec<PageNo>> =
            std::iter::once(exec).chain(hot_frames.iter().map(|frame| page_numbers(frame))).collect();

        let listed = hot_frames.concat();
        let size = group_pages as usize;
        let warm_groups: Vec<Vec<PageNo>> =
            along_runs(&warm, size / 2, |_| size).into_iter().map(page_numbers).collect();
        let known = [&listed[..], &page_numbers(&warm)].concat();
        let mut is_known = vec![false; count as usize];
        for page in &known {
            is_known[page.index()] = true;
        }
        let untouched: Vec<PageNo> = (0..count).map(PageNo).filter(|page| !is_known[page.index()]).collect();
        // Without a trace nothing but the pages for exec is known, which say nothing of where the program will be.
        let touched: &[PageNo] = if touched.is_empty() { &[] } else { &known };
        let all: Vec<PageNo> = (0..count).map(PageNo).collect();
        Self {
            hot_touched,
            exec_frames: 1,
            groups: [warm_groups, by_neighbourhood(&untouched, touched, group_pages), hot_frames.clone()]
                .concat(),
            paged: all.chunks(size).map(<[PageNo]>::to_vec).collect(),
            rest_frames: rest_frames(&whole_order(&listed, count)[listed.len()..]),
            hot_frames,
        }
    }
}

fn page_numbers(pages: &[HotPage]) -> Vec<PageNo> {
    pages.iter().map(|hot| hot.page).collect()
}

/// Cuts hot pages into frames that grow. Within a frame they are in file order: they arrive together in any case, and
/// neighbours compress better side by side (1.4 % less for `node -e 1` at level 19) and are installed together.
fn growing(pages: &[HotPage]) -> Vec<Vec<HotPage>> {
    let longest = |start: usize| (start / 8).clamp(*FRAME_PAGES.start(), *FRAME_PAGES.end());
    let mut frames: Vec<_> =
        along_runs(pages, *FRAME_PAGES.start(), longest).into_iter().map(<[HotPage]>::to_vec).collect();
    for frame in &mut frames {
        frame.sort_by_key(|hot| hot.page);
    }
    frames
}

/// Cuts pages into pieces; one that begins at position n has at most `longest(n)`. A piece ends where a run ends, unless it would have
/// fewer than `least` pages then: who needs the pages of a run should not have to wait for others, and who asks for one of them should
/// get the others (4 to 7 % of a start at 1 Mbit/s, `docs/measurements.md`).
fn along_runs(pages: &[HotPage], least: usize, longest: impl Fn(usize) -> usize) -> Vec<&[HotPage]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < pages.len() {
        let end = pages.len().min(start + longest(start).max(1));
        let is_end_of_run = |at: &usize| pages[at - 1].run != pages[*at].run;
        let end = (start + least.max(1)..end).find(is_end_of_run).unwrap_or(end);
        pieces.push(&pages[start..end]);
        start = end;
    }
    pieces
}

/// Cuts the pages that are not hot.
fn rest_frames(pages: &[PageNo]) -> Vec<Vec<PageNo>> {
    let mut frames: Vec<Vec<PageNo>> = Vec::new();
    let mut start = 0;
    while start < pages.len() {
        let size = start.clamp(*REST_FRAME_PAGES.start(), *REST_FRAME_PAGES.end());
        let end = pages.len().min(start + size);
        frames.push(pages[start..end].to_vec());
        start = end;
    }
    frames
}

#[cfg(test)]
mod recorded;

#[cfg(test)]
mod tests {
    use super::*;
    use pagein_elf::Program;
    use pagein_image::{Digest, MAX_FRAME_PAGES};
    use pagein_model::{Access, FirstTouch};
    use proptest::prelude::*;

    fn input(traces: &[Vec<u32>]) -> Input {
        let file = std::fs::read("/bin/bash").expect("every Linux test machine has bash");
        let touch = |&page: &u32| FirstTouch {
            time_us: 0,
            page: PageNo(page),
            access: Access::Read,
            process: 1,
            thread: 1,
        };
        let trace =
            |pages: &Vec<u32>| Trace { touches: pages.iter().map(touch).collect(), ..Trace::default() };
        Input {
            name: "bash".into(),
            digest: Digest::of(&file),
            program: Program::parse_file(&file).unwrap(),
            file,
            traces: traces.iter().map(trace).collect(),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_page_is_somewhere_exactly_once(
            traces in prop::collection::vec(prop::collection::hash_set(0u32..250, 0..80), 0..4),
            group_pages in 1u32..40,
            min in 0.0..1.0f64,
        ) {
            let traces: Vec<Vec<u32>> = traces.into_iter().map(|set| set.into_iter().collect()).collect();
            let input = input(&traces);
            let plan = Plan::new(&input, min, group_pages);
            prop_assert_eq!(&Plan::new(&input, min, group_pages), &plan, "the same again");
            let lists = [&plan.hot_frames[..], &plan.rest_frames, &plan.groups, &plan.paged].concat();
            prop_assert!(lists.iter().all(|pages| (1..=MAX_FRAME_PAGES as usize).contains(&pages.len())));
            let beside_hot = &plan.groups[..plan.groups.len() - plan.hot_frames.len()];
            let longest = beside_hot.iter().map(Vec::len).max().unwrap_or(0);
            prop_assert!(longest <= 2 * group_pages as usize);
            let all: Vec<PageNo> = (0..page_count(input.file.len() as u64)).map(PageNo).collect();
            let sorted = |mut pages: Vec<PageNo>| { pages.sort(); pages };
            let hot = plan.hot_frames.concat();
            prop_assert_eq!(&sorted(plan.groups.concat()), &all);
            prop_assert_eq!(&plan.paged.concat(), &all);
            let whole = [hot.clone(), plan.rest_frames.concat()].concat();
            prop_assert_eq!(&whole, &whole_order(&hot, all.len() as u32));
            prop_assert_eq!(&sorted(whole), &all);
            prop_assert_eq!(plan.hot_touched.len(), hot.len());
            let exec: Vec<PageNo> = input.program.exec_pages().into_iter().collect();
            prop_assert_eq!(&plan.hot_frames[0], &exec);
        }
    }

    #[test]
    fn rare_pages_are_cold_but_lie_together() {
        let plan = Plan::new(&input(&[vec![0, 50, 60], vec![0, 60], vec![60, 70]]), 0.5, 16);
        let hot = plan.hot_frames.concat();
        assert!(hot.contains(&PageNo(60)) && !hot.contains(&PageNo(50)));
        assert_eq!(plan.groups[0], [PageNo(50), PageNo(70)]);
    }
}
