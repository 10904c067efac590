//! The sending end of one direction: what may go out, what was lost, and when to send it again.
//!
//! Loss is noticed as Linux does it: three segments further on were acknowledged (RFC 6675), or one that was sent later was
//! (RACK, RFC 8985); a tail loss probe and then the retransmission timeout take over when nothing comes back. During
//! recovery the window comes down with PRR (RFC 6937).

use std::{collections::VecDeque, ops::Range, time::Duration};

use super::{
    config::{MIN_TIMEOUT_MARGIN, TcpConfig},
    congestion::{Acked, Congestion},
    receiver::Ack,
    rtt::RoundTrip,
};
use crate::time::Time;

/// So many acknowledged segments behind a gap mean that it is a loss and no reordering.
const DUPLICATE_THRESHOLD: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    /// Arrived, ahead of a gap.
    Sacked,
    Lost,
}

#[derive(Debug)]
struct Segment {
    bytes: Range<u64>,
    sent: Time,
    state: State,
    is_repeated: bool,
}

/// Coming back from a loss.
#[derive(Debug)]
struct Recovery {
    /// It is over when everything sent before it began has arrived.
    end: u64,
    /// After a timeout the window grows again by slow start; otherwise PRR brings it down.
    is_timeout: bool,
    prior_window: u32,
    delivered: u32,
    sent: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    /// Tail loss probe.
    Probe,
    /// Retransmission timeout.
    Timeout,
    /// RACK: a segment counts as lost if it is not acknowledged by then.
    Reordering,
}

/// One sender.
#[derive(Debug)]
pub(super) struct Sender {
    config: TcpConfig,
    congestion: Congestion,
    pub(super) rtt: RoundTrip,
    /// From the oldest that is not acknowledged to the newest.
    segments: VecDeque<Segment>,
    next: u64,
    recovery: Option<Recovery>,
    timer: Option<(Time, Timer)>,
    last_sent: Time,
    /// When the newest segment that is known to have arrived was sent, and its end (`rack_sent_after()`).
    newest_delivered: (Time, u64),
    in_flight: u32,
    sacked: usize,
    lost: usize,
    /// Whether there may be something to find for [`Self::mark_lost`]: a gap, or a repetition under way.
    repeated: usize,
    /// `tcp_cwnd_validate()`: whether the window was what limited us, lately.
    is_limited: bool,
    most_in_flight: u32,
    usage_end: u64,
    must_probe: bool,
}

impl Sender {
    pub(super) fn new(config: TcpConfig) -> Self {
        Self {
            config,
            congestion: Congestion::new(config.congestion, config.initial_window),
            rtt: RoundTrip::default(),
            segments: VecDeque::new(),
            next: 0,
            recovery: None,
            timer: None,
            last_sent: Time::ZERO,
            newest_delivered: (Time::ZERO, 0),
            in_flight: 0,
            sacked: 0,
            lost: 0,
            repeated: 0,
            is_limited: false,
            most_in_flight: 0,
            usage_end: 0,
            must_probe: false,
        }
    }

    /// The first byte that was never sent.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// When [`Self::on_timer`] wants to be called.
    pub(super) fn timer(&self) -> Option<Time> {
        self.timer.map(|(at, _)| at)
    }

    /// The next segment to send now, of a stream that has been written up to `written`.
    pub(super) fn send(&mut self, now: Time, written: u64) -> Option<Range<u64>> {
        if self.segments.is_empty() && self.next > 0 && self.next < written {
            self.restart_after_idle(now);
        }
        if std::mem::take(&mut self.must_probe) {
            return self.probe(now, written);
        }
        if self.in_flight >= self.congestion.window() {
            self.note_usage(self.lost > 0 || self.next < written);
            return None;
        }
        let sent = self.repeat_lost(now).or_else(|| self.send_new(now, written));
        if sent.is_none() {
            self.note_usage(false);
        }
        sent
    }

    fn repeat_lost(&mut self, now: Time) -> Option<Range<u64>> {
        if self.lost == 0 {
            return None;
        }
        let segment = self.segments.iter_mut().find(|segment| segment.state == State::Lost)?;
        self.lost -= 1;
        self.repeated += usize::from(!segment.is_repeated);
        (segment.state, segment.is_repeated, segment.sent) = (State::InFlight, true, now);
        let bytes = segment.bytes.clone();
        self.sent(now);
        Some(bytes)
    }

    fn send_new(&mut self, now: Time, written: u64) -> Option<Range<u64>> {
        let oldest = self.segments.front().map_or(self.next, |segment| segment.bytes.start);
        let end = written.min(self.next + self.config.segment);
        if end <= self.next || end - oldest > self.config.window {
            return None;
        }
        let bytes = self.next..end;
        self.next = end;
        self.segments.push_back(Segment {
            bytes: bytes.clone(),
            sent: now,
            state: State::InFlight,
            is_repeated: false,
        });
        self.sent(now);
        Some(bytes)
    }

    /// A tail loss probe: something new, or the last segment again; the window does not count.
    fn probe(&mut self, now: Time, written: u64) -> Option<Range<u64>> {
        let sent = self.send_new(now, written).or_else(|| {
            let last = self.segments.back_mut().filter(|last| last.state == State::InFlight)?;
            self.repeated += usize::from(!last.is_repeated);
            (last.is_repeated, last.sent) = (true, now);
            self.last_sent = now;
            Some(last.bytes.clone())
        });
        self.timer = Some((now + self.rtt.timeout(), Timer::Timeout));
        sent
    }

    fn sent(&mut self, now: Time) {
        self.in_flight += 1;
        self.last_sent = now;
        if let Some(recovery) = &mut self.recovery {
            recovery.sent += 1;
        }
        if self.timer.is_none_or(|(_, timer)| timer == Timer::Probe) {
            self.arm(now);
        }
    }

    /// `tcp_cwnd_validate()`.
    fn note_usage(&mut self, is_limited: bool) {
        let oldest = self.segments.front().map_or(self.next, |segment| segment.bytes.start);
        let out = self.segments.len() as u32;
        if oldest >= self.usage_end || is_limited || (!self.is_limited && out > self.most_in_flight) {
            (self.is_limited, self.most_in_flight, self.usage_end) = (is_limited, out, self.next);
        }
    }

    fn may_grow(&self) -> bool {
        self.is_limited
            || (self.congestion.is_slow_start() && self.congestion.window() < 2 * self.most_in_flight)
    }

    fn restart_after_idle(&mut self, now: Time) {
        let (pause, timeout) = (now.since(self.last_sent), self.rtt.timeout());
        if self.config.slow_start_after_idle && pause > timeout {
            let timeouts = (pause.as_nanos() / timeout.as_nanos().max(1)).min(32) as u32;
            self.congestion.on_idle(pause, timeouts, self.config.initial_window);
        }
    }

    /// An acknowledgement arrives.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Ack) {
        let mut acked = Acked { now, segments: 0, sequence: ack.sequence, next: self.next, round_trip: None };
        let mut advanced = false;
        while let Some(front) = self.pop_before(ack.sequence) {
            advanced = true;
            self.repeated -= usize::from(front.is_repeated);
            match front.state {
                State::Sacked => self.sacked -= 1,
                State::Lost => self.lost -= 1,
                State::InFlight => self.in_flight -= 1,
            }
            if front.state != State::Sacked {
                self.delivered(&front, &mut acked);
            }
        }
        if let Some((start, end)) = ack.beyond {
            self.sack(start..end, &mut acked);
        }
        if acked.segments == 0 && !advanced {
            return;
        }
        if let Some(sample) = acked.round_trip {
            self.rtt.sample(sample);
        }
        self.congestion.observe(&acked);
        let newly_lost = self.mark_lost(now);
        self.recover(&acked, advanced, newly_lost);
        if advanced || self.timer.is_some_and(|(_, timer)| timer != Timer::Reordering) {
            self.arm(now);
        }
    }

    /// The oldest segment, if all of it has arrived.
    fn pop_before(&mut self, sequence: u64) -> Option<Segment> {
        if self.segments.front()?.bytes.end > sequence {
            return None;
        }
        self.segments.pop_front()
    }

    fn delivered(&mut self, segment: &Segment, acked: &mut Acked) {
        acked.segments += 1;
        // Karn's rule: a repeated segment says nothing about the round trip.
        if !segment.is_repeated {
            acked.round_trip = Some(acked.now.since(segment.sent));
        }
        // An acknowledgement that comes sooner than any round trip is for the first copy.
        if !segment.is_repeated || acked.now.since(segment.sent) >= self.rtt.least() {
            self.newest_delivered = self.newest_delivered.max((segment.sent, segment.bytes.end));
        }
    }

    fn sack(&mut self, range: Range<u64>, acked: &mut Acked) {
        let first = self.segments.partition_point(|segment| segment.bytes.start < range.start);
        let last = self.segments.partition_point(|segment| segment.bytes.end <= range.end);
        for index in first..last {
            let segment = &mut self.segments[index];
            match segment.state {
                State::Sacked => continue,
                State::Lost => self.lost -= 1,
                State::InFlight => self.in_flight -= 1,
            }
            segment.state = State::Sacked;
            self.sacked += 1;
            let copy = Segment { bytes: segment.bytes.clone(), ..*segment };
            self.delivered(&copy, acked);
        }
    }

    /// Finds lost segments; how many.
    fn mark_lost(&mut self, now: Time) -> usize {
        if self.sacked == 0 && self.repeated == 0 {
            return 0;
        }
        let is_sure = self.sacked >= DUPLICATE_THRESHOLD || self.recovery.is_some();
        let patience = if is_sure { Duration::ZERO } else { self.rtt.least() / 4 };
        let (mut sacked_behind, mut found, mut again) = (0, 0, None);
        for segment in self.segments.iter_mut().rev() {
            if segment.state == State::Sacked {
                sacked_behind += 1;
            }
            if segment.state != State::InFlight {
                continue;
            }
            let overtaken = (segment.sent, segment.bytes.end) < self.newest_delivered;
            let deadline = segment.sent + self.rtt.smoothed() + patience;
            let is_late = overtaken && (is_sure || now >= deadline);
            if is_late || (!segment.is_repeated && sacked_behind >= DUPLICATE_THRESHOLD) {
                segment.state = State::Lost;
                found += 1;
            } else if overtaken {
                again = Some(again.map_or(deadline, |other: Time| other.min(deadline)));
            }
        }
        self.in_flight -= found as u32;
        self.lost += found;
        if let Some(again) = again {
            self.timer = Some((again, Timer::Reordering));
        }
        found
    }

    fn recover(&mut self, acked: &Acked, advanced: bool, newly_lost: usize) {
        match &mut self.recovery {
            None if self.lost > 0 => {
                let prior_window = self.congestion.window();
                self.congestion.on_loss();
                let recovery =
                    Recovery { end: self.next, is_timeout: false, prior_window, delivered: 0, sent: 0 };
                self.recovery = Some(recovery);
                self.reduce(acked.segments, newly_lost);
            }
            None => {
                // tcp_may_raise_cwnd(): not by segments that arrived ahead of a gap.
                if advanced && self.may_grow() {
                    self.congestion.grow(acked);
                }
            }
            Some(recovery) if acked.sequence >= recovery.end => {
                if !recovery.is_timeout {
                    self.congestion.set_window(self.congestion.threshold());
                }
                self.recovery = None;
            }
            Some(recovery) if recovery.is_timeout => self.congestion.grow(acked),
            Some(_) => self.reduce(acked.segments, newly_lost),
        }
    }

    /// Proportional rate reduction: `tcp_cwnd_reduction()`.
    fn reduce(&mut self, delivered: u32, newly_lost: usize) {
        let Some(recovery) = &mut self.recovery else { return };
        recovery.delivered += delivered;
        let threshold = self.congestion.threshold();
        let may_send = if self.in_flight > threshold {
            let share = u64::from(threshold) * u64::from(recovery.delivered);
            (share.div_ceil(u64::from(recovery.prior_window)) as u32).saturating_sub(recovery.sent)
        } else {
            let progress = u32::from(newly_lost == 0 && delivered > 0);
            let bound = recovery.delivered.saturating_sub(recovery.sent).max(delivered) + progress;
            bound.min(threshold - self.in_flight)
        };
        let may_send = may_send.max(u32::from(recovery.sent == 0));
        self.congestion.set_window(self.in_flight + may_send);
    }

    /// Sets the timer for what is in flight.
    fn arm(&mut self, now: Time) {
        if self.segments.is_empty() {
            self.timer = None;
            return;
        }
        let timeout = self.rtt.timeout();
        let may_probe = self.recovery.is_none() && self.sacked == 0 && !self.rtt.smoothed().is_zero();
        self.timer = Some(if may_probe {
            // RFC 8985, 7.2; alone in flight, the acknowledgement may be a delayed one.
            let margin = if self.segments.len() == 1 { MIN_TIMEOUT_MARGIN } else { Duration::from_millis(8) };
            (now + timeout.min(self.rtt.smoothed() * 2 + margin), Timer::Probe)
        } else {
            (now + timeout, Timer::Timeout)
        });
    }

    /// The timer has run out.
    pub(super) fn on_timer(&mut self, now: Time) {
        let Some((_, timer)) = self.timer.take_if(|(at, _)| *at <= now) else { return };
        match timer {
            Timer::Probe => self.must_probe = true,
            Timer::Reordering => {
                let newly_lost = self.mark_lost(now);
                let nothing = Acked { now, segments: 0, sequence: 0, next: self.next, round_trip: None };
                if newly_lost > 0 {
                    self.recover(&nothing, false, newly_lost);
                }
                if self.timer.is_none() {
                    self.arm(now);
                }
            }
            Timer::Timeout => {
                for segment in self.segments.iter_mut().filter(|segment| segment.state == State::InFlight) {
                    segment.state = State::Lost;
                    self.lost += 1;
                }
                self.in_flight = 0;
                self.rtt.back_off();
                let prior_window = self.congestion.window();
                self.congestion.on_timeout();
                self.recovery =
                    Some(Recovery { end: self.next, is_timeout: true, prior_window, delivered: 0, sent: 0 });
                self.arm(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1448;

    fn sender() -> Sender {
        let mut sender = Sender::new(TcpConfig::default());
        sender.rtt.sample(Duration::from_millis(100));
        sender
    }

    fn drain(sender: &mut Sender, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| sender.send(now, u64::MAX / 2)).map(|bytes| bytes.start / MSS).collect()
    }

    fn ack(sequence: u64, beyond: Option<(u64, u64)>) -> Ack {
        Ack { sequence: sequence * MSS, beyond: beyond.map(|(a, b)| (a * MSS, b * MSS)) }
    }

    #[test]
    fn the_initial_window_goes_out_and_each_acknowledgement_releases_two() {
        let mut sender = sender();
        assert_eq!(drain(&mut sender, Time::ZERO), (0..10).collect::<Vec<_>>());
        sender.on_ack(Time::from_millis(100), &ack(1, None));
        assert_eq!(drain(&mut sender, Time::from_millis(100)), [10, 11]);
    }

    #[test]
    fn three_segments_behind_a_gap_repeat_it_and_the_window_comes_down_to_seven_tenths() {
        let mut sender = sender();
        drain(&mut sender, Time::ZERO);
        let now = Time::from_millis(100);
        for end in 2..=3 {
            sender.on_ack(now, &ack(0, Some((1, end))));
            assert!(!drain(&mut sender, now).contains(&0));
        }
        sender.on_ack(now, &ack(0, Some((1, 4))));
        assert_eq!(drain(&mut sender, now)[0], 0);
        sender.on_ack(Time::from_millis(200), &ack(sender.next() / MSS, None));
        assert_eq!(sender.congestion.window(), 7);
    }

    #[test]
    fn a_lost_tail_is_probed_for_and_then_times_out() {
        let mut sender = sender();
        assert!(sender.send(Time::ZERO, 2 * MSS).is_some() && sender.send(Time::ZERO, 2 * MSS).is_some());
        let probe = sender.timer().unwrap();
        assert_eq!(probe, Time::from_millis(208));
        sender.on_timer(probe);
        assert_eq!(sender.send(probe, 2 * MSS), Some(MSS..2 * MSS));
        let timeout = sender.timer().unwrap();
        assert_eq!(timeout, probe + Duration::from_millis(300));
        sender.on_timer(timeout);
        assert_eq!(sender.send(timeout, 2 * MSS), Some(0..MSS));
        assert_eq!(sender.send(timeout, 2 * MSS), None);
        assert!(sender.timer().unwrap() >= timeout + Duration::from_millis(600));
    }
}
