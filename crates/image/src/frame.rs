//! Frames: runs of pages compressed together and checkable by themselves.

use crate::wire::{Reader, Writer};
use crate::{Digest, ImageError, PAGE_SIZE};

/// Most pages in one frame or group (16 MiB): bounds what a reader must hold for an image that it does not trust.
pub const MAX_FRAME_PAGES: u32 = 4096;

/// What a reader must know of a frame before it has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Number of pages in it.
    pub pages: u32,
    /// Its size as stored, bytes.
    pub stored_len: u32,
    /// Digest of the stored bytes.
    pub digest: Digest,
}

impl Frame {
    /// Describes the stored bytes of a frame of `pages` pages.
    pub fn of(stored: &[u8], pages: u32) -> Self {
        Self { pages, stored_len: stored.len() as u32, digest: Digest::of(stored) }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.uint(u64::from(self.pages));
        to.uint(u64::from(self.stored_len));
        to.digest(&self.digest);
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, ImageError> {
        let pages = from.uint_to("a frame's number of pages", u64::from(MAX_FRAME_PAGES))? as u32;
        if pages == 0 {
            return Err(from.invalid("a frame has no pages"));
        }
        let stored_len = from.uint_to("a frame's size", max_stored_len(pages))? as u32;
        Ok(Self { pages, stored_len, digest: from.digest()? })
    }

    /// Checks `stored` against the digest, then decompresses it to `pages * PAGE_SIZE` bytes; `what` names it in errors.
    pub fn decode(&self, stored: &[u8], what: &str) -> Result<Vec<u8>, ImageError> {
        self.digest.check(stored, what)?;
        decode_frame(stored, self.pages, what)
    }
}

/// Largest stored size of a frame: zstd's own bound (`ZSTD_COMPRESSBOUND`) with some room.
fn max_stored_len(pages: u32) -> u64 {
    let raw = u64::from(pages) * PAGE_SIZE as u64;
    raw + raw / 128 + 1024
}

/// Compresses whole pages with zstd at `level`. The same input gives the same bytes for one version of the zstd library.
///
/// # Panics
/// If `raw` is not a whole number of pages.
pub fn encode_frame(raw: &[u8], level: i32) -> Vec<u8> {
    assert!(raw.len().is_multiple_of(PAGE_SIZE), "a frame holds whole pages");
    zstd::bulk::compress(raw, level).expect("zstd compresses any bytes into memory")
}

/// Decompresses a frame that is already verified.
pub fn decode_frame(stored: &[u8], pages: u32, what: &str) -> Result<Vec<u8>, ImageError> {
    let expected = pages as usize * PAGE_SIZE;
    let error = |why: String| ImageError::Decompress { what: what.to_owned(), expected, why };
    let raw = zstd::bulk::decompress(stored, expected).map_err(|e| error(e.to_string()))?;
    if raw.len() != expected {
        return Err(error(format!("it holds {} bytes", raw.len())));
    }
    Ok(raw)
}
