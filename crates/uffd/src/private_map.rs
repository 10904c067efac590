//! A private mapping of a memory file in this process, as a program has it: to measure and to test faults on it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use memmap2::{Mmap, MmapOptions};

/// A read-only private mapping.
#[derive(Debug)]
pub struct PrivateMap {
    map: Mmap,
}

impl PrivateMap {
    /// Maps the first `len` bytes of a file; none of its pages is in the page table yet.
    pub fn new(file: impl AsFd, len: usize) -> io::Result<Self> {
        let file = File::from(file.as_fd().try_clone_to_owned()?);
        // SAFETY: the map is never given out as a slice; `touch` reads single bytes as volatile, whoever writes them.
        let map = unsafe { MmapOptions::new().len(len).map_copy_read_only(&file)? };
        Ok(Self { map })
    }

    /// Where it lies.
    pub fn range(&self) -> Range<u64> {
        let start = self.map.as_ptr() as u64;
        start..start + self.map.len() as u64
    }

    /// Reads the byte at `offset`: a fault, if its page is not in the page table.
    ///
    /// # Panics
    /// If `offset` is not in the mapping.
    pub fn touch(&self, offset: usize) -> u8 {
        assert!(offset < self.map.len(), "within the mapping");
        // SAFETY: the address is in the mapping, which lives as long as `self`; a byte needs no alignment.
        unsafe { self.map.as_ptr().add(offset).read_volatile() }
    }
}
