//! How fast bytes arrive while something is on its way. Pure: the caller gives the time.
//!
//! The clock runs from the first bytes of a response, not from the request: making connections and waiting for the server
//! say nothing of bandwidth. It stops when nothing is under way, and while the windows of young connections hold the sender back: then
//! whole flights come, each at the link's rate, with pauses of nearly a round trip between them. A reader that gets no processor for a
//! while finds all that came meanwhile at once, so no single interval is believed: the estimate is the upper quartile of the last
//! intervals, each at least 50 ms long and each beginning where the one before ended.

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
/// A pause is at least so much longer than the flight before it took, and ends nearly a round trip after that began.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Fewer bytes than these are no flight: single packets of a slow link.
const FLIGHT: u64 = 10 * 1024;
/// Bytes of the first flight (RFC 6928: 10 packets, less headers).
const FIRST_FLIGHT: f64 = 14_480.0;
/// What arrived within less was read in one go; how much less is not known.
const TIME_MIN: Duration = Duration::from_micros(500);

/// The measurement.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// Responses under way.
    open: u32,
    /// When bytes came last, since the last time that nothing was under way.
    last: Option<Instant>,
    /// Bytes since the last pause, and how long they took.
    flight: (u64, Duration),
    /// The interval that is not over: how long it has lasted, and its bytes.
    interval: Option<(Duration, u64)>,
    /// Bytes per second of the last intervals.
    recent: VecDeque<f64>,
    /// All bytes, the time that they took, and the pauses between them.
    bytes: u64,
    time: Duration,
    paused: Duration,
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
            self.flight = (0, Duration::ZERO);
            self.interval = None;
        }
    }

    /// Bytes came over a link of this round trip, if it is known.
    pub(crate) fn arrived(&mut self, now: Instant, bytes: u64, round_trip: Option<Duration>) {
        self.bytes += bytes;
        let gap = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.last = Some(now);
        let (flight, took) = self.flight;
        let is_long = |trip: Duration| gap >= PAUSE_MIN + took && gap + took >= trip.mul_f64(0.8);
        if flight >= FLIGHT && round_trip.is_some_and(|trip| is_long(trip) && self.keeps_pace(gap, trip)) {
            self.paused += gap;
            // The first bytes begin the flight: how long they were under way is not known.
            self.flight = (bytes, Duration::ZERO);
            return;
        }
        self.flight = (flight + bytes, took + gap);
        self.time += gap;
        let Some((length, sum)) = &mut self.interval else {
            self.interval = Some((Duration::ZERO, 0));
            return;
        };
        *length += gap;
        *sum += bytes;
        if *length < INTERVAL {
            return;
        }
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(*sum as f64 / length.as_secs_f64());
        self.interval = Some((Duration::ZERO, 0));
    }

    /// Whether as much has come, before this `gap`, as slow start lets through, which doubles each round trip (RFC 5681, section 3.1):
    /// windows are what holds the sender back then. Of a slower link, bytes that lay ready together look like flights, too. Some
    /// may be missing, as windows do not double exactly.
    fn keeps_pace(&self, gap: Duration, round_trip: Duration) -> bool {
        let trips = (self.time + self.paused + gap).as_secs_f64() / round_trip.as_secs_f64().max(1e-6);
        self.bytes as f64 >= FIRST_FLIGHT * (trips.min(40.0).exp2() - 1.0) * 0.6
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
        rate.arrived(at(1000), 1000, None);
        assert_eq!(rate.estimate(), None, "too little to tell");
        (1..=19).for_each(|n| rate.arrived(at(1000 + n), 1000, None));
        let estimate = rate.estimate().unwrap();
        assert!((estimate - 1e6).abs() < 1e5, "20 kB in 19 ms: {estimate}");
    }

    #[test]
    fn pauses_between_transfers_do_not_count() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        for round in 0..50 {
            rate.open();
            for n in 0..100 {
                rate.arrived(start + Duration::from_secs(round) + Duration::from_millis(n), 1000, None);
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
        rate.arrived(Instant::now(), 14_480, None);
        assert_eq!(rate.estimate(), Some(14_480.0 / 0.0005));
    }

    /// Flights of 10, 20, 40... packets, as long as the link does not hold them back, each at the link's rate.
    fn slow_start(bandwidth: f64, round_trip: Duration, round_trips: u32) -> Rate {
        let (mut rate, start) = (Rate::default(), Instant::now());
        rate.open();
        let packet = Duration::from_secs_f64(1448.0 / bandwidth);
        let mut at = start;
        for number in 0..round_trips {
            let flight = 10u32 << number;
            let began = at;
            for _ in 0..flight {
                rate.arrived(at, 1448, Some(round_trip));
                at += packet;
            }
            at = at.max(began + round_trip);
        }
        rate
    }

    #[test]
    fn the_pace_of_slow_start_is_not_taken_for_the_rate() {
        for (mbit, ms) in
            [(100.0, 100), (100.0, 20), (1000.0, 100), (1.0, 20), (1.0, 100), (10.0, 20), (0.2, 20)]
        {
            let (truth, round_trip) = (mbit * 125_000.0, Duration::from_millis(ms));
            for round_trips in [1, 3, 5] {
                let estimate = slow_start(truth, round_trip, round_trips).estimate().unwrap();
                // A first flight within half a millisecond is not told from a slower one.
                let exact = truth < 14_480.0 / 0.0005 / 2.0 || round_trips > 1;
                assert!(!exact || estimate > truth * 0.75, "{mbit} x {ms}, {round_trips}: {estimate}");
                assert!(estimate < truth * 1.25, "{mbit} x {ms}, {round_trips}: {estimate}");
            }
        }
    }

    #[test]
    fn lumps_of_a_slow_link_are_no_flights() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        rate.open();
        for lump in 0..12u32 {
            rate.arrived(start + Duration::from_millis(13) * lump, 16_384, Some(Duration::from_millis(20)));
        }
        let (estimate, truth) = (rate.estimate().unwrap(), 16_384.0 / 0.013);
        assert!(estimate > truth * 0.8 && estimate < truth * 1.25, "{estimate} of {truth}");
    }

    proptest! {
        /// A steady link whose reader is kept from the processor now and then is estimated within a third.
        #[test]
        fn a_reader_that_stumbles_is_no_faster_link(
            kb_per_ms in 0.1..100.0f64, stalls in prop::collection::vec((0u64..2000, 1u64..40), 0..12),
            round_trip in prop::option::of(0u64..200),
        ) {
            let round_trip = round_trip.map(Duration::from_millis);
            let (mut rate, start) = (Rate::default(), Instant::now());
            rate.open();
            let mut held = 0.0;
            for ms in 0..2000u64 {
                held += kb_per_ms * 1000.0;
                if stalls.iter().any(|(at, long)| (*at..at + long).contains(&ms)) {
                    continue;
                }
                rate.arrived(start + Duration::from_millis(ms), held as u64, round_trip);
                held = 0.0;
            }
            let (estimate, truth) = (rate.estimate().unwrap(), kb_per_ms * 1e6);
            prop_assert!(estimate > truth * 0.66 && estimate < truth * 1.5, "{} of {}", estimate, truth);
        }
    }
}
