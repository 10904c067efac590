//! A chart with the links of the grid side by side, grouped by bandwidth, and a line for each policy.

use pagein_simnet::units::format_duration;
use plotters::prelude::{ChartBuilder, Circle, EmptyElement, LineSeries, PathElement, PointSeries};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color as _, RGBColor};

use super::axis::Axis;
use super::canvas::{Drawn, FAINT, INK, WIDTH, figure, legend, style, write};
use super::{Figure, Kind};
use crate::error::ExperimentError;
use crate::scenario::LinkPoint;

/// A line: a value for each link.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) colour: RGBColor,
    pub(super) values: Vec<Option<f64>>,
}

/// The chart.
pub(super) struct LinksChart<'a> {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) title: String,
    pub(super) unit: &'static str,
    pub(super) logarithmic: bool,
    pub(super) points: &'a [LinkPoint],
    pub(super) series: Vec<Series>,
}

const HEIGHT: u32 = 340;
const LEFT: i32 = 62;
const RIGHT: i32 = 10;
const TOP: i32 = 52;
const BOTTOM: i32 = 44;

impl LinksChart<'_> {
    pub(super) fn draw(&self) -> Result<Figure, ExperimentError> {
        let values = self.series.iter().flat_map(|series| series.values.iter().copied().flatten());
        let axis = Axis::covering(values, self.logarithmic)
            .unwrap_or(Axis::covering([1.0, 10.0].into_iter(), self.logarithmic).expect("two numbers"));
        figure(&self.name, self.kind, &self.title, HEIGHT, |root| {
            write(root, &self.title, (8, 8), &style(15.0, HPos::Left, VPos::Top))?;
            let entries: Vec<_> = self.series.iter().map(|series| (series.name, series.colour)).collect();
            legend(root, &entries, (LEFT, 38))?;
            let place = |x: f64, y: f64| {
                let width = f64::from(WIDTH) - f64::from(LEFT + RIGHT);
                let height = f64::from(HEIGHT) - f64::from(TOP + BOTTOM);
                let x = f64::from(LEFT) + x / self.points.len() as f64 * width;
                let y = f64::from(TOP) + (axis.high - y) / (axis.high - axis.low) * height;
                (x.round() as i32, y.round() as i32)
            };
            self.links(root, place(0.0, axis.low).1, &place)?;
            let mut chart = ChartBuilder::on(root)
                .margin_left(LEFT)
                .margin_right(RIGHT)
                .margin_top(TOP)
                .margin_bottom(BOTTOM)
                .build_cartesian_2d(0.0..self.points.len() as f64, axis.low..axis.high)?;
            for &tick in &axis.ticks {
                let line = vec![(0.0, tick), (self.points.len() as f64, tick)];
                let zero = !self.logarithmic && tick == 0.0;
                chart.draw_series([PathElement::new(line, if zero { INK } else { FAINT })])?;
                let at = place(0.0, tick);
                write(
                    root,
                    &axis.label(tick, self.unit),
                    (at.0 - 6, at.1),
                    &style(11.0, HPos::Right, VPos::Center),
                )?;
            }
            for series in &self.series {
                let dots: Vec<Option<(f64, f64)>> = series
                    .values
                    .iter()
                    .enumerate()
                    .map(|(index, value)| Some((index as f64 + 0.5, axis.place((*value)?))))
                    .collect();
                for group in self.groups() {
                    let dots = dots[group].iter().copied().flatten();
                    chart.draw_series(LineSeries::new(dots, series.colour.stroke_width(2)))?;
                }
                let dots = dots.iter().copied().flatten();
                chart.draw_series(PointSeries::of_element(
                    dots,
                    3,
                    series.colour.filled(),
                    &|at, size, look| EmptyElement::at(at) + Circle::new((0, 0), size, look),
                ))?;
            }
            Ok(())
        })
    }

    /// Indices of the links of each bandwidth.
    fn groups(&self) -> Vec<std::ops::Range<usize>> {
        let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
        for (index, point) in self.points.iter().enumerate() {
            match groups.last_mut() {
                Some(group) if self.points[group.start].bandwidth == point.bandwidth => group.end = index + 1,
                _ => groups.push(index..index + 1),
            }
        }
        groups
    }

    /// Names below the axis: round trips, and below these the bandwidth of each group.
    fn links(
        &self,
        root: &super::canvas::Area<'_>,
        bottom: i32,
        place: &dyn Fn(f64, f64) -> (i32, i32),
    ) -> Drawn {
        let below = style(11.0, HPos::Center, VPos::Top);
        for (index, point) in self.points.iter().enumerate() {
            let x = place(index as f64 + 0.5, 0.0).0;
            write(root, &format_duration(point.rtt), (x, bottom + 6), &below)?;
        }
        for group in self.groups() {
            let middle = (group.start + group.end) as f64 / 2.0;
            let name = self.points[group.start].bandwidth.to_string();
            write(root, &name, (place(middle, 0.0).0, bottom + 23), &style(12.0, HPos::Center, VPos::Top))?;
            let x = place(group.end as f64, 0.0).0;
            if group.end < self.points.len() {
                root.draw(&PathElement::new(vec![(x, TOP), (x, bottom + 36)], FAINT))?;
            }
        }
        Ok(())
    }
}
