//! Any program can be linked page by page, and this be undone, or it says why not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagein_elf::{LinkPlan, Program};
use pagein_image::{PAGE_SIZE, page_count};

fuzz_target!(|start: &[u8]| {
    let mut file = start.to_vec();
    if let Some(ident) = file.first_chunk_mut::<64>() {
        ident[..6].copy_from_slice(b"\x7fELF\x02\x01");
        // A shared object for x86-64 whose program headers follow.
        ident[16..20].copy_from_slice(&[3, 0, 62, 0]);
        ident[32..40].copy_from_slice(&64u64.to_le_bytes());
        ident[54..56].copy_from_slice(&56u16.to_le_bytes());
    }
    let Ok(program) = Program::parse_file(&file) else { return };
    let Ok(plan) = LinkPlan::new(&file, &program) else { return };
    for (number, page) in plan.pages() {
        assert!(number.0 < page_count(file.len() as u64));
        let at = number.offset().0 as usize;
        let end = file.len().min(at + PAGE_SIZE);
        assert_eq!(page.file_form()[..end - at], file[at..end]);
        assert_eq!(page.at(0), page.bytes);
    }
});
