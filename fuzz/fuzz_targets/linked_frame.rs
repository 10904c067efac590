//! Any pages with any records are an error, or can be relocated and brought into file form; the same pages give the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_image::{Frame, LinkedPages, PAGE_SIZE, PageNo, encode_group};

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (count, linked, records) = input;
    let pages: Vec<PageNo> = (0..u32::from(count % 16) + 1).map(PageNo).collect();
    let set: LinkedPages = pages.iter().copied().filter(|page| linked >> page.0 & 1 != 0).collect();
    let raw = [vec![0x5a; pages.len() * PAGE_SIZE], records.to_vec()].concat();
    let stored = zstd::bulk::compress(&raw, 1).unwrap();
    let frame = Frame::of(&stored, pages.len() as u32);
    let Ok(unpacked) = frame.decode_group(&stored, &pages, &set, "a frame") else { return };
    assert_eq!(unpacked.bytes.len(), pages.len() * PAGE_SIZE);
    assert_eq!(unpacked.links.len(), set.count() as usize);
    for (index, links) in &unpacked.links {
        let mut page = unpacked.bytes[index * PAGE_SIZE..][..PAGE_SIZE].to_vec();
        links.relocate(&mut page, u64::MAX / 3);
        assert!(links.relative().all(|word| word < PAGE_SIZE / 8));
    }
    let links: Vec<_> = unpacked.links.iter().map(|(_, links)| links).collect();
    assert_eq!(encode_group(&pages, &unpacked.bytes, &links, 1), stored);
    assert_eq!(unpacked.into_file_form().len(), pages.len() * PAGE_SIZE);
});
