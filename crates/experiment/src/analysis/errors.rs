//! How far predictions are off.

use crate::scenario::Scheme;
use crate::summary::{CellSummary, Quartiles};

/// Prediction errors of some cells, as shares of the measured time.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorSummary {
    /// Cells that were measured and predicted.
    pub cells: usize,
    /// Median of the absolute errors.
    pub median: f64,
    /// The cell with the largest absolute error.
    pub worst_cell: String,
    /// Its error; negative if the prediction is too short.
    pub worst: f64,
}

/// Errors of all real cells, or of those of one policy; `None` if there are none.
pub fn errors(summaries: &[CellSummary], scheme: Option<Scheme>) -> Option<ErrorSummary> {
    let of = |summary: &&CellSummary| scheme.is_none_or(|scheme| summary.cell.scheme == scheme);
    let all: Vec<(f64, &CellSummary)> =
        summaries.iter().filter(of).filter_map(|summary| Some((summary.error()?, summary))).collect();
    let (worst, cell) = all.iter().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let median = Quartiles::of(all.iter().map(|(error, _)| error.abs()).collect())?.median;
    Some(ErrorSummary { cells: all.len(), median, worst_cell: cell.cell.to_string(), worst: *worst })
}
