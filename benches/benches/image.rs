//! Reading and writing an image's parts: groups, manifest, group index. The pages are this benchmark's own executable.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pagein_image::{
    Digest, Frame, GroupIndex, GroupSet, LinkedPages, Linking, Manifest, NotLinked, PAGE_SIZE, PageNo,
    encode_group,
};

/// node 20: 97 MB, of which a run touches about an eighth.
const NODE_SIZE: u64 = 98_930_000;
const HOT_PAGES: u32 = 3300;
const FRAME_PAGES: u32 = 64;
const GROUP_PAGES: u32 = 16;
const REST_FRAME_PAGES: u32 = 2048;

/// The first `len` bytes behind the ELF header's page: code and tables, like any program's.
fn pages(len: usize) -> Vec<u8> {
    let path = std::env::current_exe().expect("this program has a path");
    let file = std::fs::read(path).expect("this program can be read");
    file.iter().skip(PAGE_SIZE).cycle().take(len).copied().collect()
}

fn groups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("group");
    group.sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    for kib in [32, 256, 1024, 8192] {
        let raw = pages(kib << 10);
        let count = (raw.len() / PAGE_SIZE) as u32;
        let numbers: Vec<PageNo> = (1..=count).map(PageNo).collect();
        let stored = encode_group(&numbers, &raw, &[], 19);
        let frame = Frame::of(&stored, count);
        let none = LinkedPages::default();
        group.throughput(Throughput::Bytes(raw.len() as u64));
        group.bench_function(BenchmarkId::new("verify and decompress", format!("{kib} KiB")), |b| {
            b.iter(|| frame.decode_group(&stored, &numbers, &none, "group").expect("it was made above"));
        });
        group.bench_function(BenchmarkId::new("verify", format!("{kib} KiB")), |b| {
            b.iter(|| frame.digest.check(&stored, "frame").expect("it was made above"));
        });
    }
    let raw = pages(FRAME_PAGES as usize * PAGE_SIZE);
    let numbers: Vec<PageNo> = (1..=FRAME_PAGES).map(PageNo).collect();
    group.throughput(Throughput::Bytes(raw.len() as u64));
    for level in [3, 6, 19] {
        group.bench_function(BenchmarkId::new("compress 256 KiB", format!("level {level}")), |b| {
            b.iter(|| encode_group(&numbers, &raw, &[], level));
        });
    }
    group.finish();
}

/// Digests that do not compress, as real ones.
fn digest(number: u32) -> Digest {
    Digest::of(&number.to_le_bytes())
}

fn frame_table(pages: u32, each: u32) -> Vec<Frame> {
    let frame = |number: u32| Frame {
        pages: each.min(pages - number * each),
        stored_len: each * 1400 + number % 997,
        digest: digest(number),
    };
    (0..pages.div_ceil(each)).map(frame).collect()
}

fn node_manifest() -> Manifest {
    let page_count = pagein_image::page_count(NODE_SIZE);
    let set = GroupSet { index_len: 60_000, index_digest: digest(0), data_len: 30_000_000 };
    // Runs of three neighbours, scattered: 7919 has no factor in common with the number of runs.
    let runs = page_count / 3;
    let hot_pages: Vec<PageNo> =
        (0..HOT_PAGES).map(|rank| PageNo(rank / 3 * 7919 % runs * 3 + rank % 3)).collect();
    Manifest {
        name: "node".into(),
        file_size: NODE_SIZE,
        file_digest: digest(1),
        machine: 62,
        reads_self: false,
        page_files: false,
        traces: 1,
        hot_touched: vec![1; hot_pages.len()],
        hot_pages,
        hot_frames: frame_table(HOT_PAGES, FRAME_PAGES),
        exec_frames: 1,
        rest_frames: frame_table(page_count - HOT_PAGES, REST_FRAME_PAGES),
        groups: set,
        paged: Some(set),
        linking: Linking::Off(NotLinked::Fixed),
    }
}

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("node-size table");
    group.sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    let manifest = node_manifest();
    let stored = manifest.encode();
    assert_eq!(Manifest::decode(&stored).as_ref(), Ok(&manifest));
    group.bench_function("manifest, decode", |b| b.iter(|| Manifest::decode(&stored)));
    group.bench_function("manifest, encode", |b| b.iter(|| manifest.encode()));

    let count = pagein_image::page_count(NODE_SIZE);
    let all: Vec<PageNo> = (0..count).map(PageNo).collect();
    let lists = all.chunks(GROUP_PAGES as usize).map(<[PageNo]>::to_vec);
    let index = GroupIndex::new(lists.zip(frame_table(count, GROUP_PAGES)).collect());
    let stored = index.encode();
    let set = GroupSet {
        index_len: stored.len() as u32,
        index_digest: Digest::of(&stored),
        data_len: index.stored_len(),
    };
    group.bench_function("group index, verify and decode", |b| {
        b.iter(|| GroupIndex::decode(&stored, &set, NODE_SIZE).expect("it was made above"));
    });
    group.bench_function("group index, page to group", |b| b.iter(|| index.by_page(NODE_SIZE)));
    group.finish();
}

criterion_group!(benches, groups, tables);
criterion_main!(benches);
