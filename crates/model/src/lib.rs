//! What decides: policies, the link, its cost model, and the traces that decisions rest on. Pure functions; no clock, no I/O.
//!
//! | what | file |
//! |---|---|
//! | equations 1 to 3 of Lee et al., and the rule per page | `cost.rs` |
//! | young TCP connections | `slow_start.rs` |
//! | an image's sizes and probabilities | `shape.rs` |
//! | the decision for an image on a link | `decide.rs` |
//! | what is requested along with a demanded group | `cluster.rs` |
//! | the link as it is measured | `link.rs` |
//! | traces, and the order that they give the pages | `trace.rs`, `order.rs` |
//! | the five policies | `policy.rs` |

mod cluster;
pub mod cost;
mod decide;
mod link;
mod order;
mod policy;
mod shape;
pub mod slow_start;
pub mod trace;

pub use cluster::{Cluster, cluster};
pub use decide::{
    Decision, Estimate, Fill, HEAD, UNKNOWN_LINK, cluster_pages, decide, fill, on_demand, rest_is_worth,
};
pub use link::Link;
pub use order::{HotPage, hot_order};
pub use policy::{Policy, UnknownPolicy};
pub use shape::{Groups, Part, Shape};
pub use trace::{Access, FirstTouch, Trace, TraceError};
