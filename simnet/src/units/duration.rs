//! Lengths of time.

use std::time::Duration;

use super::{UnitError, decimal::Quantity};

const QUANTITY: Quantity = Quantity {
    name: "length of time",
    allowed: "a number and ns, us, ms or s, such as 20ms or 0.5s",
    range: (0, 3_600_000_000_000),
    range_text: "0s to 3600s",
};

/// Reads `20ms`, `0.1ms`, `250us`, `1s`: exact to the nanosecond, at most an hour. `0` needs no unit.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    QUANTITY
        .parse(text, |unit| match unit {
            "ns" => Some(1),
            "us" | "µs" | "μs" => Some(1_000),
            "ms" => Some(1_000_000),
            "s" => Some(1_000_000_000),
            _ => None,
        })
        .map(Duration::from_nanos)
}

/// The shortest exact form; [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let (unit, name) = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")]
        .into_iter()
        .find(|(unit, _)| nanos.is_multiple_of(*unit))
        .unwrap_or((1, "ns"));
    format!("{}{name}", nanos / unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_people_write() {
        assert_eq!(parse_duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(parse_duration("0.1ms"), Ok(Duration::from_micros(100)));
        assert_eq!(parse_duration("1 s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("250µs"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn mistakes_name_the_allowed_form() {
        for text in ["20", "20m", "-1ms", "1e3ms", "3601s", "soon"] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains("such as 20ms"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn format_parses_back(nanos in 0u64..=3_600_000_000_000) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)).unwrap(), duration);
        }
    }
}
