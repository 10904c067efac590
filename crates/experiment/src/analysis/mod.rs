//! What the cells say about the paper: its equation 3, its findings, and how well the simulator predicts.

mod crossover;
mod errors;
mod findings;

pub use crossover::{Crossover, PAIRS, Pair, Turn, Winner, crossover};
pub use errors::{ErrorSummary, errors};
pub use findings::{Finding, findings};

use crate::scenario::{LinkPoint, Scheme};
use crate::summary::{CellSummary, find};

/// Times of two schemes in one cell each, of the same program and link: (first, second), ms.
pub(crate) fn times(
    summaries: &[CellSummary],
    program: &str,
    point: LinkPoint,
    schemes: (Scheme, Scheme),
) -> Option<(f64, f64)> {
    let median = |scheme| find(summaries, program, scheme, point)?.median_ms();
    Some((median(schemes.0)?, median(schemes.1)?))
}

/// The programs and links that have cells, each in their order and once.
pub(crate) fn places(summaries: &[CellSummary]) -> Vec<(&str, LinkPoint)> {
    let mut places: Vec<(&str, LinkPoint)> = Vec::new();
    for summary in summaries {
        let place = (summary.cell.program.as_str(), summary.cell.point);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}
