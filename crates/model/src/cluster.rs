//! What is requested along with a group that is demanded.

use std::ops::Range;

/// Groups to be requested at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The demanded one and those behind it.
    pub from: Range<usize>,
    /// Those in front of it; may be empty. They need a request of their own, at the same time: in one with the others they would
    /// come first, and the demanded one would wait for half of the cluster.
    pub before: Range<usize>,
}

/// Neighbours of group `demanded` on both sides alternately, as long as they are wanted and all together have at most `budget` pages
/// ([`cluster_pages`](crate::cluster_pages)). `wanted` gives the pages of a group, or `None` if there is no such group or it is here
/// or on its way.
///
/// A job enters a neighbourhood anywhere. With neighbours on one side only, half of those that it will need are left for
/// another request: on links that carry several groups in a round trip, jobs that were not recorded need 15 to 25 % fewer requests
/// with both (`docs/measurements.md`).
pub fn cluster(demanded: usize, budget: u32, wanted: impl Fn(usize) -> Option<u32>) -> Cluster {
    let (mut start, mut end) = (demanded, demanded + 1);
    let mut pages = wanted(demanded).unwrap_or(0);
    let mut fits = |group: Option<usize>| {
        let more = group.and_then(&wanted).filter(|more| pages.saturating_add(*more) <= budget);
        pages += more.unwrap_or(0);
        more.is_some()
    };
    let (mut grows_up, mut grows_down) = (true, true);
    while grows_up || grows_down {
        grows_up = grows_up && fits(Some(end));
        end += usize::from(grows_up);
        grows_down = grows_down && fits(start.checked_sub(1));
        start -= usize::from(grows_down);
    }
    Cluster { from: demanded..end, before: start..demanded }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ten(budget: u32, missing: Range<usize>) -> Cluster {
        cluster(5, budget, |group| missing.contains(&group).then_some(10))
    }

    #[test]
    fn it_grows_on_both_sides_up_to_what_is_here_or_the_budget() {
        assert_eq!(ten(19, 0..99), Cluster { from: 5..6, before: 5..5 });
        assert_eq!(ten(40, 0..99), Cluster { from: 5..8, before: 4..5 });
        assert_eq!(ten(1000, 3..7), Cluster { from: 5..7, before: 3..5 });
        assert_eq!(ten(50, 5..99), Cluster { from: 5..10, before: 5..5 });
        assert_eq!(ten(1000, 0..6), Cluster { from: 5..6, before: 0..5 });
    }

    proptest! {
        #[test]
        fn only_wanted_groups_within_the_budget(
            groups in prop::collection::vec(prop::option::of(0u32..40), 1..40), at in 0usize..40, budget in 0u32..300,
        ) {
            let at = at % groups.len();
            let found = cluster(at, budget, |group| groups.get(group).copied().flatten());
            prop_assert!(found.from.start == at && found.before.end == at);
            let others: Vec<usize> = found.before.clone().chain(found.from).filter(|group| *group != at).collect();
            prop_assert!(others.iter().all(|group| groups[*group].is_some()));
            let pages: u32 = others.iter().chain([&at]).filter_map(|group| groups[*group]).sum();
            prop_assert!(others.is_empty() || pages <= budget);
        }
    }
}
