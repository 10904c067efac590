//! The book: a program with [`PAGES`] pages of data that reads the page it is told to, on standard input:
//!
//! | line | what it does |
//! |---|---|
//! | `page N` | prints `N` and the FNV-1a sum of page N |
//! | `pages N M` | the same for the pages from N up to M, M not included |
//! | `pipe N` | makes the kernel read page N, and prints `pipe`, what write(2) returned and why |
//! | `fork` | forks a child, which prints `child` and its pid |
//! | `child page N` | the same as `page N` in the child, with `child` in front |
//! | `ignore` | ignores SIGBUS |
//! | `exit N` | exits with N |
//!
//! At the end of its input it exits with 0; the child never does.

use std::fmt::Write as _;
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use pagein_testkit::{run, run_with_input};

use super::{DEADLINE, pagein};
use crate::binary::profile_directory;

/// Pages of data.
pub const PAGES: usize = 400;
/// The trace has touched those below this.
const HOT: usize = 80;
/// Any number but 0.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The program, a trace of it, and its images, made once for a test run.
pub struct Book {
    /// The directory of all the others; a server's root.
    pub root: PathBuf,
    /// The program.
    pub program: PathBuf,
    /// A trace: it touches the first pages of data.
    pub trace: PathBuf,
    /// An image of it: `root/book`.
    pub image: PathBuf,
    /// The same with page files: `root/files`.
    pub page_files: PathBuf,
    data: Vec<u8>,
    /// Keeps a second test run from replacing the files under the first.
    _lock: File,
}

impl Book {
    /// The one of this test run. It lies below `target/`, since nothing that a static holds is ever dropped.
    pub fn get() -> &'static Self {
        static BOOK: OnceLock<Book> = OnceLock::new();
        BOOK.get_or_init(Self::make)
    }

    fn make() -> Self {
        let root = profile_directory().join("tmp-book");
        std::fs::create_dir_all(&root).expect("room in the target directory");
        let lock = File::create(root.join("lock")).expect("room in the target directory");
        lock.lock().expect("another test run ends");
        let data = noise(PAGES * 4096);
        std::fs::write(root.join("book.bin"), &data).expect("room in the target directory");
        std::fs::write(root.join("book.c"), include_str!("book.c")).expect("room in the target directory");
        let program = root.join("book-program");
        let _ = run(
            Command::new("cc").args(["-O1", "-o", "book-program", "book.c"]).current_dir(&root),
            DEADLINE,
        )
        .success();
        let trace = root.join("book.trace");
        let mut record = Command::new(pagein());
        record.args(["record", "-o"]).arg(&trace).arg("--").arg(&program);
        let input = format!("pages 0 {HOT}\n");
        let _ = run_with_input(&mut record, input.as_bytes(), DEADLINE).success();
        let (image, page_files) = (root.join("book"), root.join("files"));
        for (image, option) in [(&image, None), (&page_files, Some("--page-files"))] {
            let mut split = Command::new(pagein());
            split.args(["split", "--level=1", "--trace"]).arg(&trace).args(option);
            let _ = run(split.arg("-o").arg(image).arg(&program), DEADLINE).success();
        }
        Self { root, program, trace, image, page_files, data, _lock: lock }
    }

    /// What `page N` prints.
    pub fn page(&self, page: usize) -> String {
        let fnv = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let sum = self.data[page * 4096..][..4096].iter().fold(0xcbf2_9ce4_8422_2325, fnv);
        format!("{page} {sum:016x}")
    }

    /// What `pages 0 PAGES` prints.
    pub fn all(&self) -> String {
        (0..PAGES).fold(String::new(), |mut text, page| {
            let _ = writeln!(text, "{}", self.page(page));
            text
        })
    }
}

/// Bytes that do not compress, the same each time (xorshift64, Marsaglia 2003).
fn noise(len: usize) -> Vec<u8> {
    let mut state = SEED;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}
