//! The file that is exec'ed: it gives the program its name, and nothing else.
//!
//! `/proc/self/exe` must name a file, so the kernel is given one with the program's headers. Right after exec the pages of
//! the memory file are mapped over all of it. The file lies in the cache, named by its content and never changed.
//!
//! Programs start themselves again by that name (node's `process.execPath`, worker processes). So the file is a program of
//! its own: its entry point starts `pagein run` with the same image and the arguments given.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pagein_elf::Program;
use pagein_image::{Digest, PAGE_SIZE, PageNo};

use crate::relaunch;
use crate::trouble::Trouble;

/// Offsets in the ELF header of what names sections (System V ABI, chapter 4): `e_shoff`, and `e_shnum` with `e_shstrndx`.
const SECTION_FIELDS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];

/// Writes the file, or finds it, below `cache`. `page` gives the bytes of a page that the kernel needs; `command` is what
/// starts the program again: a command line up to its own arguments, in which `None` stands for the name it is called by.
pub(crate) fn exec_file(
    cache: &Path,
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
    let directory = cache.join("exe").join(&Digest::of(&all).to_string()[..16]);
    let path = directory.join(name);
    if !is_there(&path, size, &pages) {
        publish(&directory, &path, |file| {
            file.set_len(size)?;
            pages.iter().try_for_each(|(number, bytes)| file.write_all_at(bytes, number.offset().0))
        })?;
    }
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

/// Makes a file appear under `path`, complete or not at all: written under another name first, removed if that fails.
pub(crate) fn publish(
    directory: &Path,
    path: &Path,
    write: impl FnOnce(&fs::File) -> io::Result<()>,
) -> Result<(), Trouble> {
    fs::create_dir_all(directory).map_err(Trouble::file(directory))?;
    let error = || Trouble::file(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".new-").permissions(fs::Permissions::from_mode(0o700));
    let temporary = builder.tempfile_in(directory).map_err(error())?;
    write(temporary.as_file()).map_err(error())?;
    let (file, temporary) = temporary.into_parts();
    // Executing a file that is open for writing is refused (ETXTBSY).
    drop(file);
    temporary.persist(path).map_err(|persist| error()(persist.error))
}

/// The directory for what may be kept: `PAGEIN_CACHE`, `XDG_CACHE_HOME/pagein` or `~/.cache/pagein`; without a home
/// directory, one below /tmp for this user alone.
pub fn default_cache() -> PathBuf {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("PAGEIN_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME").filter(|path| path.is_absolute())?.join("pagein")))
        .or_else(|| Some(from("HOME").filter(|path| path.is_absolute())?.join(".cache/pagein")))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/pagein-{}", nix::unistd::getuid())))
}

/// Makes sure that the cache is a directory of this user's alone: programs are executed from it.
pub(crate) fn open_cache(cache: &Path) -> Result<PathBuf, Trouble> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(Trouble::file(cache))?;
    let cache = fs::canonicalize(cache).map_err(Trouble::file(cache))?;
    let meta = fs::metadata(&cache).map_err(Trouble::file(&cache))?;
    let mine = meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if !mine {
        let error =
            io::Error::other("others may write here, so programs cannot be run from it: choose --cache DIR");
        return Err(Trouble::File { path: cache, error });
    }
    Ok(cache)
}
