//! Any file is a program of which every page that matters is in the file, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_elf::{Program, VirtAddr};
use pagein_image::{MAX_FRAME_PAGES, page_count};

fuzz_target!(|input: (u64, &[u8])| {
    let (file_size, start) = input;
    let file_size = file_size % pagein_image::MAX_FILE_SIZE;
    // The rest of the file is zeros. What names the kind of file is right: there are tests for where it is not.
    let mut file = start.to_vec();
    if let Some(ident) = file.first_chunk_mut::<20>() {
        ident[..6].copy_from_slice(b"\x7fELF\x02\x01");
        ident[18..].copy_from_slice(&62u16.to_le_bytes());
    }
    let read = |offset: u64, len: usize| {
        assert!(
            len <= 1 << 16 && offset + len as u64 <= file_size,
            "reads outside the file, or too much at once"
        );
        let there = file.get(offset as usize..).unwrap_or_default();
        let mut bytes = there[..len.min(there.len())].to_vec();
        bytes.resize(len, 0);
        Some(bytes)
    };
    let Ok(program) = Program::parse(file_size, read) else { return };
    let pages = program.exec_pages();
    assert!(pages.len() <= MAX_FRAME_PAGES as usize, "they go into one frame");
    assert!(pages.iter().all(|page| page.0 < page_count(file_size)));
    for segment in &program.segments {
        let mapped = segment.mapped();
        assert!(mapped.start <= mapped.end);
        for address in [mapped.start.0, mapped.end.0.saturating_sub(1)] {
            let page = program.page_at(VirtAddr(address));
            assert!(page.is_none_or(|page| page.0 < page_count(file_size)), "{page:?} at {address:#x}");
        }
    }
});
