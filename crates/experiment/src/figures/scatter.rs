//! Measured times against predicted ones.

use pagein_model::Policy;
use plotters::prelude::{ChartBuilder, Circle, PathElement};
use plotters::style::Color as _;
use plotters::style::text_anchor::{HPos, VPos};

use super::axis::Axis;
use super::canvas::{FAINT, INK, figure, legend, style, write};
use super::{Figure, Kind, colour};
use crate::error::ExperimentError;
use crate::scenario::{Mode, Scheme};
use crate::summary::CellSummary;

const HEIGHT: u32 = 520;
const LEFT: i32 = 66;
const TOP: i32 = 52;
const BOTTOM: i32 = 44;
const RIGHT: i32 = 26;

/// A dot for each measured cell; `None` if nothing was measured and predicted.
pub(super) fn draw(summaries: &[CellSummary]) -> Result<Option<Figure>, ExperimentError> {
    let dots: Vec<(Scheme, f64, f64)> = summaries
        .iter()
        .filter(|one| one.cell.mode == Mode::Real)
        .filter_map(|one| Some((one.cell.scheme, one.median_ms()? / 1e3, one.forecast?.total_ms / 1e3)))
        .collect();
    let Some(axis) = Axis::covering(dots.iter().flat_map(|dot| [dot.1, dot.2]), true) else {
        return Ok(None);
    };
    let title = "Predicted against measured time";
    let drawn = figure("predicted", Kind::Predicted, title, HEIGHT, |root| {
        write(root, title, (8, 8), &style(15.0, HPos::Left, VPos::Top))?;
        let known: Vec<_> = Scheme::all()
            .filter(|scheme| dots.iter().any(|dot| dot.0 == *scheme))
            .map(|scheme| (scheme.name(), colour(scheme)))
            .collect();
        legend(root, &known, (LEFT, 38))?;
        let mut chart = ChartBuilder::on(root)
            .margin_left(LEFT)
            .margin_right(RIGHT)
            .margin_top(TOP)
            .margin_bottom(BOTTOM)
            .build_cartesian_2d(axis.low..axis.high, axis.low..axis.high)?;
        for &tick in &axis.ticks {
            chart.draw_series([PathElement::new(vec![(axis.low, tick), (axis.high, tick)], FAINT)])?;
            chart.draw_series([PathElement::new(vec![(tick, axis.low), (tick, axis.high)], FAINT)])?;
            let label = axis.label(tick, "s");
            let at = chart.backend_coord(&(tick, axis.low));
            write(root, &label, (at.0, at.1 + 6), &style(11.0, HPos::Center, VPos::Top))?;
            let at = chart.backend_coord(&(axis.low, tick));
            write(root, &label, (at.0 - 6, at.1), &style(11.0, HPos::Right, VPos::Center))?;
        }
        // The diagonal, and a quarter more and less.
        for (factor, look) in [(1.0f64, INK), (1.25, FAINT), (0.8, FAINT)] {
            let shift = factor.log10();
            let line = vec![
                (axis.low.max(axis.low - shift), axis.low.max(axis.low + shift)),
                (axis.high.min(axis.high - shift), axis.high.min(axis.high + shift)),
            ];
            chart.draw_series([PathElement::new(line, look)])?;
        }
        chart.draw_series(dots.iter().map(|(scheme, measured, predicted)| {
            let hollow = *scheme == Scheme(Some(Policy::Original));
            let look = if hollow { colour(*scheme).stroke_width(1) } else { colour(*scheme).filled() };
            Circle::new((axis.place(*measured), axis.place(*predicted)), 3, look)
        }))?;
        let middle = (LEFT + super::canvas::WIDTH as i32 - RIGHT) / 2;
        write(root, "measured", (middle, HEIGHT as i32 - 20), &style(12.0, HPos::Center, VPos::Top))?;
        write(root, "predicted", (LEFT + 6, TOP + 4), &style(12.0, HPos::Left, VPos::Top))?;
        Ok(())
    });
    drawn.map(Some)
}
