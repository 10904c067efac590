//! Which pages are hot, and in which order they travel.

use pagein_image::PageNo;

use crate::Trace;

/// A page that some trace touched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotPage {
    /// The page.
    pub page: PageNo,
    /// Number of traces that touched it.
    pub touched: u32,
    /// Mean of its relative positions (0 first, 1 last) in the traces that touched it.
    pub position: f64,
}

/// All pages below `page_count` that the traces touched, in the order of their mean first touch.
///
/// The order within one trace is kept exactly; several traces are merged by relative position, because their absolute
/// numbers of touches differ.
pub fn hot_order(traces: &[Trace], page_count: u32) -> Vec<HotPage> {
    let mut sums = vec![(0u32, 0f64); page_count as usize];
    for trace in traces {
        let pages: Vec<PageNo> = trace.pages().filter(|page| page.0 < page_count).collect();
        let last = pages.len().max(2) - 1;
        for (rank, page) in pages.iter().enumerate() {
            let (touched, position) = &mut sums[page.index()];
            *touched += 1;
            *position += rank as f64 / last as f64;
        }
    }
    let touched_pages = sums.iter().enumerate().filter(|(_, (touched, _))| *touched > 0);
    let mut hot: Vec<HotPage> = touched_pages
        .map(|(index, &(touched, sum))| HotPage {
            page: PageNo(index as u32),
            touched,
            position: sum / f64::from(touched),
        })
        .collect();
    hot.sort_by(|a, b| a.position.total_cmp(&b.position).then(a.page.cmp(&b.page)));
    hot
}

#[cfg(test)]
mod tests {
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
        assert_eq!(pages(&hot_order(&[trace(&[9, 0, 4])], 10)), [(9, 1), (0, 1), (4, 1)]);
    }

    #[test]
    fn several_traces_are_merged_by_position_and_counted() {
        let hot = hot_order(&[trace(&[1, 2, 3]), trace(&[1, 3, 7])], 10);
        assert_eq!(pages(&hot), [(1, 2), (2, 1), (3, 2), (7, 1)]);
    }

    #[test]
    fn pages_beyond_the_file_are_dropped() {
        assert_eq!(pages(&hot_order(&[trace(&[5, 1])], 4)), [(1, 1)]);
    }
}
