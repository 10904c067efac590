//! Any manifest is an error or one whose parts fit together, and that is written and read back alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_image::{HEADER_LEN, Manifest};

fuzz_target!(|input: (bool, &[u8])| {
    let (packed, bytes) = input;
    let mut stored = b"pagein\0\x03".to_vec();
    if packed {
        stored.extend(bytes);
    } else {
        // Packed here, so that the fields are reached and not only zstd.
        let body = zstd::bulk::compress(bytes, 1).unwrap();
        stored.extend((body.len() as u32).to_le_bytes());
        stored.extend((bytes.len() as u32).to_le_bytes());
        stored.extend(body);
    }
    let Ok(manifest) = Manifest::decode(&stored) else { return };
    assert!(Manifest::stored_len(&stored[..HEADER_LEN]) == Ok(stored.len()));
    assert_eq!(manifest.whole_pages().len(), manifest.page_count() as usize);
    let pages =
        |frames: &[pagein_image::Frame]| frames.iter().map(|frame| frame.pages as usize).sum::<usize>();
    assert_eq!(pages(&manifest.hot_frames), manifest.hot_pages.len());
    assert_eq!(manifest.hot_touched.len(), manifest.hot_pages.len());
    let hot = manifest.hot_pages.len();
    assert_eq!(pages(&manifest.rest_frames), manifest.page_count() as usize - hot);
    assert!(manifest.exec_frames as usize <= manifest.hot_frames.len());
    let linked = manifest.linking.pages();
    assert!(linked.iter().all(|page| page.0 < manifest.page_count() && linked.contains(page)));
    assert!(Manifest::decode(&manifest.encode()).as_ref() == Ok(&manifest));
});
