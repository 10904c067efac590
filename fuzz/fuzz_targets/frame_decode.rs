//! Any stored bytes with the right digest unpack to whole pages or are an error: as a group, and as frames one behind the other.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_image::{Frame, LinkedPages, PAGE_SIZE, PageNo, StreamDecoder};

fuzz_target!(|input: (u8, Vec<Vec<u8>>)| {
    let (count, frames) = input;
    let pages: Vec<PageNo> = (0..u32::from(count)).map(PageNo).collect();
    let none = LinkedPages::default();
    let mut decoder = StreamDecoder::default();
    for stored in &frames {
        let frame = Frame::of(stored, count.into());
        if let Ok(unpacked) = frame.decode_group(stored, &pages, &none, "a group") {
            assert_eq!(unpacked.bytes.len(), pages.len() * PAGE_SIZE);
        }
        match decoder.decode(&frame, stored, &pages, &none, "a frame") {
            Ok(unpacked) => assert_eq!(unpacked.bytes.len(), pages.len() * PAGE_SIZE),
            Err(_) => break,
        }
    }
});
