//! The paper's qualitative findings, each with the share of cells in which it holds.

use pagein_model::Policy;

use super::{PAIRS, Pair, crossover, places, times};
use crate::scenario::{LinkPoint, Scheme};
use crate::summary::{CellSummary, Quartiles};

/// A claim and how often it is true.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What is claimed.
    pub claim: &'static str,
    /// Of which cells.
    pub scope: &'static str,
    /// Cells in which it holds.
    pub holds: usize,
    /// Cells in which it could hold.
    pub of: usize,
    /// Where it does not, worst first, with what was measured instead.
    pub exceptions: Vec<String>,
}

/// Every finding that the policies of the scenario allow to check.
pub fn findings(summaries: &[CellSummary]) -> Vec<Finding> {
    const ORIGINAL: Scheme = Scheme::ORIGINAL;
    const PAGED: Scheme = Scheme(Some(Policy::Paged));
    const REORDERED: Scheme = Scheme(Some(Policy::Reordered));
    const REORDERED_PAGED: Scheme = Scheme(Some(Policy::ReorderedPaged));
    const STREAMED: Scheme = Scheme(Some(Policy::Streamed));
    let middle = Quartiles::of(places(summaries).iter().map(|(_, point)| point.product()).collect())
        .map_or(0.0, |quartiles| quartiles.median);
    let faster = |claim, scope, (winner, loser), within: &dyn Fn(LinkPoint) -> bool| {
        compare(summaries, claim, scope, (winner, loser), within)
    };
    let all = |_: LinkPoint| true;
    let large = |point: LinkPoint| point.product() > middle;
    let mut found = vec![
        faster("reordered beats original", "all cells", (REORDERED, ORIGINAL), &all),
        only_small(summaries, PAIRS[0]),
        faster("reordered-paged beats paged", "all cells", (REORDERED_PAGED, PAGED), &all),
        faster(
            "reordered beats reordered-paged at high bandwidth x latency",
            "the half of the cells with the larger product",
            (REORDERED, REORDERED_PAGED),
            &large,
        ),
    ];
    found.push(equation(summaries, PAIRS[0], "equation 3 names the faster one of original and paged"));
    found.push(equation(
        summaries,
        PAIRS[1],
        "equation 3 names the faster one of reordered and reordered-paged",
    ));
    found.push(faster(
        "streamed (not in the paper) beats reordered",
        "all cells",
        (STREAMED, REORDERED),
        &all,
    ));
    found.retain(|finding| finding.of > 0);
    found
}

fn compare(
    summaries: &[CellSummary],
    claim: &'static str,
    scope: &'static str,
    (winner, loser): (Scheme, Scheme),
    within: &dyn Fn(LinkPoint) -> bool,
) -> Finding {
    let mut finding = Finding { claim, scope, holds: 0, of: 0, exceptions: Vec::new() };
    let mut exceptions = Vec::new();
    for (program, point) in places(summaries).into_iter().filter(|(_, point)| within(*point)) {
        let Some((first, second)) = times(summaries, program, point, (winner, loser)) else { continue };
        finding.of += 1;
        if first < second {
            finding.holds += 1;
        } else {
            exceptions.push((
                first / second,
                format!("{program} at {point}: {:.2} s against {:.2} s", first / 1e3, second / 1e3),
            ));
        }
    }
    finding.exceptions = worst_first(exceptions);
    finding
}

/// "Wins only where the product is small": links in the order of their product, cells on the right side of one turn for each
/// program, before which the lazy scheme wins and from which on the eager one does.
fn only_small(summaries: &[CellSummary], pair: Pair) -> Finding {
    let mut finding = Finding {
        claim: "paged beats original only at small bandwidth x latency",
        scope: "cells on the right side of one turn for each program",
        holds: 0,
        of: 0,
        exceptions: Vec::new(),
    };
    for program in programs(summaries) {
        let Some(crossover) = crossover(summaries, program, pair) else { continue };
        let winners = &crossover.winners;
        let is_right = |turn: usize, index: usize| winners[index].lazy == (index < turn);
        let right = |turn: usize| (0..winners.len()).filter(|&index| is_right(turn, index)).count();
        let turn = (0..=winners.len()).max_by_key(|&turn| right(turn)).unwrap_or(0);
        finding.holds += right(turn);
        finding.of += winners.len();
        let wrong = (0..winners.len()).filter(|&index| !is_right(turn, index));
        finding.exceptions.extend(wrong.map(|index| {
            let faster = if winners[index].lazy { pair.lazy } else { pair.eager };
            format!("{program} at {}: {faster} was faster", winners[index].point)
        }));
    }
    finding
}

fn programs(summaries: &[CellSummary]) -> Vec<&str> {
    let mut programs: Vec<&str> = places(summaries).iter().map(|(program, _)| *program).collect();
    programs.dedup();
    programs
}

fn equation(summaries: &[CellSummary], pair: Pair, claim: &'static str) -> Finding {
    let mut finding = Finding { claim, scope: "all cells", holds: 0, of: 0, exceptions: Vec::new() };
    for program in programs(summaries) {
        let Some(crossover) = crossover(summaries, program, pair) else { continue };
        finding.of += crossover.winners.len();
        finding.holds += crossover.agreeing();
        let wrong = crossover.winners.iter().filter(|winner| winner.lazy != winner.predicted_lazy);
        finding.exceptions.extend(wrong.map(|winner| {
            let faster = if winner.lazy { pair.lazy } else { pair.eager };
            format!("{program} at {}: {faster} was faster", winner.point)
        }));
    }
    finding
}

fn worst_first(mut exceptions: Vec<(f64, String)>) -> Vec<String> {
    exceptions.sort_by(|a, b| b.0.total_cmp(&a.0));
    exceptions.into_iter().map(|(_, text)| text).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pagein_simnet::units::Bandwidth;

    use super::*;
    use crate::analysis::{Turn, errors};
    use crate::grid::Cell;
    use crate::predict::Forecast;
    use crate::scenario::Mode;

    /// A cell of a program whose times follow equation 1 exactly, but for `extra` ms.
    fn cell(policy: Policy, rtt_ms: u64, bytes: f64, requests: f64, extra: f64) -> CellSummary {
        let point = LinkPoint {
            bandwidth: Bandwidth::from_bits_per_second(80_000).unwrap(),
            rtt: Duration::from_millis(rtt_ms),
        };
        // 80 kbit/s are ten bytes in a millisecond.
        let ms = bytes / 10.0 + requests * rtt_ms as f64 + extra;
        let scheme = Scheme(Some(policy));
        let forecast = Forecast {
            total_ms: ms - extra,
            exec_ms: 0.0,
            wire_bytes: bytes as u64,
            hot_bytes: 0,
            requests: requests as u64,
            faults: 0,
            demand_faults: 0,
            policy: policy.name(),
            floor_ms: ms / 2.0,
            floor_slow_start_ms: ms / 2.0,
        };
        CellSummary {
            cell: Cell { program: "p".to_owned(), scheme, point, mode: Mode::Real, repeats: 1 },
            runs: 1,
            failed: 0,
            total_ms: Quartiles::of(vec![ms]),
            exec_ms: None,
            wire_bytes: Some(bytes),
            hot_bytes: None,
            requests: Some(requests),
            demand_faults: None,
            pages_installed: None,
            forecast: Some(forecast),
        }
    }

    /// `paged` saves 6000 bytes and costs 20 requests: the turn is at 300 bytes, which is 30 ms here.
    fn grid(extra: f64) -> Vec<CellSummary> {
        let links = [10, 20, 40, 80];
        let paged =
            links.map(|rtt| cell(Policy::Paged, rtt, 4_000.0, 21.0, if rtt == 80 { -extra } else { 0.0 }));
        links.map(|rtt| cell(Policy::Original, rtt, 10_000.0, 1.0, 0.0)).into_iter().chain(paged).collect()
    }

    #[test]
    fn where_equation_1_holds_equation_3_names_the_turn() {
        let found = crossover(&grid(0.0), "p", PAIRS[0]).unwrap();
        assert_eq!(found.predicted, Turn::At(300.0));
        assert_eq!((found.agreeing(), found.winners.len()), (4, 4));
        let (last_lazy, first_eager) = found.changes_between().unwrap();
        assert_eq!((last_lazy.product(), first_eager.product()), (200.0, 400.0));
        assert_eq!((found.lazy_up_to(), found.eager_from()), (Some(200.0), Some(400.0)));
    }

    #[test]
    fn a_cell_on_the_wrong_side_is_counted_and_named() {
        let summaries = grid(10_000.0);
        let found = crossover(&summaries, "p", PAIRS[0]).unwrap();
        assert_eq!((found.agreeing(), found.changes_between()), (3, None));
        let findings = findings(&summaries);
        let of = |claim: &str| findings.iter().find(|finding| finding.claim.contains(claim)).unwrap();
        let turn = of("only at small");
        assert_eq!((turn.holds, turn.of), (3, 4));
        let equation = of("equation 3");
        assert_eq!((equation.holds, equation.of), (3, 4));
        assert_eq!(equation.exceptions, ["p at 80kbit 80ms: paged was faster"]);
        assert!(
            !findings.iter().any(|finding| finding.claim.contains("streamed")),
            "there are no such cells"
        );
    }

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let all = errors(&grid(1_000.0), None).unwrap();
        // 4000 bytes and 21 requests of 80 ms: 2080 ms, measured 1080.
        assert_eq!(all.cells, 8);
        assert!((all.worst - (2_080.0 / 1_080.0 - 1.0)).abs() < 1e-9 && all.median.abs() < 1e-9, "{all:?}");
        assert_eq!(all.worst_cell, "p paged at 80kbit 80ms");
        let original = errors(&grid(1_000.0), Some(Scheme::ORIGINAL)).unwrap();
        assert!(original.cells == 4 && original.worst.abs() < 1e-9);
    }
}
