//! Frames and groups: runs of pages compressed together and checkable by themselves.

use crate::linking::MAX_RECORD_LEN;
use crate::wire::{Reader, Writer};
use crate::{Digest, ImageError, LinkedPages, PAGE_SIZE, PageLinks, PageNo, branch};

/// Most pages in one frame or group (16 MiB): bounds what a reader must hold for an image that it does not trust.
pub const MAX_FRAME_PAGES: u32 = 4096;

/// Most bytes of a page with its record, before compression.
pub(crate) const PAGE_ROOM: usize = PAGE_SIZE + MAX_RECORD_LEN;

/// What a reader must know of a frame or a group before it has it.
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

    /// Checks the `stored` bytes of a group against the digest, then unpacks them: it holds `pages`, and the records of those that are
    /// `linked`. `what` names it in errors.
    ///
    /// # Panics
    /// If `pages` are not as many as the group has.
    pub fn decode_group(
        &self,
        stored: &[u8],
        pages: &[PageNo],
        linked: &LinkedPages,
        what: &str,
    ) -> Result<Unpacked, ImageError> {
        assert_eq!(pages.len(), self.pages as usize, "the group's pages");
        self.digest.check(stored, what)?;
        let room = Room::of(pages, linked);
        let bytes = zstd::bulk::decompress(stored, room.limit()).map_err(|e| room.error(what, &e))?;
        take_apart(bytes, pages, linked, what)
    }
}

/// What a frame or group may unpack to.
pub(crate) struct Room {
    /// Bytes of its pages.
    pages: usize,
    /// Most bytes of the records behind them.
    records: usize,
}

impl Room {
    pub(crate) fn of(pages: &[PageNo], linked: &LinkedPages) -> Self {
        let records = pages.iter().filter(|page| linked.contains(**page)).count();
        Self { pages: pages.len() * PAGE_SIZE, records: records * MAX_RECORD_LEN }
    }

    pub(crate) fn limit(&self) -> usize {
        self.pages + self.records
    }

    pub(crate) fn error(&self, what: &str, why: &dyn std::fmt::Display) -> ImageError {
        ImageError::Decompress { what: what.to_owned(), expected: self.pages, why: why.to_string() }
    }
}

/// The pages of a frame or group.
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

/// Compresses `pages`, of which `raw` are the bytes, and the records of those that are in linked form, in the order of the pages: a
/// group. zstd at `level`; the same input gives the same bytes for one version of its library.
///
/// # Panics
/// If `raw` is not as many pages.
pub fn encode_group(pages: &[PageNo], raw: &[u8], links: &[&PageLinks], level: i32) -> Vec<u8> {
    zstd::bulk::compress(&put_together(pages, raw, links), level)
        .expect("zstd compresses any bytes into memory")
}

/// What is compressed of some pages: see `docs/format.md`.
pub(crate) fn put_together(pages: &[PageNo], raw: &[u8], links: &[&PageLinks]) -> Vec<u8> {
    assert_eq!(raw.len(), pages.len() * PAGE_SIZE, "a frame holds whole pages");
    let mut to = Writer(raw.to_vec());
    for (page, bytes) in pages.iter().zip(to.0.chunks_exact_mut(PAGE_SIZE)) {
        branch::to_positions(bytes, *page);
    }
    for record in links {
        record.write(&mut to);
    }
    to.0
}

/// Undoes [`put_together`]; `bytes` may be any.
pub(crate) fn take_apart(
    mut bytes: Vec<u8>,
    pages: &[PageNo],
    linked: &LinkedPages,
    what: &str,
) -> Result<Unpacked, ImageError> {
    let room = Room::of(pages, linked);
    let expected = room.pages;
    if bytes.len() < expected || room.records == 0 && bytes.len() > expected {
        return Err(room.error(what, &format!("it holds {} bytes", bytes.len())));
    }
    let mut from = Reader::new("the records of a frame", &bytes[expected..]);
    let with_record = pages.iter().enumerate().filter(|(_, page)| linked.contains(**page));
    let links = with_record
        .map(|(index, _)| Ok((index, PageLinks::read(&mut from)?)))
        .collect::<Result<_, ImageError>>()?;
    from.end()?;
    bytes.truncate(expected);
    for (page, bytes) in pages.iter().zip(bytes.chunks_exact_mut(PAGE_SIZE)) {
        branch::to_distances(bytes, *page);
    }
    Ok(Unpacked { bytes, links })
}
