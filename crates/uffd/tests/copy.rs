//! Private pages installed in a mapping of a memory file, some of which are there already.

use std::os::fd::AsFd;

use pagein_uffd::{MemoryFile, PrivateMap, Userfault};

const PAGE: usize = 4096;

/// A mapping of four missing pages, registered; `None` where userfaultfd is not permitted.
fn four_pages() -> Option<(MemoryFile, PrivateMap, Userfault)> {
    let userfault = match Userfault::for_this_process() {
        Ok(userfault) => userfault,
        Err(error) => {
            pagein_testkit::skip(&error.to_string());
            return None;
        }
    };
    let memory = MemoryFile::new("copy", 4 * PAGE as u64).unwrap();
    let map = PrivateMap::new(memory.as_fd(), 4 * PAGE).unwrap();
    userfault.register(&map.range()).unwrap();
    Some((memory, map, userfault))
}

fn first_bytes(map: &PrivateMap) -> [u8; 4] {
    [0, 1, 2, 3].map(|page| map.touch(page * PAGE))
}

#[test]
fn pages_that_are_there_stay_and_the_others_are_installed() {
    let Some((memory, map, userfault)) = four_pages() else { return };
    let start = map.range().start;
    memory.write(PAGE as u64, &[9; PAGE]).unwrap();
    assert_eq!(map.touch(PAGE), 9);
    userfault.copy(start + 3 * PAGE as u64, &[8; PAGE]).unwrap();
    let pages: Vec<u8> = (1..=4).flat_map(|page| [page; PAGE]).collect();
    userfault.copy(start, &pages).unwrap();
    assert_eq!(first_bytes(&map), [1, 9, 3, 8]);
    assert_eq!(memory.allocated().unwrap(), PAGE as u64, "private pages are not in the file");
}

#[test]
fn where_nothing_is_registered_it_says_so() {
    let Some((_memory, map, userfault)) = four_pages() else { return };
    let range = map.range();
    // The last page and one behind the mapping: not even the one that could be is installed.
    let error = userfault.copy(range.end - PAGE as u64, &[5; 2 * PAGE]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    userfault.copy(range.start, &[6; 4 * PAGE]).unwrap();
    assert_eq!(first_bytes(&map), [6; 4]);
    drop(map);
    let error = userfault.copy(range.start, &[7; PAGE]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
}
