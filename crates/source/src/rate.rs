//! How fast bytes arrive while something is on its way. Pure: the caller gives the time.
//!
//! The clock runs from the first bytes of a response, not from the request: making connections and waiting for the server
//! say nothing of bandwidth. It stops when nothing is under way. A reader that gets no processor for a while finds all that
//! came meanwhile at once, so no single interval is believed: the estimate is the upper quartile of the last intervals, each at
//! least 50 ms long and each beginning where the one before ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Length of an interval: several packets even at 1 Mbit/s, and long against the turns of a scheduler.
const INTERVAL: Duration = Duration::from_millis(50);
/// Intervals that are remembered: with more than 50 ms each, about the last second of transfer.
const REMEMBERED: usize = 16;
/// So many intervals are enough for a quartile.
const ENOUGH: usize = 4;
/// Fewer bytes say nothing: some packets that lay ready together.
const BYTES_MIN: u64 = 8 * 1024;
/// What arrived within less was read in one go; how much less is not known.
const TIME_MIN: Duration = Duration::from_micros(500);

/// The measurement.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Responses under way.
    open: u32,
    /// When bytes came last, since the last time that nothing was under way.
    last: Option<Instant>,
    /// The interval that is not over: its start and its bytes.
    interval: Option<(Instant, u64)>,
    /// Bytes per second of the last intervals.
    recent: VecDeque<f64>,
    /// All bytes, and the time that they took.
    bytes: u64,
    time: Duration,
}

impl Rate {
    /// A response begins.
    pub(crate) fn open(&mut self) {
        self.open += 1;
    }

    /// It ends, complete or not.
    pub(crate) fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.last = None;
            self.interval = None;
        }
    }

    /// Bytes came.
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u64) {
        self.bytes += bytes;
        if let Some(last) = self.last {
            self.time += now.saturating_duration_since(last);
        }
        self.last = Some(now);
        // The first bytes begin the interval: how long they were under way is not known.
        let (start, sum) = match self.interval {
            Some((start, sum)) => (start, sum + bytes),
            None => (now, 0),
        };
        let length = now.saturating_duration_since(start);
        if length < INTERVAL {
            self.interval = Some((start, sum));
            return;
        }
        self.interval = Some((now, 0));
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(sum as f64 / length.as_secs_f64());
    }

    /// Bytes per second; `None` before there is anything to tell.
    pub(crate) fn estimate(&self) -> Option<f64> {
        if self.recent.len() >= ENOUGH {
            let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
            sorted.sort_by(f64::total_cmp);
            return Some(sorted[sorted.len() * 3 / 4]);
        }
        (self.bytes >= BYTES_MIN).then(|| self.bytes as f64 / self.time.max(TIME_MIN).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_time_before_the_first_bytes_does_not_count() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        rate.open();
        rate.arrived(at(1000), 1000);
        assert_eq!(rate.estimate(), None, "too little to tell");
        (1..=19).for_each(|n| rate.arrived(at(1000 + n), 1000));
        let estimate = rate.estimate().unwrap();
        assert!((estimate - 1e6).abs() < 1e5, "20 kB in 19 ms: {estimate}");
    }

    #[test]
    fn pauses_between_transfers_do_not_count() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        for round in 0..50 {
            rate.open();
            for n in 0..100 {
                rate.arrived(start + Duration::from_secs(round) + Duration::from_millis(n), 1000);
            }
            rate.close();
        }
        let estimate = rate.estimate().unwrap();
        assert!((estimate - 1e6).abs() < 5e4, "{estimate}");
    }

    #[test]
    fn a_first_flight_that_lay_ready_is_fast_and_finite() {
        let mut rate = Rate::default();
        rate.open();
        rate.arrived(Instant::now(), 14_480);
        assert_eq!(rate.estimate(), Some(14_480.0 / 0.0005));
    }

    proptest! {
        /// A steady link whose reader is kept from the processor now and then is estimated within a third.
        #[test]
        fn a_reader_that_stumbles_is_no_faster_link(
            kb_per_ms in 0.1..100.0f64, stalls in prop::collection::vec((0u64..2000, 1u64..40), 0..12),
        ) {
            let (mut rate, start) = (Rate::default(), Instant::now());
            rate.open();
            let mut held = 0.0;
            for ms in 0..2000u64 {
                held += kb_per_ms * 1000.0;
                if stalls.iter().any(|(at, long)| (*at..at + long).contains(&ms)) {
                    continue;
                }
                rate.arrived(start + Duration::from_millis(ms), held as u64);
                held = 0.0;
            }
            let (estimate, truth) = (rate.estimate().unwrap(), kb_per_ms * 1e6);
            prop_assert!(estimate > truth * 0.66 && estimate < truth * 1.5, "{} of {}", estimate, truth);
        }
    }
}
