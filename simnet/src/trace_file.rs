//! mahimahi's packet-delivery traces: when a link could deliver a packet.
//!
//! Each line holds one time in milliseconds since the start, never falling; it stands for an opportunity to deliver one
//! packet of 1500 bytes. After the last line the trace starts over, with that line's time as the new zero. (R. Netravali
//! et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015, and `mm-link(1)`.)

use std::time::Duration;

use crate::time::Time;

/// The longest trace that is read: 2^20 opportunities (12.6 Gbit of traffic) before it repeats.
pub const MAX_OPPORTUNITIES: usize = 1 << 20;

/// The longest time in a trace, one day in milliseconds.
pub const MAX_MILLIS: u64 = 24 * 3600 * 1000;

/// A trace file that cannot be read. Lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is no number.
    #[error(
        "line {line}: {text:?} is not a time; each line holds one whole number of milliseconds, such as 42"
    )]
    NotANumber {
        /// Line.
        line: usize,
        /// What stands there, cut to 40 characters.
        text: String,
    },
    /// Time runs backwards.
    #[error("line {line}: {millis} ms comes after {previous} ms; times may not fall")]
    Backwards {
        /// Line.
        line: usize,
        /// Its time.
        millis: u64,
        /// The time above.
        previous: u64,
    },
    /// A time is too large.
    #[error("line {line}: {millis} ms is more than a day ({MAX_MILLIS} ms)")]
    TooLate {
        /// Line.
        line: usize,
        /// Its time.
        millis: u64,
    },
    /// Too many lines.
    #[error("line {line}: more than {MAX_OPPORTUNITIES} delivery opportunities")]
    TooLong {
        /// Line.
        line: usize,
    },
    /// No line.
    #[error("the trace is empty; it needs at least one time in milliseconds")]
    Empty,
    /// The last time is zero, so that a repetition would take no time.
    #[error(
        "the trace ends at 0 ms; its last time must be later, because it is the length of one repetition"
    )]
    NoLength,
}

/// The delivery opportunities of one repetition, which follow each other for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, not falling, not empty; the last is the period, not zero.
    millis: Vec<u32>,
}

impl Trace {
    /// Reads a trace file. A line may end in `\r\n`; the last one need not end at all.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let body = text.strip_suffix(b"\n").unwrap_or(text);
        if body.is_empty() {
            return Err(TraceError::Empty);
        }
        let mut millis: Vec<u32> = Vec::new();
        for (index, raw) in body.split(|byte| *byte == b'\n').enumerate() {
            let line = index + 1;
            if index == MAX_OPPORTUNITIES {
                return Err(TraceError::TooLong { line });
            }
            let digits = raw.strip_suffix(b"\r").unwrap_or(raw);
            let not_a_number = || TraceError::NotANumber {
                line,
                text: String::from_utf8_lossy(&digits[..digits.len().min(40)]).into_owned(),
            };
            if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
                return Err(not_a_number());
            }
            let time = digits.iter().fold(0u64, |n, digit| n * 10 + u64::from(digit - b'0'));
            if time > MAX_MILLIS {
                return Err(TraceError::TooLate { line, millis: time });
            }
            let previous = millis.last().map_or(0, |last| u64::from(*last));
            if time < previous {
                return Err(TraceError::Backwards { line, millis: time, previous });
            }
            millis.push(time as u32);
        }
        if millis.last() == Some(&0) {
            return Err(TraceError::NoLength);
        }
        Ok(Self { millis })
    }

    /// The file that [`Trace::parse`] reads back.
    pub fn to_text(&self) -> String {
        self.millis.iter().flat_map(|millis| [millis.to_string(), "\n".to_owned()]).collect()
    }

    /// Opportunities in one repetition; never zero.
    pub fn opportunities(&self) -> u64 {
        self.millis.len() as u64
    }

    /// How long one repetition takes; never zero.
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_millis())
    }

    fn period_millis(&self) -> u64 {
        self.millis.last().map_or(1, |last| u64::from(*last))
    }

    /// The mean rate in bit/s, for packets of 1500 bytes.
    pub fn mean_bits_per_second(&self) -> f64 {
        self.opportunities() as f64 * 1500.0 * 8.0 / self.period().as_secs_f64()
    }

    /// When the `index`-th opportunity comes, counted from 0 and through all repetitions.
    pub fn at(&self, index: u64) -> Time {
        let within = self.millis[(index % self.opportunities()) as usize];
        let before = (index / self.opportunities()).saturating_mul(self.period_millis());
        Time::from_millis(before.saturating_add(u64::from(within)))
    }

    /// The first opportunity that comes after `now`.
    pub fn first_after(&self, now: Time) -> u64 {
        let period = self.period().as_nanos() as u64;
        // One repetition back, because the last opportunity of one and a first at 0 of the next fall together.
        let repetition = (now.as_nanos() / period).saturating_sub(1);
        let mut index = repetition * self.opportunities();
        loop {
            let base = Time::from_millis((index / self.opportunities()).saturating_mul(self.period_millis()));
            let within =
                self.millis.partition_point(|millis| base + Duration::from_millis(u64::from(*millis)) <= now);
            if within < self.millis.len() {
                return index + within as u64;
            }
            index += self.opportunities();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_trace_repeats_with_its_last_time_as_the_new_zero() {
        let trace = Trace::parse(b"0\n5\r\n5\n10").unwrap();
        let times: Vec<u64> = (0..9).map(|index| trace.at(index).as_nanos() / 1_000_000).collect();
        assert_eq!(times, [0, 5, 5, 10, 10, 15, 15, 20, 20]);
        assert_eq!(trace.first_after(Time::from_millis(5)), 3);
        assert_eq!(trace.first_after(Time::from_millis(10)), 5);
        assert!((trace.mean_bits_per_second() - 4.8e6).abs() < 1.0);
    }

    #[test]
    fn mistakes_name_the_line() {
        let parse = |text: &str| Trace::parse(text.as_bytes()).unwrap_err();
        assert_eq!(parse(""), TraceError::Empty);
        assert_eq!(parse("\n"), TraceError::Empty);
        assert_eq!(parse("0\n0\n"), TraceError::NoLength);
        assert_eq!(parse("5\n3\n"), TraceError::Backwards { line: 2, millis: 3, previous: 5 });
        assert_eq!(parse("5\n\n6\n"), TraceError::NotANumber { line: 2, text: String::new() });
        assert_eq!(parse("5\n 6\n"), TraceError::NotANumber { line: 2, text: " 6".into() });
        assert_eq!(parse("-1\n"), TraceError::NotANumber { line: 1, text: "-1".into() });
        assert_eq!(parse("86400001\n"), TraceError::TooLate { line: 1, millis: 86_400_001 });
        let long = "1\n".repeat(MAX_OPPORTUNITIES + 1);
        assert_eq!(parse(&long), TraceError::TooLong { line: MAX_OPPORTUNITIES + 1 });
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(mut millis in proptest::collection::vec(0u32..100_000, 1..200)) {
            millis.sort_unstable();
            *millis.last_mut().unwrap() += 1;
            let trace = Trace { millis };
            prop_assert_eq!(Trace::parse(trace.to_text().as_bytes()), Ok(trace));
        }

        #[test]
        fn no_input_panics_and_what_is_accepted_keeps_its_promises(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), b'0'..=b'9', any::<u8>()], 0..64),
            now in 0u64..10_000_000_000,
        ) {
            if let Ok(trace) = Trace::parse(&text) {
                prop_assert_eq!(&Trace::parse(trace.to_text().as_bytes()), &Ok(trace.clone()));
                let now = Time::from_nanos(now);
                let first = trace.first_after(now);
                prop_assert!(trace.at(first) > now);
                prop_assert!(first == 0 || trace.at(first - 1) <= now);
            }
        }
    }
}
