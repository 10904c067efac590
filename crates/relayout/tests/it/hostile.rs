//! Any input gives an error or a file: programs with damaged headers, tables and code. (The fuzz target `relayout` goes on from here.)

use proptest::prelude::*;
use std::sync::LazyLock;

use pagein_relayout::{Functions, Options, build_id, points, relayout};

use crate::support::{compile, everything, source};

/// A program of every kind, and all of its functions' addresses.
static PROGRAMS: LazyLock<Vec<(Vec<u8>, Vec<u64>)>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let kinds: [&[&str]; 3] =
        [&["-O1", "-pie"], &["-O2", "-no-pie", "-fno-pie"], &["-Os", "-s", "-Wl,-z,pack-relative-relocs"]];
    let build = |flags: &&[&str]| {
        let bytes = compile(&source("features.c"), &dir.path().join("out"), flags);
        let all = everything(&bytes);
        (bytes, all)
    };
    kinds.iter().map(build).collect()
});

fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)
}

fn survives(bytes: &[u8], order: &[u64]) {
    let _ = (build_id(bytes), points(bytes, true));
    if let Ok(functions) = Functions::read(bytes) {
        let _ = functions.code_hashes(bytes);
    }
    let options = Options { even_without_gain: true, ..Options::default() };
    if let Ok((new, _)) = relayout(bytes, order, &options) {
        assert!(Functions::read(&new).is_ok(), "what comes out can be read");
    }
}

/// Without section headers the search header says where the unwind tables start; here that is behind what the file has of the segment.
#[test]
fn unwind_tables_beyond_the_file() {
    let (mut bytes, order) = PROGRAMS[2].clone();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // ELF-64 header: e_phoff, e_phnum; program header: p_type, p_vaddr, p_filesz.
    let (table, count) = (word(&bytes, 32) as usize, usize::from(bytes[56]));
    let headers = || (0..count).map(|n| table + 56 * n);
    let search = headers().find(|at| bytes[*at..*at + 4] == 0x6474_e550_u32.to_le_bytes()).unwrap();
    let address = word(&bytes, search + 16);
    let holds = |at: &usize| {
        let start = word(&bytes, at + 16);
        bytes[*at..*at + 4] == [1, 0, 0, 0] && (start..start + word(&bytes, at + 32)).contains(&address)
    };
    let load = headers().find(holds).unwrap();
    let left = address + 12 - word(&bytes, load + 16);
    bytes[load + 32..load + 40].copy_from_slice(&left.to_le_bytes());
    bytes[search + 32..search + 40].copy_from_slice(&12_u64.to_le_bytes());
    // e_shoff, e_shnum, e_shstrndx.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    survives(&bytes, &order);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn damaged_headers(which in 0..3usize, damage in damage()) {
        let (bytes, order) = &PROGRAMS[which];
        let mut bytes = bytes.clone();
        for (at, value) in damage {
            let at = at.index(1200);
            bytes[at] = value;
        }
        survives(&bytes, order);
    }

    #[test]
    fn damaged_anywhere(which in 0..3usize, damage in damage(), len in any::<prop::sample::Index>(), cut in any::<bool>()) {
        let (bytes, order) = &PROGRAMS[which];
        let mut bytes = bytes.clone();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(len.index(bytes.len()));
        }
        survives(&bytes, order);
    }

    #[test]
    fn damaged_tables(which in 0..3usize, damage in damage()) {
        let (bytes, order) = &PROGRAMS[which];
        let mut bytes = bytes.clone();
        // The section headers are at the end, and the unwind tables before them: the last 12 KB hold both.
        let tail = bytes.len().min(12_000);
        for (at, value) in damage {
            let at = bytes.len() - 1 - at.index(tail);
            bytes[at] = value;
        }
        survives(&bytes, order);
    }
}
