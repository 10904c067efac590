//! Groups of pages that are fetched on demand, and the index that finds them.

use std::ops::Range;

use crate::wire::{Reader, Writer};
use crate::{Digest, Frame, ImageError, PageNo, object, page_count};

/// Position of a group in its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// One group: some pages, compressed together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its pages, in the order in which they are stored.
    pub pages: Vec<PageNo>,
    /// Its stored bytes.
    pub frame: Frame,
    /// Where they begin in the object that holds all groups, bytes.
    pub offset: u64,
}

impl Group {
    /// The range of the stored bytes in the object that holds all groups.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.frame.stored_len)
    }
}

/// The table of all groups of one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupIndex {
    groups: Vec<Group>,
}

const WHAT: &str = "the group index";
/// A file of 2^32 pages in groups of one page would need more; nothing that is an executable does.
const MAX_RAW_LEN: usize = 1 << 30;

impl GroupIndex {
    /// An index of groups that are stored one behind the other; `offset`s are computed here.
    pub fn new(parts: Vec<(Vec<PageNo>, Frame)>) -> Self {
        let mut offset = 0;
        let groups = parts.into_iter().map(|(pages, frame)| {
            let group = Group { pages, frame, offset };
            offset = group.range().end;
            group
        });
        Self { groups: groups.collect() }
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// One group.
    ///
    /// # Panics
    /// If `id` is not of this index.
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.0 as usize]
    }

    /// Size of the object that holds all groups, bytes.
    pub fn stored_len(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.range().end)
    }

    /// For every page of a file of `file_size` bytes, the group that holds it.
    pub fn by_page(&self, file_size: u64) -> Vec<Option<GroupId>> {
        let mut by_page = vec![None; page_count(file_size) as usize];
        for (id, group) in self.groups.iter().enumerate() {
            for page in &group.pages {
                by_page[page.index()] = Some(GroupId(id as u32));
            }
        }
        by_page
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.uint(self.groups.len() as u64);
        for group in &self.groups {
            to.pages(&group.pages);
            to.uint(u64::from(group.frame.stored_len));
            to.digest(&group.frame.digest);
        }
        let raw_len = (to.0.len() as u32).to_le_bytes();
        let mut stored = raw_len.to_vec();
        stored.extend(zstd::bulk::compress(&to.0, 19).expect("zstd compresses any bytes into memory"));
        stored
    }

    /// Reads the stored form of a file of `file_size` bytes, checked against `digest` first.
    pub fn decode(stored: &[u8], digest: &Digest, file_size: u64) -> Result<Self, ImageError> {
        digest.check(stored, WHAT)?;
        let Some((raw_len, packed)) = stored.split_first_chunk::<4>() else {
            return Err(ImageError::Truncated { what: WHAT, have: stored.len() as u64, needed: 4 });
        };
        let raw = unpack(packed, u32::from_le_bytes(*raw_len) as usize, MAX_RAW_LEN, WHAT)?;
        let mut from = Reader::new(WHAT, &raw);
        let pages_total = page_count(file_size);
        let mut seen = vec![false; pages_total as usize];
        let count = from.uint_to("the number of groups", u64::from(pages_total))?;
        let mut parts = Vec::new();
        for _ in 0..count {
            let pages = from.pages(u64::from(crate::MAX_FRAME_PAGES), pages_total)?;
            for page in &pages {
                if std::mem::replace(&mut seen[page.index()], true) {
                    return Err(from.invalid(format!("page {page} is in two groups")));
                }
            }
            if pages.is_empty() {
                return Err(from.invalid("a group has no pages"));
            }
            let stored_len = from.uint_to("a group's size", u64::from(u32::MAX))? as u32;
            parts.push((
                pages.clone(),
                Frame { pages: pages.len() as u32, stored_len, digest: from.digest()? },
            ));
        }
        from.end()?;
        Ok(Self::new(parts))
    }
}

/// Decompresses a table of `raw_len` bytes, at most `limit`.
pub(crate) fn unpack(
    packed: &[u8],
    raw_len: usize,
    limit: usize,
    what: &'static str,
) -> Result<Vec<u8>, ImageError> {
    if raw_len > limit {
        return Err(ImageError::Invalid {
            what,
            offset: 0,
            why: format!("its size {raw_len} is over {limit}"),
        });
    }
    let error = |why: String| ImageError::Decompress { what: what.to_owned(), expected: raw_len, why };
    // The size is not trusted: a small lie must not reserve a gigabyte, so the buffer grows with what really comes out.
    let mut raw = Vec::new();
    let decoder = zstd::stream::read::Decoder::new(packed).map_err(|e| error(e.to_string()))?;
    std::io::Read::read_to_end(&mut std::io::Read::take(decoder, raw_len as u64 + 1), &mut raw)
        .map_err(|e| error(e.to_string()))?;
    if raw.len() != raw_len {
        return Err(error("it holds another number of bytes".to_owned()));
    }
    Ok(raw)
}

/// Name of the page file that holds a group with this digest.
pub fn page_file_name(digest: &Digest) -> String {
    let hex = digest.to_string();
    format!("{}/{}/{hex}", object::PAGES_DIR, &hex[..2])
}
