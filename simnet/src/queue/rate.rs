//! A link of constant rate with a finite queue in front.

use super::{Counters, Packet, QueueLimit, Stage, drop_tail::DropTail};
use crate::{time::Time, units::Bandwidth};

/// Sends one packet after another, each taking `8 x bytes / rate` seconds; the others wait in a drop-tail queue.
///
/// The times are exact: the fraction of a nanosecond that a packet ends on is carried over to the next one, so that a long
/// busy period does not drift.
#[derive(Debug)]
pub struct Rate<P> {
    bandwidth: Bandwidth,
    queue: DropTail<P>,
    /// The packet in transmission, and when its last bit is out.
    sending: Option<(Time, P)>,
    /// What the end of `sending` lies after its whole nanosecond, in units of 1 / bit rate nanoseconds.
    remainder: u128,
}

impl<P: Packet> Rate<P> {
    /// A link of `bandwidth` bit/s.
    pub fn new(bandwidth: Bandwidth, limit: QueueLimit) -> Self {
        Self { bandwidth, queue: DropTail::new(limit), sending: None, remainder: 0 }
    }

    fn start(&mut self, at: Time, packet: P) {
        let rate = u128::from(self.bandwidth.bits_per_second());
        let units = u128::from(packet.wire_bytes()) * 8 * 1_000_000_000 + self.remainder;
        self.remainder = units % rate;
        let nanos = u64::try_from(units / rate).unwrap_or(u64::MAX);
        self.sending = Some((Time::from_nanos(at.as_nanos().saturating_add(nanos)), packet));
    }
}

impl<P: Packet> Stage<P> for Rate<P> {
    fn push(&mut self, now: Time, packet: P) {
        if self.sending.is_none() {
            self.remainder = 0;
            self.start(now, packet);
        } else {
            self.queue.push(packet);
        }
    }

    fn next(&self) -> Option<Time> {
        self.sending.as_ref().map(|(end, _)| *end)
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        let (end, packet) = self.sending.take_if(|(end, _)| *end <= now)?;
        if let Some(next) = self.queue.pop() {
            self.start(end, next);
        }
        Some((end, packet))
    }

    fn counters(&self) -> Counters {
        self.queue.counters()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(bits: u64, limit: QueueLimit) -> Rate<u64> {
        Rate::new(Bandwidth::from_bits_per_second(bits).unwrap(), limit)
    }

    #[test]
    fn a_packet_takes_its_serialisation_time() {
        let mut link = link(10_000_000, QueueLimit::Unlimited);
        link.push(Time::from_millis(5), 1500);
        link.push(Time::from_millis(5), 1500);
        // 1500 bytes at 10 Mbit/s: 1.2 ms each, one after the other.
        assert_eq!(link.pop(Time::from_nanos(6_199_999)), None);
        assert_eq!(link.pop(Time::MAX).unwrap().0, Time::from_nanos(6_200_000));
        assert_eq!(link.pop(Time::MAX).unwrap().0, Time::from_nanos(7_400_000));
        assert_eq!(link.pop(Time::MAX), None);
    }

    #[test]
    fn a_full_queue_drops_and_the_packet_in_transmission_does_not_count() {
        let mut link = link(1_000_000, QueueLimit::Packets(2));
        for _ in 0..5 {
            link.push(Time::ZERO, 1500);
        }
        assert_eq!(link.counters().queued_packets, 2);
        assert_eq!(link.counters().dropped_packets, 2);
        assert_eq!(std::iter::from_fn(|| link.pop(Time::MAX)).count(), 3);
    }

    proptest! {
        /// A busy link sends exactly its rate: the n-th packet leaves at floor(bits / rate), however odd the rate.
        #[test]
        fn a_busy_period_does_not_drift(
            bits in 1_000u64..10_000_000_000,
            sizes in proptest::collection::vec(1u64..65_536, 1..200),
        ) {
            let mut link = link(bits, QueueLimit::Unlimited);
            for size in &sizes {
                link.push(Time::ZERO, *size);
            }
            let mut sent = 0u128;
            for size in &sizes {
                sent += u128::from(*size);
                let expected = sent * 8_000_000_000 / u128::from(bits);
                prop_assert_eq!(u128::from(link.pop(Time::MAX).unwrap().0.as_nanos()), expected);
            }
        }
    }
}
