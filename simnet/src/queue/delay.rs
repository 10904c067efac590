//! Propagation delay, with jitter.

use std::{cmp::Reverse, collections::BinaryHeap, fmt, str::FromStr, time::Duration};

use super::Stage;
use crate::{
    rng::Rng,
    time::Time,
    units::{UnitError, format_duration, parse_duration},
};

/// How the delay varies around its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribution {
    /// Evenly between base - amount and base + amount.
    #[default]
    Uniform,
    /// Normal, with the amount as the standard deviation, cut off at four of them.
    Normal,
    /// Base plus an exponential whose mean is the amount, cut off at sixteen times that: a queue that is mostly empty.
    Exponential,
}

/// Variation of the delay from packet to packet. The delay never falls below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Jitter {
    /// How much; what it means depends on the distribution.
    pub amount: Duration,
    /// Its shape.
    pub distribution: Distribution,
    /// Packets may overtake each other, as with netem. Otherwise one that would overtake leaves together with the packet in
    /// front, as on a real path with first-in first-out queues.
    pub reorder: bool,
}

impl Jitter {
    /// No variation.
    pub const NONE: Self =
        Self { amount: Duration::ZERO, distribution: Distribution::Uniform, reorder: false };

    /// The largest amount by which the delay can fall below its base.
    fn below(&self) -> Duration {
        match self.distribution {
            Distribution::Uniform => self.amount,
            Distribution::Normal => self.amount * 4,
            Distribution::Exponential => Duration::ZERO,
        }
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        match self.distribution {
            Distribution::Uniform => 2.0 * rng.unit() - 1.0,
            Distribution::Normal => rng.normal().clamp(-4.0, 4.0),
            Distribution::Exponential => rng.exponential().min(16.0),
        }
    }
}

impl FromStr for Jitter {
    type Err = UnitError;

    /// `2ms`, `2ms:normal`, `2ms:exponential:reorder`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = |why: String| UnitError {
            quantity: "jitter",
            text: text.to_owned(),
            why,
            allowed: "a length of time, then optionally :uniform, :normal or :exponential, then optionally :reorder, \
                      such as 2ms or 2ms:normal",
        };
        let mut parts = text.trim().split(':');
        let amount = parse_duration(parts.next().unwrap_or_default()).map_err(|cause| error(cause.why))?;
        let mut jitter = Self { amount, ..Self::NONE };
        for part in parts {
            match part {
                "uniform" => jitter.distribution = Distribution::Uniform,
                "normal" => jitter.distribution = Distribution::Normal,
                "exponential" => jitter.distribution = Distribution::Exponential,
                "reorder" => jitter.reorder = true,
                _ => return Err(error(format!("unknown distribution {part:?}"))),
            }
        }
        Ok(jitter)
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distribution = match self.distribution {
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
            Distribution::Exponential => "exponential",
        };
        let reorder = if self.reorder { ":reorder" } else { "" };
        write!(f, "{}:{distribution}{reorder}", format_duration(self.amount))
    }
}

/// A packet under way; ordered by departure, then by arrival.
#[derive(Debug)]
struct InFlight<P> {
    key: Reverse<(Time, u64)>,
    packet: P,
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<P> Eq for InFlight<P> {}
impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Every packet leaves a delay after it arrived.
#[derive(Debug)]
pub struct Delay<P> {
    base: Duration,
    jitter: Jitter,
    rng: Rng,
    in_flight: BinaryHeap<InFlight<P>>,
    arrivals: u64,
    last_departure: Time,
}

impl<P> Delay<P> {
    /// A delay of `base`, one way.
    pub fn new(base: Duration, jitter: Jitter, rng: Rng) -> Self {
        Self { base, jitter, rng, in_flight: BinaryHeap::new(), arrivals: 0, last_departure: Time::ZERO }
    }

    /// A delay of `base`, one way, that never varies.
    pub fn constant(base: Duration) -> Self {
        Self::new(base, Jitter::NONE, Rng::new(0, 0))
    }

    fn draw(&mut self) -> Duration {
        if self.jitter.amount.is_zero() {
            return self.base;
        }
        let seconds = self
            .jitter
            .draw(&mut self.rng)
            .mul_add(self.jitter.amount.as_secs_f64(), self.base.as_secs_f64());
        Duration::from_secs_f64(seconds.max(0.0))
    }
}

impl<P> Stage<P> for Delay<P> {
    fn push(&mut self, now: Time, packet: P) {
        let mut departure = now + self.draw();
        if !self.jitter.reorder {
            departure = departure.max(self.last_departure);
            self.last_departure = departure;
        }
        self.arrivals += 1;
        self.in_flight.push(InFlight { key: Reverse((departure, self.arrivals)), packet });
    }

    fn next(&self) -> Option<Time> {
        self.in_flight.peek().map(|first| first.key.0.0)
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next()? > now {
            return None;
        }
        self.in_flight.pop().map(|first| (first.key.0.0, first.packet))
    }

    fn min_transit(&self) -> Duration {
        self.base.saturating_sub(self.jitter.below())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn departures(jitter: Jitter, count: u64) -> Vec<(Time, u64)> {
        let mut delay = Delay::new(20 * MS, jitter, Rng::new(1, 1));
        for packet in 0..count {
            delay.push(Time::from_millis(packet), packet);
        }
        std::iter::from_fn(|| delay.pop(Time::MAX)).collect()
    }

    #[test]
    fn a_constant_delay_is_exact() {
        let expected: Vec<_> = (0..5).map(|packet| (Time::from_millis(20 + packet), packet)).collect();
        assert_eq!(departures(Jitter::NONE, 5), expected);
    }

    #[test]
    fn jitter_keeps_the_order_unless_reordering_is_asked_for() {
        for distribution in [Distribution::Uniform, Distribution::Normal, Distribution::Exponential] {
            let jitter = Jitter { amount: 5 * MS, distribution, reorder: false };
            let order =
                |jitter| departures(jitter, 500).into_iter().map(|(_, packet)| packet).collect::<Vec<_>>();
            assert!(order(jitter).is_sorted());
            assert!(!order(Jitter { reorder: true, ..jitter }).is_sorted());
        }
    }

    #[test]
    fn jitter_has_the_mean_and_the_bounds_of_its_distribution() {
        for (distribution, mean, low, high) in [
            (Distribution::Uniform, 20.0, 15.0, 25.0),
            (Distribution::Normal, 20.0, 0.0, 40.0),
            (Distribution::Exponential, 25.0, 20.0, 100.0),
        ] {
            let jitter = Jitter { amount: 5 * MS, distribution, reorder: true };
            let count = 20_000;
            let delays: Vec<f64> = departures(jitter, count)
                .into_iter()
                .map(|(at, packet)| at.since(Time::from_millis(packet)).as_secs_f64() * 1e3)
                .collect();
            let measured = delays.iter().sum::<f64>() / delays.len() as f64;
            // The standard deviation is at most 5 ms: five standard errors.
            assert!(
                (measured - mean).abs() < 25.0 / (count as f64).sqrt(),
                "{distribution:?}: mean {measured}"
            );
            assert!(delays.iter().all(|delay| (low..=high).contains(delay)), "{distribution:?}");
        }
    }

    #[test]
    fn jitter_is_read_and_mistakes_name_the_form() {
        let jitter: Jitter = "2ms:normal:reorder".parse().unwrap();
        assert_eq!(jitter, Jitter { amount: 2 * MS, distribution: Distribution::Normal, reorder: true });
        assert_eq!(jitter.to_string().parse(), Ok(jitter));
        for text in ["2", "2ms:gauss", ""] {
            let error = text.parse::<Jitter>().unwrap_err().to_string();
            assert!(error.contains("such as 2ms or 2ms:normal"), "{error}");
        }
    }
}
