//! What the model of TCP can be told.

use std::time::Duration;

/// How the congestion window grows and shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438) with `HyStart`, as Linux has it and uses by default.
    #[default]
    Cubic,
    /// Reno (RFC 5681): one segment per round trip, half the window at a loss.
    Reno,
}

/// Parameters of every connection. The defaults are those of Linux on Ethernet-sized packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpConfig {
    /// Payload of a full segment in bytes: 1500 less 20 (IPv4), 20 (TCP) and 12 (timestamps, RFC 7323).
    pub segment: u64,
    /// Headers of every segment, in bytes.
    pub header: u64,
    /// Initial window in segments (RFC 6928).
    pub initial_window: u32,
    /// Growth and back-off.
    pub congestion: CongestionControl,
    /// The most bytes in flight, by the buffers of both hosts. Linux grows its buffers ahead of slow start, so that only their
    /// limits (`tcp_rmem`, `tcp_wmem`) matter.
    pub window: u64,
    /// Bytes that a response hands to the kernel before they can be sent: what a more urgent response cannot overtake.
    /// Zero is a server with `TCP_NOTSENT_LOWAT` at its best.
    pub unsent_buffer: u64,
    /// The window falls back to the initial one after a pause longer than the retransmission timeout
    /// (`tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            segment: 1448,
            header: 52,
            initial_window: 10,
            congestion: CongestionControl::Cubic,
            window: 1 << 30,
            unsent_buffer: 0,
            slow_start_after_idle: true,
        }
    }
}

/// The first retransmission of a SYN (RFC 6298, 2.1).
pub(super) const SYN_TIMEOUT: Duration = Duration::from_secs(1);

/// The least time by which a retransmission timeout exceeds the round trip (`TCP_RTO_MIN`).
pub(super) const MIN_TIMEOUT_MARGIN: Duration = Duration::from_millis(200);

/// The longest retransmission timeout (`TCP_RTO_MAX`).
pub(super) const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// How long an acknowledgement may wait for a second segment (`TCP_DELACK_MIN`).
pub(super) const DELAYED_ACK: Duration = Duration::from_millis(40);

/// So many segments at the start of a connection are acknowledged at once (`TCP_MAX_QUICKACKS`).
pub(super) const QUICK_ACKS: u32 = 16;

/// Bytes of an acknowledgement with one SACK block (RFC 2018) beyond its header.
pub(super) const SACK_BYTES: u64 = 12;

/// Bytes of a SYN or SYN-ACK beyond its header: MSS, SACK permitted, window scale (8 more than timestamps alone).
pub(super) const SYN_BYTES: u64 = 8;
