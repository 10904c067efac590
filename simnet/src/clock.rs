//! The monotonic clock, as the emulator's time.

use std::time::Instant;

use nix::sys::prctl;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use crate::time::Time;

/// Makes the calling thread as punctual as this user may make it.
pub(crate) fn be_punctual() {
    // Timers of ordinary threads may be 50 us late so that wake-ups can be combined (prctl(2), PR_SET_TIMERSLACK).
    let _ = prctl::set_timerslack(1);
    // Before all ordinary threads (sched(7)): a link must not become slower because a compiler runs beside it. Without the
    // right to do so the link is as punctual as the load allows.
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
}

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
