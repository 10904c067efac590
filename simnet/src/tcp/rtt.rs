//! Round trip estimation and the retransmission timeout (RFC 6298, with Linux' lower bound).

use std::time::Duration;

use super::config::{MAX_TIMEOUT, MIN_TIMEOUT_MARGIN, SYN_TIMEOUT};

/// Smoothed round trip of one direction of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
    variation: Duration,
    least: Option<Duration>,
    /// Timeouts in a row.
    backoff: u32,
}

impl RoundTrip {
    pub(super) fn sample(&mut self, sample: Duration) {
        self.backoff = 0;
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        if let Some(smoothed) = self.smoothed {
            self.variation = (self.variation * 3 + smoothed.abs_diff(sample)) / 4;
            self.smoothed = Some((smoothed * 7 + sample) / 8);
        } else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
        }
    }

    /// Zero before the first sample.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// The shortest seen; zero before the first sample.
    pub(super) fn least(&self) -> Duration {
        self.least.unwrap_or_default()
    }

    pub(super) fn timeout(&self) -> Duration {
        let base = match self.smoothed {
            Some(smoothed) => smoothed + (self.variation * 4).max(MIN_TIMEOUT_MARGIN),
            None => SYN_TIMEOUT,
        };
        base.saturating_mul(1 << self.backoff.min(10)).min(MAX_TIMEOUT)
    }

    pub(super) fn back_off(&mut self) {
        self.backoff += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_rfc_6298_above_linux_lower_bound() {
        let ms = Duration::from_millis;
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.timeout(), ms(1000));
        rtt.sample(ms(400));
        // 400 + 4 x 200.
        assert_eq!(rtt.timeout(), ms(1200));
        for _ in 0..100 {
            rtt.sample(ms(400));
        }
        assert_eq!(rtt.timeout(), ms(600));
        rtt.back_off();
        assert_eq!(rtt.timeout(), ms(1200));
        rtt.sample(ms(300));
        assert!(rtt.timeout() < ms(700) && rtt.least() == ms(300));
    }
}
