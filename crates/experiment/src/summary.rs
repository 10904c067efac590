//! `summary.csv`: one row per cell: medians and quartiles of its runs, beside what was predicted.

use pagein_simnet::units::format_duration;
use serde::Serialize;

use crate::grid::Cell;
use crate::predict::Forecast;
use crate::results::{Outcome, Row};
use crate::scenario::{Mode, Scheme};

/// Median and quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quartiles {
    /// A quarter of the values is below.
    pub first: f64,
    /// Half of them is.
    pub median: f64,
    /// Three quarters are.
    pub third: f64,
}

impl Quartiles {
    /// Of any number of values but none, by linear interpolation between neighbours (type 7 of Hyndman and Fan, "Sample
    /// Quantiles in Statistical Packages", 1996).
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let position = share * (values.len() - 1) as f64;
            let (below, above) = (values[position.floor() as usize], values[position.ceil() as usize]);
            below + (above - below) * position.fract()
        };
        (!values.is_empty()).then(|| Self { first: at(0.25), median: at(0.5), third: at(0.75) })
    }
}

/// A cell and what its runs say.
#[derive(Debug, Clone)]
pub struct CellSummary {
    /// The cell.
    pub cell: Cell,
    /// Runs that did what the program does locally.
    pub runs: usize,
    /// Runs that did not.
    pub failed: usize,
    /// Start to end, ms.
    pub total_ms: Option<Quartiles>,
    /// Start to first instruction, ms; median.
    pub exec_ms: Option<f64>,
    /// Medians of what `--stats` counts.
    pub wire_bytes: Option<f64>,
    /// Bytes that came without being asked for page by page.
    pub hot_bytes: Option<f64>,
    /// Requests.
    pub requests: Option<f64>,
    /// Faults that had to be requested.
    pub demand_faults: Option<f64>,
    /// Pages that were there at the end.
    pub pages_installed: Option<f64>,
    /// What the simulator says.
    pub forecast: Option<Forecast>,
}

impl CellSummary {
    /// Median time to the end, ms.
    pub fn median_ms(&self) -> Option<f64> {
        self.total_ms.map(|quartiles| quartiles.median)
    }

    /// Prediction against measurement: +0.1 if the prediction is a tenth too long. None for simulated cells.
    pub fn error(&self) -> Option<f64> {
        let measured = self.median_ms().filter(|_| self.cell.mode == Mode::Real)?;
        Some(self.forecast?.total_ms / measured - 1.0)
    }

    /// How many times the floor it takes.
    pub fn times_floor(&self) -> Option<f64> {
        Some(self.median_ms()? / self.forecast?.floor_ms)
    }
}

/// Sums up the runs of one cell.
pub fn summarise(cell: &Cell, rows: &[Row], forecast: Option<&Forecast>) -> CellSummary {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.is_of(cell)).collect();
    let good: Vec<&Row> = rows.iter().copied().filter(|row| row.outcome == Outcome::Ok).collect();
    let quartiles = |value: &dyn Fn(&Row) -> Option<f64>| {
        Quartiles::of(good.iter().filter_map(|row| value(row)).collect())
    };
    let median = |value: &dyn Fn(&Row) -> Option<f64>| quartiles(value).map(|quartiles| quartiles.median);
    let count = |value: fn(&Row) -> Option<u64>| median(&|row| value(row).map(|count| count as f64));
    CellSummary {
        cell: cell.clone(),
        runs: good.len(),
        failed: rows.len() - good.len(),
        total_ms: quartiles(&|row| row.total_ms),
        exec_ms: median(&|row| row.exec_ms),
        wire_bytes: count(|row| row.wire_bytes),
        hot_bytes: count(|row| row.hot_bytes),
        requests: count(|row| row.requests),
        demand_faults: count(|row| row.demand_faults),
        pages_installed: count(|row| row.pages_installed),
        forecast: forecast.copied(),
    }
}

/// The cell of a program, policy and link.
pub fn find<'a>(
    summaries: &'a [CellSummary],
    program: &str,
    scheme: Scheme,
    point: crate::scenario::LinkPoint,
) -> Option<&'a CellSummary> {
    summaries.iter().find(|summary| {
        let cell = &summary.cell;
        cell.program == program && cell.scheme == scheme && cell.point == point
    })
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    program: &'a str,
    policy: &'a str,
    bandwidth: String,
    rtt: String,
    bandwidth_bps: u64,
    rtt_ms: f64,
    product_bytes: f64,
    mode: &'a str,
    runs: usize,
    failed: usize,
    total_ms_median: Option<f64>,
    total_ms_q1: Option<f64>,
    total_ms_q3: Option<f64>,
    exec_ms: Option<f64>,
    wire_bytes: Option<f64>,
    hot_bytes: Option<f64>,
    requests: Option<f64>,
    demand_faults: Option<f64>,
    pages_installed: Option<f64>,
    predicted_ms: Option<f64>,
    predicted_bytes: Option<u64>,
    predicted_requests: Option<u64>,
    error: Option<f64>,
    floor_ms: Option<f64>,
    times_floor: Option<f64>,
}

/// The whole file. Times are rounded to microseconds, ratios to a thousandth.
pub fn csv(summaries: &[CellSummary]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for summary in summaries {
        let CellSummary { cell, total_ms, .. } = summary;
        let round = |value: f64| (value * 1e3).round() / 1e3;
        let line = Line {
            program: &cell.program,
            policy: cell.scheme.name(),
            bandwidth: cell.point.bandwidth.to_string(),
            rtt: format_duration(cell.point.rtt),
            bandwidth_bps: cell.point.bandwidth.bits_per_second(),
            rtt_ms: cell.point.rtt.as_secs_f64() * 1e3,
            product_bytes: round(cell.point.product()),
            mode: cell.mode.name(),
            runs: summary.runs,
            failed: summary.failed,
            total_ms_median: total_ms.map(|q| round(q.median)),
            total_ms_q1: total_ms.map(|q| round(q.first)),
            total_ms_q3: total_ms.map(|q| round(q.third)),
            exec_ms: summary.exec_ms.map(round),
            wire_bytes: summary.wire_bytes,
            hot_bytes: summary.hot_bytes,
            requests: summary.requests,
            demand_faults: summary.demand_faults,
            pages_installed: summary.pages_installed,
            predicted_ms: summary.forecast.map(|forecast| round(forecast.total_ms)),
            predicted_bytes: summary.forecast.map(|forecast| forecast.wire_bytes),
            predicted_requests: summary.forecast.map(|forecast| forecast.requests),
            error: summary.error().map(round),
            floor_ms: summary.forecast.map(|forecast| round(forecast.floor_ms)),
            times_floor: summary.times_floor().map(round),
        };
        writer.serialize(line).expect("memory does not fail");
    }
    writer.into_inner().expect("memory does not fail")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let of = |values: &[f64]| Quartiles::of(values.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0]), Some(Quartiles { first: 3.0, median: 3.0, third: 3.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some(Quartiles { first: 1.75, median: 2.5, third: 3.25 }));
    }
}
