//! Any stored bytes with the right digest unpack to whole pages or are an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_image::{Frame, PAGE_SIZE};

fuzz_target!(|input: (u8, &[u8])| {
    let (pages, stored) = input;
    if let Ok(raw) = Frame::of(stored, pages.into()).decode(stored, "a frame") {
        assert_eq!(raw.len(), usize::from(pages) * PAGE_SIZE);
    }
});
