//! The monotonic clock, as the emulator's time.

use std::time::Instant;

use crate::time::Time;

/// Counts from when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time::ZERO + self.0.elapsed()
    }
}
