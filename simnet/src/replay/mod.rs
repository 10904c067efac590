//! Predicts the start of a program in virtual time: the loader's requests, decisions and installations replayed over
//! [`TcpNetwork`](crate::tcp::TcpNetwork), from a recorded run and an image.
//!
//! | file | what it knows |
//! |---|---|
//! | `job.rs` | the program: touches and times between them |
//! | `host.rs` | what pagein itself costs on a machine |
//! | `pages.rs` | the image: which frame or group holds a page, and what that costs in bytes |
//! | `client.rs` | HTTP/1.1 with a pool of connections, as the loader's client has it |
//! | `start.rs`, `run.rs` | the loader before and after exec |
//! | `floor.rs` | the least that any loader could need |
//!
//! Everything is deterministic. What is simplified: the program is one line of touches (see [`Job`]), processors are never
//! short, names are resolved, and the server reads from memory.

mod client;
mod floor;
mod host;
mod job;
mod pages;
mod run;
mod start;

use std::time::Duration;

use pagein_image::{GroupIndex, Manifest};
use pagein_model::Policy;

pub use floor::{Floor, floor};
pub use host::Host;
pub use job::{Job, Touch};

use crate::{
    link::{Direction, Link},
    queue::QueueLimit,
};

/// What a prediction must know of an image.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// Its manifest.
    pub manifest: &'a Manifest,
    /// Size of the stored manifest, bytes.
    pub manifest_len: u64,
    /// The groups of the pages that are not hot.
    pub groups: &'a GroupIndex,
    /// The groups of all pages in file order, if the image has them.
    pub paged: Option<&'a GroupIndex>,
}

/// What a run would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// How the pages come in; what `auto` has chosen, if that was asked for.
    pub policy: Policy,
    /// From the start of the command to its end.
    pub total: Duration,
    /// From the start of the command to the program's first instruction.
    pub exec: Duration,
    /// Time in which the program waited for pages, after its first instruction.
    pub waited: Duration,
    /// Bytes of response bodies received until the program ended.
    pub wire_bytes: u64,
    /// Requests made.
    pub requests: u64,
    /// Faults that reach the pager.
    pub faults: u64,
    /// Faults on pages that had to be requested.
    pub demand_faults: u64,
    /// Requests made because of a fault, those for an index included.
    pub demand_requests: u64,
    /// Connections opened.
    pub connections: u64,
    /// Of `wire_bytes`: received without a fault (manifest, hot part or complete file).
    pub hot_bytes: u64,
    /// Of `wire_bytes`: requested because of a fault, indices included.
    pub demanded_bytes: u64,
    /// Of `wire_bytes`: stored bytes of pages that the job never touches, and those that came twice or were never unpacked.
    /// A page's share of a frame is an equal one.
    pub unused_bytes: u64,
}

/// Predicts a run with an empty cache. `policy` is `None` for what `--policy auto` does.
///
/// A burst that just fills the queue in front of the link loses its last packets or does not, and waits a fifth of a second for
/// that or does not: on a real link that is chance. So this is the median of five replays, with queues that are up to four
/// packets longer than stated.
///
/// # Panics
/// If the image's tables contradict each other, which decoded ones cannot, or the job touches a page beyond the file's end.
pub fn predict(image: &Image<'_>, job: &Job, link: &Link, policy: Option<Policy>, host: &Host) -> Prediction {
    let replays =
        (0..QUEUES).map(|longer| run::predict(image, job, &with_longer_queues(link, longer), policy, host));
    let mut replays: Vec<_> = replays.collect();
    replays.sort_by_key(|prediction| prediction.total);
    replays[replays.len() / 2]
}

/// Replays of each prediction.
const QUEUES: u64 = 5;

fn with_longer_queues(link: &Link, packets: u64) -> Link {
    let longer = |direction: &Direction| Direction {
        queue: match direction.queue {
            QueueLimit::Unlimited => QueueLimit::Unlimited,
            QueueLimit::Bytes(bytes) => QueueLimit::Bytes(bytes.saturating_add(packets * 1500)),
            QueueLimit::Packets(count) => QueueLimit::Packets(count.saturating_add(packets)),
        },
        ..direction.clone()
    };
    Link { up: longer(&link.up), down: longer(&link.down), seed: link.seed }
}
