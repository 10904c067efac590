//! Counts what a source transfers; the model's inputs and `--stats` come from here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::rate::Rate;

/// What has travelled through a source since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// Requests started, repeated ones and those behind redirects included.
    pub requests: u64,
    /// Bytes of response bodies that arrived (no headers, no TLS or TCP overhead).
    pub bytes: u64,
    /// The smallest time from a request to the head of its response: an upper estimate of the round trip.
    pub first_byte_min: Option<Duration>,
    /// The smallest time that a connection took to be made, TLS included.
    pub connect_min: Option<Duration>,
    /// Bytes per second while something was under way, from its first bytes on, without the pauses of slow start.
    pub bandwidth: Option<u64>,
}

impl WireStats {
    /// The round trip of a request, the server's own time included, as far as it is known. Requests that were the first of their connection
    /// took the time to make it besides; over TLS that is more than a round trip, and too much until a second request was made.
    pub fn round_trip(&self) -> Option<Duration> {
        round_trip(self.first_byte_min, self.connect_min)
    }
}

fn round_trip(answer: Option<Duration>, connect: Option<Duration>) -> Option<Duration> {
    let (Some(answer), Some(connect)) = (answer, connect) else { return answer.or(connect) };
    Some(answer.min(connect.max(answer.saturating_sub(connect))))
}

/// The counters behind [`WireStats`]; shared between a source and the bodies it handed out.
#[derive(Debug)]
pub struct Meter {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds; `u64::MAX` until the first response.
    first_byte_min: AtomicU64,
    /// The same.
    connect_min: AtomicU64,
    rate: Mutex<Rate>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first_byte_min: AtomicU64::new(u64::MAX),
            connect_min: AtomicU64::new(u64::MAX),
            rate: Mutex::default(),
        }
    }
}

impl Meter {
    /// Counts a request that starts.
    pub fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts bytes of a body.
    pub fn received(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        let round_trip = round_trip(time(&self.first_byte_min), time(&self.connect_min));
        self.rate().arrived(Instant::now(), bytes, round_trip);
    }

    /// A response begins, and ends when the result is dropped.
    pub fn response(self: &std::sync::Arc<Self>) -> UnderWay {
        self.rate().open();
        UnderWay(std::sync::Arc::clone(self))
    }

    fn rate(&self) -> MutexGuard<'_, Rate> {
        self.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a connection took this long to be made.
    pub fn connected_after(&self, time: Duration) {
        self.connect_min.fetch_min(nanos(time), Relaxed);
    }

    /// Notes that a response's head came this long after its request.
    pub fn head_after(&self, time: Duration) {
        self.first_byte_min.fetch_min(nanos(time), Relaxed);
    }

    /// The counts now. They are read one after another: exact once nothing is in flight.
    pub fn stats(&self) -> WireStats {
        WireStats {
            requests: self.requests.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            first_byte_min: time(&self.first_byte_min),
            connect_min: time(&self.connect_min),
            bandwidth: self.rate().estimate().map(|rate| rate as u64),
        }
    }
}

fn time(nanos: &AtomicU64) -> Option<Duration> {
    match nanos.load(Relaxed) {
        u64::MAX => None,
        nanos => Some(Duration::from_nanos(nanos)),
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A response under way.
#[derive(Debug)]
pub struct UnderWay(std::sync::Arc<Meter>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.rate().close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_smallest_time_and_the_sums() {
        let meter = Meter::default();
        assert_eq!(meter.stats(), WireStats::default());
        for millis in [30, 20, 40] {
            meter.request();
            meter.head_after(Duration::from_millis(millis));
            meter.received(5);
        }
        let first_byte_min = Some(Duration::from_millis(20));
        let expected = WireStats { requests: 3, bytes: 15, first_byte_min, ..WireStats::default() };
        assert_eq!(meter.stats(), expected);
        assert_eq!(meter.stats().round_trip(), Some(Duration::from_millis(20)));
        let with = |connect, answer| {
            let time = |ms| Some(Duration::from_millis(ms));
            let stats = WireStats {
                connect_min: time(connect),
                first_byte_min: time(answer),
                ..WireStats::default()
            };
            stats.round_trip().unwrap().as_millis()
        };
        assert_eq!(with(20, 40), 20, "the connection, then the answer");
        assert_eq!(with(20, 20), 20, "a connection that was there");
        assert_eq!(with(0, 50), 50, "a server that takes its time");
        assert_eq!(with(40, 20), 20, "TLS");
    }
}
