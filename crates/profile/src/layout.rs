//! What a layout gains, for people: functions, bytes, pages, how full the pages are, and a picture of it.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// Bytes in a page.
const PAGE: u64 = 4096;
/// Pages in a row of the picture: 256 KiB of code.
const ROW: u64 = 64;
/// Pixels of a page in the picture.
const CELL: u64 = 8;

/// Which pages of code are used, and how much of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Number of ranges.
    pub ranges: usize,
    /// Bytes used on each page that is used, by the page's address.
    pub used: BTreeMap<u64, u64>,
}

impl Coverage {
    /// The coverage of ranges (start, length) that do not overlap: functions, or the blocks that ran.
    pub fn of(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut out = Self::default();
        for (start, len) in ranges.into_iter().filter(|(_, len)| *len > 0) {
            out.ranges += 1;
            let end = start.saturating_add(len);
            let mut at = start;
            while at < end {
                let page = at / PAGE * PAGE;
                let next = (page + PAGE).min(end);
                *out.used.entry(page).or_default() += next - at;
                at = next;
            }
        }
        out
    }

    /// Number of pages used.
    pub fn pages(&self) -> usize {
        self.used.len()
    }

    /// Bytes used.
    pub fn bytes(&self) -> u64 {
        self.used.values().sum()
    }

    /// Share of the used pages that is used, 0 to 1.
    pub fn utilisation(&self) -> f64 {
        if self.used.is_empty() { 0.0 } else { self.bytes() as f64 / (self.pages() as u64 * PAGE) as f64 }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, full) = (self.bytes(), self.utilisation() * 100.0);
        write!(
            out,
            "{} ranges, {bytes} bytes on {} pages, {full:.0} % of their bytes used",
            self.ranges,
            self.pages()
        )
    }
}

/// A picture of the code as shipped and reordered: a cell is a page, darker where more of it is used.
pub fn svg(title: &str, before: &Coverage, after: &Coverage) -> String {
    let mut body = String::new();
    let mut y = 24;
    for (label, coverage) in [("as shipped", before), ("reordered", after)] {
        let text = format!("{label}: {coverage}");
        writeln!(body, "<text x=\"4\" y=\"{y}\">{text}</text>").expect("a String takes any text");
        y += 8;
        let first = coverage.used.keys().next().map_or(0, |page| page / PAGE);
        let mut rows = 0;
        // Rows without a touched page are left out, or a large program would be a mile of white.
        let mut last_row = None;
        for (page, used) in &coverage.used {
            let cell = page / PAGE - first;
            if last_row != Some(cell / ROW) {
                rows += 1;
                last_row = Some(cell / ROW);
            }
            let (x, top) = (4 + cell % ROW * CELL, y + (rows - 1) * CELL);
            let shade = (used * 255 / PAGE).min(255);
            let light = 230 - shade * 200 / 255;
            writeln!(
                body,
                "<rect x=\"{x}\" y=\"{top}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"rgb({light},{light},255)\">\
                 <title>{page:#x}: {used} bytes</title></rect>"
            )
            .expect("a String takes any text");
        }
        y += rows * CELL + 28;
    }
    let width = ROW * CELL + 8;
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{y}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <title>{escaped}</title>\n{body}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_counts_on_every_page_it_covers() {
        let coverage = Coverage::of([(0x1ff0, 0x20), (0x3000, 0x800), (0x5000, 0)]);
        assert_eq!(coverage.used, BTreeMap::from([(0x1000, 0x10), (0x2000, 0x10), (0x3000, 0x800)]));
        assert_eq!((coverage.ranges, coverage.pages(), coverage.bytes()), (2, 3, 0x820));
        assert!((coverage.utilisation() - f64::from(0x820) / f64::from(0x3000)).abs() < 1e-9);
    }

    #[test]
    fn the_picture_has_a_cell_for_every_page() {
        let before = Coverage::of((0..10).map(|n| (n * 0x10_000, 100)));
        let after = Coverage::of([(0, 1000)]);
        let svg = svg("a<b", &before, &after);
        assert_eq!(svg.matches("<rect").count(), 11);
        assert!(svg.contains("a&lt;b") && svg.ends_with("</svg>\n"));
    }
}
