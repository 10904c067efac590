//! The linked form of pages: what is linked can be undone, whatever the page, and hostile records are an error.

use pagein_image::{
    Frame, ImageError, LinkedPage, LinkedPages, MAX_ORIGINALS, PAGE_SIZE, PageNo, encode_group,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

const BITMAP_LEN: usize = PAGE_SIZE / 8 / 8;

/// A page as a linker writes it: relocated words are zero, or their addends, and a few are anything.
#[derive(Debug, Clone)]
struct FilePage {
    bytes: Vec<u8>,
    relative: Vec<(u16, u64)>,
    patched: Vec<(u16, u64)>,
}

prop_compose! {
    fn pages()(
        noise in vec(any::<u8>(), PAGE_SIZE),
        relative in btree_map(0u16..512, any::<u64>(), 0..300),
        patched in btree_map(0u16..512, any::<u64>(), 0..8),
        odd in vec(0u16..512, 0..20),
        zeros in any::<bool>(),
    ) -> FilePage {
        let mut bytes = noise;
        for (&word, addend) in &relative {
            if !odd.contains(&word) {
                let value = if zeros { 0 } else { *addend };
                bytes[usize::from(word) * 8..][..8].copy_from_slice(&value.to_le_bytes());
            }
        }
        let patched = patched.into_iter().filter(|(word, _)| !relative.contains_key(word)).collect();
        FilePage { bytes, relative: relative.into_iter().collect(), patched }
    }
}

fn word(page: &[u8], word: u16) -> u64 {
    u64::from_le_bytes(page[usize::from(word) * 8..][..8].try_into().unwrap())
}

fn linked(page: &FilePage) -> LinkedPage {
    LinkedPage::new(&page.bytes, &page.relative, &page.patched).expect("few words are odd")
}

/// A group of one linked page with this record.
fn decode_record(record: &[u8]) -> Result<(), ImageError> {
    let stored = zstd::bulk::compress(&[&[7; PAGE_SIZE], record].concat(), 1).unwrap();
    let all = LinkedPages::from_iter([PageNo(3)]);
    Frame::of(&stored, 1).decode_group(&stored, &[PageNo(3)], &all, "x").map(drop)
}

proptest! {
    #[test]
    fn the_linked_form_has_addends_and_can_be_undone(page in pages(), bias in any::<u64>()) {
        let made = linked(&page);
        prop_assert_eq!(made.file_form(), page.bytes.clone());
        let loaded = made.at(bias);
        for index in 0..512u16 {
            let relative = page.relative.iter().find(|(word, _)| *word == index);
            let patched = page.patched.iter().find(|(word, _)| *word == index);
            let expected = match (relative, patched) {
                (Some((_, addend)), _) => addend.wrapping_add(bias),
                (None, Some((_, value))) => *value,
                (None, None) => word(&page.bytes, index),
            };
            prop_assert_eq!(word(&loaded, index), expected);
        }
    }

    #[test]
    fn a_group_carries_its_records(pages in vec((pages(), any::<bool>()), 1..6), bias in any::<u64>()) {
        let numbers: Vec<PageNo> = (0..pages.len() as u32).map(|n| PageNo(n * 3 + 2)).collect();
        let set: LinkedPages = numbers.iter().zip(&pages).filter(|(_, (_, on))| *on).map(|(n, _)| *n).collect();
        let made: Vec<Option<LinkedPage>> = pages.iter().map(|(page, on)| on.then(|| linked(page))).collect();
        let raw: Vec<u8> = made.iter().zip(&pages)
            .flat_map(|(made, (page, _))| made.as_ref().map_or(&page.bytes, |made| &made.bytes).clone()).collect();
        let links: Vec<_> = made.iter().flatten().map(|made| &made.links).collect();
        let stored = encode_group(&numbers, &raw, &links, 3);
        let frame = Frame::of(&stored, pages.len() as u32);
        let unpacked = frame.decode_group(&stored, &numbers, &set, "x").unwrap();
        prop_assert_eq!(&unpacked.bytes, &raw);
        let expected: Vec<usize> = (0..pages.len()).filter(|n| pages[*n].1).collect();
        prop_assert_eq!(unpacked.links.iter().map(|(n, _)| *n).collect::<Vec<_>>(), expected);
        for (n, links) in &unpacked.links {
            let mut page = unpacked.bytes[n * PAGE_SIZE..][..PAGE_SIZE].to_vec();
            links.relocate(&mut page, bias);
            prop_assert_eq!(page, made[*n].as_ref().unwrap().at(bias));
        }
        let file: Vec<u8> = pages.iter().flat_map(|(page, _)| page.bytes.clone()).collect();
        prop_assert_eq!(unpacked.into_file_form(), file);
        // To a reader that expects no records, or others, it is an error.
        if !links.is_empty() {
            prop_assert!(frame.decode_group(&stored, &numbers, &LinkedPages::default(), "x").is_err());
        }
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(record in vec(any::<u8>(), 0..900), head in any::<u8>()) {
        let _ = decode_record(&record);
        // With a length that fits, so that the words are looked at.
        let mut record = record;
        record.resize(BITMAP_LEN + 1 + usize::from(head & 0x7f) * 10, 0);
        record[BITMAP_LEN] = head;
        if decode_record(&record).is_ok() {
            prop_assert!(usize::from(head & 0x7f) <= MAX_ORIGINALS);
        }
    }
}

#[test]
fn bad_records_say_what_is_wrong() {
    let record = |head: u8, words: &[u16]| {
        let mut record = vec![0; BITMAP_LEN];
        record.push(head);
        for word in words {
            record.extend(word.to_le_bytes());
            record.extend([0; 8]);
        }
        decode_record(&record)
    };
    assert!(record(0, &[]).is_ok());
    assert!(record(0x82, &[3, 511]).is_ok());
    for (result, why) in [
        (record(2, &[3, 3]), "ascending"),
        (record(1, &[512]), "below 512"),
        (record(65, &[0; 65]), "at most 64"),
        (record(0, &[9]), "bytes follow the last field"),
        (decode_record(&[0; BITMAP_LEN]), "the image is truncated"),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_record_cannot_make_a_reader_unpack_gigabytes() {
    let stored = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let pages = [PageNo(0)];
    let result = Frame::of(&stored, 1).decode_group(&stored, &pages, &pages.into_iter().collect(), "x");
    assert!(matches!(result, Err(ImageError::Decompress { .. })), "{result:?}");
}

#[test]
fn a_page_that_cannot_be_described_is_not_linked() {
    let file: Vec<u8> = (0..512u64).flat_map(|n| (n * 7 + 1).to_le_bytes()).collect();
    let relative: Vec<(u16, u64)> = (0..65).map(|word| (word, 5)).collect();
    assert!(LinkedPage::new(&file, &relative, &[]).is_none());
    assert!(LinkedPage::new(&file, &relative[..64], &[]).is_some());
}

#[test]
fn the_set_of_linked_pages_knows_its_members() {
    let members = [0, 1, 2, 7, 9, 10].map(PageNo);
    let set: LinkedPages = members.into_iter().collect();
    assert_eq!(set.iter().collect::<Vec<_>>(), members);
    assert_eq!(set.count(), 6);
    for page in (0..20).map(PageNo) {
        assert_eq!(set.contains(page), members.contains(&page), "{page}");
    }
}
