//! The link to the source, as measured while the image flows.

use std::time::Duration;

/// Bandwidth and latency of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Round trip, including the server's time to answer.
    pub round_trip: Duration,
}

/// A wait shorter than this is never worth a request of its own: thread switches and decompression vary by as much.
const WAIT_ALWAYS: Duration = Duration::from_millis(50);

impl Link {
    /// Time until `bytes` have arrived.
    pub fn transfer_time(&self, bytes: u64) -> Duration {
        self.transfer_seconds(bytes as f64)
    }

    /// The same for a mean number of bytes.
    pub(crate) fn transfer_seconds(&self, bytes: f64) -> Duration {
        if bytes <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(bytes / self.bandwidth).unwrap_or(Duration::MAX)
    }

    /// Bandwidth x round trip: the bytes that fill the link, the right-hand side of the paper's equation 3.
    pub fn product(&self) -> f64 {
        self.bandwidth * self.round_trip.as_secs_f64()
    }

    /// Whether a page that is needed now and lies `bytes_ahead` bytes ahead in the stream, its own frame included, is better requested at
    /// once, with `own_bytes` that come twice then.
    ///
    /// A request costs a round trip and stands behind what the stream has in flight, about another one (equation 1 of the paper). What
    /// comes twice delays everything else by its transfer. If this is a job that was recorded nothing is won by it, as all of the stream is
    /// needed in any case; if it is another, what is left of the wait is. With even odds that is worth it when the wait, less the request,
    /// is longer than three of these transfers: the request's own, and the delay against half of what is won.
    pub fn overtakes(&self, bytes_ahead: u64, own_bytes: u64) -> bool {
        let twice = self.transfer_time(own_bytes.saturating_mul(3));
        self.transfer_time(bytes_ahead)
            > twice.saturating_add(self.round_trip * 2).saturating_add(WAIT_ALWAYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_page_is_waited_for_and_a_far_one_requested() {
        let slow = Link { bandwidth: 125_000.0, round_trip: Duration::from_millis(20) };
        assert!(!slow.overtakes(10_000, 0), "80 ms away against 90 ms");
        assert!(slow.overtakes(12_000, 0), "96 ms away against 90 ms");
        assert!(!slow.overtakes(60_000, 60_000), "the next frame, however long it is");
        assert!(slow.overtakes(60_000, 10_000), "480 ms away against 240 ms and 90 ms");
        let fast = Link { bandwidth: 1e9, round_trip: Duration::from_micros(100) };
        assert!(!fast.overtakes(4 << 20, 0), "all of a 4 MB stream is 4 ms away");
    }

    #[test]
    fn a_dead_link_is_overtaken_and_does_not_overflow() {
        let dead = Link { bandwidth: 0.0, round_trip: Duration::ZERO };
        assert!(!dead.overtakes(1, 1), "neither comes");
        assert!(!dead.overtakes(u64::MAX, u64::MAX));
    }
}
