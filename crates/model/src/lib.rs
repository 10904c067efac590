//! What decides: policies, the link, and the traces that decisions rest on. Pure functions; no clock, no I/O.

mod link;
mod order;
mod policy;
pub mod trace;

pub use link::Link;
pub use order::{HotPage, hot_order};
pub use policy::{Policy, UnknownPolicy};
pub use trace::{Access, FirstTouch, Trace, TraceError};
