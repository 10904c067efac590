//! Images for tests: traces written by hand, so that no privilege is needed, and the `pagein` command that cuts them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pagein_image::Digest;
use pagein_testkit::{Finished, run};

use crate::binary::pagein_binary;

/// Long enough for the slowest machine to cut a program of some MB; a hang is a failure all the same.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `pagein` with these arguments.
pub fn pagein<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    run(Command::new(pagein_binary()).args(args), DEADLINE)
}

/// A trace of `program` in the format of docs/trace.md: these pages, touched in this order.
pub fn trace(program: &Path, pages: &[u32]) -> String {
    let file = fs::read(program).expect("the program can be read");
    let mut text = format!(
        "pagein-trace 1\nprogram {}\nsize {}\ndigest {}\ncommand [\"test\"]\nreads-self no\ntouches {}\n",
        serde_json::to_string(&program.to_string_lossy()).expect("text is JSON"),
        file.len(),
        Digest::of(&file),
        pages.len(),
    );
    for (time, page) in pages.iter().enumerate() {
        writeln!(text, "{time} {page} r 1 1").expect("writing to memory succeeds");
    }
    text
}

/// Every file below `directory`: its path there and its bytes.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(here) = open.pop() {
        for entry in fs::read_dir(here).expect("a directory").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                open.push(entry);
            } else {
                let name = entry.strip_prefix(directory).expect("it is below").to_owned();
                found.insert(name, fs::read(&entry).expect("a file"));
            }
        }
    }
    found
}

/// The smallest program: an ELF header, one segment that holds the whole file of `size` bytes, and no code that works.
pub fn tiny_program(size: u64) -> Vec<u8> {
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let (address, headers) = (0x40_0000u64, 64u64);
    for half in [2u16, 62] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    for field in [address, headers, 0] {
        file.extend(field.to_le_bytes());
    }
    file.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 64, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1, 5].into_iter().flat_map(u32::to_le_bytes));
    for field in [0, address, address, size, size, 4096] {
        file.extend(field.to_le_bytes());
    }
    assert!(file.len() as u64 <= size, "the headers alone are larger");
    file.extend((file.len() as u64..size).map(|at| (at / 3) as u8));
    file
}
