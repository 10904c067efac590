//! The replay of the loader against arithmetic, and what must hold for every image, job and link.

use std::time::Duration;

use pagein_image::{Digest, Frame, GroupIndex, GroupSet, Manifest, PageNo};
use pagein_model::Policy;
use pagein_simnet::{
    link::Link,
    queue::QueueLimit,
    replay::{Host, Image, Job, Prediction, Touch, floor, predict},
    tcp::{CongestionControl, TcpConfig},
};
use proptest::prelude::*;

const MANIFEST_LEN: u64 = 500;
/// Pages that the kernel reads, in a frame of their own.
const EXEC_PAGES: u32 = 2;

fn frame(pages: u32, stored_len: u32) -> Frame {
    Frame { pages, stored_len, digest: Digest::of(b"") }
}

/// An image of `pages` pages of which the first `hot` are hot; every page takes `size` bytes wherever it is stored.
#[derive(Debug)]
struct Made {
    manifest: Manifest,
    groups: GroupIndex,
    paged: GroupIndex,
}

impl Made {
    fn new(pages: u32, hot: u32, per_frame: u32, per_group: u32, size: u32) -> Self {
        let frames = |from: u32, to: u32, per: u32| {
            (from..to).step_by(per as usize).map(move |first| first..(first + per).min(to))
        };
        let sized = |run: std::ops::Range<u32>| frame(run.len() as u32, size * run.len() as u32);
        let hot_lists = || frames(0, EXEC_PAGES, EXEC_PAGES).chain(frames(EXEC_PAGES, hot, per_frame));
        let listed = |run: std::ops::Range<u32>| (run.clone().map(PageNo).collect(), sized(run));
        let all = GroupIndex::new(frames(0, pages, per_group).map(listed).collect());
        let groups = GroupIndex::new(frames(hot, pages, per_group).chain(hot_lists()).map(listed).collect());
        let set = |index: &GroupIndex| GroupSet {
            index_len: 300,
            index_digest: Digest::of(b""),
            data_len: index.stored_len(),
        };
        let manifest = Manifest {
            name: "made".into(),
            file_size: u64::from(pages) * 4096,
            file_digest: Digest::of(b""),
            machine: 62,
            reads_self: false,
            page_files: false,
            traces: 1,
            hot_pages: (0..hot).map(PageNo).collect(),
            hot_touched: vec![1; hot as usize],
            hot_frames: hot_lists().map(sized).collect(),
            exec_frames: 1,
            linking: pagein_image::Linking::Off(pagein_image::NotLinked::NothingToDo),
            rest_frames: frames(hot, pages, 64).map(sized).collect(),
            groups: set(&groups),
            paged: Some(set(&all)),
        };
        Self { manifest, groups, paged: all }
    }

    fn image(&self) -> Image<'_> {
        Image {
            manifest: &self.manifest,
            manifest_len: MANIFEST_LEN,
            groups: &self.groups,
            paged: Some(&self.paged),
        }
    }
}

fn job(pages: impl IntoIterator<Item = u32>, think: Duration) -> Job {
    let touch = |page| Touch { page: PageNo(page), think };
    Job { touches: pages.into_iter().map(touch).collect(), rest: think }
}

/// TCP that neither loses nor stops slow start early.
fn smooth() -> Host {
    Host::instant(TcpConfig { congestion: CongestionControl::Reno, ..TcpConfig::default() })
}

fn link(bits: u64, round_trip: Duration) -> Link {
    let bandwidth = pagein_simnet::units::Bandwidth::from_bits_per_second(bits).unwrap();
    let mut link = Link::symmetric(bandwidth, round_trip);
    (link.up.queue, link.down.queue) = (QueueLimit::Unlimited, QueueLimit::Unlimited);
    link
}

fn seconds(prediction: &Prediction) -> f64 {
    prediction.total.as_secs_f64()
}

/// Equation 1 with the round trip of the connection: bytes / bandwidth + requests x round trip. Heads of requests and responses and
/// the headers of packets are a tenth of what is transferred here.
#[test]
fn without_cpu_time_the_sum_is_equation_1() {
    // 64 groups of 4 pages of 1000 bytes: each response fits into the initial window.
    let made = Made::new(256, 2, 2, 4, 1000);
    let everything = job(0..256, Duration::ZERO);
    let (rate, round_trip) = (125_000.0, 0.2);
    let slow = link(1_000_000, Duration::from_millis(200));
    let expected = |bytes: u64, requests: u64, connections: u64| {
        bytes as f64 / rate + (requests + connections) as f64 * round_trip
    };
    let paged = predict(&made.image(), &everything, &slow, Some(Policy::Paged), &smooth());
    // The head of `hot` (all of it: the object is smaller than that request), the index, and all groups but none is spared.
    assert_eq!((paged.requests, paged.demand_requests, paged.demand_faults), (66, 65, 64));
    assert_eq!(paged.wire_bytes, MANIFEST_LEN + 2_000 + 300 + 256_000);
    let time = expected(paged.wire_bytes, paged.requests, paged.connections);
    assert!((1.0..1.05).contains(&(seconds(&paged) / time)), "{paged:?} against {time}");

    let original = predict(&made.image(), &everything, &slow, Some(Policy::Original), &smooth());
    assert_eq!((original.requests, original.wire_bytes), (1, MANIFEST_LEN + 256_000));
    let time = expected(original.wire_bytes, 1, 1);
    assert!((1.0..1.10).contains(&(seconds(&original) / time)), "{original:?} against {time}");
}

#[test]
fn what_a_program_computes_is_overlapped_by_the_stream_only() {
    let made = Made::new(512, 256, 8, 16, 1000);
    let fast = link(100_000_000, Duration::from_millis(10));
    // 254 ms of its own, many times what the transfer takes.
    let busy = job(2..256, Duration::from_millis(1));
    let of = |policy| predict(&made.image(), &busy, &fast, Some(policy), &smooth());
    let (streamed, reordered) = (of(Policy::Streamed), of(Policy::Reordered));
    assert_eq!(streamed.wire_bytes, reordered.wire_bytes);
    assert_eq!(reordered.total, reordered.exec + busy.cpu());
    assert!(streamed.exec < reordered.exec && streamed.total < reordered.total, "{streamed:?} {reordered:?}");
    assert!(streamed.waited < Duration::from_millis(40), "{streamed:?}");
}

#[test]
fn a_cold_page_costs_the_index_once_and_a_group() {
    let made = Made::new(512, 64, 8, 16, 1000);
    let here = link(10_000_000, Duration::from_millis(20));
    let of = |pages: Vec<u32>| {
        predict(&made.image(), &job(pages, Duration::ZERO), &here, Some(Policy::Reordered), &smooth())
    };
    let hot = of((2..64).collect());
    assert_eq!((hot.requests, hot.wire_bytes, hot.unused_bytes), (1, MANIFEST_LEN + 64_000, 0));
    let one = of(vec![2, 300]);
    assert_eq!((one.requests, one.demand_requests, one.demand_faults), (3, 2, 1));
    assert_eq!(one.demanded_bytes, 300 + 16_000);
    // 61 hot pages and the 15 neighbours were for nothing.
    assert_eq!(one.unused_bytes, 61_000 + 15_000);
    let two = of(vec![2, 300, 301, 400]);
    assert_eq!((two.requests, two.demand_faults), (4, 2), "a group that is there is not asked for again");
    let more = seconds(&one) - seconds(&hot);
    assert!((0.040..0.062).contains(&more), "two round trips and a group: {more}");
}

#[test]
fn a_head_that_is_not_read_to_its_end_costs_a_connection() {
    // The hot object is larger than what is asked for first, and the manifest and the first frame are not.
    let made = Made::new(512, 256, 8, 16, 1000);
    let slow = link(1_000_000, Duration::from_millis(100));
    let touches = job([100, 400], Duration::ZERO);
    let paged = predict(&made.image(), &touches, &slow, Some(Policy::ReorderedPaged), &smooth());
    assert_eq!((paged.requests, paged.connections), (4, 2), "{paged:?}");
    assert!(paged.hot_bytes < 32 * 1024, "{paged:?}");
}

#[test]
fn auto_takes_all_of_a_program_that_was_never_recorded_or_reads_itself() {
    let mut made = Made::new(256, 64, 8, 16, 1000);
    let here = link(10_000_000, Duration::from_millis(20));
    let touches = job(2..64, Duration::ZERO);
    let of = |made: &Made| predict(&made.image(), &touches, &here, None, &smooth());
    assert_eq!(of(&made).policy, Policy::Streamed);
    made.manifest.reads_self = true;
    let whole = of(&made);
    assert_eq!((whole.policy, whole.requests), (Policy::Original, 2));
    let asked = predict(&made.image(), &touches, &here, Some(Policy::Original), &smooth());
    assert!(whole.total > asked.total, "the decision is in the manifest, which costs a request");
}

/// Another job than the recorded one, where the bytes of the rest cost less than round trips.
#[test]
fn auto_lets_the_rest_follow_where_it_is_worth_its_bytes() {
    let made = Made::new(256, 64, 8, 16, 1000);
    let touches = job(2..256, Duration::ZERO);
    let of = |link: &Link, policy| predict(&made.image(), &touches, link, policy, &smooth());
    let long = link(100_000_000, Duration::from_millis(100));
    let (auto, streamed) = (of(&long, None), of(&long, Some(Policy::Streamed)));
    assert_eq!((auto.policy, auto.demand_faults), (Policy::Streamed, 0), "{auto:?}");
    assert!(streamed.demand_faults > 5 && auto.total < streamed.total, "{auto:?} {streamed:?}");
    let short = link(1_000_000, Duration::from_millis(1));
    assert_eq!(of(&short, None).wire_bytes, of(&short, Some(Policy::Streamed)).wire_bytes);
}

prop_compose! {
    fn cases()(
        hot in 3u32..200,
        cold in 1u32..200,
        per_frame in 1u32..40,
        per_group in 1u32..40,
        size in 100u32..4000,
        touched in prop::collection::vec(any::<prop::sample::Index>(), 1..100),
        think in 0u64..2000,
    ) -> (Made, Job) {
        let pages = hot + cold;
        let made = Made::new(pages, hot, per_frame, per_group, size);
        let mut seen = std::collections::HashSet::new();
        let touches = touched.iter().map(|index| index.index(pages as usize) as u32).filter(|page| seen.insert(*page));
        let job = job(touches.collect::<Vec<_>>(), Duration::from_micros(think));
        (made, job)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_floor_is_below_every_policy_and_replays_are_deterministic(
        (made, job) in cases(), kbit in 56u64..1_000_000, ms in 0u64..300, lossy: bool,
    ) {
        let round_trip = Duration::from_millis(ms);
        let rate = pagein_simnet::units::Bandwidth::from_bits_per_second(kbit * 1000).unwrap();
        let mut link = Link::symmetric(rate, round_trip);
        if lossy {
            link.down.loss = "1%".parse().unwrap();
        }
        let host = Host::instant(TcpConfig::default());
        let floor = floor(&made.image(), &job, &link, &host);
        prop_assert!(floor.total <= floor.slow_start);
        for policy in Policy::ALL {
            let of = || predict(&made.image(), &job, &link, Some(policy), &host);
            let prediction = of();
            prop_assert!(floor.total <= prediction.total, "{:?} below {:?}", prediction, floor);
            prop_assert_eq!(prediction, of());
            prop_assert!(prediction.exec + job.cpu() + prediction.waited <= prediction.total + Duration::from_nanos(1));
            prop_assert_eq!(prediction.hot_bytes + prediction.demanded_bytes, prediction.wire_bytes);
            prop_assert!(prediction.unused_bytes <= prediction.wire_bytes);
            prop_assert!(prediction.demand_faults <= prediction.faults);
        }
    }

    /// `streamed` is left out: what overtakes the stream depends on what was measured, so a better link may make it ask more.
    #[test]
    fn a_better_link_is_never_slower(
        (made, job) in cases(), kbit in 56u64..100_000, more in 1u64..10, ms in 1u64..300, less in 1u64..300,
    ) {
        let policies = [Policy::Original, Policy::Paged, Policy::ReorderedPaged, Policy::Reordered];
        let total = |kbit: u64, ms| {
            let link = link(kbit * 1000, Duration::from_millis(ms));
            policies.map(|policy| predict(&made.image(), &job, &link, Some(policy), &smooth()).total)
        };
        let base = total(kbit, ms);
        // Packets are as they fall: a last one that is smaller, an acknowledgement that is held back.
        let slack = |time: Duration| time + Duration::from_millis(1);
        for (better, base) in total(kbit * more, ms).into_iter().chain(total(kbit, ms.min(less))).zip(base.iter().cycle()) {
            prop_assert!(better <= slack(*base), "{better:?} against {base:?}");
        }
    }
}
