//! `Range` and `Content-Range` (RFC 9110, sections 14.2 and 14.4).

use crate::ByteRange;

/// The value of a `Range` header. The range must not be empty: HTTP cannot say that.
pub(crate) fn header(range: &ByteRange) -> String {
    debug_assert!(range.start < range.end);
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// A parsed `Content-Range: bytes FIRST-LAST/TOTAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes that were sent.
    pub range: ByteRange,
    /// The whole object's length in bytes; `None` for `*`.
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses the header's value. `None` if it is not of that form, if it contradicts itself, or if it is the
    /// unsatisfied form (`bytes */TOTAL`).
    pub fn parse(value: &str) -> Option<ContentRange> {
        let (unit, rest) = value.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, total) = rest.trim_start().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
        let total = if total == "*" { None } else { Some(number(total)?) };
        let sound = first < end && total.is_none_or(|total| end <= total);
        sound.then_some(ContentRange { range: first..end, total })
    }
}

/// Digits only: `u64::from_str` would take a sign as well.
fn number(text: &str) -> Option<u64> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_the_rfc() {
        let parsed = |start, end, total| Some(ContentRange { range: start..end, total });
        assert_eq!(ContentRange::parse("bytes 42-1233/1234"), parsed(42, 1234, Some(1234)));
        assert_eq!(ContentRange::parse("bytes 42-1233/*"), parsed(42, 1234, None));
        for bad in [
            "",
            "bytes",
            "bytes */1234",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes +0-5/10",
            "bytes 0-/10",
            "items 0-5/10",
            "bytes=0-5/10",
            "bytes 0-18446744073709551615/*",
            "bytes 0-5",
        ] {
            assert_eq!(ContentRange::parse(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(start in 0..u64::MAX - 2, len in 1u64..1 << 40, more in proptest::option::of(0u64..1 << 40)) {
            let end = start.saturating_add(len).min(u64::MAX - 1);
            let total = more.map(|more| end.saturating_add(more));
            let text = match total {
                Some(total) => format!("bytes {start}-{}/{total}", end - 1),
                None => format!("bytes {start}-{}/*", end - 1),
            };
            prop_assert_eq!(ContentRange::parse(&text), Some(ContentRange { range: start..end, total }));
            prop_assert_eq!(header(&(start..end)), format!("bytes={start}-{}", end - 1));
        }

        #[test]
        fn any_text_gives_a_sound_range_or_none(text in "(bytes )?[0-9*+-]{0,22}-?[0-9]{0,21}/?[0-9*]{0,21}") {
            if let Some(ContentRange { range, total }) = ContentRange::parse(&text) {
                prop_assert!(range.start < range.end && total.is_none_or(|total| range.end <= total));
            }
        }
    }
}
