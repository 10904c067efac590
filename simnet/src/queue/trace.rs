//! A link whose rate follows a recorded trace.

use std::sync::Arc;

use super::{Counters, Packet, QueueLimit, Stage, drop_tail::DropTail};
use crate::{time::Time, trace_file::Trace};

/// What one opportunity delivers. mahimahi counts 1504, four of which are the header that its TUN device puts in front.
pub const OPPORTUNITY_BYTES: u64 = 1500;

/// A link that delivers up to [`OPPORTUNITY_BYTES`] at every opportunity of a trace.
///
/// As in mahimahi's `link_queue.cc`: a large packet takes several opportunities, several small packets share one, an
/// opportunity that finds the queue empty is lost, and one at the very time of an arrival is over.
#[derive(Debug)]
pub struct TraceRate<P> {
    trace: Arc<Trace>,
    queue: DropTail<P>,
    /// The packet being delivered and how many of its bytes are still to come.
    sending: Option<(u64, P)>,
    /// The next opportunity that can be used, meaningful while `sending`.
    opportunity: u64,
    /// How much of it is used up.
    used: u64,
}

impl<P: Packet> TraceRate<P> {
    /// A link that follows `trace` from time zero on.
    pub fn new(trace: Arc<Trace>, limit: QueueLimit) -> Self {
        Self { trace, queue: DropTail::new(limit), sending: None, opportunity: 0, used: 0 }
    }

    /// The opportunity in which the last byte of the packet being delivered goes.
    fn last_opportunity(&self) -> Option<u64> {
        let (remaining, _) = self.sending.as_ref()?;
        Some(self.opportunity + (self.used + remaining).saturating_sub(1) / OPPORTUNITY_BYTES)
    }
}

impl<P: Packet> Stage<P> for TraceRate<P> {
    fn push(&mut self, now: Time, packet: P) {
        if self.sending.is_some() {
            return self.queue.push(packet);
        }
        // The link was idle: all opportunities up to now are over, and with them what was left of the last one.
        let next = self.trace.first_after(now);
        if next > self.opportunity {
            self.opportunity = next;
            self.used = 0;
        }
        self.sending = Some((packet.wire_bytes().max(1), packet));
    }

    fn next(&self) -> Option<Time> {
        self.last_opportunity().map(|index| self.trace.at(index))
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        let last = self.last_opportunity()?;
        let at = self.trace.at(last);
        let (remaining, packet) = self.sending.take_if(|_| at <= now)?;
        self.used = self.used + remaining - (last - self.opportunity) * OPPORTUNITY_BYTES;
        self.opportunity = last;
        if self.used == OPPORTUNITY_BYTES {
            self.opportunity += 1;
            self.used = 0;
        }
        self.sending = self.queue.pop().map(|next| (next.wire_bytes().max(1), next));
        Some((at, packet))
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(trace: &str) -> TraceRate<u64> {
        TraceRate::new(Arc::new(Trace::parse(trace.as_bytes()).unwrap()), QueueLimit::Unlimited)
    }

    fn millis(link: &mut TraceRate<u64>) -> Vec<u64> {
        std::iter::from_fn(|| link.pop(Time::MAX)).map(|(at, _)| at.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn one_packet_per_opportunity() {
        let mut link = link("2\n4\n10\n");
        for _ in 0..5 {
            link.push(Time::ZERO, 1500);
        }
        assert_eq!(millis(&mut link), [2, 4, 10, 12, 14]);
    }

    #[test]
    fn small_packets_share_an_opportunity_and_large_ones_take_several() {
        let mut link = link("2\n4\n10\n");
        for size in [500, 1000, 200, 3000] {
            link.push(Time::ZERO, size);
        }
        // 500 + 1000 fill the first; 200 and 1300 of the 3000 the second; 1500 the third; 200 the fourth.
        assert_eq!(millis(&mut link), [2, 2, 4, 12]);
    }

    #[test]
    fn opportunities_that_find_no_packet_are_lost() {
        let mut link = link("2\n4\n10\n");
        link.push(Time::from_millis(4), 1500);
        assert_eq!(millis(&mut link), [10]);
        link.push(Time::from_millis(1000), 100);
        assert_eq!(millis(&mut link), [1002]);
        // What the 100 bytes left over is gone as well.
        link.push(Time::from_millis(1003), 1500);
        assert_eq!(millis(&mut link), [1004]);
    }

    #[test]
    fn a_busy_link_has_the_mean_rate_of_its_trace() {
        let trace = "1\n1\n3\n8\n8\n8\n20\n";
        let mut link = link(trace);
        for _ in 0..7000 {
            link.push(Time::ZERO, 1500);
        }
        assert_eq!(millis(&mut link).last(), Some(&20_000));
    }
}
