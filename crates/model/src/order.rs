//! Which pages are hot, and in which order they travel.

use std::cmp::Reverse;

use pagein_image::PageNo;

use crate::Trace;

/// A page that some trace touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotPage {
    /// The page.
    pub page: PageNo,
    /// Number of traces that touched it.
    pub touched: u32,
    /// Pages of one run are needed by the same jobs, as far as one can say: they should travel together, and without others.
    /// Runs are numbered in the order in which they travel.
    pub run: u32,
}

/// All pages below `page_count` that the traces touched, in the order in which they should travel.
///
/// First what all traces touched, each page where the trace that is first to need it needs it. Then one trace after the other with
/// what is still missing of it, and of these always the one that misses least: who needs little does not wait for who needs much,
/// and who needs most waits for all of it in any order. (The rule of the shortest remaining time, which makes the sum of all
/// waits least: Schrage, "A proof of the optimality of the shortest remaining processing time discipline", Operations Research
/// 16, 1968. Jobs that share their work are not in that proof.) Within a turn first what most traces share, as another job is
/// likeliest to need it, then the trace's own order. One trace alone keeps its order.
pub fn hot_order(traces: &[Trace], page_count: u32) -> Vec<HotPage> {
    let mut jobs: Vec<Vec<PageNo>> = traces.iter().map(|trace| trace.pages().collect()).collect();
    let mut touching: Vec<Vec<usize>> = vec![Vec::new(); page_count as usize];
    let mut earliest = vec![usize::MAX; page_count as usize];
    for (number, job) in jobs.iter_mut().enumerate() {
        // Each page once, wherever the trace comes from.
        job.retain(|page| {
            let Some(touching) = touching.get_mut(page.index()) else { return false };
            let is_first = touching.last() != Some(&number);
            touching.extend(is_first.then_some(number));
            is_first
        });
        for (rank, page) in job.iter().enumerate() {
            earliest[page.index()] = earliest[page.index()].min(rank);
        }
    }
    let mut order = Order {
        touching,
        is_placed: vec![false; page_count as usize],
        missing: jobs.iter().map(Vec::len).collect(),
        hot: Vec::new(),
    };

    let mut common: Vec<PageNo> = jobs.first().cloned().unwrap_or_default();
    common.retain(|page| order.touched(*page) == jobs.len());
    common.sort_by_key(|page| (earliest[page.index()], *page));
    order.place(&common);
    let mut waiting: Vec<usize> = (0..jobs.len()).collect();
    while let Some(next) = waiting.iter().copied().min_by_key(|job| (order.missing[*job], *job)) {
        waiting.retain(|job| *job != next);
        let mut turn = jobs[next].clone();
        turn.retain(|page| !order.is_placed[page.index()]);
        turn.sort_by_key(|page| Reverse(order.touched(*page)));
        let runs = turn.chunk_by(|a, b| order.touched(*a) == order.touched(*b));
        for run in runs.map(<[PageNo]>::to_vec).collect::<Vec<_>>() {
            order.place(&run);
        }
    }
    order.hot
}

/// An order as it grows.
struct Order {
    /// For each page the traces that touched it.
    touching: Vec<Vec<usize>>,
    is_placed: Vec<bool>,
    /// For each trace how many of its pages are not placed.
    missing: Vec<usize>,
    hot: Vec<HotPage>,
}

impl Order {
    fn touched(&self, page: PageNo) -> usize {
        self.touching[page.index()].len()
    }

    /// Appends a run.
    fn place(&mut self, pages: &[PageNo]) {
        let run = self.hot.last().map_or(0, |last| last.run + 1);
        for &page in pages {
            self.is_placed[page.index()] = true;
            self.touching[page.index()].iter().for_each(|job| self.missing[*job] -= 1);
            self.hot.push(HotPage { page, touched: self.touched(page) as u32, run });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{Access, FirstTouch};

    fn trace(pages: &[u32]) -> Trace {
        let touch = |&page: &u32| FirstTouch {
            time_us: 0,
            page: PageNo(page),
            access: Access::Read,
            process: 1,
            thread: 1,
        };
        Trace { touches: pages.iter().map(touch).collect(), ..Trace::default() }
    }

    fn pages(hot: &[HotPage]) -> Vec<(u32, u32)> {
        hot.iter().map(|h| (h.page.0, h.touched)).collect()
    }

    #[test]
    fn one_trace_keeps_its_order() {
        let hot = hot_order(&[trace(&[9, 0, 4])], 10);
        assert_eq!(pages(&hot), [(9, 1), (0, 1), (4, 1)]);
        assert!(hot.iter().all(|page| page.run == 0));
        assert_eq!(hot_order(&[], 10), []);
    }

    #[test]
    fn what_all_need_comes_first_and_who_misses_least_is_served_next() {
        // Page 5 ends all three; the second needs it soonest.
        let hot =
            hot_order(&[trace(&[1, 2, 20, 21, 22, 5]), trace(&[1, 30, 5]), trace(&[2, 1, 40, 22, 5])], 50);
        assert_eq!(pages(&hot), [(1, 3), (5, 3), (30, 1), (2, 2), (22, 2), (40, 1), (20, 1), (21, 1)]);
        assert_eq!(hot.iter().map(|h| h.run).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 3, 4, 4]);
    }

    #[test]
    fn pages_beyond_the_file_and_repeated_ones_are_dropped() {
        assert_eq!(pages(&hot_order(&[trace(&[5, 1])], 4)), [(1, 1)]);
        assert_eq!(pages(&hot_order(&[trace(&[2, 1, 2]), trace(&[1, 1])], 4)), [(1, 2), (2, 1)]);
    }

    proptest! {
        /// The least that a job can have to wait for are its own pages, the most are all that come up to its turn.
        #[test]
        fn every_page_is_there_once_and_nobody_waits_for_who_misses_more(
            sets in prop::collection::vec(prop::collection::hash_set(0u32..200, 0..60), 0..6),
        ) {
            let jobs: Vec<Vec<u32>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let traces: Vec<Trace> = jobs.iter().map(|pages| trace(pages)).collect();
            let hot = hot_order(&traces, 200);
            let all: BTreeSet<u32> = jobs.concat().into_iter().collect();
            let listed: Vec<u32> = hot.iter().map(|h| h.page.0).collect();
            prop_assert_eq!(listed.len(), all.len());
            prop_assert_eq!(&listed.iter().copied().collect::<BTreeSet<_>>(), &all);
            for h in &hot {
                let touched = sets.iter().filter(|set| set.contains(&h.page.0)).count();
                prop_assert_eq!(h.touched as usize, touched);
            }
            prop_assert!(hot.is_sorted_by_key(|h| h.run));
            let end = |set: &std::collections::HashSet<u32>| listed.iter().rposition(|p| set.contains(p)).map_or(0, |at| at + 1);
            let mut smallest: Vec<_> = sets.iter().collect();
            smallest.sort_by_key(|set| set.len());
            if let [first, ..] = smallest[..] {
                prop_assert_eq!(end(first), if all.is_empty() { 0 } else { first.len() }, "nothing that it does not need");
            }
        }

        #[test]
        fn pages_of_a_run_are_touched_by_as_many(
            sets in prop::collection::vec(prop::collection::hash_set(0u32..100, 0..40), 1..5),
        ) {
            let traces: Vec<Trace> =
                sets.iter().map(|set| trace(&set.iter().copied().collect::<Vec<_>>())).collect();
            for run in hot_order(&traces, 100).chunk_by(|a, b| a.run == b.run) {
                let shared = sets.iter().filter(|set| run.iter().all(|h| set.contains(&h.page.0))).count();
                prop_assert!(shared >= 1, "somebody needs all of it");
                prop_assert!(run.iter().all(|h| h.touched == run[0].touched));
            }
        }
    }
}
