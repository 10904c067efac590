//! What the pager knows of every page: is it there, is it coming, who waits for it. Pure state, no I/O, no clock.

use std::collections::HashMap;

use pagein_image::PageNo;

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageState {
    /// At the source only.
    Missing,
    /// It comes with the hot stream or with the fill.
    Streaming,
    /// It was requested.
    Requested,
    /// In the memory file.
    Present,
}

/// What is to be done about a fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The page is there: let the thread go on.
    Wake,
    /// It is on its way; the waiter is noted.
    Wait,
    /// It must be requested; the waiter is noted.
    Demand,
}

/// Counts that end up in the stats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Faults that reached the pager.
    pub(crate) faults: u64,
    /// Faults on pages that had to be requested.
    pub(crate) demand_faults: u64,
    /// Pages in the memory file.
    pub(crate) present: u32,
}

/// All pages of one program. `W` names who waits: a process and an address.
#[derive(Debug)]
pub(crate) struct PageTable<W> {
    states: Vec<PageState>,
    waiting: HashMap<PageNo, Vec<W>>,
    counts: Counts,
}

impl<W> PageTable<W> {
    pub(crate) fn new(page_count: u32) -> Self {
        Self {
            states: vec![PageState::Missing; page_count as usize],
            waiting: HashMap::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.counts.present as usize == self.states.len()
    }

    pub(crate) fn state(&self, page: PageNo) -> PageState {
        self.states[page.index()]
    }

    /// These pages will come without being requested.
    pub(crate) fn expect(&mut self, pages: &[PageNo]) {
        for page in pages {
            let state = &mut self.states[page.index()];
            if *state == PageState::Missing {
                *state = PageState::Streaming;
            }
        }
    }

    /// The stream that was to bring these pages has ended: what it did not bring must be requested, at once where somebody waits for it.
    pub(crate) fn stream_ended(&mut self, pages: &[PageNo]) -> Vec<PageNo> {
        let mut waited = Vec::new();
        for page in pages {
            let state = &mut self.states[page.index()];
            if *state == PageState::Streaming {
                *state = PageState::Missing;
                waited.extend(self.waiting.contains_key(page).then_some(*page));
            }
        }
        waited
    }

    /// A thread waits for `page`. `overtake` says whether a page of the stream is so far ahead that it is better
    /// requested.
    pub(crate) fn fault(&mut self, page: PageNo, waiter: W, overtake: impl FnOnce() -> bool) -> Answer {
        self.counts.faults += 1;
        let answer = match self.states[page.index()] {
            PageState::Present => return Answer::Wake,
            PageState::Streaming if !overtake() => Answer::Wait,
            PageState::Requested => {
                self.counts.demand_faults += 1;
                Answer::Wait
            }
            PageState::Missing | PageState::Streaming => {
                self.counts.demand_faults += 1;
                self.states[page.index()] = PageState::Requested;
                Answer::Demand
            }
        };
        self.waiting.entry(page).or_default().push(waiter);
        answer
    }

    /// A request is about to be made that also brings these pages: nobody else need request them.
    pub(crate) fn requested(&mut self, pages: &[PageNo]) {
        for page in pages {
            let state = &mut self.states[page.index()];
            if *state != PageState::Present {
                *state = PageState::Requested;
            }
        }
    }

    /// The pages are in the memory file now. Returns who waited for them.
    pub(crate) fn arrived(&mut self, pages: &[PageNo]) -> Vec<W> {
        let mut woken = Vec::new();
        for page in pages {
            let state = &mut self.states[page.index()];
            if *state != PageState::Present {
                *state = PageState::Present;
                self.counts.present += 1;
            }
            woken.extend(self.waiting.remove(page).into_iter().flatten());
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PageNo = PageNo(3);

    #[test]
    fn a_missing_page_is_demanded_once_and_wakes_all_who_wait() {
        let mut table = PageTable::new(8);
        assert_eq!(table.fault(P, "a", || false), Answer::Demand);
        assert_eq!(table.fault(P, "b", || false), Answer::Wait);
        assert_eq!(table.arrived(&[P, PageNo(4)]), ["a", "b"]);
        assert_eq!(table.fault(P, "c", || false), Answer::Wake);
        assert_eq!(table.counts(), Counts { faults: 3, demand_faults: 2, present: 2 });
    }

    #[test]
    fn a_streaming_page_is_waited_for_unless_it_is_far() {
        let mut table = PageTable::new(8);
        table.expect(&[P, PageNo(5)]);
        assert_eq!(table.fault(P, 1, || false), Answer::Wait);
        assert_eq!(table.fault(PageNo(5), 2, || true), Answer::Demand);
        assert_eq!(table.counts().demand_faults, 1);
        assert_eq!(table.arrived(&[P]), [1]);
    }

    #[test]
    fn what_a_broken_stream_leaves_is_demanded() {
        let mut table = PageTable::new(8);
        table.expect(&[P, PageNo(5)]);
        table.fault(P, 1, || false);
        assert_eq!(table.stream_ended(&[PageNo(0)]), [], "another stream's end");
        assert_eq!(table.stream_ended(&[P, PageNo(0), PageNo(5)]), [P]);
        assert_eq!(table.state(PageNo(5)), PageState::Missing);
        table.requested(&[P]);
        assert_eq!(table.arrived(&[P]), [1]);
    }

    #[test]
    fn a_page_that_arrives_twice_counts_once() {
        let mut table = PageTable::<()>::new(2);
        table.arrived(&[PageNo(0), PageNo(1)]);
        table.arrived(&[PageNo(1)]);
        assert!(table.is_complete());
    }
}
