//! The receiving end of one direction: puts segments in order and decides when to acknowledge them.

use std::{collections::BTreeMap, ops::Range};

use super::config::{DELAYED_ACK, QUICK_ACKS};
use crate::time::Time;

/// Reassembly and acknowledgements (RFC 9293, 3.8.6.3; RFC 2018).
#[derive(Debug)]
pub(super) struct Receiver {
    next: u64,
    /// What arrived beyond `next`, as disjoint ranges: start to end.
    ahead: BTreeMap<u64, u64>,
    /// When the acknowledgement that is being held back must go.
    pub(super) ack_at: Option<Time>,
    /// Segments not yet acknowledged.
    unacknowledged: u32,
    quick_acks: u32,
}

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    /// Everything before has arrived.
    pub(super) sequence: u64,
    /// The range beyond it that arrived last (RFC 2018: the first block).
    pub(super) beyond: Option<(u64, u64)>,
}

impl Receiver {
    pub(super) fn new() -> Self {
        Self { next: 0, ahead: BTreeMap::new(), ack_at: None, unacknowledged: 0, quick_acks: QUICK_ACKS }
    }

    /// A segment arrives: the bytes that are in order now, and the acknowledgement, if it is not held back.
    pub(super) fn receive(&mut self, now: Time, segment: Range<u64>) -> (Range<u64>, Option<Ack>) {
        let before = self.next;
        let was_gap = !self.ahead.is_empty();
        if segment.end <= self.next {
            // Sent twice: the other side is waiting for an acknowledgement.
            return (before..before, Some(self.acknowledge(None)));
        }
        let block = self.insert(segment);
        if block.0 > self.next {
            return (before..before, Some(self.acknowledge(Some(block))));
        }
        self.next = block.1;
        self.ahead.remove(&block.0);
        self.unacknowledged += 1;
        let is_urgent = was_gap || self.unacknowledged >= 2 || self.quick_acks > 0;
        let ack = is_urgent.then(|| self.acknowledge(None));
        if ack.is_none() && self.ack_at.is_none() {
            self.ack_at = Some(now + DELAYED_ACK);
        }
        (before..self.next, ack)
    }

    /// The acknowledgement as it is now; nothing is held back any more.
    pub(super) fn acknowledge(&mut self, beyond: Option<(u64, u64)>) -> Ack {
        self.ack_at = None;
        self.unacknowledged = 0;
        self.quick_acks = self.quick_acks.saturating_sub(1);
        let beyond = beyond.or_else(|| self.ahead.first_key_value().map(|(start, end)| (*start, *end)));
        Ack { sequence: self.next, beyond }
    }

    /// Adds a range to what arrived ahead, merged with its neighbours; the merged range.
    fn insert(&mut self, segment: Range<u64>) -> (u64, u64) {
        let (mut start, mut end) = (segment.start.max(self.next), segment.end);
        while let Some((other_start, other_end)) = self.ahead.range(..=end).next_back().map(|(a, b)| (*a, *b))
        {
            if other_end < start {
                break;
            }
            self.ahead.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.ahead.insert(start, end);
        (start, end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_second_segment_is_acknowledged_after_the_first_ones() {
        let mut receiver = Receiver::new();
        let acks: Vec<bool> =
            (0..20).map(|n| receiver.receive(Time::ZERO, n * 10..n * 10 + 10).1.is_some()).collect();
        assert!(acks[..16].iter().all(|ack| *ack));
        assert_eq!(acks[16..], [false, true, false, true]);
        receiver.receive(Time::ZERO, 200..210);
        assert_eq!(receiver.ack_at, Some(Time::from_millis(40)));
    }

    #[test]
    fn a_gap_is_reported_at_once_and_so_is_its_end() {
        let mut receiver = Receiver::new();
        receiver.quick_acks = 0;
        let (bytes, ack) = receiver.receive(Time::ZERO, 10..20);
        assert_eq!((bytes, ack), (0..0, Some(Ack { sequence: 0, beyond: Some((10, 20)) })));
        let (_, ack) = receiver.receive(Time::ZERO, 30..40);
        assert_eq!(ack, Some(Ack { sequence: 0, beyond: Some((30, 40)) }));
        let (bytes, ack) = receiver.receive(Time::ZERO, 0..10);
        assert_eq!((bytes, ack), (0..20, Some(Ack { sequence: 20, beyond: Some((30, 40)) })));
    }

    proptest! {
        /// In any order and with repetitions, every byte is handed out once and in order.
        #[test]
        fn bytes_come_out_in_order(order in proptest::collection::vec(0u64..30, 0..120)) {
            let mut receiver = Receiver::new();
            let mut arrived = std::collections::BTreeSet::new();
            for n in order {
                let before = receiver.next;
                let (bytes, _) = receiver.receive(Time::ZERO, n * 7..n * 7 + 7);
                arrived.insert(n);
                let whole = (0..30).take_while(|n| arrived.contains(n)).count() as u64;
                prop_assert_eq!(bytes, before..whole * 7);
            }
        }
    }
}
