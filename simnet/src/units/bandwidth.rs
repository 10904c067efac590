//! Link rates.

use std::{fmt, str::FromStr};

use super::{UnitError, decimal::Quantity};

/// A rate in bits per second, counted on whole IP packets (headers included), as iperf3 does not and `tc` does.
///
/// Prefixes are decimal, as everywhere in networking: `1kbit` is 1000 bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bandwidth(u64);

const QUANTITY: Quantity = Quantity {
    name: "bandwidth",
    allowed: "a number and bit, kbit, mbit or gbit, optionally with /s, such as 10mbit, 56kbit or 1.5Mbit/s",
    range: (1, 1_000_000_000_000),
    range_text: "1bit to 1000gbit",
};

impl Bandwidth {
    /// A rate in bit/s; `None` for zero.
    pub const fn from_bits_per_second(bits: u64) -> Option<Self> {
        if bits == 0 { None } else { Some(Self(bits)) }
    }

    /// The rate in bit/s, never zero.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// How many whole bytes pass in `nanoseconds`.
    pub fn bytes_in(self, nanoseconds: u64) -> u64 {
        (u128::from(self.0) * u128::from(nanoseconds) / 8_000_000_000) as u64
    }
}

impl FromStr for Bandwidth {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        QUANTITY
            .parse(text, |unit| match unit.strip_suffix("/s").unwrap_or(unit) {
                "bit" => Some(1),
                "kbit" => Some(1_000),
                "mbit" => Some(1_000_000),
                "gbit" => Some(1_000_000_000),
                _ => None,
            })
            .map(Self)
    }
}

/// The shortest exact form, such as `1500kbit`; it parses to the same rate.
impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit")]
            .into_iter()
            .find(|(unit, _)| self.0.is_multiple_of(*unit))
            .unwrap_or((1, "bit"));
        write!(f, "{}{name}", self.0 / unit)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(text: &str) -> u64 {
        text.parse::<Bandwidth>().unwrap().bits_per_second()
    }

    #[test]
    fn forms_people_write() {
        assert_eq!(bits("10mbit"), 10_000_000);
        assert_eq!(bits("56kbit"), 56_000);
        assert_eq!(bits("1gbit"), 1_000_000_000);
        assert_eq!(bits("1.5Mbit/s"), 1_500_000);
        assert_eq!(bits(" 33.6 kbit "), 33_600);
        assert_eq!(bits("300bit"), 300);
    }

    #[test]
    fn mistakes_name_the_allowed_form() {
        for (text, why) in [
            ("10", "no unit"),
            ("10mbps", "unknown unit \"mbps\""),
            ("10 MB/s", "unknown unit"),
            ("fast", "does not start with a number"),
            ("0mbit", "outside 1bit to 1000gbit"),
            ("0.4bit", "outside"),
            ("2000gbit", "outside"),
            ("-1mbit", "does not start with a number"),
            ("1.2.3mbit", "number"),
            (".5mbit", "number"),
            ("1.mbit", "number"),
            ("9999999999999999999mbit", "digits"),
            ("", "does not start"),
        ] {
            let error = text.parse::<Bandwidth>().unwrap_err();
            assert!(error.why.contains(why), "{text:?} gave {error}, wanted {why:?}");
            assert!(error.to_string().contains("such as 10mbit"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn display_parses_back(bits in 1u64..=1_000_000_000_000) {
            let rate = Bandwidth::from_bits_per_second(bits).unwrap();
            prop_assert_eq!(rate.to_string().parse::<Bandwidth>().unwrap(), rate);
        }

        #[test]
        fn any_text_is_an_error_or_in_range(text in "\\PC{0,24}") {
            if let Ok(rate) = text.parse::<Bandwidth>() {
                prop_assert!((1..=1_000_000_000_000).contains(&rate.bits_per_second()));
            }
        }
    }
}
