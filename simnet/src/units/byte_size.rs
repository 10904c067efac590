//! Sizes in bytes.

use std::{fmt, str::FromStr};

use super::{UnitError, decimal::Quantity};

/// A size in bytes. `KB` and `MB` are decimal, `KiB` and `MiB` binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

const QUANTITY: Quantity = Quantity {
    name: "size",
    allowed: "a number of bytes, or a number and B, KB, KiB, MB, MiB, GB or GiB, such as 64000 or 64KiB",
    range: (0, 1 << 40),
    range_text: "0 to 1024GiB",
};

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        QUANTITY
            .parse(text, |unit| match unit {
                "" | "b" => Some(1),
                "kb" => Some(1_000),
                "mb" => Some(1_000_000),
                "gb" => Some(1_000_000_000),
                "kib" => Some(1 << 10),
                "mib" => Some(1 << 20),
                "gib" => Some(1 << 30),
                _ => None,
            })
            .map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_and_binary_prefixes_differ() {
        assert_eq!("64KB".parse(), Ok(ByteSize(64_000)));
        assert_eq!("64KiB".parse(), Ok(ByteSize(65_536)));
        assert_eq!("1.5mb".parse(), Ok(ByteSize(1_500_000)));
        assert_eq!("1500".parse(), Ok(ByteSize(1_500)));
        assert_eq!("0".parse(), Ok(ByteSize(0)));
    }

    #[test]
    fn mistakes_name_the_allowed_form() {
        for text in ["64K", "x", "", "9999GiB", "1 2"] {
            let error = text.parse::<ByteSize>().unwrap_err().to_string();
            assert!(error.contains("such as 64000 or 64KiB"), "{error}");
        }
    }
}
