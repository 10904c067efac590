//! Probabilities, written as percentages or fractions.

use std::{fmt, str::FromStr};

use super::UnitError;

/// A probability between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Probability(f64);

const ALLOWED: &str = "a percentage or a fraction between 0 and 1, such as 1% or 0.01";

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    /// Always.
    pub const ONE: Self = Self(1.0);

    /// `None` outside 0..=1, or for a NaN.
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The value, in 0..=1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = |why: &str| UnitError {
            quantity: "probability",
            text: text.into(),
            why: why.into(),
            allowed: ALLOWED,
        };
        let trimmed = text.trim();
        let (number, scale) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (trimmed, 1.0),
        };
        if number.is_empty() || !number.bytes().all(|c| c.is_ascii_digit() || c == b'.') {
            return Err(error("it is not a number"));
        }
        let value: f64 = number.parse().map_err(|_| error("it is not a number"))?;
        Self::new(value / scale).ok_or_else(|| error("it is outside 0% to 100%"))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_and_fraction_agree() {
        assert_eq!("1%".parse::<Probability>(), "0.01".parse());
        assert!(("1%".parse::<Probability>().unwrap().get() - 0.01).abs() < f64::EPSILON);
        assert_eq!("100 %".parse::<Probability>().unwrap(), Probability::ONE);
        assert_eq!("0".parse::<Probability>().unwrap(), Probability::ZERO);
    }

    #[test]
    fn mistakes_name_the_allowed_form() {
        for text in ["101%", "1.5", "-1%", "%", "", "nan", "inf", "1e-3", "one"] {
            let error = text.parse::<Probability>().unwrap_err().to_string();
            assert!(error.contains("such as 1%"), "{error}");
        }
    }
}
