//! Seeded randomness: the same seed gives the same losses and the same jitter, on every machine and in every version.
//!
//! PCG (`rand_pcg`) promises a stable sequence for a seed; the distributions are written out here, because those of
//! `rand_distr` may change between releases.

use std::f64::consts::TAU;

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Rng(Pcg64);

impl Rng {
    /// The stream that belongs to `seed` and `stream`; different streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// Uniform in `[0, 1)`, with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Normally distributed with mean 0 and standard deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        // 1 - u is in (0, 1], where the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    /// Exponentially distributed with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_streams_differ() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            std::array::from_fn::<u64, 4, _>(|_| rng.unit().to_bits())
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }

    #[test]
    fn distributions_have_their_moments() {
        let mut rng = Rng::new(7, 0);
        let count = 100_000;
        let (mut sum, mut squares, mut exponential) = (0.0, 0.0, 0.0);
        for _ in 0..count {
            let x = rng.normal();
            sum += x;
            squares += x * x;
            exponential += rng.exponential();
        }
        let count = f64::from(count);
        // Five standard errors of each mean.
        assert!((sum / count).abs() < 5.0 / count.sqrt());
        assert!((squares / count - 1.0).abs() < 5.0 * 2f64.sqrt() / count.sqrt());
        assert!((exponential / count - 1.0).abs() < 5.0 / count.sqrt());
    }
}
