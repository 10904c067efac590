//! Frames: runs of pages compressed together and checkable by themselves.

use crate::linking::MAX_RECORD_LEN;
use crate::wire::{Reader, Writer};
use crate::{Digest, ImageError, LinkedPages, PAGE_SIZE, PageLinks, PageNo};

/// Most pages in one frame or group (16 MiB): bounds what a reader must hold for an image that it does not trust.
pub const MAX_FRAME_PAGES: u32 = 4096;

/// Most bytes of a page with its record, before compression.
pub(crate) const PAGE_ROOM: usize = PAGE_SIZE + MAX_RECORD_LEN;

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
        Self::read_stored(from, pages)
    }

    /// Reads what follows the number of pages (a group has a list of them in its place).
    pub(crate) fn read_stored(from: &mut Reader<'_>, pages: u32) -> Result<Self, ImageError> {
        let stored_len =
            from.uint_to("a frame's size", compress_bound(u64::from(pages) * PAGE_ROOM as u64))?;
        if stored_len == 0 {
            return Err(from.invalid("a frame has no bytes"));
        }
        Ok(Self { pages, stored_len: stored_len as u32, digest: from.digest()? })
    }

    /// Checks `stored` against the digest, then decompresses it to `pages * PAGE_SIZE` bytes; `what` names it in errors.
    /// For frames without records: those of the object `whole`.
    pub fn decode(&self, stored: &[u8], what: &str) -> Result<Vec<u8>, ImageError> {
        self.digest.check(stored, what)?;
        decode_frame(stored, self.pages, what)
    }

    /// The same for a frame that holds `pages`, with the records of those that are `linked` behind them.
    ///
    /// # Panics
    /// If `pages` are not as many as the frame has.
    pub fn decode_linked(
        &self,
        stored: &[u8],
        pages: &[PageNo],
        linked: &LinkedPages,
        what: &str,
    ) -> Result<Unpacked, ImageError> {
        assert_eq!(pages.len(), self.pages as usize, "the frame's pages");
        self.digest.check(stored, what)?;
        let with_record: Vec<usize> =
            pages.iter().enumerate().filter(|(_, page)| linked.contains(**page)).map(|(i, _)| i).collect();
        if with_record.is_empty() {
            return Ok(Unpacked { bytes: decode_frame(stored, self.pages, what)?, links: Vec::new() });
        }
        let expected = pages.len() * PAGE_SIZE;
        let error = |why: String| ImageError::Decompress { what: what.to_owned(), expected, why };
        let limit = expected + with_record.len() * MAX_RECORD_LEN;
        let mut bytes = zstd::bulk::decompress(stored, limit).map_err(|e| error(e.to_string()))?;
        if bytes.len() < expected {
            return Err(error(format!("it holds {} bytes", bytes.len())));
        }
        let mut from = Reader::new("the records of a frame", &bytes[expected..]);
        let links = with_record
            .into_iter()
            .map(|index| Ok((index, PageLinks::read(&mut from)?)))
            .collect::<Result<_, _>>()?;
        from.end()?;
        bytes.truncate(expected);
        Ok(Unpacked { bytes, links })
    }
}

/// The pages of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The pages one behind the other; those with records in linked form, without load bias.
    pub bytes: Vec<u8>,
    /// The records, each with the index of its page in the frame; ascending.
    pub links: Vec<(usize, PageLinks)>,
}

impl Unpacked {
    /// All pages as the file has them.
    pub fn into_file_form(mut self) -> Vec<u8> {
        for (index, links) in &self.links {
            links.unlink(&mut self.bytes[index * PAGE_SIZE..(index + 1) * PAGE_SIZE]);
        }
        self.bytes
    }
}

/// Largest stored size of `raw` bytes: zstd's own bound (`ZSTD_COMPRESSBOUND`) with some room.
pub(crate) fn compress_bound(raw: u64) -> u64 {
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

/// Compresses whole pages and the records of those that are in linked form, in the order of the pages.
///
/// # Panics
/// If `raw` is not a whole number of pages.
pub fn encode_linked_frame(raw: &[u8], links: &[&PageLinks], level: i32) -> Vec<u8> {
    assert!(raw.len().is_multiple_of(PAGE_SIZE), "a frame holds whole pages");
    let mut to = Writer(raw.to_vec());
    for record in links {
        record.write(&mut to);
    }
    zstd::bulk::compress(&to.0, level).expect("zstd compresses any bytes into memory")
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
