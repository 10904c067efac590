//! Fixed cases from RFC 9110, and properties against a model that works on sets of single bytes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn ranges(list: &[(u64, u64)]) -> Selection {
    Selection::Ranges(list.iter().map(|&(start, end)| ByteRange::new(start, end).unwrap()).collect())
}

#[test]
fn single_ranges() {
    for (field, want) in [
        ("bytes=0-499", (0, 500)),
        ("bytes=500-999", (500, 1000)),
        ("bytes=0-0", (0, 1)),
        ("bytes=9999-9999", (9999, 10000)),
        ("bytes=9500-", (9500, 10000)),
        ("bytes=-500", (9500, 10000)),
        ("bytes=-20000", (0, 10000)),
        ("bytes=0-", (0, 10000)),
        ("bytes=1-99999999999999999999999999999", (1, 10000)),
        ("bytes=-99999999999999999999999999999", (0, 10000)),
        ("BYTES=0-1", (0, 2)),
        ("bytes= \t0-1 , ,", (0, 2)),
        ("bytes=00000000000000000000000000001-2", (1, 3)),
        ("bytes=5-6,20000-30000,-0", (5, 7)),
    ] {
        assert_eq!(select(field.as_bytes(), 10_000), ranges(&[want]), "{field}");
    }
}

#[test]
fn several_ranges_keep_the_order_of_the_request() {
    assert_eq!(select(b"bytes=0-0,-1", 10_000), ranges(&[(0, 1), (9999, 10_000)]));
    assert_eq!(select(b"bytes=-1,0-0", 10_000), ranges(&[(9999, 10_000), (0, 1)]));
    assert_eq!(
        select(b"bytes=9000-9099,500-599,9050-9199,0-9", 10_000),
        ranges(&[(9000, 9200), (500, 600), (0, 10)])
    );
}

#[test]
fn close_ranges_become_one_part() {
    assert_eq!(select(b"bytes=0-99,100-199", 10_000), ranges(&[(0, 200)]));
    assert_eq!(select(b"bytes=500-600,601-999", 10_000), ranges(&[(500, 1000)]));
    assert_eq!(select(b"bytes=500-700,601-999", 10_000), ranges(&[(500, 1000)]));
    // 127 bytes between them, then 128.
    assert_eq!(select(b"bytes=0-99,227-299", 10_000), ranges(&[(0, 300)]));
    assert_eq!(select(b"bytes=0-99,228-299", 10_000), ranges(&[(0, 100), (228, 300)]));
}

#[test]
fn invalid_fields_are_ignored() {
    for field in [
        "",
        "=",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes= , ,",
        "bytes=-",
        "bytes=--1",
        "bytes=1",
        "bytes=a-b",
        "bytes=5-4",
        "bytes=0-1,5-4",
        "bytes=0-1,x",
        "bytes=1-2-3",
        "bytes=1 -2",
        "bytes=1- 2",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes=0-1;2-3",
        "bytes =0-1",
        " bytes=0-1",
        "items=0-1",
        "bytes=\u{b}0-1",
        "bytes=1.0-2",
    ] {
        assert_eq!(select(field.as_bytes(), 10_000), Selection::Whole, "{field:?}");
    }
}

#[test]
fn what_begins_behind_the_end_is_unsatisfiable() {
    for (field, len) in [
        ("bytes=10000-", 10_000),
        ("bytes=10000-10001,20000-", 10_000),
        ("bytes=-0", 10_000),
        ("bytes=99999999999999999999999999-", 10_000),
        ("bytes=0-", 0),
        ("bytes=0-0", 0),
        ("bytes=-0", 0),
    ] {
        assert_eq!(select(field.as_bytes(), len), Selection::Unsatisfiable, "{field} of {len}");
    }
    assert_eq!(select(b"bytes=-5", 0), Selection::Whole);
}

#[test]
fn the_longest_file_does_not_overflow() {
    assert_eq!(select(b"bytes=0-", u64::MAX), ranges(&[(0, u64::MAX)]));
    assert_eq!(select(b"bytes=-1", u64::MAX), ranges(&[(u64::MAX - 1, u64::MAX)]));
    assert_eq!(select(b"bytes=18446744073709551615-", u64::MAX), Selection::Unsatisfiable);
    assert_eq!(select(b"bytes=18446744073709551614-,0-0,-1", u64::MAX), {
        ranges(&[(u64::MAX - 1, u64::MAX), (0, 1)])
    });
}

#[test]
fn a_set_is_honoured_up_to_the_bound() {
    let field = |n: u64| {
        let list: Vec<String> = (0..n).map(|i| format!("{}-{}", i * 1000, i * 1000 + 1)).collect();
        format!("bytes={}", list.join(","))
    };
    let Selection::Ranges(parts) = select(field(MAX_RANGES as u64).as_bytes(), 1 << 40) else {
        panic!("a set of MAX_RANGES was not honoured")
    };
    assert_eq!(parts.len(), MAX_RANGES);
    assert_eq!(select(field(MAX_RANGES as u64 + 1).as_bytes(), 1 << 40), Selection::Whole);
}

#[test]
fn content_range_is_inclusive() {
    assert_eq!(ByteRange::new(0, 1).unwrap().content_range(5).to_string(), "bytes 0-0/5");
    assert_eq!(ByteRange::new(42, 1234).unwrap().content_range(1234).to_string(), "bytes 42-1233/1234");
}

/// A range-spec as the client means it.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Closed(u64, u64),
    Open(u64),
    Suffix(u64),
}

impl Asked {
    fn text(self) -> String {
        match self {
            Self::Closed(first, last) => format!("{first}-{last}"),
            Self::Open(first) => format!("{first}-"),
            Self::Suffix(n) => format!("-{n}"),
        }
    }

    /// Byte by byte, so that it shares no arithmetic with the code under test.
    fn wants(self, byte: u64, len: u64) -> bool {
        match self {
            Self::Closed(first, last) => first <= byte && byte <= last,
            Self::Open(first) => first <= byte,
            Self::Suffix(n) => byte + n >= len,
        }
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let position = 0_u64..2500;
    prop_oneof![
        (position.clone(), 0_u64..300).prop_map(|(first, more)| Asked::Closed(first, first + more)),
        position.clone().prop_map(Asked::Open),
        position.prop_map(Asked::Suffix),
    ]
}

proptest! {
    #[test]
    fn agrees_with_sets_of_bytes(
        len in 0_u64..2000,
        asked in prop::collection::vec(asked(), 1..12),
        separator in "[ \t]{0,2},[ \t,]{0,2}",
    ) {
        let texts: Vec<String> = asked.iter().map(|a| a.text()).collect();
        let field = format!("bytes={}", texts.join(&separator));
        let set_of = |a: &Asked| (0..len).filter(|&byte| a.wants(byte, len)).collect::<BTreeSet<u64>>();
        let wanted: BTreeSet<u64> = asked.iter().flat_map(set_of).collect();

        match select(field.as_bytes(), len) {
            Selection::Whole => prop_assert!(len == 0 && asked.iter().any(|a| matches!(a, Asked::Suffix(1..)))),
            Selection::Unsatisfiable => prop_assert!(wanted.is_empty()),
            Selection::Ranges(parts) => {
                let mut sent = BTreeSet::new();
                for part in &parts {
                    for byte in part.start()..part.end() {
                        prop_assert!(sent.insert(byte), "byte {byte} is sent twice");
                    }
                    prop_assert!(wanted.contains(&part.start()) && wanted.contains(&(part.end() - 1)));
                }
                prop_assert!(wanted.is_subset(&sent));
                prop_assert!(sent.iter().all(|&byte| byte < len));

                // Only short gaps are filled, and all of them are.
                let edges: Vec<u64> = wanted.iter().copied().collect();
                for pair in edges.windows(2) {
                    let gap = pair[1] - pair[0] - 1;
                    let filled = gap == 0 || sent.contains(&(pair[0] + 1));
                    prop_assert_eq!(filled, gap < COALESCE_GAP, "gap of {} after {}", gap, pair[0]);
                }

                // Order: of the first range that has a byte in the part.
                let rank = |part: &ByteRange| {
                    asked.iter().position(|a| (part.start()..part.end()).any(|b| a.wants(b, len)))
                };
                prop_assert!(parts.windows(2).all(|two| rank(&two[0]) < rank(&two[1])));
            }
        }
    }

    #[test]
    fn any_bytes_are_answered_within_bounds(field in prop::collection::vec(any::<u8>(), 0..200), len: u64) {
        check_bounds(&field, len)?;
    }

    #[test]
    fn nearly_valid_fields_are_answered_within_bounds(field in "bytes=[-0-9, ]{0,60}", len in 0_u64..5000) {
        check_bounds(field.as_bytes(), len)?;
    }
}

fn check_bounds(field: &[u8], len: u64) -> Result<(), TestCaseError> {
    if let Selection::Ranges(parts) = select(field, len) {
        prop_assert!(!parts.is_empty() && parts.len() <= MAX_RANGES);
        for part in &parts {
            prop_assert!(part.start() < part.end() && part.end() <= len);
        }
        let total: u128 = parts.iter().map(|part| u128::from(part.len())).sum();
        prop_assert!(total <= u128::from(len));
    }
    Ok(())
}
