//! Page numbers and file offsets: the two ways to name a place in a program file.

use std::fmt;

/// Bytes in a page. Images are cut at this size on every architecture, so that they do not depend on who cuts them.
pub const PAGE_SIZE: usize = 4096;

/// Number of a page of the program *file*: its offset divided by [`PAGE_SIZE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u32);

/// Offset in the program file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

impl PageNo {
    /// The offset of the page's first byte.
    pub fn offset(self) -> FileOffset {
        FileOffset(u64::from(self.0) * PAGE_SIZE as u64)
    }

    /// The page as an index into a table with one entry a page.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl FileOffset {
    /// The page that holds this offset.
    pub fn page(self) -> PageNo {
        PageNo((self.0 / PAGE_SIZE as u64) as u32)
    }
}

impl fmt::Display for PageNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Number of pages of a file of `file_size` bytes; the last one may be partly filled.
pub fn page_count(file_size: u64) -> u32 {
    u32::try_from(file_size.div_ceil(PAGE_SIZE as u64)).unwrap_or(u32::MAX)
}
