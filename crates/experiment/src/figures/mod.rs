//! The figures, as SVG: those of the paper, and those that show how good predictions are.

mod axis;
mod canvas;
mod kinds;
mod links;
mod scatter;

use pagein_model::Policy;
use plotters::style::RGBColor;

use crate::error::ExperimentError;
use crate::grid;
use crate::scenario::{Scenario, Scheme};
use crate::summary::{CellSummary, Quartiles, find};
use links::{LinksChart, Series};

/// A drawn figure.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// File name without its ending.
    pub name: String,
    /// Which group of figures it belongs to.
    pub kind: Kind,
    /// The SVG.
    pub svg: String,
}

/// The groups, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Improvement over `original`: the paper's figure 3.
    Improvement,
    /// Bytes by kind and demand requests: the paper's figure 4.
    Bytes,
    /// Start times: the paper's figure 6.
    Times,
    /// Measured against predicted.
    Predicted,
    /// Times the floor.
    Floor,
}

/// Colours that stay apart for colour-blind readers (Okabe and Ito, "Color Universal Design", 2008), on light and dark ground.
pub(crate) fn colour(scheme: Scheme) -> RGBColor {
    match scheme.0 {
        Some(Policy::Original) => RGBColor(0x80, 0x80, 0x80),
        Some(Policy::Paged) => RGBColor(0xE6, 0x9F, 0x00),
        Some(Policy::ReorderedPaged) => RGBColor(0x56, 0xB4, 0xE9),
        Some(Policy::Reordered) => RGBColor(0x00, 0x9E, 0x73),
        Some(Policy::Streamed) => RGBColor(0xD5, 0x5E, 0x00),
        None => RGBColor(0xCC, 0x79, 0xA7),
    }
}

/// Draws all figures for which there are cells.
pub(crate) fn draw_all(
    scenario: &Scenario,
    summaries: &[CellSummary],
) -> Result<Vec<Figure>, ExperimentError> {
    let mut figures = Vec::new();
    let programs: Vec<&str> = scenario
        .programs
        .iter()
        .map(|program| program.name.as_str())
        .filter(|name| summaries.iter().any(|one| one.cell.program == *name && one.total_ms.is_some()))
        .collect();
    for program in &programs {
        figures.extend(improvement(scenario, summaries, program)?);
    }
    for program in &programs {
        figures.extend(kinds::draw(scenario, summaries, program)?);
    }
    for program in &programs {
        figures.push(start_times(scenario, summaries, program)?);
    }
    figures.extend(scatter::draw(summaries)?);
    figures.extend(floor(scenario, summaries, &programs)?);
    Ok(figures)
}

fn improvement(
    scenario: &Scenario,
    summaries: &[CellSummary],
    program: &str,
) -> Result<Option<Figure>, ExperimentError> {
    if !scenario.policies.contains(&Scheme::ORIGINAL) {
        return Ok(None);
    }
    let points = grid::points(scenario);
    let series = scenario.policies.iter().filter(|scheme| **scheme != Scheme::ORIGINAL).map(|&scheme| {
        let value = |&point: &_| {
            let median = |scheme| find(summaries, program, scheme, point)?.median_ms();
            Some(100.0 * (1.0 - median(scheme)? / median(Scheme::ORIGINAL)?))
        };
        Series { name: scheme.name(), colour: colour(scheme), values: points.iter().map(value).collect() }
    });
    let chart = LinksChart {
        name: format!("improvement-{program}"),
        kind: Kind::Improvement,
        title: format!("{program}: time saved against original"),
        unit: "%",
        logarithmic: false,
        points: &points,
        series: series.collect(),
    };
    chart.draw().map(Some)
}

fn start_times(
    scenario: &Scenario,
    summaries: &[CellSummary],
    program: &str,
) -> Result<Figure, ExperimentError> {
    let points = grid::points(scenario);
    let values = |value: &dyn Fn(&CellSummary) -> Option<f64>, scheme| {
        points.iter().map(|&point| value(find(summaries, program, scheme, point)?)).collect::<Vec<_>>()
    };
    let mut series: Vec<Series> = scenario
        .policies
        .iter()
        .map(|&scheme| {
            let seconds = |summary: &CellSummary| Some(summary.median_ms()? / 1e3);
            Series { name: scheme.name(), colour: colour(scheme), values: values(&seconds, scheme) }
        })
        .collect();
    // The floor does not depend on the policy: any cell of a link knows it.
    let floor = |point: &_| {
        let mut cells =
            scenario.policies.iter().filter_map(|&scheme| find(summaries, program, scheme, *point));
        cells.find_map(|cell| Some(cell.forecast?.floor_ms / 1e3))
    };
    let floor: Vec<Option<f64>> = points.iter().map(floor).collect();
    if floor.iter().any(Option::is_some) {
        series.push(Series { name: "floor", colour: RGBColor(0, 0, 0), values: floor });
    }
    let chart = LinksChart {
        name: format!("times-{program}"),
        kind: Kind::Times,
        title: format!("{program}: start to end"),
        unit: "s",
        logarithmic: true,
        points: &points,
        series,
    };
    chart.draw()
}

fn floor(
    scenario: &Scenario,
    summaries: &[CellSummary],
    programs: &[&str],
) -> Result<Option<Figure>, ExperimentError> {
    let points = grid::points(scenario);
    let series: Vec<Series> = scenario
        .policies
        .iter()
        .map(|&scheme| {
            let value = |&point: &_| {
                let ratios = programs
                    .iter()
                    .filter_map(|program| find(summaries, program, scheme, point)?.times_floor());
                Quartiles::of(ratios.collect()).map(|quartiles| quartiles.median)
            };
            Series { name: scheme.name(), colour: colour(scheme), values: points.iter().map(value).collect() }
        })
        .collect();
    if series.iter().all(|one| one.values.iter().all(Option::is_none)) {
        return Ok(None);
    }
    let chart = LinksChart {
        name: "floor".to_owned(),
        kind: Kind::Floor,
        title: "Time as a multiple of the floor, median of the programs".to_owned(),
        unit: "x",
        logarithmic: true,
        points: &points,
        series,
    };
    chart.draw().map(Some)
}
