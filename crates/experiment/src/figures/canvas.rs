//! A drawing area of fixed size, and the parts that all figures have: text and legend.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, IntoDrawingArea as _, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, FontFamily, IntoFont as _, RGBColor, TextStyle};

use super::{Figure, Kind};
use crate::error::ExperimentError;

/// Width of every figure, in units of the drawing; on a phone the figure scrolls rather than shrinks beyond reading.
pub(super) const WIDTH: u32 = 640;

/// The colour of text and axes. The report replaces exactly this one on dark ground.
pub(super) const INK: RGBColor = RGBColor(0, 0, 0);

/// The library divides sizes of fonts by this, for what it takes to be the height of a letter.
const SCALE: f64 = 1.24;

/// Grid lines.
pub(super) const FAINT: RGBColor = RGBColor(0xC0, 0xC0, 0xC0);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws a figure of the given height.
pub(super) fn figure(
    name: &str,
    kind: Kind,
    title: &str,
    height: u32,
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<Figure, ExperimentError> {
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        draw(&root).and_then(|()| Ok(root.present()?))
    };
    drawn.map_err(|error| ExperimentError::Figure { name: name.to_owned(), why: error.to_string() })?;
    Ok(Figure { name: name.to_owned(), kind, svg: with_title(&svg, title) })
}

/// A title that screen readers read and browsers show.
fn with_title(svg: &str, title: &str) -> String {
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;");
    match svg.find("<svg").and_then(|start| Some(start + svg[start..].find('>')?)) {
        Some(end) => {
            let (head, rest) = svg.split_at(end);
            format!("{head} role=\"img\">\n<title>{escaped}</title>{}", &rest[1..])
        }
        None => svg.to_owned(),
    }
}

/// Text of a size, by where it is anchored.
pub(super) fn style(size: f64, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FontFamily::SansSerif, size * SCALE).into_font().color(&INK).pos(Pos::new(horizontal, vertical))
}

/// Writes text at a place.
pub(super) fn write(area: &Area<'_>, text: &str, at: (i32, i32), style: &TextStyle<'_>) -> Drawn {
    area.draw(&Text::new(text.to_owned(), at, style.clone()))?;
    Ok(())
}

/// A row of swatches with names, from `at` to the right.
pub(super) fn legend(area: &Area<'_>, entries: &[(&str, RGBColor)], at: (i32, i32)) -> Drawn {
    let text = style(12.0, HPos::Left, VPos::Center);
    let mut x = at.0;
    for (name, colour) in entries {
        area.draw(&Rectangle::new([(x, at.1 - 5), (x + 12, at.1 + 5)], colour.filled()))?;
        write(area, name, (x + 16, at.1), &text)?;
        // Sans-serif letters of 12 units are 7 wide in the mean.
        x += 16 + (name.len() as f64 * 7.4) as i32 + 14;
    }
    Ok(())
}
