//! Several stages, one behind the other.

use std::{collections::VecDeque, time::Duration};

use super::{Counters, Packet, Stage};
use crate::time::Time;

/// A path: a packet enters the first stage and leaves the last.
///
/// Moves between stages happen in the order of their times and at their exact times, no matter how late the chain is asked.
pub struct Chain<P> {
    stages: Vec<Box<dyn Stage<P> + Send>>,
    /// Packets that have left the last stage and were not collected yet.
    left: VecDeque<(Time, P)>,
}

impl<P: Packet> Chain<P> {
    /// An empty chain passes everything at once.
    pub fn new() -> Self {
        Self { stages: Vec::new(), left: VecDeque::new() }
    }

    /// Adds a stage at the far end.
    #[must_use]
    pub fn then(mut self, stage: impl Stage<P> + Send + 'static) -> Self {
        self.stages.push(Box::new(stage));
        self
    }

    /// Performs every move between stages that is due by `now`.
    fn advance(&mut self, now: Time) {
        loop {
            // Of several moves at one time the one furthest along goes first, so that no queue looks fuller than it is.
            let due = (0..self.stages.len())
                .rev()
                .filter_map(|index| Some((self.stages[index].next()?, index)))
                .min_by_key(|(at, _)| *at)
                .filter(|(at, _)| *at <= now);
            let Some((_, index)) = due else { return };
            if let Some((at, packet)) = self.stages[index].pop(now) {
                self.hand_on(index + 1, at, packet);
            }
        }
    }

    fn hand_on(&mut self, to: usize, at: Time, packet: P) {
        match self.stages.get_mut(to) {
            Some(stage) => stage.push(at, packet),
            None => self.left.push_back((at, packet)),
        }
    }
}

impl<P: Packet> Default for Chain<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Packet> Stage<P> for Chain<P> {
    fn push(&mut self, now: Time, packet: P) {
        self.advance(now);
        self.hand_on(0, now, packet);
    }

    /// A lower bound: no packet leaves before. It may be earlier than the next departure when a later stage can drop or add
    /// jitter; asking again at that time moves the bound on.
    fn next(&self) -> Option<Time> {
        let mut rest = Duration::ZERO;
        let mut soonest = self.left.front().map(|(at, _)| *at);
        for stage in self.stages.iter().rev() {
            if let Some(at) = stage.next() {
                let bound = at + rest;
                soonest = Some(soonest.map_or(bound, |other| other.min(bound)));
            }
            rest += stage.min_transit();
        }
        soonest
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        self.advance(now);
        self.left.pop_front()
    }

    fn min_transit(&self) -> Duration {
        self.stages.iter().map(|stage| stage.min_transit()).sum()
    }

    fn counters(&self) -> Counters {
        self.stages.iter().map(|stage| stage.counters()).fold(Counters::default(), |sum, stage| Counters {
            queued_packets: sum.queued_packets + stage.queued_packets,
            queued_bytes: sum.queued_bytes + stage.queued_bytes,
            dropped_packets: sum.dropped_packets + stage.dropped_packets,
            dropped_bytes: sum.dropped_bytes + stage.dropped_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        queue::{Delay, Loss, QueueLimit, Rate},
        rng::Rng,
        units::Bandwidth,
    };

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn ten_delays_of_ten_milliseconds_add_up() {
        let mut chain = (0..10).fold(Chain::new(), |chain, _| chain.then(Delay::constant(10 * MS)));
        chain.push(Time::from_millis(3), 1500u64);
        assert_eq!(chain.next(), Some(Time::from_millis(103)));
        assert_eq!(chain.pop(Time::from_nanos(102_999_999)), None);
        assert_eq!(chain.pop(Time::from_millis(103)), Some((Time::from_millis(103), 1500)));
    }

    /// The path that most links are made of, with everything in it that could depend on when it is asked.
    fn path(seed: u64) -> Chain<u64> {
        Chain::new()
            .then(Rate::new(Bandwidth::from_bits_per_second(3_333_333).unwrap(), QueueLimit::Packets(5)))
            .then(Loss::new("burst:10%,40%".parse().unwrap(), Rng::new(seed, 1)))
            .then(Delay::new(5 * MS, "1ms:normal".parse().unwrap(), Rng::new(seed, 2)))
    }

    proptest! {
        /// Asking often, asking late, or asking only at the end: the same packets leave at the same times.
        #[test]
        fn departures_do_not_depend_on_when_the_chain_is_asked(
            seed: u64,
            gaps in proptest::collection::vec((0u64..3_000_000, 40u64..1500, any::<bool>()), 1..80),
        ) {
            let (mut eager, mut lazy) = (path(seed), path(seed));
            let (mut from_eager, mut from_lazy) = (Vec::new(), Vec::new());
            let mut now = Time::ZERO;
            for (gap, size, ask) in gaps {
                let arrival = now + Duration::from_nanos(gap);
                while let Some(next) = eager.next().filter(|next| *next <= arrival) {
                    from_eager.extend(eager.pop(next));
                }
                now = arrival;
                if ask {
                    from_lazy.extend(std::iter::from_fn(|| lazy.pop(now)));
                }
                eager.push(now, size);
                lazy.push(now, size);
            }
            from_eager.extend(std::iter::from_fn(|| eager.pop(Time::MAX)));
            from_lazy.extend(std::iter::from_fn(|| lazy.pop(Time::MAX)));
            prop_assert_eq!(&from_eager, &from_lazy);
            prop_assert_eq!(eager.counters(), lazy.counters());
        }

        /// What is waiting, what was dropped and what left is all that came in.
        #[test]
        fn no_packet_is_forgotten(seed: u64, sizes in proptest::collection::vec(1u64..1500, 1..60)) {
            let mut chain = path(seed);
            for size in &sizes {
                chain.push(Time::ZERO, *size);
            }
            let left = std::iter::from_fn(|| chain.pop(Time::MAX)).map(|(_, size)| size).sum::<u64>();
            prop_assert_eq!(left + chain.counters().dropped_bytes, sizes.iter().sum::<u64>());
            prop_assert_eq!(chain.counters().queued_packets, 0);
        }
    }
}
