//! Emulates networks.
mod clock;
pub mod link;
pub mod net;
pub mod proxy;
pub mod queue;
pub mod rng;
pub mod tcp;
pub mod time;
pub mod trace_file;
pub mod units;
