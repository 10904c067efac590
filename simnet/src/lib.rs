//! Emulates networks.
pub mod link;
pub mod queue;
pub mod rng;
pub mod time;
pub mod trace_file;
pub mod units;
