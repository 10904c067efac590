//! The `Range` header field (RFC 9110, section 14), as a pure function of the field and the length.
//!
//! What is not syntactically valid, or uses another unit than `bytes`, is ignored: the answer is the whole file
//! (section 14.2). What is valid, but begins behind the end, is unsatisfiable. A request for many ranges is the
//! normal case here (a pager asks for several groups in one round trip), and so it is answered well, but in
//! bounded work:
//!
//! - ranges that overlap, touch, or are separated by less than the head of a part would cost are coalesced. So the
//!   parts are disjoint, and no request makes the server send a byte of the file twice;
//! - parts come in the order of the request, because a client asks for the most urgent one first. A coalesced part
//!   stands where the first of its ranges stood;
//! - a set of more than [`MAX_RANGES`] is ignored.

use std::fmt;

/// The most ranges in one set that are honoured.
///
/// A batch of demand requests is tens of groups; beyond that, the heads of the parts cost more than a second request.
pub const MAX_RANGES: usize = 256;

/// Ranges separated by fewer bytes than this are sent as one part.
///
/// The head of a part is a delimiter of 38 bytes, `Content-Type` and `Content-Range`: 130 bytes or more.
pub const COALESCE_GAP: u64 = 128;

/// A non-empty range of bytes within a file, half open: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// The range `start..end`, or `None` if it holds no byte.
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start < end { Some(Self { start, end }) } else { None }
    }

    /// Offset of the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Offset behind the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// The value of `Content-Range` for this range of a file of `file_len` bytes: `bytes 0-99/1234`.
    pub fn content_range(self, file_len: u64) -> impl fmt::Display {
        struct ContentRange(ByteRange, u64);
        impl fmt::Display for ContentRange {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "bytes {}-{}/{}", self.0.start, self.0.end - 1, self.1)
            }
        }
        ContentRange(self, file_len)
    }
}

/// What a `Range` field selects of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The field is ignored: 200 with the whole file.
    Whole,
    /// 206 with these disjoint ranges, at least one: a plain body if it is one, `multipart/byteranges` if more.
    Ranges(Vec<ByteRange>),
    /// No range begins within the file: 416.
    Unsatisfiable,
}

/// Selects from a file of `len` bytes what `field`, the value of a `Range` header field, asks for.
///
/// Positions that do not fit 64 bits count as `u64::MAX`: a file never reaches that far.
pub fn select(field: &[u8], len: u64) -> Selection {
    let Some(specs) = parse(field) else { return Selection::Whole };
    // A suffix of an empty file is the empty file, which no Content-Range can express.
    if len == 0 && specs.iter().any(|spec| matches!(spec, Spec::Suffix(n) if *n > 0)) {
        return Selection::Whole;
    }
    let wanted: Vec<ByteRange> = specs.iter().filter_map(|spec| spec.resolve(len)).collect();
    if wanted.is_empty() { Selection::Unsatisfiable } else { Selection::Ranges(coalesce(&wanted)) }
}

/// One `range-spec` (section 14.1.2).
#[derive(Clone, Copy)]
enum Spec {
    /// `first-` or `first-last`, both inclusive.
    From { first: u64, last: u64 },
    /// `-n`: the last `n` bytes.
    Suffix(u64),
}

impl Spec {
    fn resolve(self, len: u64) -> Option<ByteRange> {
        match self {
            Self::From { first, last } => ByteRange::new(first, last.saturating_add(1).min(len)),
            Self::Suffix(n) => ByteRange::new(len.saturating_sub(n), len),
        }
    }
}

/// `None` for a field that is to be ignored.
fn parse(field: &[u8]) -> Option<Vec<Spec>> {
    let equals = field.iter().position(|&b| b == b'=')?;
    let (unit, set) = (&field[..equals], &field[equals + 1..]);
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for element in set.split(|&b| b == b',') {
        let element = trim_whitespace(element);
        // A recipient skips empty list elements (section 5.6.1.2).
        if element.is_empty() {
            continue;
        }
        if specs.len() == MAX_RANGES {
            return None;
        }
        specs.push(parse_spec(element)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn parse_spec(spec: &[u8]) -> Option<Spec> {
    let dash = spec.iter().position(|&b| b == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        return Some(Spec::Suffix(parse_position(last)?));
    }
    let first = parse_position(first)?;
    let last = if last.is_empty() { u64::MAX } else { parse_position(last)? };
    (first <= last).then_some(Spec::From { first, last })
}

/// `1*DIGIT`, saturating.
fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        digit.is_ascii_digit().then(|| value.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

/// Optional whitespace is spaces and tabs (section 5.6.3), which is less than `trim_ascii` takes.
fn trim_whitespace(mut element: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = element {
        element = rest;
    }
    element
}

/// Merges what overlaps or is close, in the order in which the merged ranges were first asked for.
fn coalesce(wanted: &[ByteRange]) -> Vec<ByteRange> {
    let mut by_start: Vec<(usize, ByteRange)> = wanted.iter().copied().enumerate().collect();
    by_start.sort_unstable_by_key(|(_, range)| range.start);
    let mut merged: Vec<(usize, ByteRange)> = Vec::with_capacity(by_start.len());
    for (rank, range) in by_start {
        match merged.last_mut() {
            Some((first_rank, last)) if range.start < last.end.saturating_add(COALESCE_GAP) => {
                *first_rank = rank.min(*first_rank);
                last.end = range.end.max(last.end);
            }
            _ => merged.push((rank, range)),
        }
    }
    merged.sort_unstable_by_key(|(rank, _)| *rank);
    merged.into_iter().map(|(_, range)| range).collect()
}

#[cfg(test)]
mod tests;
