//! How much a shaping thread may spin to be on time.

use std::time::Duration;

use crate::time::Time;

/// The kernel wakes a sleeper late, here by 60 to 150 us (the virtual CPU has to come out of its halt first); a thread that
/// spins so long before a packet is due sends it on time.
const LEAD: Duration = Duration::from_micros(200);

/// One part in so many of a CPU may go into spinning.
const SHARE: u32 = 10;

/// What may be saved up: enough for some packets one after the other, such as those of a ping.
const MOST: Duration = Duration::from_millis(2);

/// A budget for spinning. Single packets (a ping, a request and its answer) are on time to some microseconds; a bulk
/// transfer, where lateness of single packets does not matter, uses up the budget at once and costs no more than its share.
#[derive(Debug)]
pub(super) struct SpinBudget {
    left: Duration,
    last: Time,
    is_spinning: bool,
}

impl SpinBudget {
    pub(super) fn new(now: Time) -> Self {
        Self { left: MOST, last: now, is_spinning: false }
    }

    /// At `now`, with something due at `due`: how long to sleep; zero means to look again at once.
    pub(super) fn sleep(&mut self, now: Time, due: Time) -> Duration {
        let passed = now.since(self.last);
        self.last = now;
        self.left = if self.is_spinning {
            self.left.saturating_sub(passed)
        } else {
            MOST.min(self.left + passed / SHARE)
        };
        let gap = due.since(now);
        // Spinning starts only with enough for the whole lead, so that it is worth it.
        let can_spin = self.left >= if self.is_spinning { Duration::from_nanos(1) } else { LEAD };
        self.is_spinning = can_spin && gap <= LEAD;
        if self.is_spinning {
            Duration::ZERO
        } else if can_spin {
            gap.saturating_sub(LEAD)
        } else {
            gap
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn a_single_packet_is_slept_for_and_then_spun_for() {
        let mut budget = SpinBudget::new(Time::ZERO);
        let due = Time::from_millis(10);
        assert_eq!(budget.sleep(Time::ZERO, due), 9_800 * US);
        assert_eq!(budget.sleep(due - 100 * US, due), Duration::ZERO);
    }

    #[test]
    fn spinning_takes_no_more_than_its_share() {
        let mut budget = SpinBudget::new(Time::ZERO);
        let (mut now, end) = (Time::ZERO, Time::from_millis(1_000));
        let mut spun = Duration::ZERO;
        // A bulk transfer: the next packet is always 50 us away.
        while now < end {
            let sleep = budget.sleep(now, now + 50 * US);
            let step = if sleep.is_zero() { US } else { sleep };
            spun += if sleep.is_zero() { step } else { Duration::ZERO };
            now += step;
        }
        assert!(spun > MOST && spun <= MOST + Duration::from_secs(1) / SHARE, "spun for {spun:?}");
    }
}
