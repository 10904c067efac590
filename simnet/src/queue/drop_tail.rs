//! The finite first-in first-out buffer in front of a link.

use std::{collections::VecDeque, fmt, str::FromStr};

use super::{Counters, Packet};
use crate::units::{ByteSize, UnitError};

/// How much may wait for the link. What arrives at a full queue is dropped (drop-tail). The packet in transmission does
/// not count as waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueLimit {
    /// Nothing is ever dropped.
    #[default]
    Unlimited,
    /// At most so many bytes.
    Bytes(u64),
    /// At most so many packets.
    Packets(u64),
}

impl QueueLimit {
    /// Whether a packet of `bytes` may join.
    fn admits(self, held: &Counters, bytes: u64) -> bool {
        match self {
            Self::Unlimited => true,
            Self::Bytes(limit) => held.queued_bytes + bytes <= limit,
            Self::Packets(limit) => held.queued_packets < limit,
        }
    }
}

impl FromStr for QueueLimit {
    type Err = UnitError;

    /// `100p` (packets), `64KiB` or `64000` (bytes), or `unlimited`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = |why: &str| UnitError {
            quantity: "queue length",
            text: text.to_owned(),
            why: why.to_owned(),
            allowed: "a number of packets such as 100p, a size in bytes such as 64000 or 64KiB, or unlimited",
        };
        let trimmed = text.trim();
        if trimmed.eq_ignore_ascii_case("unlimited") {
            return Ok(Self::Unlimited);
        }
        if let Some(number) = trimmed.strip_suffix('p') {
            let packets = number
                .trim_end()
                .parse()
                .map_err(|_| error("the number of packets is not a whole number"))?;
            return Ok(Self::Packets(packets));
        }
        let size: ByteSize = trimmed.parse().map_err(|cause: UnitError| error(&cause.why))?;
        Ok(Self::Bytes(size.0))
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
            Self::Packets(packets) => write!(f, "{packets}p"),
        }
    }
}

/// The buffer itself.
#[derive(Debug)]
pub(super) struct DropTail<P> {
    waiting: VecDeque<P>,
    limit: QueueLimit,
    counters: Counters,
}

impl<P: Packet> DropTail<P> {
    pub(super) fn new(limit: QueueLimit) -> Self {
        Self { waiting: VecDeque::new(), limit, counters: Counters::default() }
    }

    pub(super) fn push(&mut self, packet: P) {
        let bytes = packet.wire_bytes();
        if self.limit.admits(&self.counters, bytes) {
            self.counters.enter(bytes);
            self.waiting.push_back(packet);
        } else {
            self.counters.drop(bytes);
        }
    }

    pub(super) fn pop(&mut self) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.counters.leave(packet.wire_bytes());
        Some(packet)
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_arrive_is_dropped() {
        let mut queue = DropTail::new(QueueLimit::Bytes(3000));
        for packet in [1500u64, 1400, 200, 100] {
            queue.push(packet);
        }
        // 1500 + 1400 fit, 200 does not, 100 fits exactly.
        assert_eq!(queue.counters().dropped_bytes, 200);
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1500, 1400, 100]);
        assert_eq!(queue.counters().queued_bytes, 0);

        let mut queue = DropTail::new(QueueLimit::Packets(2));
        for packet in 1u64..=3 {
            queue.push(packet);
        }
        assert_eq!(queue.counters().dropped_packets, 1);
    }

    #[test]
    fn limits_are_read_and_mistakes_name_the_form() {
        assert_eq!("100p".parse(), Ok(QueueLimit::Packets(100)));
        assert_eq!("64KiB".parse(), Ok(QueueLimit::Bytes(65_536)));
        assert_eq!("unlimited".parse(), Ok(QueueLimit::Unlimited));
        for text in ["1.5p", "p", "many", "-1"] {
            let error = text.parse::<QueueLimit>().unwrap_err().to_string();
            assert!(error.contains("such as 100p"), "{error}");
        }
    }
}
