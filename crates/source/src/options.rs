//! What a user may set about the transfer.

use std::time::Duration;

use crate::Retry;

/// How long to wait, and how often to try.
#[derive(Clone, Debug)]
pub struct Options {
    /// Without any progress for this long (no response head, no further chunk of a body) a request is
    /// `Stalled`. Making the connection counts too. Default 10 s: longer than any retransmission burst that a
    /// usable link recovers from.
    pub stall: Duration,
    /// How long one connection may take to be made, TLS included; never longer than `stall`. Default 5 s,
    /// which leaves room for two lost SYNs (retransmitted after 1 s and 3 s, RFC 6298).
    pub connect: Duration,
    /// How often [`crate::fetch`] tries, the first time included. Default 4.
    pub attempts: u32,
    /// Whether `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` of the environment are respected.
    /// Default true.
    pub proxy: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { stall: Duration::from_secs(10), connect: Duration::from_secs(5), attempts: 4, proxy: true }
    }
}

impl Options {
    /// The retry policy that goes with these options.
    pub fn retry(&self) -> Retry {
        Retry { attempts: self.attempts, ..Retry::default() }
    }
}
