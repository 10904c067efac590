//! Composable queues: what happens to a packet between two hosts, as pure state machines.
//!
//! A [`Stage`] takes packets in at a time and gives them out at a later one. Stages do no I/O and know no clock: every call
//! says what time it is. Times never run backwards on one stage; apart from that it does not matter how often or how late a
//! stage is asked, a packet's departure is the exact time at which it left and not the time of the question. So a
//! [`Chain`] gives the same answer in virtual time and when a real clock drives it with delays of its own.

mod chain;
mod delay;
mod drop_tail;
mod loss;
mod rate;
mod trace;

use std::time::Duration;

pub use chain::Chain;
pub use delay::{Delay, Distribution, Jitter};
pub use drop_tail::QueueLimit;
pub use loss::{Loss, LossModel};
pub use rate::Rate;
pub use trace::{OPPORTUNITY_BYTES, TraceRate};

use crate::time::Time;

/// Anything that takes up room on a link.
pub trait Packet {
    /// Size on the wire in bytes, IP header included, link-layer framing excluded.
    fn wire_bytes(&self) -> u64;
}

/// Packets of real bytes, as a TUN device gives them.
impl Packet for Vec<u8> {
    fn wire_bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// Packets that have a size and nothing else.
impl Packet for u64 {
    fn wire_bytes(&self) -> u64 {
        *self
    }
}

/// What a stage holds and what it has thrown away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that wait in a queue (neither in transmission nor in propagation).
    pub queued_packets: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets thrown away since the start.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

impl Counters {
    fn enter(&mut self, bytes: u64) {
        self.queued_packets += 1;
        self.queued_bytes += bytes;
    }

    fn leave(&mut self, bytes: u64) {
        self.queued_packets -= 1;
        self.queued_bytes -= bytes;
    }

    fn drop(&mut self, bytes: u64) {
        self.dropped_packets += 1;
        self.dropped_bytes += bytes;
    }
}

/// One element of a path.
pub trait Stage<P> {
    /// A packet arrives. Whatever leaves by `now` has been taken out with [`Stage::pop`] before.
    fn push(&mut self, now: Time, packet: P);

    /// When the next packet leaves; `None` if the stage is empty.
    fn next(&self) -> Option<Time>;

    /// Takes out the next packet that has left by `now`, with the exact time at which it left.
    fn pop(&mut self, now: Time) -> Option<(Time, P)>;

    /// The shortest time that any later packet can spend in here.
    fn min_transit(&self) -> Duration {
        Duration::ZERO
    }

    /// What it holds and what it dropped.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}
