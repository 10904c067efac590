//! The decision: which of the five policies on this link, how large a demand request is, what flows in the background, and over
//! how many connections.

use std::time::Duration;

use crate::cost::{Cost, worth_prefetching};
use crate::slow_start::{self, transfer_time};
use crate::{Link, Policy, Shape};

/// What is assumed of a link of which nothing is known yet.
pub const UNKNOWN_LINK: Link = Link { bandwidth: 2_500_000.0, round_trip: Duration::from_millis(30) };

/// Pages that another job of the program touches besides, as a share of what the recorded ones touched, times the number of these. Each
/// of 4 to 8 jobs of 13 programs left out, mean of a program, median over programs: 0.13, 0.07, 0.05 with one, two, three
/// recorded (0.02 to 1.4 with one: `docs/measurements.md`). So with n traces it falls as 1/n, as the number of unseen kinds does in
/// Good, "The population frequencies of species" (Biometrika 40, 1953), equation 9.
const UNSEEN_SHARE: f64 = 0.15;
/// Share of a program's pages that a job touches, where there is no trace: of the same 13 programs 0.05 (ruff) to 0.53 (sqlite3),
/// geometric mean 0.20; 0.05 to 0.13 of those above 20 MB, 0.28 to 0.53 of the others.
const TOUCHED_SHARE: f64 = 0.2;
/// A group of c neighbouring pages holds c^0.7 that a job touches if nothing is hot: node 6.8 of 16, gdb 8.5, git 5.
const USEFUL_PAGED: f64 = 0.7;
/// The same for groups of the pages that are left when the hot ones are taken out; measured with jobs that were not recorded: c^0.47 with one
/// recorded, 0.41 with two, 0.39 with three (groups of 16, medians of 12 programs; 0.46, 0.41, 0.37 in groups of 64). Not less than
/// one half all the same: clusters of two thirds of the size that follows from it cost such jobs 3 to 6 % of their time at 100 Mbit/s x 20 ms,
/// those of one and a half times gained 1.5 % with one recorded and lost 2 % with three.
const USEFUL_COLD: f64 = 0.5;
/// Pages in a group of the object `paged` as `pagein split` makes them.
const PAGED_GROUP: f64 = 16.0;
/// First request of the policies that do not stream, bytes: what comes in the first flight whatever the link is. It holds the manifest
/// and the pages for exec of most programs; of more, what is not needed would stand in the link in front of the first page
/// that is (with 32 KiB up to 4 s at 56 kbit/s, `docs/experiment.md`).
pub const HEAD: u64 = slow_start::FIRST_FLIGHT;
/// Bounds of a demand request, pages. One page alone compresses badly; 1 MiB is more than neighbours have in common.
const CLUSTER: std::ops::RangeInclusive<f64> = 4.0..=256.0;
/// Shortest piece of the background fill, bytes: a request and its answer have 400 bytes of headers.
const PIECE_MIN: f64 = 16.0 * 1024.0;
/// Longest piece of it.
const PIECE_MAX: f64 = 4.0 * 1024.0 * 1024.0;
/// What takes longer than this disturbs demands for too long to be fetched without a sign (another job of ruff at 10 Mbit/s x 100 ms, where the
/// rest takes 5 s: 7.3 to 12 s without it).
const AT_ONCE: Duration = Duration::from_secs(6);
/// What a page costs the processors that nobody needs: to be received, checked, unpacked and put in two places (the rest of ruff: 44 µs).
const UNNEEDED_PAGE: Duration = Duration::from_micros(50);
/// Another policy must be estimated to take less than this share of what the one that is bounded takes: the bandwidth is known from the
/// first packets only when this is decided, and a start that begins with everything cannot be mended.
const MARGIN: f64 = 0.67;

/// What one policy would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The policy.
    pub policy: Policy,
    /// Bytes until the program is done, mean.
    pub bytes: f64,
    /// Requests until then, mean.
    pub requests: f64,
    /// Time until then, from the start of the command, the program's own time included if it is known.
    pub time: Duration,
}

/// How the rest flows in the background.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill {
    /// Bytes of one request: what fills the link for a round trip, so that no more than that stands in front of a demanded page.
    pub piece: u64,
    /// How long no page must have been demanded before a piece is requested: as long as the piece occupies the link. Who has just
    /// demanded a page is likely to demand the next one soon; waiting for as long as the mistake would cost is at most twice as bad as
    /// knowing.
    pub quiet: Duration,
}

/// All that is decided for an image on a link.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The inputs: the link.
    pub link: Link,
    /// The policy.
    pub policy: Policy,
    /// Each policy's estimate, in the order of [`Policy::ALL`]. That of `streamed` includes the fill, the others have none.
    pub estimates: Vec<Estimate>,
    /// Pages of a demand request.
    pub cluster_pages: u32,
    /// The background fill; `None` if nothing is left or all of it comes first.
    pub fill: Option<Fill>,
    /// Connections for the hot object.
    pub connections: u32,
}

impl Decision {
    /// The estimate of a policy.
    ///
    /// # Panics
    /// Never: all policies have one.
    pub fn estimate(&self, policy: Policy) -> &Estimate {
        self.estimates.iter().find(|estimate| estimate.policy == policy).expect("each has one")
    }
}

/// Pages of a demand request: the cluster that brings useful pages quickest. A request for c pages takes a round trip and c pages'
/// transfer, and brings c^a useful ones; (round trip + c s / bandwidth) / c^a is least at c = a / (1 - a) x bandwidth x round trip / s.
pub fn cluster_pages(bytes_per_page: f64, link: &Link) -> u32 {
    let best = USEFUL_COLD / (1.0 - USEFUL_COLD) * link.product() / bytes_per_page.max(1.0);
    best.clamp(*CLUSTER.start(), *CLUSTER.end()).round() as u32
}

/// Pieces of the background fill on this link.
pub fn fill(link: &Link) -> Fill {
    let piece = link.product().clamp(PIECE_MIN, PIECE_MAX) as u64;
    Fill { piece, quiet: link.transfer_time(piece) }
}

/// The decision for an image of this shape on this link.
pub fn decide(shape: &Shape, link: &Link) -> Decision {
    let estimates: Vec<Estimate> = Policy::ALL.map(|policy| estimate(shape, link, policy)).to_vec();
    let time = |policy| estimates.iter().find(|e| e.policy == policy).map_or(Duration::MAX, |e| e.time);
    let best = estimates.iter().min_by_key(|estimate| estimate.time).map_or(Policy::Streamed, |e| e.policy);
    let clearly_better = time(best).as_secs_f64() < time(Policy::Streamed).as_secs_f64() * MARGIN;
    let policy = match best {
        _ if shape.reads_self => Policy::Original,
        best if clearly_better => best,
        _ => Policy::Streamed,
    };
    Decision {
        link: *link,
        policy,
        cluster_pages: cluster_pages(shape.cold.bytes_per_page(), link),
        fill: (policy == Policy::Streamed && shape.rest_bytes > 0).then(|| fill(link)),
        connections: match policy {
            Policy::Original => slow_start::connections(shape.whole_bytes, link),
            _ => slow_start::connections(shape.hot_bytes(), link),
        },
        estimates,
    }
}

/// Pages that a run touches and no trace did, mean.
fn unseen(shape: &Shape) -> f64 {
    let cold = f64::from(shape.cold.pages);
    if shape.traces == 0 {
        return TOUCHED_SHARE * cold;
    }
    let seen = f64::from(shape.exec.pages + shape.hot_total().pages);
    (UNSEEN_SHARE * seen / f64::from(shape.traces)).min(cold)
}

/// Whether the rest is worth its bytes as soon as the hot part is here: the per-page rule (equation 3 for one page), for a mean page that
/// no trace touched, which also costs work. Links of a large bandwidth-delay product and no short round trip are such; on others, and where it takes long, the rest waits for a sign
/// that it is needed.
pub fn rest_is_worth(shape: &Shape, link: &Link) -> bool {
    let pages = f64::from(shape.cold.pages.max(1));
    // As bytes that take as long: on fast links it is the larger part.
    let work = UNNEEDED_PAGE.as_secs_f64() * link.bandwidth;
    link.transfer_time(shape.rest_bytes) <= AT_ONCE
        && worth_prefetching(unseen(shape) / pages, shape.rest_bytes as f64 / pages + work, link)
}

/// How long the pages are waited for that another job than the recorded ones touches, if all of them are requested one after the
/// other.
pub fn on_demand(shape: &Shape, link: &Link) -> Duration {
    let cluster = f64::from(cluster_pages(shape.cold.bytes_per_page(), link));
    cold_demands(shape, cluster).startup(link)
}

/// Requests for the cold pages that a run touches: the index, then clusters.
fn cold_demands(shape: &Shape, cluster: f64) -> Cost {
    let unseen = unseen(shape);
    if unseen < 1.0 {
        return Cost::default();
    }
    let requests = unseen / cluster.powf(USEFUL_COLD).min(unseen);
    let bytes = (requests * cluster * shape.cold.bytes_per_page()).min(shape.cold.bytes as f64);
    Cost { bytes: bytes + shape.cold.index_bytes as f64, requests: requests + 1.0, ..Cost::default() }
}

fn estimate(shape: &Shape, link: &Link, policy: Policy) -> Estimate {
    let head = (shape.manifest_bytes + shape.exec.bytes).max(HEAD).min(shape.hot_bytes());
    let cluster = f64::from(cluster_pages(shape.cold.bytes_per_page(), link));
    let cold = cold_demands(shape, cluster);
    // One round trip makes the connection, and each first request is one whose bytes come at the pace of slow start.
    let first = |bytes, connections| transfer_time(bytes, connections, link).saturating_add(link.round_trip);
    let connections = slow_start::connections(shape.hot_bytes(), link);
    let hot_expected = shape.hot_total().expected;
    let (cost, time) = match policy {
        Policy::Original => {
            let cost = Cost { bytes: shape.whole_bytes as f64, requests: 1.0, ..Cost::default() };
            (cost, first(shape.whole_bytes, 1).saturating_add(shape.cpu))
        }
        Policy::Paged => {
            let groups = shape.paged.unwrap_or(shape.cold);
            let touched = hot_expected + unseen(shape);
            let requests = (touched / PAGED_GROUP.powf(USEFUL_PAGED)).ceil();
            let bytes = (requests * PAGED_GROUP * groups.bytes_per_page()).min(groups.bytes as f64);
            let bytes = bytes + groups.index_bytes as f64;
            demanded(
                Cost { bytes, requests: requests + 1.0, overhead: shape.cpu },
                head,
                first(head, 1),
                link,
            )
        }
        Policy::ReorderedPaged => {
            // A frame is requested if any of its pages is touched.
            let chance = |part: &crate::Part| part.expected.min(1.0);
            let requests: f64 = shape.hot.iter().map(chance).sum();
            let bytes: f64 = shape.hot.iter().map(|part| chance(part) * part.bytes as f64).sum();
            let cost =
                Cost { bytes: bytes + cold.bytes, requests: requests + cold.requests, overhead: shape.cpu };
            demanded(cost, head, first(head, 1), link)
        }
        Policy::Reordered => {
            let cost = Cost { overhead: shape.cpu, ..cold };
            demanded(cost, shape.hot_bytes(), first(shape.hot_bytes(), 1), link)
        }
        Policy::Streamed => {
            let hot = first(shape.hot_bytes(), connections);
            let overlapped = hot.max(first(head, 1).saturating_add(shape.cpu));
            let on_demand = cold.startup(link);
            let filled = link.transfer_time(shape.rest_bytes).saturating_add(link.round_trip);
            let (bytes, requests) = if filled < on_demand {
                (shape.rest_bytes as f64, shape.rest_bytes as f64 / fill(link).piece as f64)
            } else {
                (cold.bytes, cold.requests)
            };
            let requests = requests + f64::from(connections);
            let cost = Cost { bytes: shape.hot_bytes() as f64 + bytes, requests, ..Cost::default() };
            (cost, overlapped.saturating_add(on_demand.min(filled)))
        }
    };
    Estimate { policy, bytes: cost.bytes, requests: cost.requests, time }
}

/// A first request for `head` bytes, which took `time`, then `cost` on demand.
fn demanded(cost: Cost, head: u64, time: Duration, link: &Link) -> (Cost, Duration) {
    let all = Cost { bytes: cost.bytes + head as f64, requests: cost.requests + 1.0, ..Cost::default() };
    (all, time.saturating_add(cost.startup(link)))
}
