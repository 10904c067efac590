//! A link: what packets meet in each direction, and the chain of queues that it is made of.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    queue::{Chain, Delay, Jitter, Loss, LossModel, Packet, QueueLimit, Rate, TraceRate},
    rng::Rng,
    trace_file::Trace,
    units::Bandwidth,
};

/// How fast a direction is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LinkRate {
    /// Infinitely fast: no serialisation, no queue.
    #[default]
    Unlimited,
    /// Constant.
    Constant(Bandwidth),
    /// As recorded.
    Trace(Arc<Trace>),
}

impl LinkRate {
    /// The rate in bit/s, in the mean; `None` if unlimited.
    pub fn mean_bits_per_second(&self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Constant(bandwidth) => Some(bandwidth.bits_per_second() as f64),
            Self::Trace(trace) => Some(trace.mean_bits_per_second()),
        }
    }

    /// A queue that a TCP sender keeps filled without waiting for ever: the bytes that pass in one round trip or in 20 ms,
    /// whichever is more, and at least 32 packets of 1500 bytes. With one bandwidth-delay product CUBIC keeps a link busy
    /// through its back-off; the two other bounds keep bursts (the initial window of 10 packets) whole on slow and short links.
    pub fn default_queue(&self, round_trip: Duration) -> QueueLimit {
        let Some(rate) = self.mean_bits_per_second() else { return QueueLimit::Unlimited };
        let bytes = rate / 8.0 * round_trip.max(Duration::from_millis(20)).as_secs_f64();
        QueueLimit::Bytes((bytes.ceil() as u64).max(32 * 1500))
    }
}

impl fmt::Display for LinkRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Constant(bandwidth) => bandwidth.fmt(f),
            Self::Trace(trace) => write!(f, "trace of {} opportunities", trace.opportunities()),
        }
    }
}

/// One direction of a link: queue, rate, loss on the wire, propagation, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// How fast.
    pub rate: LinkRate,
    /// What may wait in front of it.
    pub queue: QueueLimit,
    /// What the wire loses. A lost packet has used the link's time.
    pub loss: LossModel,
    /// Propagation, one way.
    pub delay: Duration,
    /// Its variation.
    pub jitter: Jitter,
}

impl Direction {
    /// A direction that passes everything at once.
    pub const IDEAL: Self = Self {
        rate: LinkRate::Unlimited,
        queue: QueueLimit::Unlimited,
        loss: LossModel::NONE,
        delay: Duration::ZERO,
        jitter: Jitter::NONE,
    };

    /// The queues of this direction; equal seeds and streams give equal losses and equal jitter.
    pub fn chain<P: Packet + Send + 'static>(&self, seed: u64, stream: u64) -> Chain<P> {
        let mut chain = Chain::new();
        chain = match &self.rate {
            LinkRate::Unlimited => chain,
            LinkRate::Constant(bandwidth) => chain.then(Rate::new(*bandwidth, self.queue)),
            LinkRate::Trace(trace) => chain.then(TraceRate::new(Arc::clone(trace), self.queue)),
        };
        if !self.loss.is_none() {
            chain = chain.then(Loss::new(self.loss, Rng::new(seed, stream * 2)));
        }
        if self.delay.is_zero() && self.jitter.amount.is_zero() {
            return chain;
        }
        chain.then(Delay::new(self.delay, self.jitter, Rng::new(seed, stream * 2 + 1)))
    }
}

/// Both directions of a link, seen from the client.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Client to server.
    pub up: Direction,
    /// Server to client.
    pub down: Direction,
    /// Of losses and jitter.
    pub seed: u64,
}

impl Link {
    /// A link with the same rate and half the round trip each way, the default queues, no loss and no jitter.
    pub fn symmetric(bandwidth: Bandwidth, round_trip: Duration) -> Self {
        let rate = LinkRate::Constant(bandwidth);
        let queue = rate.default_queue(round_trip);
        let up = Direction { rate, queue, delay: round_trip / 2, ..Direction::IDEAL };
        let down = Direction { delay: round_trip.saturating_sub(up.delay), ..up.clone() };
        Self { up, down, seed: 0 }
    }

    /// Propagation there and back, without serialisation, queues and jitter.
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{queue::Stage as _, time::Time};

    #[test]
    fn the_default_queue_is_a_round_trip_but_never_tiny() {
        let rate = |text: &str| LinkRate::Constant(text.parse().unwrap());
        let ms = Duration::from_millis;
        assert_eq!(rate("100mbit").default_queue(ms(40)), QueueLimit::Bytes(500_000));
        assert_eq!(rate("1gbit").default_queue(ms(0)), QueueLimit::Bytes(2_500_000));
        assert_eq!(rate("56kbit").default_queue(ms(100)), QueueLimit::Bytes(48_000));
        assert_eq!(LinkRate::Unlimited.default_queue(ms(100)), QueueLimit::Unlimited);
    }

    #[test]
    fn a_packet_meets_serialisation_and_propagation_and_nothing_on_an_ideal_link() {
        let link = Link::symmetric("12mbit".parse().unwrap(), Duration::from_millis(21));
        assert_eq!(link.round_trip(), Duration::from_millis(21));
        let mut down = link.down.chain(0, 0);
        down.push(Time::ZERO, 1500u64);
        assert_eq!(down.pop(Time::MAX), Some((Time::from_nanos(11_500_000), 1500)));
        let mut ideal = Direction::IDEAL.chain(0, 0);
        ideal.push(Time::from_millis(1), 1500u64);
        assert_eq!(ideal.pop(Time::from_millis(1)), Some((Time::from_millis(1), 1500)));
    }
}
