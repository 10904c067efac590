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
    let small = |point: LinkPoint| point.product() <= middle;
    let faster = |claim, scope, (winner, loser), within: &dyn Fn(LinkPoint) -> bool| {
        compare(summaries, claim, scope, (winner, loser), within)
    };
    let all = |_: LinkPoint| true;
    let large = |point: LinkPoint| !small(point);
    let mut found = vec![
        faster("reordered beats original", "all cells", (REORDERED, ORIGINAL), &all),
        only_small(summaries, (PAGED, ORIGINAL), &small),
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

/// "Wins only where the product is small": of the cells that it wins, those of the lower half.
fn only_small(
    summaries: &[CellSummary],
    (lazy, eager): (Scheme, Scheme),
    small: &dyn Fn(LinkPoint) -> bool,
) -> Finding {
    let mut exceptions = Vec::new();
    let (mut holds, mut of) = (0, 0);
    for (program, point) in places(summaries) {
        let Some((first, second)) = times(summaries, program, point, (lazy, eager)) else { continue };
        if first >= second {
            continue;
        }
        of += 1;
        if small(point) {
            holds += 1;
        } else {
            exceptions.push((
                second / first,
                format!("{program} at {point}: {:.2} s against {:.2} s", first / 1e3, second / 1e3),
            ));
        }
    }
    Finding {
        claim: "paged beats original only at small bandwidth x latency",
        scope: "cells in which paged wins: those in the half with the smaller product",
        holds,
        of,
        exceptions: worst_first(exceptions),
    }
}

fn equation(summaries: &[CellSummary], pair: Pair, claim: &'static str) -> Finding {
    let mut programs: Vec<&str> = places(summaries).iter().map(|(program, _)| *program).collect();
    programs.dedup();
    let mut finding = Finding { claim, scope: "all cells", holds: 0, of: 0, exceptions: Vec::new() };
    for program in programs {
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
