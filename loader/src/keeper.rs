//! Puts the complete file together, beside the running program.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pagein_image::{Manifest, PAGE_SIZE, PageNo};

use crate::cache::Cache;
use crate::eager;
use crate::lazy::runs;
use crate::processes::lock;
use crate::publish::Unnamed;
use crate::trouble::Trouble;

/// Most bytes of pages that are held for the complete file before the fill begins.
const HELD_MAX: usize = 256 << 20;

/// The pages that have come so far.
pub(crate) struct Keeper(Mutex<Keeping>);

impl Default for Keeper {
    fn default() -> Self {
        Self(Mutex::new(Keeping::Held(Vec::new(), 0)))
    }
}

enum Keeping {
    /// Before the fill begins: nothing is written while the program starts. The number of bytes.
    Held(Vec<(Vec<PageNo>, Vec<u8>)>, usize),
    /// The file has no name yet: nothing is left of it if this process ends.
    File(Unnamed),
    /// There will be none: too much to hold, no room, or it is done.
    Off,
}

impl Keeper {
    /// Keeps pages of the program file. Their bytes must be the file's own.
    pub(crate) fn keep(&self, pages: &[PageNo], raw: Vec<u8>) {
        let mut keeping = lock(&self.0);
        let goes_on = match &mut *keeping {
            Keeping::Held(held, bytes) => {
                *bytes += raw.len();
                held.push((pages.to_vec(), raw));
                *bytes <= HELD_MAX
            }
            Keeping::File(file) => write(file, pages, &raw).is_ok(),
            Keeping::Off => true,
        };
        if !goes_on {
            *keeping = Keeping::Off;
        }
    }

    /// From now on into a file beside `path`.
    pub(crate) fn open(&self, path: &Path) {
        let mut keeping = lock(&self.0);
        let Keeping::Held(held, _) = std::mem::replace(&mut *keeping, Keeping::Off) else { return };
        let Some(directory) = path.parent() else { return };
        let Ok(file) = Unnamed::new(directory) else { return };
        if held.iter().all(|(pages, raw)| write(&file, pages, raw).is_ok()) {
            *keeping = Keeping::File(file);
        }
    }

    /// Gives the file its name, if there is one.
    pub(crate) fn publish(&self, cache: &Cache, manifest: &Manifest) -> Result<Option<PathBuf>, Trouble> {
        let keeping = std::mem::replace(&mut *lock(&self.0), Keeping::Off);
        let Keeping::File(file) = keeping else { return Ok(None) };
        eager::publish_complete(file, manifest, cache, "the program put together").map(Some)
    }
}

fn write(file: &Unnamed, pages: &[PageNo], raw: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    runs(pages, |_| false).into_iter().try_for_each(|(first, count)| {
        let bytes = &raw[first * PAGE_SIZE..(first + count) * PAGE_SIZE];
        file.file().write_all_at(bytes, pages[first].offset().0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_kept_before_and_after_there_is_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let keeper = Keeper::default();
        keeper.keep(&[PageNo(2), PageNo(0)], [[2; PAGE_SIZE], [0; PAGE_SIZE]].concat());
        keeper.open(&directory.path().join("exe/name"));
        keeper.keep(&[PageNo(1)], vec![1; PAGE_SIZE]);
        let keeping = lock(&keeper.0);
        let Keeping::File(file) = &*keeping else { panic!("a file was opened") };
        let mut found = vec![9; 3 * PAGE_SIZE];
        std::os::unix::fs::FileExt::read_exact_at(file.file(), &mut found, 0).unwrap();
        assert_eq!(found, [[0; PAGE_SIZE], [1; PAGE_SIZE], [2; PAGE_SIZE]].concat());
        assert_eq!(std::fs::read_dir(directory.path().join("exe")).unwrap().count(), 0, "it has no name");
    }

    #[test]
    fn where_no_file_can_be_nothing_is_kept_and_nothing_fails() {
        let keeper = Keeper::default();
        keeper.open(Path::new("/proc/no/such/place"));
        keeper.keep(&[PageNo(1)], vec![1; PAGE_SIZE]);
        assert!(matches!(*lock(&keeper.0), Keeping::Off));
    }
}
