//! Emulates networks: one core of queues, three ways to drive it.
//!
//! | front | what runs on it | what it needs |
//! |---|---|---|
//! | [`tcp`], virtual time | a model of TCP; exact, deterministic, thousands of times faster than the link | nothing |
//! | [`proxy`], stream proxy | the TCP streams of any client and server, shaped in user space | nothing |
//! | [`net`], packet link | any command, with the kernel's own TCP on both sides | root, or user namespaces and /dev/net/tun |
//!
//! A [`link::Link`] is described once, in typed [`units`], and means the same on each front. What happens to a packet is
//! decided in [`queue`]: delay and jitter, rate, finite queues, loss, recorded rates from [`trace_file`]s. These are state
//! machines that are told the [`time::Time`], and all chance comes from a seed ([`rng`]).
//!
//! # How well it agrees with arithmetic
//!
//! `cargo test -p pagein-simnet -- --nocapture` prints what it measures; on two virtual CPUs of 2026 (Linux 6.18), as root:
//!
//! | | expected | measured |
//! |---|---|---|
//! | ping, round trip of 0.2, 1, 20, 200 ms | | 0.1 to 0.2 ms more |
//! | ten nested links of 10 ms, ping | 100 ms | 102 ms |
//! | iperf3 at 1 Mbit/s 50 ms, 10 Mbit/s 20 ms, 100 Mbit/s 5 ms | 96.5 % payload | 96.3 to 96.6 % |
//! | iperf3 at 1 Gbit/s 0.5 ms | 965 Mbit/s payload | 963 Mbit/s on an idle machine, 890 to 930 Mbit/s at a load of 8 |
//! | responses of 20 kB to 20 MB, virtual time against packet link | equal | 0 to 4 % |
//!
//! A stream that overruns a short queue in slow start is where virtual time and the kernel part: the kernel's own runs differ by
//! 20 % then (1 MB at 10 Mbit/s and 200 ms takes 1.67, 1.85 or 2.04 s), and virtual time, with 1.72 s, is one of them.
//!
//! Unshaped (no `--bandwidth`), a packet link carries 1.6 Gbit/s on that machine, which is the real limit. Its two shaping
//! threads take, each, no time when idle, 2 % of a processor at 1 Mbit/s, 15 % at 10 Mbit/s (10 % of it spinning, so as to be on
//! time), 40 % at 100 Mbit/s; at 1 Gbit/s the direction of the data takes 80 %.

mod clock;
pub mod link;
pub mod net;
pub mod proxy;
pub mod queue;
pub mod replay;
pub mod rng;
pub mod tcp;
pub mod time;
pub mod trace_file;
pub mod units;
