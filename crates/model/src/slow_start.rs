//! How long a transfer takes on young TCP connections: slow start, RFC 5681 (section 3.1) from the initial window of RFC 6928.

use std::time::Duration;

use crate::Link;

/// Payload of a full packet: an Ethernet frame's 1500 bytes less the headers of IPv4 (20) and of TCP with timestamps (32).
pub const SEGMENT: u64 = 1448;
/// Packets that may be on the way before the first acknowledgement (RFC 6928, section 2).
pub const INITIAL_WINDOW: u64 = 10;
/// Bytes of an initial window, 14 kB: what arrives one round trip after the request whatever the link is.
pub const FIRST_FLIGHT: u64 = SEGMENT * INITIAL_WINDOW;
/// Doublings that are looked at; more make a window that no link holds (14 kB x 2^40).
const ROUNDS_MAX: u32 = 40;

/// Bytes that have arrived `round_trips` after the requests, on so many connections that the link does not slow down: windows
/// of 10, 20, 40 packets on each.
pub fn delivered(round_trips: u32, connections: u32) -> u64 {
    let factor = 1u64.checked_shl(round_trips.min(ROUNDS_MAX)).unwrap_or(u64::MAX) - 1;
    FIRST_FLIGHT.saturating_mul(factor).saturating_mul(connections.into())
}

/// Round trips after which `bytes` have arrived, as [`delivered`] counts them.
pub fn round_trips(bytes: u64, connections: u32) -> u32 {
    (0..ROUNDS_MAX).find(|&n| delivered(n, connections.max(1)) >= bytes).unwrap_or(ROUNDS_MAX)
}

/// Time from sending the requests to the last of `bytes`, evenly spread over connections that are open and new. Windows double
/// each round trip until together they fill the link; from there on the link's rate counts. Without losses and without the
/// server's own time.
pub fn transfer_time(bytes: u64, connections: u32, link: &Link) -> Duration {
    if bytes == 0 {
        return Duration::ZERO;
    }
    let mut left = bytes as f64;
    let mut window = (FIRST_FLIGHT * u64::from(connections.max(1))) as f64;
    let mut waited = link.round_trip;
    for _ in 0..ROUNDS_MAX {
        if left <= window || window >= link.product() {
            break;
        }
        left -= window;
        window *= 2.0;
        waited = waited.saturating_add(link.round_trip);
    }
    waited.saturating_add(link.transfer_seconds(left))
}

/// Largest number of connections that [`connections`] recommends: as many as browsers open to one host, and two.
pub const CONNECTIONS_MAX: u32 = 8;
/// Another connection must save this share of the time: it costs its own handshake, a server's patience, and order.
const WORTH: f64 = 0.05;
/// And at least so much time: what it costs at both ends.
const WORTH_MIN: Duration = Duration::from_millis(10);

/// How many connections to fetch `bytes` over: 1, 2, 4 or 8, as few as come within 5 %, or 10 ms, of the next larger number.
pub fn connections(bytes: u64, link: &Link) -> u32 {
    let mut best = 1;
    while best < CONNECTIONS_MAX {
        let (now, more) = (transfer_time(bytes, best, link), transfer_time(bytes, best * 2, link));
        let saved = now.saturating_sub(more);
        if saved < WORTH_MIN || saved.as_secs_f64() < now.as_secs_f64() * WORTH {
            break;
        }
        best *= 2;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(mbit: f64, ms: u64) -> Link {
        Link { bandwidth: mbit * 125_000.0, round_trip: Duration::from_millis(ms) }
    }

    #[test]
    fn windows_double() {
        let packets = |n| delivered(n, 1) / SEGMENT;
        assert_eq!([0, 1, 2, 3].map(packets), [0, 10, 30, 70]);
        assert_eq!(delivered(2, 4), 4 * delivered(2, 1));
        assert_eq!(delivered(u32::MAX, u32::MAX), u64::MAX, "no overflow");
        // The design's figure: 5 MB are eight to nine round trips on one connection.
        assert_eq!(round_trips(3_600_000, 1), 8);
        assert_eq!(round_trips(5_000_000, 1), 9);
        assert_eq!(round_trips(5_000_000, 8), 6);
    }

    #[test]
    fn a_slow_link_takes_a_round_trip_and_its_bytes() {
        // 1 Mbit/s x 20 ms = 2500 bytes: the first window is more than the link holds.
        assert_eq!(transfer_time(125_000, 1, &link(1.0, 20)), Duration::from_millis(1020));
        assert_eq!(connections(5_000_000, &link(1.0, 100)), 1);
    }

    #[test]
    fn a_long_fat_link_takes_round_trips() {
        let fat = link(1000.0, 100);
        // Eight windows hold 3.69 MB, the ninth begins after eight round trips, and the first byte took one.
        let time = transfer_time(5_000_000, 1, &fat);
        let rest = (5_000_000 - delivered(8, 1)) as f64 / fat.bandwidth;
        assert_eq!(time, Duration::from_millis(900) + Duration::from_secs_f64(rest));
        assert_eq!(connections(5_000_000, &fat), 8);
        assert_eq!(connections(5_000_000, &Link { round_trip: Duration::from_micros(300), ..fat }), 1);
        assert_eq!(connections(10_000, &fat), 1, "it fits into the first window");
    }

    proptest! {
        #[test]
        fn more_connections_and_fewer_bytes_are_no_slower(
            bytes in 0u64..100_000_000, fewer in 0u64..100_000_000, connections in 1u32..8, bandwidth in 1e3..1e9f64, ms in 0u64..1000,
        ) {
            let link = Link { bandwidth, round_trip: Duration::from_millis(ms) };
            let time = transfer_time(bytes, connections, &link);
            let slack = Duration::from_nanos(10);
            prop_assert!(transfer_time(bytes.min(fewer), connections, &link) <= time + slack);
            prop_assert!(transfer_time(bytes, connections + 1, &link) <= time + slack);
            if bytes > 0 {
                prop_assert!(time + slack >= link.transfer_time(bytes).max(link.round_trip));
            }
        }

        #[test]
        fn both_forms_agree_where_only_slow_start_counts(bytes in 1u64..50_000_000, connections in 1u32..9) {
            let link = Link { bandwidth: 1e15, round_trip: Duration::from_secs(1) };
            let seconds = transfer_time(bytes, connections, &link).as_secs_f64();
            prop_assert_eq!(seconds.round() as u32, round_trips(bytes, connections));
        }
    }
}
