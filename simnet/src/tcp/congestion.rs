//! The congestion window: slow start, `HyStart`, CUBIC and Reno.
//!
//! CUBIC follows RFC 9438 in the variant of Linux (`net/ipv4/tcp_cubic.c`); so does `HyStart` (S. Ha and I. Rhee, "Taming the
//! elephants: new TCP slow start", 2011). Windows are in segments.

use std::time::Duration;

use super::config::CongestionControl;
use crate::time::Time;

/// RFC 9438, 4.1: C, in segments per second cubed.
const CUBIC_C: f64 = 0.4;

/// RFC 9438, 4.6.
const CUBIC_BETA: f64 = 0.7;

/// What the sending host may hold segments back (`hystart_ack_delay()`, at most this).
const HYSTART_ACK_DELAY: Duration = Duration::from_millis(1);

/// `HyStart` works from this window on.
const HYSTART_LOW_WINDOW: u32 = 16;

/// Round trips looked at in each round.
const HYSTART_SAMPLES: u32 = 8;

/// Acknowledgements closer than this belong to one train.
const HYSTART_ACK_DELTA: Duration = Duration::from_millis(2);

/// Growth and back-off of one direction of a connection.
#[derive(Debug)]
pub(super) struct Congestion {
    algorithm: CongestionControl,
    window: u32,
    threshold: u32,
    /// Acknowledged segments that did not yet make a whole one of growth.
    credit: u32,
    cubic: Cubic,
    hystart: HyStart,
}

#[derive(Debug, Default)]
struct Cubic {
    last_max: u32,
    epoch: Option<Time>,
    /// Seconds from the epoch to the plateau.
    k: f64,
    origin: f64,
    /// What Reno would have by now, and the segments counted for it.
    reno_window: u32,
    reno_credit: u32,
}

#[derive(Debug, Default)]
struct HyStart {
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    samples: u32,
    round_least: Option<Duration>,
    least: Option<Duration>,
    is_found: bool,
}

/// What an acknowledgement said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acked {
    pub(super) now: Time,
    /// Segments that left the network.
    pub(super) segments: u32,
    /// Everything before has arrived.
    pub(super) sequence: u64,
    /// What has been sent by now.
    pub(super) next: u64,
    pub(super) round_trip: Option<Duration>,
}

impl Congestion {
    pub(super) fn new(algorithm: CongestionControl, initial_window: u32) -> Self {
        Self {
            algorithm,
            window: initial_window,
            threshold: u32::MAX,
            credit: 0,
            cubic: Cubic::default(),
            hystart: HyStart::default(),
        }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    pub(super) fn threshold(&self) -> u32 {
        self.threshold
    }

    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window.max(1);
    }

    pub(super) fn is_slow_start(&self) -> bool {
        self.window < self.threshold
    }

    /// Looks for the end of slow start; on every acknowledgement with a round trip, whatever the window.
    pub(super) fn observe(&mut self, acked: &Acked) {
        let Some(round_trip) = acked.round_trip else { return };
        // The first samples after a back-off still carry the queue that caused it.
        let epoch = self.cubic.epoch.filter(|epoch| acked.now.since(*epoch) < Duration::from_secs(1));
        if self.algorithm != CongestionControl::Cubic || epoch.is_some() {
            return;
        }
        let least = self.hystart.least.map_or(round_trip, |least| least.min(round_trip));
        self.hystart.least = Some(least);
        if self.hystart.is_found || !self.is_slow_start() {
            return;
        }
        // Rounds are counted from the first segment on, though nothing is looked for while the window is small.
        self.hystart.begin_round(acked);
        if self.window >= HYSTART_LOW_WINDOW && self.hystart.update(acked, round_trip, least) {
            self.threshold = self.window;
        }
    }

    /// Grows by what was acknowledged.
    pub(super) fn grow(&mut self, acked: &Acked) {
        let mut segments = acked.segments;
        if self.is_slow_start() {
            let grown = self.window.saturating_add(segments).min(self.threshold);
            segments -= grown - self.window;
            self.window = grown;
            if segments == 0 {
                return;
            }
        }
        let per_segment = match self.algorithm {
            CongestionControl::Reno => self.window,
            CongestionControl::Cubic => self.cubic.acks_per_growth(
                self.window,
                segments,
                acked.now,
                self.hystart.least.unwrap_or_default(),
            ),
        };
        // tcp_cong_avoid_ai().
        if self.credit >= per_segment {
            self.credit = 0;
            self.window += 1;
        }
        self.credit += segments;
        self.window += self.credit / per_segment;
        self.credit %= per_segment;
    }

    /// A loss: sets the threshold that the window is to come down to.
    pub(super) fn on_loss(&mut self) {
        self.threshold = match self.algorithm {
            CongestionControl::Reno => self.window / 2,
            CongestionControl::Cubic => {
                self.cubic.epoch = None;
                // Fast convergence: leave room for others when the window did not get back to where it was.
                self.cubic.last_max = if self.window < self.cubic.last_max {
                    (f64::from(self.window) * (1.0 + CUBIC_BETA) / 2.0) as u32
                } else {
                    self.window
                };
                (f64::from(self.window) * CUBIC_BETA) as u32
            }
        }
        .max(2);
    }

    /// A retransmission timeout: back to one segment.
    pub(super) fn on_timeout(&mut self) {
        self.on_loss();
        self.cubic = Cubic::default();
        self.hystart = HyStart { least: self.hystart.least, ..HyStart::default() };
        self.window = 1;
        self.credit = 0;
    }

    /// After a pause of so many timeouts the window is halved as often, but not below the initial one (RFC 2861).
    pub(super) fn on_idle(&mut self, pause: Duration, timeouts: u32, initial_window: u32) {
        self.threshold = if self.threshold == u32::MAX {
            u32::MAX
        } else {
            self.threshold.max(self.window - self.window / 4)
        };
        let floor = self.window.min(initial_window);
        self.window = self.window.checked_shr(timeouts).unwrap_or(0).max(floor);
        if let Some(epoch) = &mut self.cubic.epoch {
            *epoch += pause;
        }
    }
}

impl Cubic {
    /// How many acknowledged segments let the window grow by one.
    fn acks_per_growth(&mut self, window: u32, acked: u32, now: Time, least: Duration) -> u32 {
        self.reno_credit += acked;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.reno_credit = acked;
            self.reno_window = window;
            let below = f64::from(self.last_max.saturating_sub(window));
            self.k = (below / CUBIC_C).cbrt();
            self.origin = f64::from(self.last_max.max(window));
            now
        });
        let t = (now.since(epoch) + least).as_secs_f64() - self.k;
        let target = CUBIC_C.mul_add(t.powi(3), self.origin);
        let window_f = f64::from(window);
        let mut count = if target > window_f { window_f / (target - window_f) } else { 100.0 * window_f };
        if self.last_max == 0 {
            count = count.min(20.0);
        }
        // RFC 9438, 4.3: not slower than Reno with the same back-off would be.
        let per_reno = (window_f * (1.0 + CUBIC_BETA) / (3.0 * (1.0 - CUBIC_BETA))).max(1.0) as u32;
        self.reno_window += self.reno_credit / per_reno;
        self.reno_credit %= per_reno;
        if self.reno_window > window {
            count = count.min(window_f / f64::from(self.reno_window - window));
        }
        count.max(2.0) as u32
    }
}

impl HyStart {
    fn begin_round(&mut self, acked: &Acked) {
        if acked.sequence > self.round_end {
            self.round_end = acked.next;
            (self.round_start, self.last_ack) = (acked.now, acked.now);
            (self.round_least, self.samples) = (None, 0);
        }
    }

    /// True if the queue at the bottleneck has begun to fill.
    fn update(&mut self, acked: &Acked, round_trip: Duration, least: Duration) -> bool {
        // The train of acknowledgements of one round has become as long as half a round trip.
        if acked.now.since(self.last_ack) <= HYSTART_ACK_DELTA {
            self.last_ack = acked.now;
            self.is_found |= acked.now.since(self.round_start) > (least + HYSTART_ACK_DELAY) / 2;
        }
        // The round trip has become longer by an eighth, but by 4 ms at least and 16 ms at most.
        let round_least = self.round_least.map_or(round_trip, |least| least.min(round_trip));
        self.round_least = Some(round_least);
        if self.samples < HYSTART_SAMPLES {
            self.samples += 1;
        } else {
            let margin = (least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            self.is_found |= round_least > least + margin;
        }
        self.is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(now: Time, segments: u32) -> Acked {
        Acked { now, segments, sequence: 0, next: 0, round_trip: None }
    }

    #[test]
    fn slow_start_doubles_and_stops_at_the_threshold() {
        let mut reno = Congestion::new(CongestionControl::Reno, 10);
        reno.grow(&acked(Time::ZERO, 10));
        assert_eq!(reno.window(), 20);
        reno.on_loss();
        reno.set_window(8);
        reno.grow(&acked(Time::ZERO, 5));
        assert_eq!(reno.window(), 10);
        // From here on one segment per window.
        for _ in 0..10 {
            reno.grow(&acked(Time::ZERO, 1));
        }
        assert_eq!(reno.window(), 11);
    }

    /// RFC 9438, figure 1: after a loss at `W_max` the window is back there after K = cbrt(`W_max` (1 - beta) / C) seconds.
    #[test]
    fn cubic_is_back_at_its_maximum_after_k() {
        let mut cubic = Congestion::new(CongestionControl::Cubic, 1000);
        cubic.on_loss();
        cubic.set_window(cubic.threshold());
        assert_eq!(cubic.window(), 700);
        let k = (1000.0 * 0.3 / 0.4f64).cbrt();
        let round = Duration::from_millis(100);
        let mut now = Time::ZERO;
        while now.as_secs_f64() < k {
            // A round trip of acknowledgements, one for every second segment.
            for _ in 0..cubic.window() / 2 {
                cubic.grow(&acked(now, 2));
            }
            now += round;
        }
        assert!((980..=1005).contains(&cubic.window()), "{} after {k} s", cubic.window());
    }

    #[test]
    fn hystart_stops_slow_start_when_the_round_trip_grows() {
        let mut cubic = Congestion::new(CongestionControl::Cubic, 32);
        let mut now = Time::ZERO;
        for (round, millis) in [(1u64, 100), (2, 100), (3, 113)] {
            for index in 0..16 {
                now += Duration::from_millis(5);
                let round_trip = Some(Duration::from_millis(millis));
                cubic.observe(&Acked {
                    now,
                    segments: 1,
                    sequence: round * 100 + index,
                    next: round * 100 + 50,
                    round_trip,
                });
            }
            assert_eq!(cubic.is_slow_start(), round < 3);
        }
    }

    #[test]
    fn a_pause_brings_the_initial_window_back() {
        let mut cubic = Congestion::new(CongestionControl::Cubic, 80);
        cubic.on_idle(Duration::from_millis(500), 2, 10);
        assert_eq!(cubic.window(), 20);
        cubic.on_idle(Duration::from_secs(50), 200, 10);
        assert_eq!(cubic.window(), 10);
    }
}
