//! Any `Range` field of any file is answered within bounds: disjoint, non-empty ranges inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_server::range::{MAX_RANGES, Selection, select};

fuzz_target!(|input: (u64, &[u8])| {
    let (len, field) = input;
    // The unit by itself would keep the fuzzer busy for long.
    let field = [b"bytes=", field].concat();
    if let Selection::Ranges(mut ranges) = select(&field, len) {
        assert!(!ranges.is_empty() && ranges.len() <= MAX_RANGES);
        ranges.sort_unstable_by_key(|range| range.start());
        assert!(ranges.iter().all(|range| range.start() < range.end() && range.end() <= len));
        assert!(ranges.windows(2).all(|two| two[0].end() < two[1].start()));
    }
});
