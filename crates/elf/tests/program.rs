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
