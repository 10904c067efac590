//! The decision on shapes like those of real programs, and its properties on any.

use std::time::Duration;

use pagein_model::{
    Groups, Link, Part, Policy, Shape, UNKNOWN_LINK, cluster_pages, decide, fill, rest_is_worth,
};
use proptest::prelude::*;

fn link(mbit: f64, ms: u64) -> Link {
    Link { bandwidth: mbit * 125_000.0, round_trip: Duration::from_millis(ms) }
}

/// About node: 97 MB, 26 MB compressed, 3364 hot pages.
fn node(traces: u32) -> Shape {
    let part = |pages: u32| Part { bytes: u64::from(pages) * 1430, pages, expected: f64::from(pages) };
    Shape {
        traces,
        manifest_bytes: 9000,
        exec: part(6),
        hot: if traces == 0 { vec![] } else { vec![part(56); 60] },
        cold: Groups { bytes: 30_000_000, pages: 20_787, index_bytes: 50_000 },
        paged: Some(Groups { bytes: 36_000_000, pages: 24_153, index_bytes: 55_000 }),
        whole_bytes: 27_600_000,
        rest_bytes: 22_900_000,
        ..Shape::default()
    }
}

#[test]
fn a_recorded_program_is_streamed_on_every_link() {
    for (mbit, ms) in [1.0, 10.0, 100.0, 1000.0].into_iter().flat_map(|m| [1, 20, 100].map(|ms| (m, ms))) {
        let decision = decide(&node(1), &link(mbit, ms));
        assert_eq!(decision.policy, Policy::Streamed, "{mbit} Mbit/s x {ms} ms: {decision:?}");
        assert!(decision.fill.is_some());
    }
}

/// About git: 3.7 MB, 1.6 MB compressed, 370 of 907 pages hot, of two jobs.
#[test]
fn the_rest_follows_at_once_where_bytes_are_cheaper_than_round_trips() {
    let cold = Groups { bytes: 1_200_000, pages: 537, index_bytes: 3000 };
    let hot = vec![Part { bytes: 125_000, pages: 92, expected: 92.0 }; 4];
    let git = Shape { traces: 2, cold, hot, rest_bytes: 1_100_000, ..Shape::default() };
    // 28 of 537 pages are expected to be needed: a page of 2 kB is worth it from 40 kB in a round trip on.
    assert!(rest_is_worth(&git, &link(10.0, 40)), "50 kB in a round trip, 0.9 s in all");
    assert!(!rest_is_worth(&git, &link(10.0, 20)), "25 kB");
    assert!(!rest_is_worth(&git, &link(1.0, 1000)), "125 kB, but 9 s in all");
    assert!(!rest_is_worth(&node(1), &link(20.0, 100)), "9 s in all");
    assert!(rest_is_worth(&node(1), &link(1000.0, 20)));
    assert!(
        !rest_is_worth(&node(1), &link(10_000.0, 1)),
        "a round trip is less than the work for all that is not needed"
    );
}

#[test]
fn who_reads_its_own_file_gets_all_of_it_first() {
    let decision = decide(&Shape { reads_self: true, ..node(1) }, &UNKNOWN_LINK);
    assert_eq!((decision.policy, decision.fill), (Policy::Original, None));
}

/// The paper's findings, section 5: paged beats original only where bandwidth x latency is small, reordered-paged always beats
/// paged, reordered beats reordered-paged where it is large.
#[test]
fn the_papers_order_of_schemes() {
    let time = |link: &Link, policy| decide(&node(1), link).estimate(policy).time;
    let (slow, fat) = (link(1.0, 1), link(1000.0, 100));
    assert!(time(&slow, Policy::Paged) < time(&slow, Policy::Original));
    assert!(time(&fat, Policy::Paged) > time(&fat, Policy::Original));
    for link in [slow, fat] {
        assert!(time(&link, Policy::ReorderedPaged) < time(&link, Policy::Paged));
    }
    assert!(time(&fat, Policy::Reordered) < time(&fat, Policy::ReorderedPaged));
}

#[test]
fn one_estimate_by_hand() {
    // Nothing is cold, so: a round trip for the connection, one for the request, the bytes; the first flight fills this link.
    let shape = Shape { cold: Groups::default(), rest_bytes: 0, ..node(1) };
    let link = link(1.0, 20);
    let expected = Duration::from_millis(40) + link.transfer_time(shape.hot_bytes());
    assert_eq!(decide(&shape, &link).estimate(Policy::Reordered).time, expected);
    assert_eq!(decide(&shape, &link).fill, None);
}

#[test]
fn computing_overlaps_the_stream_only() {
    let with = Shape { cpu: Duration::from_secs(2), ..node(1) };
    let added = |policy| {
        let link = link(10.0, 20);
        let time = |shape| decide(shape, &link).estimate(policy).time;
        time(&with).saturating_sub(time(&node(1)))
    };
    assert_eq!(added(Policy::Reordered), Duration::from_secs(2));
    assert!(added(Policy::Streamed) < Duration::from_millis(100), "3.9 s of stream hide it");
}

#[test]
fn pieces_and_clusters_follow_the_link() {
    assert_eq!(fill(&link(100.0, 20)).piece, 250_000);
    assert_eq!(fill(&link(100.0, 20)).quiet, Duration::from_millis(20), "a piece takes a round trip");
    // 16 KiB at 125 kB/s are 131 ms.
    assert_eq!(fill(&link(1.0, 1)).quiet.as_millis(), 131);
    assert_eq!(cluster_pages(1450.0, &link(1.0, 1)), 4);
    assert_eq!(cluster_pages(1450.0, &link(10.0, 20)), 17);
    assert_eq!(cluster_pages(1450.0, &link(1000.0, 100)), 256);
}

#[test]
fn a_dead_link_has_a_decision_too() {
    let dead = Link { bandwidth: 0.0, round_trip: Duration::from_secs(1) };
    let decision = decide(&node(1), &dead);
    assert_eq!(decision.policy, Policy::Streamed);
    assert!(decision.estimates.iter().all(|estimate| estimate.time == Duration::MAX));
}

proptest! {
    #[test]
    fn the_fill_bounds_every_run(
        mbit in 0.05..2000.0f64, ms in 0u64..1000, traces in 0u32..4, hot in 0u32..200, pages in 1u32..40_000,
        per_page in 1u64..5000, whole in 1u64..100_000_000, reads_self: bool,
    ) {
        let part = Part { bytes: 64 * per_page, pages: 64, expected: 50.0 };
        let shape = Shape {
            traces,
            reads_self,
            hot: vec![part; hot as usize],
            cold: Groups { bytes: u64::from(pages) * per_page, pages, index_bytes: 100 },
            rest_bytes: whole,
            whole_bytes: whole + u64::from(hot) * 64 * per_page,
            ..node(traces)
        };
        let link = link(mbit, ms);
        let decision = decide(&shape, &link);
        prop_assert_eq!(decision.estimates.len(), 5);
        prop_assert!((1..=8).contains(&decision.connections));
        prop_assert!((4..=256).contains(&decision.cluster_pages));
        let streamed = decision.estimate(Policy::Streamed).time;
        let all = link.transfer_time(shape.hot_bytes() + shape.rest_bytes);
        // Slow start and its round trips come on top; 20 doublings are more bytes than there are.
        prop_assert!(streamed <= all + link.round_trip * 23);
        if !reads_self {
            prop_assert!(decision.estimate(decision.policy).time <= streamed);
        }
        if let Some(fill) = decision.fill {
            let behind = link.transfer_time(fill.piece).saturating_sub(link.round_trip);
            prop_assert!(fill.quiet >= behind, "a demand would wait more than a round trip");
        }
    }
}
