//! A memory file full of holes: the program's pages, shared by every process that maps it (`memfd_create(2)`).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// A memory file.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
}

impl MemoryFile {
    /// An empty file of `size` bytes, all hole; `name` shows in `/proc/PID/maps`.
    pub fn new(name: &str, size: u64) -> io::Result<Self> {
        // The kernel accepts 249 bytes of name.
        let short: String = name.chars().filter(|c| *c != '\0').take(60).collect();
        let name = CString::new(short).expect("NULs were filtered out");
        let file = File::from(memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC)?);
        file.set_len(size)?;
        Ok(Self { file })
    }

    /// Writes whole pages. A concurrent fault sees either the hole or the whole page: the kernel copies with the new
    /// page locked and not yet up to date.
    pub fn write(&self, offset: u64, pages: &[u8]) -> io::Result<()> {
        self.file.write_all_at(pages, offset)
    }

    /// Reads bytes that are there; a hole reads as zeros and becomes a page of zeros, so do not.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Bytes of memory that the file occupies.
    pub fn allocated(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Device and inode, as `/proc/PID/maps` shows them.
    pub fn id(&self) -> io::Result<(u64, u64)> {
        let meta = self.file.metadata()?;
        Ok((meta.dev(), meta.ino()))
    }

    /// A second descriptor that cannot write: what is mapped into the program.
    pub fn reopen_read_only(&self) -> io::Result<OwnedFd> {
        Ok(File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?.into())
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Maps a file that is only read.
///
/// If somebody truncates the file meanwhile, reading the lost part raises SIGBUS, as for every program that is executed
/// from a file.
pub fn map_file(file: &File) -> io::Result<memmap2::Mmap> {
    // SAFETY: the map is read-only and private to this process. A concurrent writer could change bytes under a Rust
    // slice; every use copies them out first, and digests are made of the copy that is used.
    unsafe { memmap2::Mmap::map(file) }
}
