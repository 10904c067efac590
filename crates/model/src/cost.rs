//! The cost of a start over a link: Lee, Baer, Bershad and Anderson, "Reducing Startup Latency in Web and Desktop
//! Applications" (USENIX Windows NT Symposium 1999), equations 1 to 3.

use std::time::Duration;

use crate::Link;

/// What a scheme transfers before the program is done.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Bytes on the wire.
    pub bytes: f64,
    /// Requests that somebody waits for, one after the other. A mean, so not always whole.
    pub requests: f64,
    /// Everything that depends on neither.
    pub overhead: Duration,
}

impl Cost {
    /// Equation 1: startup = bytes / bandwidth + requests x latency + overhead. Latency is a full round trip here.
    pub fn startup(&self, link: &Link) -> Duration {
        let waiting = link.round_trip.as_secs_f64() * self.requests;
        let waiting = Duration::try_from_secs_f64(waiting).unwrap_or(Duration::MAX);
        link.transfer_seconds(self.bytes).saturating_add(waiting).saturating_add(self.overhead)
    }

    /// Equation 2: whether `self` starts sooner than `other` on this link.
    pub fn beats(&self, other: &Self, link: &Link) -> bool {
        self.startup(link) < other.startup(link)
    }
}

/// Equation 3: the bandwidth-latency product (bytes) below which the scheme that asks more often for less is quicker:
/// (bytes of the one - bytes of the other) / (requests of the other - requests of the one). `None` if one of the two is
/// better, or no worse, in both respects: then no link changes the order. Overheads are taken to be equal.
pub fn crossover(fewer_requests: &Cost, fewer_bytes: &Cost) -> Option<f64> {
    let bytes = fewer_requests.bytes - fewer_bytes.bytes;
    let requests = fewer_bytes.requests - fewer_requests.requests;
    (bytes > 0.0 && requests > 0.0).then(|| bytes / requests)
}

/// Equation 3 for one page (or one group) of `bytes` stored bytes: it is worth fetching along, before it is asked for, if the
/// probability that it will be touched is larger than bytes / (bandwidth x round trip).
pub fn worth_prefetching(probability: f64, bytes: f64, link: &Link) -> bool {
    probability * link.product() > bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(bandwidth: f64, ms: u64) -> Link {
        Link { bandwidth, round_trip: Duration::from_millis(ms) }
    }

    #[test]
    fn startup_is_the_sum_of_three_terms() {
        let cost = Cost { bytes: 250_000.0, requests: 10.0, overhead: Duration::from_millis(7) };
        assert_eq!(cost.startup(&link(125_000.0, 20)), Duration::from_millis(2000 + 200 + 7));
    }

    #[test]
    fn a_page_is_worth_its_bytes_if_it_is_likely_enough() {
        // 1 Mbit/s and 20 ms: 2500 bytes.
        let slow = link(125_000.0, 20);
        assert!(worth_prefetching(0.6, 1400.0, &slow) && !worth_prefetching(0.5, 1400.0, &slow));
        // 100 Mbit/s and 100 ms: 1.25 MB; nearly everything is.
        assert!(worth_prefetching(0.002, 1400.0, &link(12_500_000.0, 100)));
        assert!(!worth_prefetching(0.0, 1.0, &slow), "what is never touched is worth nothing");
    }

    #[test]
    fn without_a_trade_there_is_no_crossover() {
        let small = Cost { bytes: 1.0, requests: 1.0, ..Cost::default() };
        let large = Cost { bytes: 2.0, requests: 2.0, ..Cost::default() };
        assert_eq!(crossover(&small, &large), None);
        assert_eq!(crossover(&large, &small), None);
        assert_eq!(crossover(&small, &small), None);
    }

    proptest! {
        /// On either side of the crossover the other scheme wins: equations 1 and 3 say the same.
        #[test]
        fn crossover_is_where_the_order_changes(
            bytes in 1.0..1e9f64, less in 0.01..0.99f64, requests in 1.0..1e4f64, more in 1.0..1e4f64,
            bandwidth in 1e3..1e9f64, side in prop_oneof![0.1..0.9f64, 1.1..10.0f64],
        ) {
            let whole = Cost { bytes, requests, ..Cost::default() };
            let lazy = Cost { bytes: bytes * less, requests: requests + more, ..Cost::default() };
            let product = crossover(&whole, &lazy).unwrap() * side;
            let seconds = product / bandwidth;
            prop_assume!(seconds > 1e-6 && seconds < 1e6);
            let link = Link { bandwidth, round_trip: Duration::from_secs_f64(seconds) };
            prop_assert_eq!(lazy.beats(&whole, &link), side < 1.0);
        }

        #[test]
        fn more_of_anything_never_starts_sooner(
            bytes in 0.0..1e10f64, requests in 0.0..1e5f64, more in 0.0..1e6f64, bandwidth in 0.0..1e9f64, ms in 0u64..10_000,
        ) {
            let link = link(bandwidth, ms);
            let cost = Cost { bytes, requests, ..Cost::default() };
            let base = cost.startup(&link);
            let larger = Cost { bytes: bytes + more, ..cost }.startup(&link);
            let chattier = Cost { requests: requests + more, ..cost }.startup(&link);
            prop_assert!(larger >= base && chattier >= base);
        }
    }
}
