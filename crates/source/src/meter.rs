//! Counts what a source transfers; the model's inputs and `--stats` come from here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What has travelled through a source since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireStats {
    /// Requests started, repeated ones and those behind redirects included.
    pub requests: u64,
    /// Bytes of response bodies that arrived (no headers, no TLS or TCP overhead).
    pub bytes: u64,
    /// The smallest time from a request to the head of its response: an upper estimate of the round trip.
    pub first_byte_min: Option<Duration>,
}

/// The counters behind [`WireStats`]; shared between a source and the bodies it handed out.
#[derive(Debug)]
pub struct Meter {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds; `u64::MAX` until the first response.
    first_byte_min: AtomicU64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first_byte_min: AtomicU64::new(u64::MAX),
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
    }

    /// Notes that a response's head came this long after its request.
    pub fn head_after(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.first_byte_min.fetch_min(nanos, Relaxed);
    }

    /// The counts now. The three are read one after another: exact once nothing is in flight.
    pub fn stats(&self) -> WireStats {
        let nanos = self.first_byte_min.load(Relaxed);
        WireStats {
            requests: self.requests.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            first_byte_min: (nanos != u64::MAX).then(|| Duration::from_nanos(nanos)),
        }
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
        let expected = WireStats { requests: 3, bytes: 15, first_byte_min: Some(Duration::from_millis(20)) };
        assert_eq!(meter.stats(), expected);
    }
}
