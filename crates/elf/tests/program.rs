//! Real programs of the machine, damaged copies of them, and arbitrary bytes.

use pagein_elf::{ElfError, Kind, Program};
use proptest::prelude::*;

fn shell() -> Vec<u8> {
    std::fs::read("/bin/bash").expect("every Linux test machine has bash")
}

#[test]
fn the_shell_is_read() {
    let file = shell();
    let program = Program::parse_file(&file).unwrap();
    assert_eq!(program.kind, Kind::PositionIndependent);
    assert!(program.interpreter.as_ref().unwrap().path.contains("ld-linux"));
    assert!(program.segments.iter().any(|s| s.permissions == [true, false, true]));
    let pages = program.exec_pages();
    assert!(pages.contains(&pagein_image::PageNo(0)));
    let tail = program.segments.iter().find_map(pagein_elf::Segment::zeroed_tail).unwrap();
    assert!(pages.contains(&program.page_at(tail.start).unwrap()), "the page where .bss begins");
}

#[test]
fn the_interpreter_itself_is_a_program() {
    let path = Program::parse_file(&shell()).unwrap().interpreter.unwrap().path;
    let program = Program::parse_file(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(program.interpreter, None);
}

#[test]
fn what_is_not_a_program_is_named() {
    let of = |bytes: &[u8]| Program::parse_file(bytes).unwrap_err();
    assert!(matches!(of(b""), ElfError::NotElf { .. }));
    assert!(matches!(of(b"MZ\x90\0"), ElfError::NotElf { .. }));
    assert!(
        matches!(of(b"#!/usr/bin/env python3\nprint(1)\n"), ElfError::Script { interpreter } if interpreter == "/usr/bin/env python3")
    );
    let mut file = shell();
    assert!(matches!(of(&file[..40]), ElfError::Truncated { .. }));
    assert!(matches!(of(&file[..100]), ElfError::Truncated { .. }));
    assert!(matches!(of(&file[..file.len() / 2]), ElfError::Truncated { .. }));
    file[18] = 183;
    assert!(matches!(of(&file), ElfError::Machine { found } if found == "aarch64"));
    file[4] = 1;
    assert!(matches!(of(&file), ElfError::Machine { .. }));
    let mut object = shell();
    object[16] = 1;
    assert!(matches!(of(&object), ElfError::NotExecutable { kind: "object file" }));
}

/// A program of `size` bytes with these program headers: type, offset, address, bytes in the file and in memory.
fn program_of(size: usize, headers: &[(u32, u64, u64, u64, u64)]) -> Vec<u8> {
    let mut file = shell()[..64].to_vec();
    file[0x10..0x12].copy_from_slice(&2u16.to_le_bytes());
    file[0x18..0x20].copy_from_slice(&headers[0].2.to_le_bytes());
    file[0x20..0x28].copy_from_slice(&64u64.to_le_bytes());
    file[0x38..0x3a].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    for &(kind, offset, address, file_size, mem_size) in headers {
        file.extend(kind.to_le_bytes());
        file.extend(5u32.to_le_bytes());
        for field in [offset, address, address, file_size, mem_size, 4096] {
            file.extend(field.to_le_bytes());
        }
    }
    assert!(file.len() <= size);
    file.resize(size, 0x90);
    file
}

const LOAD: u32 = 1;
const INTERP: u32 = 3;
const PROPERTY: u32 = 0x6474_e553;

fn exec_pages(file: &[u8]) -> Vec<u32> {
    Program::parse_file(file).unwrap().exec_pages().into_iter().map(|page| page.0).collect()
}

#[test]
fn a_program_smaller_than_a_page_is_one_page() {
    let file = program_of(200, &[(LOAD, 0, 0x40_0000, 200, 200)]);
    let program = Program::parse_file(&file).unwrap();
    assert_eq!(exec_pages(&file), [0]);
    assert_eq!(program.segments[0].mapped().end.0, 0x40_1000);
}

#[test]
fn segments_without_bytes_map_nothing() {
    let file = program_of(
        8192,
        &[
            (LOAD, 0, 0x40_0000, 8192, 8192),
            (LOAD, 0, 0x50_0000, 0, 0x10_0000),
            (LOAD, 8192, 0x70_0000, 0, 0),
        ],
    );
    let program = Program::parse_file(&file).unwrap();
    assert_eq!(exec_pages(&file), [0]);
    for segment in &program.segments[1..] {
        assert!(segment.mapped().is_empty() && segment.zeroed_tail().is_none());
    }
}

#[test]
fn addresses_and_offsets_go_beyond_4_gib() {
    let (offset, address) = (5u64 << 30, 0x12_3456_7000);
    let head = program_of(4096, &[(LOAD, 0, 0x40_0000, 4096, 4096), (LOAD, offset, address, 0x1800, 0x3000)]);
    let program = Program::parse(offset + 0x1800, |at, len| {
        head.get(at as usize..at as usize + len).map(<[u8]>::to_vec)
    })
    .unwrap();
    let page = pagein_image::PageNo((offset / 4096) as u32 + 1);
    assert_eq!(program.page_at(pagein_elf::VirtAddr(address + 0x1000)), Some(page));
    assert!(program.exec_pages().contains(&page), "the page where .bss begins");
}

#[test]
fn a_later_segment_lies_over_the_page_it_shares() {
    let file =
        program_of(8192, &[(LOAD, 0, 0x40_0000, 0x800, 0x800), (LOAD, 0x1800, 0x40_0800, 0x800, 0x800)]);
    let page = Program::parse_file(&file).unwrap().page_at(pagein_elf::VirtAddr(0x40_0000));
    assert_eq!(page, Some(pagein_image::PageNo(1)));
}

#[test]
fn empty_and_endless_notes_are_not_pages_for_exec() {
    for (offset, len) in [(8192, 0), (0, 8192), (u64::MAX, 8)] {
        let file = program_of(8192, &[(LOAD, 0, 0x40_0000, 8192, 8192), (PROPERTY, offset, 0, len, len)]);
        match Program::parse_file(&file) {
            Ok(program) => assert!(program.exec_pages().iter().all(|page| page.0 == 0)),
            Err(error) => assert!(matches!(error, ElfError::Truncated { .. }), "{error}"),
        }
    }
    let file = program_of(8192, &[(LOAD, 0, 0x40_0000, 8192, 8192), (PROPERTY, 4096, 0, 32, 32)]);
    assert_eq!(exec_pages(&file), [0, 1]);
}

#[test]
fn the_first_interpreter_counts_and_needs_a_path() {
    let with = |interpreters: &[(u32, u64, u64, u64, u64)]| {
        let load = [(LOAD, 0, 0x40_0000, 8192, 8192)];
        let mut file = program_of(8192, &[&load[..], interpreters].concat());
        file[4096..4104].copy_from_slice(b"/a\0\0/b\0\0");
        Program::parse_file(&file).map(|program| program.interpreter.map(|i| i.path))
    };
    assert_eq!(with(&[(INTERP, 4096, 0, 3, 3), (INTERP, 4100, 0, 3, 3)]).unwrap().as_deref(), Some("/a"));
    for len in [0, 1, 5000] {
        assert!(
            matches!(
                with(&[(INTERP, 8192 - len.min(1), 0, len, len)]),
                Err(ElfError::Segment { index: 1, .. })
            ),
            "{len}"
        );
    }
}

proptest! {
    #[test]
    fn any_headers_are_a_program_or_an_error(changes in prop::collection::vec((0usize..900, any::<u8>()), 1..20)) {
        let mut file = shell();
        for (at, byte) in changes {
            file[at] = byte;
        }
        if let Ok(program) = Program::parse_file(&file) {
            for page in program.exec_pages() {
                prop_assert!(page.offset().0 < file.len() as u64);
            }
            for segment in &program.segments {
                prop_assert!(segment.offset.0 + segment.file_size <= file.len() as u64);
                prop_assert!(segment.mapped().start <= segment.mapped().end);
            }
        }
    }
}
