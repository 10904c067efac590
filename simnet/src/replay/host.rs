//! What a run costs on this machine beside the network and beside the program itself.

use std::time::Duration;

use crate::tcp::TcpConfig;

/// Costs of a run on a host, and what its TCP is like.
///
/// [`Host::default`] was measured on two virtual CPUs of 2026, on loopback; fields can be replaced by what another machine takes:
/// `exec_ms` of a run on loopback is `start` and `launch`, the time of each demand beyond the transfer `fault`, `request` and `wake`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// From the start of the command to the first packet of its first connection.
    pub start: Duration,
    /// From the moment the pages for exec are in memory to the first instruction, under a pager.
    pub launch: Duration,
    /// From the moment the complete file is there to the first instruction, without a pager.
    pub exec: Duration,
    /// From the program's last act to the end of the command.
    pub end: Duration,
    /// From a touch of a missing page until the pager has looked at it.
    pub fault: Duration,
    /// From the installation of a page until the thread that waited for it runs again.
    pub wake: Duration,
    /// Every request: building it, and handing the head of the response to whoever waits.
    pub request: Duration,
    /// From the last byte of a request at the server to the first of the response.
    pub server: Duration,
    /// Checking, decompressing and installing a page of a frame or a group.
    pub page: Duration,
    /// The same for the complete file, written to the cache and checked as a whole.
    pub file_page: Duration,
    /// TCP on both sides.
    pub tcp: TcpConfig,
}

impl Default for Host {
    fn default() -> Self {
        let us = Duration::from_micros;
        Self {
            start: us(3_500),
            launch: us(4_500),
            exec: us(1_500),
            end: us(1_500),
            fault: us(25),
            wake: us(20),
            request: us(150),
            server: us(100),
            page: us(8),
            file_page: us(14),
            tcp: TcpConfig::default(),
        }
    }
}

impl Host {
    /// A machine on which nothing but the network takes time: what remains is the link and the program's own CPU time.
    pub const fn instant(tcp: TcpConfig) -> Self {
        let zero = Duration::ZERO;
        Self {
            start: zero,
            launch: zero,
            exec: zero,
            end: zero,
            fault: zero,
            wake: zero,
            request: zero,
            server: zero,
            page: zero,
            file_page: zero,
            tcp,
        }
    }
}
