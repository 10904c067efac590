//! Bytes by kind, and the number of requests that pages waited for: the paper's figure 4.

use plotters::prelude::Rectangle;
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color as _, RGBColor};

use super::axis::Axis;
use super::canvas::{FAINT, WIDTH, figure, legend, style, write};
use super::{Figure, Kind};
use crate::error::ExperimentError;
use crate::scenario::{Scenario, Scheme};
use crate::summary::{CellSummary, Quartiles};

const HOT: RGBColor = RGBColor(0x00, 0x9E, 0x73);
const DEMANDED: RGBColor = RGBColor(0xE6, 0x9F, 0x00);
const NEVER: RGBColor = RGBColor(0xD0, 0xD0, 0xD0);

/// What a policy transfers, medians over the links; bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bytes {
    /// Came without being asked for page by page.
    pub(crate) hot: f64,
    /// Came because a page was touched.
    pub(crate) demanded: f64,
    /// Of what `original` transfers, the rest.
    pub(crate) never: Option<f64>,
    /// Faults on pages that had to be requested.
    pub(crate) faults: f64,
    /// All requests.
    pub(crate) requests: f64,
}

/// For one program and policy; `None` without measured cells.
pub(crate) fn bytes(summaries: &[CellSummary], program: &str, scheme: Scheme) -> Option<Bytes> {
    let median = |scheme: Scheme, value: fn(&CellSummary) -> Option<f64>| {
        let cells = summaries.iter().filter(|one| one.cell.program == program && one.cell.scheme == scheme);
        Quartiles::of(cells.filter_map(value).collect()).map(|quartiles| quartiles.median)
    };
    let all = median(scheme, |one| one.wire_bytes)?;
    let hot = median(scheme, |one| one.hot_bytes)?.min(all);
    let whole = median(Scheme::ORIGINAL, |one| one.wire_bytes);
    Some(Bytes {
        hot,
        demanded: all - hot,
        never: whole.map(|whole| (whole - all).max(0.0)),
        faults: median(scheme, |one| one.demand_faults).unwrap_or(0.0),
        requests: median(scheme, |one| one.requests).unwrap_or(0.0),
    })
}

/// One bar for each policy.
pub(super) fn draw(
    scenario: &Scenario,
    summaries: &[CellSummary],
    program: &str,
) -> Result<Option<Figure>, ExperimentError> {
    const LEFT: i32 = 122;
    const RIGHT: i32 = 150;
    const TOP: i32 = 56;
    const ROW: i32 = 26;
    let bars: Vec<(Scheme, Bytes)> = scenario
        .policies
        .iter()
        .filter_map(|&scheme| Some((scheme, bytes(summaries, program, scheme)?)))
        .collect();
    let totals = bars.iter().map(|(_, bar)| (bar.hot + bar.demanded + bar.never.unwrap_or(0.0)) / 1e3);
    let Some(axis) = Axis::covering(totals, false) else { return Ok(None) };
    let height = TOP + ROW * bars.len() as i32 + 30;
    let title = format!("{program}: bytes by kind, and demands");
    let drawn = figure(&format!("bytes-{program}"), Kind::Bytes, &title, height as u32, |root| {
        write(root, &title, (8, 8), &style(15.0, HPos::Left, VPos::Top))?;
        legend(root, &[("hot", HOT), ("demanded", DEMANDED), ("never fetched", NEVER)], (LEFT, 38))?;
        let width = f64::from(WIDTH as i32 - LEFT - RIGHT);
        let x = |kilobytes: f64| LEFT + (kilobytes / axis.high * width).round() as i32;
        let bottom = TOP + ROW * bars.len() as i32;
        // Every other tick has its number: they would run into each other.
        for (index, &tick) in axis.ticks.iter().enumerate() {
            let line = vec![(x(tick), TOP - 4), (x(tick), bottom)];
            root.draw(&plotters::prelude::PathElement::new(line, FAINT))?;
            if index % 2 == 0 {
                let label = axis.label(tick, "kB");
                write(root, &label, (x(tick), bottom + 6), &style(11.0, HPos::Center, VPos::Top))?;
            }
        }
        for (row, (scheme, bar)) in bars.iter().enumerate() {
            let top = TOP + ROW * row as i32;
            let middle = top + ROW / 2 - 2;
            write(root, scheme.name(), (LEFT - 8, middle), &style(12.0, HPos::Right, VPos::Center))?;
            let mut from = 0.0;
            for (part, colour) in
                [(bar.hot, HOT), (bar.demanded, DEMANDED), (bar.never.unwrap_or(0.0), NEVER)]
            {
                let to = from + part / 1e3;
                if part > 0.0 {
                    root.draw(&Rectangle::new([(x(from), top), (x(to), top + ROW - 6)], colour.filled()))?;
                }
                from = to;
            }
            let label = format!("{:.0} kB, {:.0} demands", (bar.hot + bar.demanded) / 1e3, bar.faults);
            write(root, &label, (x(from) + 6, middle), &style(11.0, HPos::Left, VPos::Center))?;
        }
        Ok(())
    });
    drawn.map(Some)
}
