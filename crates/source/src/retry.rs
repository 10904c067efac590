//! Small objects, tried again where that can help.
//!
//! Nothing is resumed: what is fetched this way is a page group or an index, shorter than the handshake that
//! a second attempt costs.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::{ByteRange, Source, SourceError};

/// How often, and how long apart.
#[derive(Clone, Debug)]
pub struct Retry {
    /// How often to try, the first time included; 0 counts as 1.
    pub attempts: u32,
    /// The pause before the second attempt; it doubles from there. Default 100 ms: about a round trip, a
    /// fault is waiting.
    pub first: Duration,
    /// The longest pause. Default 2 s.
    pub longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 4, first: Duration::from_millis(100), longest: Duration::from_secs(2) }
    }
}

impl Retry {
    /// Only once.
    pub fn never() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// The pause after the `failed`-th attempt (1 for the first): half of the exponential backoff for sure,
    /// the other half random, so that many clients which one outage stopped do not come back at the same
    /// moment.
    pub fn pause(&self, failed: u32) -> Duration {
        let factor = 1u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(factor).min(self.longest);
        let half = full / 2;
        half + half.mul_f64(unit_random())
    }
}

/// In `0.0..1.0`. The standard library's hash keys are random enough for jitter and need no further crate.
fn unit_random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// Fetches an object, or a range of it, of a length that is known, into memory. Transient failures are tried
/// again as `retry` says; an error after more than one attempt comes as [`SourceError::GaveUp`], with the
/// count and the last failure.
pub async fn fetch(
    source: &dyn Source,
    object: &str,
    range: Option<ByteRange>,
    expected_len: u64,
    retry: &Retry,
) -> Result<Vec<u8>, SourceError> {
    let mut attempt = 1;
    loop {
        let error = match once(source, object, range.clone(), expected_len).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        if !error.is_transient() || attempt >= retry.attempts {
            return Err(match attempt {
                1 => error,
                attempts => SourceError::GaveUp { attempts, last: Box::new(error) },
            });
        }
        tokio::time::sleep(retry.pause(attempt)).await;
        attempt += 1;
    }
}

async fn once(
    source: &dyn Source,
    object: &str,
    range: Option<ByteRange>,
    expected_len: u64,
) -> Result<Vec<u8>, SourceError> {
    source.get(object, range).await?.exactly(expected_len).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_jitter_by_half() {
        let retry = Retry { attempts: 9, first: Duration::from_millis(100), longest: Duration::from_secs(1) };
        for (failed, full) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1000), (40, 1000)] {
            for _ in 0..50 {
                let pause = retry.pause(failed).as_millis();
                assert!((full / 2..=full).contains(&pause), "{failed}: {pause}");
            }
        }
        let different: std::collections::HashSet<_> = (0..20).map(|_| retry.pause(3)).collect();
        assert!(different.len() > 1, "no jitter");
    }
}
