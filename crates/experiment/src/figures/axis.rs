//! Ticks: round numbers that cover a range, on a linear or a logarithmic axis.

/// An axis: its ends and its ticks, in the coordinates that are drawn (logarithms to base 10 if it is logarithmic).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Covers all values; `None` without any that can be shown.
    pub(super) fn covering(values: impl Iterator<Item = f64>, logarithmic: bool) -> Option<Self> {
        let usable = values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0));
        let (low, high) = usable.fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        })?;
        Some(if logarithmic { Self::logarithmic(low, high) } else { Self::linear(low, high) })
    }

    fn linear(low: f64, high: f64) -> Self {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let span = if high > low { high - low } else { 1.0 };
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * 10f64.powf((span / 8.0).log10().floor()))
            .find(|step| span / step <= 8.0)
            .unwrap_or(span);
        let (first, last) = ((low / step).floor(), ((low + span) / step).ceil());
        let ticks: Vec<f64> = (first as i64..=last as i64).map(|n| n as f64 * step).collect();
        Self { low: first * step, high: last * step, ticks, logarithmic: false }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32 - 1, high.log10().ceil() as i32);
        let all = |factors: &[f64]| -> Vec<f64> {
            let decade =
                |n: i32| factors.iter().map(move |factor| factor * 10f64.powi(n)).collect::<Vec<_>>();
            (first..=last).flat_map(decade).collect()
        };
        // The coarsest ticks that still are some; a wide range does with powers of ten.
        let inside = |marks: &[f64]| marks.iter().filter(|mark| (low..=high).contains(*mark)).count();
        let coarse =
            [all(&[1.0]), all(&[1.0, 3.0]), all(&[1.0, 2.0, 5.0]), all(&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0])];
        let marks = coarse.iter().find(|marks| inside(marks) >= 3).unwrap_or(&coarse[3]);
        let bottom = marks.iter().copied().filter(|mark| *mark <= low).fold(10f64.powi(first), f64::max);
        let top = marks.iter().copied().filter(|mark| *mark >= high).fold(10f64.powi(last + 1), f64::min);
        // One mark cannot span an axis.
        let top = if top > bottom { top } else { bottom * 10.0 };
        let ticks =
            marks.iter().filter(|mark| (bottom..=top).contains(*mark)).map(|mark| mark.log10()).collect();
        Self { low: bottom.log10(), high: top.log10(), ticks, logarithmic: true }
    }

    /// Where a value is drawn.
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    /// The value at a place, as text.
    pub(super) fn label(&self, place: f64, unit: &str) -> String {
        let value = if self.logarithmic { 10f64.powf(place) } else { place };
        let digits = match value.abs() {
            0.0 | 9.95.. => 0,
            0.95..9.95 => usize::from((value - value.round()).abs() > 0.01),
            0.095..0.95 => 1 + usize::from((value * 10.0 - (value * 10.0).round()).abs() > 0.01),
            0.0095..0.095 => 2,
            _ => 3,
        };
        match unit {
            "x" => format!("{value:.digits$}x"),
            _ => format!("{value:.digits$} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], logarithmic: bool, unit: &str) -> Vec<String> {
        let axis = Axis::covering(values.iter().copied(), logarithmic).unwrap();
        axis.ticks.iter().map(|&tick| axis.label(tick, unit)).collect()
    }

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        assert_eq!(labels(&[-12.0, 80.0], false, "%"), ["-20 %", "0 %", "20 %", "40 %", "60 %", "80 %"]);
        assert_eq!(labels(&[0.02, 90.0], true, "s"), ["0.01 s", "0.1 s", "1 s", "10 s", "100 s"]);
        assert_eq!(
            labels(&[0.2, 90.0], true, "s"),
            ["0.1 s", "0.3 s", "1 s", "3 s", "10 s", "30 s", "100 s"]
        );
        assert_eq!(labels(&[1.1, 4.0], true, "x"), ["1x", "1.5x", "2x", "3x", "5x"]);
        assert_eq!(Axis::covering([f64::NAN, 0.0].into_iter(), true), None);
    }

    proptest::proptest! {
        #[test]
        fn every_value_lies_between_the_ends(values in proptest::collection::vec(1e-6f64..1e9, 1..20), logarithmic: bool) {
            let axis = Axis::covering(values.iter().copied(), logarithmic).unwrap();
            proptest::prop_assert!(axis.ticks.len() >= 2 && axis.ticks.len() <= 20, "{:?}", axis);
            proptest::prop_assert!(axis.high > axis.low);
            for value in values {
                let place = axis.place(value);
                proptest::prop_assert!(axis.low - 1e-9 <= place && place <= axis.high + 1e-9, "{} in {:?}", value, axis);
            }
        }
    }
}
