//! The format against itself and against damage: what is written is read back, and any other bytes are an error.

use pagein_image::{
    Digest, Frame, GroupIndex, GroupSet, ImageError, Linking, Manifest, NotLinked, PAGE_SIZE, PageNo,
    decode_frame, encode_frame,
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
            whole_frames: frames_for(file_pages, 64),
            cold: set,
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
        let mut like_one = b"pagein\0\x02".to_vec();
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
    fn a_frame_is_read_back_and_a_flipped_byte_is_not(byte in any::<u8>(), pages in 1u32..5, at in any::<prop::sample::Index>()) {
        let raw: Vec<u8> = (0..pages as usize * PAGE_SIZE).map(|i| (i / 7) as u8 ^ byte).collect();
        let mut stored = encode_frame(&raw, 3);
        let frame = Frame::of(&stored, pages);
        prop_assert_eq!(frame.decode(&stored, "x").unwrap(), raw);
        let index = at.index(stored.len());
        stored[index] ^= 0x40;
        let damaged = matches!(frame.decode(&stored, "x"), Err(ImageError::Digest { .. }));
        prop_assert!(damaged);
    }
}

#[test]
fn a_frame_that_lies_about_its_size_is_an_error() {
    let stored = encode_frame(&[1; 2 * PAGE_SIZE], 3);
    assert!(matches!(decode_frame(&stored, 1, "x"), Err(ImageError::Decompress { .. })));
    assert!(matches!(decode_frame(&stored, 3, "x"), Err(ImageError::Decompress { .. })));
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
        whole_frames: frames_for(1, 1),
        cold: GroupSet { index_len, index_digest: Digest::of(b""), data_len },
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
    assert_eq!(Manifest::decode(&bytes), Err(ImageError::Version { found: 9, known: 2 }));
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
