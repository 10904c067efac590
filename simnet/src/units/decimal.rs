//! Decimal numbers with a unit behind them, read exactly.

use super::UnitError;

/// More digits than any quantity here can need; keeps the arithmetic inside 128 bits.
const MAX_DIGITS: usize = 18;

/// What distinguishes one kind of quantity from another.
pub(super) struct Quantity {
    pub(super) name: &'static str,
    pub(super) allowed: &'static str,
    /// Inclusive range, in the base unit.
    pub(super) range: (u64, u64),
    /// Names the range in an error.
    pub(super) range_text: &'static str,
}

impl Quantity {
    pub(super) fn error(&self, text: &str, why: impl Into<String>) -> UnitError {
        UnitError { quantity: self.name, text: text.to_owned(), why: why.into(), allowed: self.allowed }
    }

    /// Reads `NUMBER UNIT`; `unit` maps a unit, in lower case, to how many base units it is.
    pub(super) fn parse(&self, text: &str, unit: impl Fn(&str) -> Option<u64>) -> Result<u64, UnitError> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(end);
        let suffix = suffix.trim_start();
        let scale = unit(&suffix.to_lowercase()).ok_or_else(|| {
            let why =
                if suffix.is_empty() { "it has no unit".into() } else { format!("unknown unit {suffix:?}") };
            self.error(text, if number.is_empty() { "it does not start with a number".into() } else { why })
        })?;
        let value = scaled(number, scale).map_err(|why| self.error(text, why))?;
        if value < u128::from(self.range.0) || value > u128::from(self.range.1) {
            return Err(self.error(text, format!("it is outside {}", self.range_text)));
        }
        Ok(value as u64)
    }
}

/// `number` x `scale`, rounded to the nearest integer.
fn scaled(number: &str, scale: u64) -> Result<u128, &'static str> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.contains('.') {
        return Err("it does not start with a number");
    }
    if whole.len() > MAX_DIGITS || fraction.len() > MAX_DIGITS {
        return Err("it has more than 18 digits");
    }
    let digits = |s: &str| s.bytes().fold(0u128, |n, digit| n * 10 + u128::from(digit - b'0'));
    let unit = 10u128.pow(fraction.len() as u32);
    let mantissa = digits(whole) * unit + digits(fraction);
    let product = mantissa.checked_mul(u128::from(scale)).ok_or("it is too large")?;
    Ok((product + unit / 2) / unit)
}
