//! Random and bursty loss.

use std::{collections::VecDeque, fmt, str::FromStr};

use super::{Counters, Packet, Stage};
use crate::{
    rng::Rng,
    time::Time,
    units::{Probability, UnitError},
};

/// Which packets are lost on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossModel {
    /// Each independently.
    Random(Probability),
    /// Two states, good and bad; the state changes before each packet. E. N. Gilbert, "Capacity of a burst-noise channel"
    /// (1960), with E. O. Elliott's loss in both states (1963).
    Burst {
        /// Good to bad, per packet.
        enter: Probability,
        /// Bad to good, per packet; a burst is 1 / leave packets long in the mean.
        leave: Probability,
        /// Loss while bad.
        bad: Probability,
        /// Loss while good.
        good: Probability,
    },
}

impl LossModel {
    /// No loss.
    pub const NONE: Self = Self::Random(Probability::ZERO);

    /// Whether packets can be lost at all.
    pub fn is_none(&self) -> bool {
        self.mean() <= 0.0
    }

    /// The share of packets that is lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Random(p) => p.get(),
            Self::Burst { enter, leave, bad, good } => {
                let sum = enter.get() + leave.get();
                // Both zero: it starts good and stays so.
                let in_bad = if sum > 0.0 { enter.get() / sum } else { 0.0 };
                in_bad * bad.get() + (1.0 - in_bad) * good.get()
            }
        }
    }
}

impl FromStr for LossModel {
    type Err = UnitError;

    /// `1%`, or `burst:ENTER,LEAVE[,BAD[,GOOD]]` such as `burst:0.5%,25%`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = |why: String| UnitError {
            quantity: "loss",
            text: text.to_owned(),
            why,
            allowed: "a percentage such as 1%, or burst:ENTER,LEAVE[,LOSS WHILE BAD[,LOSS WHILE GOOD]] \
                      such as burst:0.5%,25%",
        };
        let probability = |text: &str| text.parse::<Probability>().map_err(|cause| error(cause.why));
        let Some(burst) = text.trim().strip_prefix("burst:") else {
            return Ok(Self::Random(probability(text)?));
        };
        let values = burst.split(',').map(probability).collect::<Result<Vec<_>, _>>()?;
        let (&[enter, leave], rest) =
            values.split_first_chunk::<2>().ok_or_else(|| error("LEAVE is missing".into()))?;
        if rest.len() > 2 {
            return Err(error("there are more than four values".into()));
        }
        Ok(Self::Burst {
            enter,
            leave,
            bad: rest.first().copied().unwrap_or(Probability::ONE),
            good: rest.get(1).copied().unwrap_or(Probability::ZERO),
        })
    }
}

impl fmt::Display for LossModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(p) => write!(f, "{p}"),
            Self::Burst { enter, leave, bad, good } => write!(f, "burst:{enter},{leave},{bad},{good}"),
        }
    }
}

/// Drops packets; those that survive pass through without delay.
#[derive(Debug)]
pub struct Loss<P> {
    model: LossModel,
    rng: Rng,
    is_bad: bool,
    passing: VecDeque<(Time, P)>,
    counters: Counters,
}

impl<P> Loss<P> {
    /// Losses after `model`; a burst model starts in its good state.
    pub fn new(model: LossModel, rng: Rng) -> Self {
        Self { model, rng, is_bad: false, passing: VecDeque::new(), counters: Counters::default() }
    }

    fn is_lost(&mut self) -> bool {
        let probability = match self.model {
            LossModel::Random(p) => p,
            LossModel::Burst { enter, leave, bad, good } => {
                let change = if self.is_bad { leave } else { enter };
                self.is_bad ^= self.rng.chance(change.get());
                if self.is_bad { bad } else { good }
            }
        };
        self.rng.chance(probability.get())
    }
}

impl<P: Packet> Stage<P> for Loss<P> {
    fn push(&mut self, now: Time, packet: P) {
        if self.is_lost() {
            self.counters.drop(packet.wire_bytes());
        } else {
            self.passing.push_back((now, packet));
        }
    }

    fn next(&self) -> Option<Time> {
        self.passing.front().map(|(at, _)| *at)
    }

    fn pop(&mut self, now: Time) -> Option<(Time, P)> {
        if self.next()? > now {
            return None;
        }
        self.passing.pop_front()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `count` packets are lost.
    fn losses(model: &str, count: usize) -> Vec<bool> {
        let mut loss = Loss::new(model.parse().unwrap(), Rng::new(3, 0));
        (0..count)
            .map(|_| {
                loss.push(Time::ZERO, 1u64);
                loss.pop(Time::ZERO).is_none()
            })
            .collect()
    }

    #[test]
    fn random_loss_is_inside_its_confidence_interval() {
        let count = 100_000;
        let share = losses("1%", count).iter().filter(|lost| **lost).count() as f64 / count as f64;
        // Binomial: 99.9 % of samples lie within 3.29 standard errors.
        let error = (0.01 * 0.99 / count as f64).sqrt();
        assert!((share - 0.01).abs() < 3.29 * error, "lost {share}");
    }

    #[test]
    fn bursts_have_their_rate_and_their_length() {
        let lost = losses("burst:1%,25%", 200_000);
        let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
        let bursts: Vec<usize> =
            lost.chunk_by(|a, b| a == b).filter(|run| run[0]).map(<[bool]>::len).collect();
        let length = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
        // p / (p + r) = 3.85 %, bursts of 1 / r = 4 packets.
        assert!((share - 0.01 / 0.26).abs() < 0.004, "lost {share}");
        assert!((length - 4.0).abs() < 0.3, "bursts of {length}");
    }

    #[test]
    fn models_are_read_and_mistakes_name_the_form() {
        for text in ["1%", "burst:0.5%,25%", "burst:0.5%,25%,80%,0.1%"] {
            let model: LossModel = text.parse().unwrap();
            assert_eq!(model.to_string().parse(), Ok(model));
        }
        for text in ["", "2", "burst:1%", "burst:", "burst:1%,2%,3%,4%,5%", "burst:x,1%"] {
            let error = text.parse::<LossModel>().unwrap_err().to_string();
            assert!(error.contains("such as burst:0.5%,25%"), "{error}");
        }
        assert!(LossModel::NONE.is_none());
        assert!((" burst:1%,3%".parse::<LossModel>().unwrap().mean() - 0.25).abs() < 1e-12);
    }
}
