//! The format against itself and against damage: what is written is read back, and any other bytes are an error.

use pagein_image::{
    Digest, Frame, GroupIndex, GroupSet, ImageError, LinkedPage, LinkedPages, Linking, Manifest, NotLinked,
    PAGE_SIZE, PageNo, StreamDecoder, StreamEncoder, Unpacked, encode_group,
};
use proptest::prelude::*;

fn frames_for(pages: u32, each: u32) -> Vec<Frame> {
    let sizes = (0..pages).step_by(each as usize).map(|start| each.min(pages - start));
    sizes.map(|n| Frame { pages: n, stored_len: n * 100, digest: Digest::of(&n.to_le_bytes()) }).collect()
}

fn set_of(index: &[u8], data_len: u64) -> GroupSet {
    GroupSet { index_len: index.len() as u32, index_digest: Digest::of(index), data_len }
}

/// An index whose only group, page 0, claims `stored_len` bytes.
fn index_of_one(stored_len: u32) -> Result<GroupIndex, ImageError> {
    let frame = Frame { pages: 1, stored_len, digest: Digest::of(b"") };
    let index = GroupIndex::new(vec![(vec![PageNo(0)], frame)]);
    let stored = index.encode();
    GroupIndex::decode(&stored, &set_of(&stored, index.stored_len()), PAGE_SIZE as u64)
}

prop_compose! {
    fn manifests()(
        file_pages in 1u32..300,
        traces in 0u32..4,
        flags in any::<(bool, bool, bool)>(),
        order in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) -> Manifest {
        let hot_count = order.index(file_pages as usize + 1) as u32;
        let mut hot_pages: Vec<PageNo> = (0..file_pages).map(PageNo).collect();
        hot_pages.sort_by_key(|page| Digest::of(&(seed ^ u64::from(page.0)).to_le_bytes()));
        hot_pages.truncate(hot_count as usize);
        let hot_frames = frames_for(hot_count, 7);
        let linking = match seed % 3 {
            0 => Linking::Off(NotLinked::Fixed),
            _ => Linking::On {
                pages: (0..file_pages).filter(|page| page / 4 % 3 == 1).map(PageNo).collect(),
                relocations: u64::from(file_pages) * (seed % 512),
            },
        };
        let set = GroupSet { index_len: 12, index_digest: Digest::of(b"index"), data_len: seed % 5000 * u64::from(file_pages) };
        Manifest {
            name: "node".into(),
            file_size: u64::from(file_pages) * PAGE_SIZE as u64 - 17,
            file_digest: Digest::of(b"file"),
            machine: 62,
            reads_self: flags.0,
            page_files: flags.1,
            traces,
            hot_touched: hot_pages.iter().map(|p| if traces > 1 { p.0 % traces } else { traces }).collect(),
            exec_frames: (hot_frames.len() as u32).min(1),
            hot_pages,
            hot_frames,
            rest_frames: frames_for(file_pages - hot_count, 64),
            groups: set,
            paged: flags.2.then_some(set),
            linking,
        }
    }
}

proptest! {
    #[test]
    fn a_manifest_is_read_back(manifest in manifests()) {
        let stored = manifest.encode();
        prop_assert_eq!(Manifest::stored_len(&stored).unwrap(), stored.len());
        prop_assert_eq!(Manifest::decode(&stored).unwrap(), manifest);
    }

    #[test]
    fn a_cut_manifest_is_an_error(manifest in manifests(), cut in any::<prop::sample::Index>()) {
        let stored = manifest.encode();
        prop_assert!(Manifest::decode(&stored[..cut.index(stored.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_a_manifest_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::decode(&bytes);
        let mut like_one = b"pagein\0\x03".to_vec();
        like_one.extend(&bytes);
        let _ = Manifest::decode(&like_one);
    }

    #[test]
    fn a_changed_body_never_panics(manifest in manifests(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        // Recompressed, so that the damage reaches the fields and not only zstd's own checks.
        let stored = manifest.encode();
        let mut raw = zstd::decode_all(&stored[16..]).unwrap();
        let index = at.index(raw.len());
        raw[index] ^= 1u8 << bit;
        let body = zstd::encode_all(&raw[..], 1).unwrap();
        let mut changed = stored[..8].to_vec();
        changed.extend((body.len() as u32).to_le_bytes());
        changed.extend((raw.len() as u32).to_le_bytes());
        changed.extend(body);
        if let Ok(read) = Manifest::decode(&changed) {
            prop_assert!(read.hot_pages.iter().all(|page| page.0 < read.page_count()));
            prop_assert!(read.linking.pages().iter().all(|page| page.0 < read.page_count()));
            prop_assert_eq!(read.hot_frames.iter().map(|f| f.pages as usize).sum::<usize>(), read.hot_pages.len());
        }
    }

    #[test]
    fn an_index_is_read_back(sizes in prop::collection::vec((1u32..9, 1u32..5000), 1..50)) {
        let mut next = 0;
        let parts: Vec<_> = sizes.iter().map(|&(pages, stored_len)| {
            let list = (next..next + pages).rev().map(PageNo).collect();
            next += pages;
            (list, Frame { pages, stored_len, digest: Digest::of(&stored_len.to_le_bytes()) })
        }).collect();
        let index = GroupIndex::new(parts);
        let stored = index.encode();
        let file_size = u64::from(next) * PAGE_SIZE as u64;
        let set = set_of(&stored, index.stored_len());
        let read = GroupIndex::decode(&stored, &set, file_size).unwrap();
        prop_assert_eq!(&read, &index);
        prop_assert!(read.by_page(file_size).iter().all(Option::is_some));
        if next > 1 {
            let short = u64::from(next - 1) * PAGE_SIZE as u64;
            prop_assert!(GroupIndex::decode(&stored, &set, short).is_err());
        }
    }

    #[test]
    fn a_group_is_read_back_and_a_flipped_byte_is_not(byte in any::<u8>(), count in 1u32..5, at in any::<prop::sample::Index>()) {
        let (pages, raw) = some_pages(count, byte);
        let mut stored = encode_group(&pages, &raw, &[], 3);
        let frame = Frame::of(&stored, count);
        let decode = |stored: &[u8]| frame.decode_group(stored, &pages, &LinkedPages::default(), "x");
        prop_assert_eq!(decode(&stored).unwrap().bytes, raw);
        let index = at.index(stored.len());
        stored[index] ^= 0x40;
        let damaged = matches!(decode(&stored), Err(ImageError::Digest { .. }));
        prop_assert!(damaged);
    }

    /// Frame by frame and all at once, pages with records among them; a damaged frame changes nothing for those that follow.
    #[test]
    fn a_stream_is_read_back(
        sizes in prop::collection::vec(1u32..5, 1..6), seed in any::<u8>(), level in 1i32..8,
        linked in prop::collection::hash_set(0u32..25, 0..25), at in any::<prop::sample::Index>(),
    ) {
        let total = sizes.iter().sum();
        let (pages, raw) = some_pages(total, seed);
        let set: LinkedPages = pages.iter().copied().filter(|page| linked.contains(&page.0)).collect();
        let (mut encoder, mut decoder) = (StreamEncoder::new(level), StreamDecoder::default());
        let (mut first, mut all) = (0, Vec::new());
        for size in &sizes {
            let here = &pages[first..first + *size as usize];
            let mut bytes = raw[first * PAGE_SIZE..][..here.len() * PAGE_SIZE].to_vec();
            let file = bytes.clone();
            let mut links = Vec::new();
            for (page, bytes) in here.iter().zip(bytes.chunks_exact_mut(PAGE_SIZE)).filter(|(page, _)| set.contains(**page)) {
                let made = LinkedPage::new(bytes, &[(page.0 as u16, 77), (300, 5)], &[]).unwrap();
                bytes.copy_from_slice(&made.bytes);
                links.push(made.links);
            }
            first += here.len();
            let stored = encoder.encode(here, &bytes, &links.iter().collect::<Vec<_>>(), first == pages.len());
            let frame = Frame::of(&stored, *size);
            let mut damaged = stored.clone();
            let index = at.index(stored.len());
            damaged[index] ^= 1;
            let refused = matches!(decoder.decode(&frame, &damaged, here, &set, "x"), Err(ImageError::Digest { .. }));
            prop_assert!(refused);
            let unpacked = decoder.decode(&frame, &stored, here, &set, "x").unwrap();
            prop_assert_eq!(&unpacked.bytes, &bytes);
            prop_assert_eq!(unpacked.links.len(), links.len());
            prop_assert_eq!(unpacked.into_file_form(), file);
            all.extend(stored);
        }
        // What other readers may rely on: together they are one plain zstd frame.
        let plain = zstd::decode_all(&all[..]).unwrap();
        prop_assert!(plain.len() >= raw.len());
    }
}

/// So many pages, the last first, and their bytes.
fn some_pages(count: u32, seed: u8) -> (Vec<PageNo>, Vec<u8>) {
    let bytes = (0..count as usize * PAGE_SIZE).map(|i| (i / 7) as u8 ^ seed).collect();
    ((0..count).rev().map(PageNo).collect(), bytes)
}

/// What a reader makes of some stored bytes, as a group and as the first frame of a stream.
fn both_ways(stored: &[u8], pages: u32) -> [Result<Unpacked, ImageError>; 2] {
    let numbers: Vec<PageNo> = (0..pages).map(PageNo).collect();
    let (frame, none) = (Frame::of(stored, pages), LinkedPages::default());
    [
        frame.decode_group(stored, &numbers, &none, "x"),
        StreamDecoder::default().decode(&frame, stored, &numbers, &none, "x"),
    ]
}

#[test]
fn a_frame_that_lies_about_its_size_is_an_error() {
    let (pages, raw) = some_pages(2, 1);
    let group = encode_group(&pages, &raw, &[], 3);
    let frame = StreamEncoder::new(3).encode(&pages, &raw, &[], true);
    let huge = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    for (stored, claimed) in [(&group, 1), (&group, 3), (&frame, 1), (&frame, 3), (&huge, 5), (&vec![], 1)] {
        for result in both_ways(stored, claimed) {
            assert!(matches!(result, Err(ImageError::Decompress { .. })), "{claimed} pages: {result:?}");
        }
    }
}

#[test]
fn a_frame_without_its_predecessor_is_an_error() {
    let (pages, _) = some_pages(2, 1);
    let noise = |n: u32| Digest::of(&n.to_le_bytes()).0;
    let raw: Vec<u8> = (0..2 * PAGE_SIZE as u32 / 32).flat_map(noise).collect();
    let mut encoder = StreamEncoder::new(3);
    let first = encoder.encode(&pages, &raw, &[], false);
    let second = encoder.encode(&pages, &raw, &[], true);
    assert!(second.len() * 2 < first.len(), "it repeats the first");
    assert!(both_ways(&second, 2).iter().all(Result::is_err));
}

#[test]
fn a_group_cannot_make_a_reader_fetch_more_than_a_page_can_need() {
    assert!(index_of_one(5000).is_ok());
    for stored_len in [0, 7000, u32::MAX] {
        assert!(matches!(index_of_one(stored_len), Err(ImageError::Invalid { .. })), "{stored_len}");
    }
}

#[test]
fn an_index_of_other_groups_than_the_manifest_says_is_an_error() {
    let stored = GroupIndex::default().encode();
    assert!(GroupIndex::decode(&stored, &set_of(&stored, 0), 100).is_ok());
    let error = GroupIndex::decode(&stored, &set_of(&stored, 1), 100).unwrap_err();
    assert!(error.to_string().contains("the manifest says 1"), "{error}");
}

#[test]
fn the_size_of_an_index_is_bounded_by_that_of_the_file() {
    let manifest = |index_len, data_len| Manifest {
        name: "a".into(),
        file_size: 1,
        file_digest: Digest::of(b"a"),
        machine: 62,
        reads_self: false,
        page_files: false,
        traces: 0,
        hot_pages: Vec::new(),
        hot_touched: Vec::new(),
        hot_frames: Vec::new(),
        exec_frames: 0,
        rest_frames: frames_for(1, 1),
        groups: GroupSet { index_len, index_digest: Digest::of(b""), data_len },
        paged: None,
        linking: Linking::Off(NotLinked::NothingToDo),
    };
    let decode = |index_len, data_len| Manifest::decode(&manifest(index_len, data_len).encode());
    assert!(decode(100, 5000).is_ok());
    assert!(decode(1 << 20, 5000).is_err());
    assert!(decode(100, 7000).is_err());
    assert!(decode(100, 1 << 20).is_err());
}

#[test]
fn the_version_is_checked_before_anything_else() {
    let mut bytes = b"pagein\0\x09".to_vec();
    bytes.resize(64, 0xff);
    assert_eq!(Manifest::decode(&bytes), Err(ImageError::Version { found: 9, known: 3 }));
    assert!(matches!(Manifest::decode(b"<!DOCTYPE html>"), Err(ImageError::NotAnImage { .. })));
    assert!(matches!(Manifest::decode(b""), Err(ImageError::NotAnImage { .. })));
}

#[test]
fn a_name_is_one_path_component() {
    for bad in ["", ".", "..", "a/b", "/etc/passwd", "a\0b", "a\x1b[2J", "a\n"] {
        assert!(pagein_image::check_name(bad).is_err(), "{bad:?}");
    }
    assert!(pagein_image::check_name("python3.11").is_ok());
}
