//! Any group index with the right digest is an error or one whose groups lie one behind the other and name no page twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_image::{Digest, GroupIndex, GroupSet};

fuzz_target!(|input: (bool, u32, u64, &[u8])| {
    let (packed, file_size, data_len, bytes) = input;
    let stored = if packed {
        bytes.to_vec()
    } else {
        // Packed here, so that the fields are reached and not only zstd.
        [&(bytes.len() as u32).to_le_bytes()[..], &zstd::bulk::compress(bytes, 1).unwrap()].concat()
    };
    let set = GroupSet { index_len: stored.len() as u32, index_digest: Digest::of(&stored), data_len };
    let Ok(index) = GroupIndex::decode(&stored, &set, file_size.into()) else { return };
    let mut end = 0;
    for group in index.groups() {
        assert!(group.offset == end && group.frame.pages as usize == group.pages.len());
        end = group.range().end;
        assert!(end > group.offset);
    }
    assert_eq!(end, data_len);
    let listed = index.by_page(file_size.into()).into_iter().flatten().count();
    assert_eq!(listed, index.groups().iter().map(|group| group.pages.len()).sum::<usize>());
});
