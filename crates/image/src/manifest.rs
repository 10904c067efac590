//! The manifest: the root from which every other byte of an image is found and checked.

use crate::frame::{PAGE_ROOM, compress_bound};
use crate::groups::{max_index_len, unpack};
use crate::wire::{Reader, Writer};
use crate::{Digest, Frame, ImageError, Linking, PageNo, page_count};

/// Version of the format that this crate writes and reads.
pub const VERSION: u8 = 3;
/// Bytes of the fixed header: magic and version (8), stored length (4), raw length (4).
pub const HEADER_LEN: usize = 16;
/// Most bytes of a manifest, stored or raw: bounds what a reader must hold for an image that it does not trust.
pub const MAX_MANIFEST_LEN: usize = 64 << 20;

/// Largest program file, bytes: readers keep tables with an entry a page.
pub const MAX_FILE_SIZE: u64 = 16 << 30;

const MAGIC: &[u8; 7] = b"pagein\0";
const WHAT: &str = "the manifest";

/// Where the groups of one kind are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSet {
    /// Size of the stored index, bytes.
    pub index_len: u32,
    /// Digest of the stored index.
    pub index_digest: Digest,
    /// Size of all groups together, bytes.
    pub data_len: u64,
}

/// Everything about an image that is on the critical path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// File name of the program, without directories.
    pub name: String,
    /// Size of the program file, bytes.
    pub file_size: u64,
    /// Digest of the program file.
    pub file_digest: Digest,
    /// ELF `e_machine`.
    pub machine: u16,
    /// The program was seen to open its own file: it must find the whole of it.
    pub reads_self: bool,
    /// The groups are files of their own ([`crate::page_file_name`]) rather than ranges of one object.
    pub page_files: bool,
    /// Number of traces that the image was cut with.
    pub traces: u32,
    /// The hot pages in the order in which they travel: frames in the order of first touch, the pages of one frame in file
    /// order, because they arrive together. A page's frame is its rank.
    pub hot_pages: Vec<PageNo>,
    /// For each hot page the number of traces that touched it; divided by `traces`, its probability.
    pub hot_touched: Vec<u32>,
    /// The hot frames, one behind the other after the manifest in the objects `hot` and `whole`.
    pub hot_frames: Vec<Frame>,
    /// How many hot frames must be there before exec: they hold what the kernel itself reads.
    pub exec_frames: u32,
    /// The frames behind them in the object `whole`: the neighbours of the hot pages, then all others.
    pub rest_frames: Vec<Frame>,
    /// Groups of all pages, as they are likely to be needed together.
    pub groups: GroupSet,
    /// Groups of all pages in file order, if the image has them.
    pub paged: Option<GroupSet>,
    /// Which pages are in linked form.
    pub linking: Linking,
}

/// Pages of a neighbourhood in [`whole_order`], 256 KiB.
pub const NEIGHBOURHOOD: u32 = 64;

/// All pages of a file of `page_count` pages in the order of the object `whole`: the hot ones as they are listed; then those
/// others that lie in the same aligned block of 64 pages as a hot page, ascending; then the rest, ascending. What a job touches
/// that was not recorded lies in these blocks more often than elsewhere (`docs/measurements.md`), so a background fill should
/// bring them first.
pub fn whole_order(hot: &[PageNo], page_count: u32) -> Vec<PageNo> {
    let mut is_hot = vec![false; page_count as usize];
    let mut is_near = vec![false; page_count.div_ceil(NEIGHBOURHOOD) as usize];
    for page in hot {
        is_hot[page.index()] = true;
        is_near[(page.0 / NEIGHBOURHOOD) as usize] = true;
    }
    let rest = (0..page_count).map(PageNo).filter(|page| !is_hot[page.index()]);
    let (near, far): (Vec<PageNo>, Vec<PageNo>) =
        rest.partition(|page| is_near[(page.0 / NEIGHBOURHOOD) as usize]);
    [hot, &near, &far].concat()
}

impl Manifest {
    /// Number of pages of the program file.
    pub fn page_count(&self) -> u32 {
        page_count(self.file_size)
    }

    /// The pages in the order of the object `whole`: see [`whole_order`].
    pub fn whole_pages(&self) -> Vec<PageNo> {
        whole_order(&self.hot_pages, self.page_count())
    }

    /// The frames in the order of the object `whole`.
    pub fn whole_frames(&self) -> impl Iterator<Item = &Frame> {
        self.hot_frames.iter().chain(&self.rest_frames)
    }

    /// The stored form: header and compressed body.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.bytes(self.name.as_bytes());
        to.uint(self.file_size);
        to.digest(&self.file_digest);
        to.uint(u64::from(self.machine));
        to.uint(u64::from(self.reads_self) | u64::from(self.page_files) << 1);
        to.uint(u64::from(self.traces));
        to.pages(&self.hot_pages);
        if self.traces > 1 {
            self.hot_touched.iter().for_each(|&touched| to.uint(u64::from(touched)));
        }
        to.uint(u64::from(self.exec_frames));
        for frames in [&self.hot_frames, &self.rest_frames] {
            to.uint(frames.len() as u64);
            for frame in frames {
                frame.write(&mut to);
            }
        }
        to.uint(1 + u64::from(self.paged.is_some()));
        for set in std::iter::once(&self.groups).chain(&self.paged) {
            to.uint(u64::from(set.index_len));
            to.digest(&set.index_digest);
            to.uint(set.data_len);
        }
        self.linking.write(&mut to);
        let body = compress_with_checksum(&to.0);
        let mut stored = Vec::with_capacity(HEADER_LEN + body.len());
        stored.extend_from_slice(MAGIC);
        stored.push(VERSION);
        stored.extend_from_slice(&(body.len() as u32).to_le_bytes());
        stored.extend_from_slice(&(to.0.len() as u32).to_le_bytes());
        stored.extend_from_slice(&body);
        stored
    }

    /// Reads the header: how many bytes the stored manifest has. `start` needs [`HEADER_LEN`] bytes.
    pub fn stored_len(start: &[u8]) -> Result<usize, ImageError> {
        if !start.starts_with(&MAGIC[..start.len().min(MAGIC.len())]) || start.is_empty() {
            return Err(ImageError::NotAnImage { found: start[..start.len().min(8)].to_vec() });
        }
        let Some(header) = start.first_chunk::<HEADER_LEN>() else {
            return Err(ImageError::Truncated {
                what: WHAT,
                have: start.len() as u64,
                needed: HEADER_LEN as u64,
            });
        };
        if header[7] != VERSION {
            return Err(ImageError::Version { found: header[7], known: VERSION });
        }
        let body_len = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        if body_len > MAX_MANIFEST_LEN {
            let why = format!("its size {body_len} is over {MAX_MANIFEST_LEN}");
            return Err(ImageError::Invalid { what: WHAT, offset: 8, why });
        }
        Ok(HEADER_LEN + body_len)
    }

    /// Reads the stored form: exactly the bytes that [`Self::stored_len`] announced. Checks all that can be checked
    /// without other objects.
    pub fn decode(stored: &[u8]) -> Result<Self, ImageError> {
        let needed = Self::stored_len(stored)?;
        if stored.len() != needed {
            let (have, needed) = (stored.len() as u64, needed as u64);
            return Err(ImageError::Truncated { what: WHAT, have, needed });
        }
        let raw_len = u32::from_le_bytes([stored[12], stored[13], stored[14], stored[15]]) as usize;
        let raw = unpack(&stored[HEADER_LEN..], raw_len, MAX_MANIFEST_LEN, WHAT)?;
        let mut from = Reader::new(WHAT, &raw);
        let manifest = Self::read(&mut from)?;
        from.end()?;
        Ok(manifest)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, ImageError> {
        let name = String::from_utf8(from.bytes(255)?.to_vec())
            .map_err(|_| from.invalid("the program's name is not UTF-8"))?;
        check_name(&name).map_err(|why| from.invalid(why))?;
        let file_size = from.uint_to("the file size", MAX_FILE_SIZE)?;
        let file_digest = from.digest()?;
        let machine = from.uint_to("the machine", u64::from(u16::MAX))? as u16;
        let flags = from.uint_to("the flags", 3)?;
        let traces = from.uint_to("the number of traces", 1 << 20)? as u32;
        let pages_total = page_count(file_size);
        let hot_pages = from.pages(u64::from(pages_total), pages_total)?;
        // The bitmap is bounded by the list that was just read, not by what the manifest says of the file's size.
        let mut seen = std::collections::HashSet::with_capacity(hot_pages.len());
        if let Some(twice) = hot_pages.iter().find(|page| !seen.insert(**page)) {
            return Err(from.invalid(format!("page {twice} is hot twice")));
        }
        let hot_touched = if traces > 1 {
            let one =
                |_: &PageNo| from.uint_to("a page's number of traces", u64::from(traces)).map(|n| n as u32);
            hot_pages.iter().map(one).collect::<Result<_, _>>()?
        } else {
            vec![traces; hot_pages.len()]
        };
        let exec_frames = from.uint()?;
        let hot_frames = read_frames(from, hot_pages.len() as u64, "hot")?;
        if exec_frames > hot_frames.len() as u64 {
            return Err(from.invalid(format!("{exec_frames} exec frames of {} hot ones", hot_frames.len())));
        }
        let rest_frames = read_frames(from, u64::from(pages_total) - hot_pages.len() as u64, "other")?;
        let sets = from.uint_to("the number of group sets", 2)?;
        if sets == 0 {
            return Err(from.invalid("there are no group sets"));
        }
        let groups = read_group_set(from, pages_total)?;
        let paged = if sets == 2 { Some(read_group_set(from, pages_total)?) } else { None };
        let linking = Linking::read(from, pages_total)?;
        Ok(Self {
            name,
            file_size,
            file_digest,
            machine,
            reads_self: flags & 1 != 0,
            page_files: flags & 2 != 0,
            traces,
            hot_pages,
            hot_touched,
            hot_frames,
            exec_frames: exec_frames as u32,
            rest_frames,
            groups,
            paged,
            linking,
        })
    }
}

/// The manifest is what every other byte is checked against, so nothing but a digest in the address checks it. For the
/// addresses without one, zstd's own checksum (RFC 8878, section 3.1.1, `Content_Checksum`) sees accidents; a manifest
/// that is off by a bit may still be a valid one that puts pages elsewhere.
fn compress_with_checksum(raw: &[u8]) -> Vec<u8> {
    let compress = || {
        let mut compressor = zstd::bulk::Compressor::new(19)?;
        compressor.include_checksum(true)?;
        compressor.compress(raw)
    };
    compress().expect("zstd compresses any bytes into memory")
}

/// Bounded by the file's size, so that a hostile manifest cannot make a reader ask for gigabytes.
fn read_group_set(from: &mut Reader<'_>, pages: u32) -> Result<GroupSet, ImageError> {
    let index_limit = 4 + compress_bound(max_index_len(pages));
    let index_len = from.uint_to("an index's size", index_limit)? as u32;
    let index_digest = from.digest()?;
    // No group is smaller than a page, and none costs more per page than a group of one.
    let data_limit = u64::from(pages) * compress_bound(PAGE_ROOM as u64);
    Ok(GroupSet { index_len, index_digest, data_len: from.uint_to("the size of the groups", data_limit)? })
}

fn read_frames(from: &mut Reader<'_>, pages: u64, which: &str) -> Result<Vec<Frame>, ImageError> {
    let count = from.uint_to("a number of frames", pages)?;
    let mut frames = Vec::new();
    for _ in 0..count {
        frames.push(Frame::read(from)?);
    }
    let sum: u64 = frames.iter().map(|frame| u64::from(frame.pages)).sum();
    if sum != pages {
        return Err(from.invalid(format!("the {which} frames hold {sum} pages, not {pages}")));
    }
    Ok(frames)
}

/// Whether `name` can be the file name of a program: one path component, so that no image can name a place of its own,
/// and nothing that a terminal would obey.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_component = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_component || name.contains(char::is_control) || name.len() > 255 {
        return Err(format!("{name:?} cannot be a program's file name"));
    }
    Ok(())
}
