//! What a direction did, written by its shaping thread and read by the log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::queue::Counters;

/// Totals since the start, and the state of the queue. Each value is exact by itself; together they may be some microseconds
/// apart.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    delivered_packets: AtomicU64,
    delivered_bytes: AtomicU64,
    dropped_packets: AtomicU64,
    dropped_bytes: AtomicU64,
    queued_packets: AtomicU64,
    queued_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

/// [`Statistics`] at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sample {
    /// Packets that came out at the other end.
    pub(super) delivered_packets: u64,
    /// Their bytes, IP headers included.
    pub(super) delivered_bytes: u64,
    /// Packets that the queue or the wire lost.
    pub(super) dropped_packets: u64,
    /// Their bytes.
    pub(super) dropped_bytes: u64,
    /// Packets that wait in the queue.
    pub(super) queued_packets: u64,
    /// Their bytes.
    pub(super) queued_bytes: u64,
    /// The most bytes that waited since the sample before.
    pub(super) peak_bytes: u64,
}

impl Statistics {
    pub(super) fn delivered(&self, bytes: usize) {
        self.delivered_packets.fetch_add(1, Relaxed);
        self.delivered_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn queue(&self, counters: Counters) {
        self.dropped_packets.store(counters.dropped_packets, Relaxed);
        self.dropped_bytes.store(counters.dropped_bytes, Relaxed);
        self.queued_packets.store(counters.queued_packets, Relaxed);
        self.queued_bytes.store(counters.queued_bytes, Relaxed);
        self.peak_bytes.fetch_max(counters.queued_bytes, Relaxed);
    }

    /// The values now; the peak starts over.
    pub(super) fn sample(&self) -> Sample {
        let queued_bytes = self.queued_bytes.load(Relaxed);
        Sample {
            delivered_packets: self.delivered_packets.load(Relaxed),
            delivered_bytes: self.delivered_bytes.load(Relaxed),
            dropped_packets: self.dropped_packets.load(Relaxed),
            dropped_bytes: self.dropped_bytes.load(Relaxed),
            queued_packets: self.queued_packets.load(Relaxed),
            queued_bytes,
            peak_bytes: self.peak_bytes.swap(queued_bytes, Relaxed).max(queued_bytes),
        }
    }
}
