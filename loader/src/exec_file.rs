//! The file that is exec'ed: it gives the program its name, and nothing else.
//!
//! `/proc/self/exe` must name a file, so the kernel is given one with the program's headers. Right after exec the pages of
//! the memory file are mapped over all of it. The file lies in the cache, named by its content and never changed.
//!
//! Programs start themselves again by that name (node's `process.execPath`, worker processes). So the file is a program of
//! its own: its entry point starts `pagein run` with the same image and the arguments given.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use pagein_elf::Program;
use pagein_image::{Digest, PAGE_SIZE, PageNo};

use crate::cache::{Cache, mark_used};
use crate::publish::Unnamed;
use crate::relaunch;
use crate::trouble::Trouble;

/// Offsets in the ELF header of what names sections (System V ABI, chapter 4): `e_shoff`, and `e_shnum` with `e_shstrndx`.
const SECTION_FIELDS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];

/// Writes the file, or finds it, below `cache`. `page` gives the bytes of a page that the kernel needs; `command` is what
/// starts the program again: a command line up to its own arguments, in which `None` stands for the name it is called by.
pub(crate) fn exec_file(
    cache: &Cache,
    name: &str,
    size: u64,
    program: &Program,
    page: impl Fn(PageNo) -> io::Result<Vec<u8>>,
    command: &[Option<Vec<u8>>],
) -> Result<PathBuf, Trouble> {
    let mut pages = std::collections::BTreeMap::new();
    for number in program.exec_pages() {
        let bytes = page(number).map_err(Trouble::system("cannot read back a page"))?;
        pages.insert(number, bytes);
    }
    if let Some(header) = pages.get_mut(&PageNo(0)) {
        for field in SECTION_FIELDS {
            header[field].fill(0);
        }
    }
    for (offset, bytes) in relaunch::patches(program, command) {
        write_over(&mut pages, offset, &bytes);
    }
    let size = size.next_multiple_of(PAGE_SIZE as u64);
    let mut all = size.to_le_bytes().to_vec();
    for (number, bytes) in &pages {
        all.extend_from_slice(&number.0.to_le_bytes());
        all.extend_from_slice(bytes);
    }
    let directory = cache.root().join("exe").join(&Digest::of(&all).to_string()[..16]);
    let path = directory.join(name);
    if !is_there(&path, size, &pages) {
        let unnamed = Unnamed::new(&directory)?;
        let file = unnamed.file();
        let write = || {
            file.set_len(size)?;
            pages.iter().try_for_each(|(number, bytes)| file.write_all_at(bytes, number.offset().0))
        };
        write().map_err(Trouble::cache(&path))?;
        unnamed.publish(&path)?;
    }
    mark_used(&directory);
    Ok(path)
}

type Pages = std::collections::BTreeMap<PageNo, Vec<u8>>;

fn write_over(pages: &mut Pages, offset: u64, bytes: &[u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        let page = pages.entry(pagein_image::FileOffset(at).page()).or_insert_with(|| vec![0; PAGE_SIZE]);
        page[at as usize % PAGE_SIZE] = *byte;
    }
}

fn is_there(path: &Path, size: u64, pages: &Pages) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    let right_size = file.metadata().is_ok_and(|meta| meta.size() == size && meta.mode() & 0o100 != 0);
    let mut found = vec![0; PAGE_SIZE];
    right_size
        && pages.iter().all(|(number, bytes)| {
            file.read_exact_at(&mut found, number.offset().0).is_ok() && found == *bytes
        })
}
