//! Page-in linking: pages whose relative relocations whoever installs them applies, in place of the dynamic linker.
//!
//! A relative relocation says: this word is the load bias plus an addend. In the *linked form* of a page such a word holds its
//! addend, whatever the file has there, and the page comes with a record ([`PageLinks`]) that says which words these are and how
//! to get back to the *file form*. So the relocation table itself need not travel.

use std::ops::Range;

use crate::wire::{Reader, Writer};
use crate::{ImageError, PAGE_SIZE, PageNo};

/// Bytes of a word that a relocation changes.
pub const WORD: usize = 8;
/// Words of a page.
const WORDS: usize = PAGE_SIZE / WORD;
/// Most words of a page whose file form a record states one by one: those of the dynamic section, and few others.
pub const MAX_ORIGINALS: usize = 64;
/// Room that a reader gives to the record of a page, bytes; the largest has 64 + 1 + 64 × 10 = 705.
pub(crate) const MAX_RECORD_LEN: usize = 1024;
/// In the byte that counts the originals: relocated words are zero in the file.
const ZERO_IN_FILE: u8 = 0x80;

/// The record of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageLinks {
    /// Bit `i % 8` of byte `i / 8`: word `i` takes the load bias.
    relative: [u8; WORDS / 8],
    /// These words are zero in the file; else they are as in the linked form.
    zero_in_file: bool,
    /// Words that are otherwise in the file than this would have it: index, value. Ascending.
    originals: Vec<(u16, u64)>,
}

/// A page in linked form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedPage {
    /// Its bytes, without load bias.
    pub bytes: Vec<u8>,
    /// Its record.
    pub links: PageLinks,
}

impl LinkedPage {
    /// Makes the linked form of `file`, a page as the file has it: `relative` are words (by index) and their addends, `patched`
    /// are words that get another value and no load bias.
    ///
    /// `None` if the record would be too long: more than [`MAX_ORIGINALS`] words of the file cannot be computed.
    ///
    /// # Panics
    /// If `file` is not one page, or an index is not below 512.
    pub fn new(file: &[u8], relative: &[(u16, u64)], patched: &[(u16, u64)]) -> Option<Self> {
        assert_eq!(file.len(), PAGE_SIZE, "one page");
        let mut bytes = file.to_vec();
        let mut bits = [0; WORDS / 8];
        for &(word, addend) in relative {
            set(&mut bytes, word.into(), addend);
            bits[usize::from(word) / 8] |= 1 << (word % 8);
        }
        for &(word, value) in patched {
            set(&mut bytes, word.into(), value);
        }
        let zeros = relative.iter().filter(|(word, _)| get(file, (*word).into()) == 0).count();
        let zero_in_file = zeros * 2 > relative.len();
        let mut links = PageLinks { relative: bits, zero_in_file, originals: Vec::new() };
        let mut undone = bytes.clone();
        links.unlink(&mut undone);
        let differs = |word: &usize| get(file, *word) != get(&undone, *word);
        links.originals = (0..WORDS).filter(differs).map(|word| (word as u16, get(file, word))).collect();
        (links.originals.len() <= MAX_ORIGINALS).then_some(Self { bytes, links })
    }

    /// The page as a program loaded at `bias` has it.
    pub fn at(&self, bias: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        self.links.relocate(&mut bytes, bias);
        bytes
    }

    /// The page as the file has it.
    pub fn file_form(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        self.links.unlink(&mut bytes);
        bytes
    }
}

impl PageLinks {
    /// The words that take the load bias, by index.
    pub fn relative(&self) -> impl Iterator<Item = usize> + '_ {
        (0..WORDS).filter(|word| self.relative[word / 8] & (1 << (word % 8)) != 0)
    }

    /// Linked form to what a program loaded at `bias` has.
    ///
    /// # Panics
    /// If `page` is not one page.
    pub fn relocate(&self, page: &mut [u8], bias: u64) {
        assert_eq!(page.len(), PAGE_SIZE, "one page");
        for word in self.relative() {
            let value = get(page, word).wrapping_add(bias);
            set(page, word, value);
        }
    }

    /// Linked form to file form.
    ///
    /// # Panics
    /// If `page` is not one page.
    pub fn unlink(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_SIZE, "one page");
        if self.zero_in_file {
            self.relative().for_each(|word| set(page, word, 0));
        }
        for &(word, value) in &self.originals {
            set(page, word.into(), value);
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        to.0.extend_from_slice(&self.relative);
        to.0.push(self.originals.len() as u8 | if self.zero_in_file { ZERO_IN_FILE } else { 0 });
        for (word, value) in &self.originals {
            to.0.extend_from_slice(&word.to_le_bytes());
            to.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>) -> Result<Self, ImageError> {
        let relative = from.array()?;
        let [head] = from.array()?;
        let count = usize::from(head & !ZERO_IN_FILE);
        if count > MAX_ORIGINALS {
            return Err(
                from.invalid(format!("a record has {count} words of the file, not at most {MAX_ORIGINALS}"))
            );
        }
        let mut originals: Vec<(u16, u64)> = Vec::new();
        for _ in 0..count {
            let word = u16::from_le_bytes(from.array()?);
            if usize::from(word) >= WORDS || originals.last().is_some_and(|(last, _)| *last >= word) {
                return Err(from
                    .invalid(format!("word {word} of a page is not below {WORDS} and in ascending order")));
            }
            originals.push((word, u64::from_le_bytes(from.array()?)));
        }
        Ok(Self { relative, zero_in_file: head & ZERO_IN_FILE != 0, originals })
    }
}

fn get(page: &[u8], word: usize) -> u64 {
    let bytes = &page[word * WORD..(word + 1) * WORD];
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn set(page: &mut [u8], word: usize, value: u64) {
    page[word * WORD..(word + 1) * WORD].copy_from_slice(&value.to_le_bytes());
}

/// The pages of an image that have records: few long runs, since relocated data lies together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkedPages {
    /// Ascending, not empty, not touching.
    runs: Vec<Range<u32>>,
}

impl LinkedPages {
    /// Whether `page` has a record.
    pub fn contains(&self, page: PageNo) -> bool {
        let after = self.runs.partition_point(|run| run.start <= page.0);
        after > 0 && page.0 < self.runs[after - 1].end
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = PageNo> + '_ {
        self.runs.iter().cloned().flatten().map(PageNo)
    }

    /// Number of pages.
    pub fn count(&self) -> u32 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    fn write(&self, to: &mut Writer) {
        to.uint(self.runs.len() as u64);
        let mut end = 0;
        for run in &self.runs {
            to.uint(u64::from(run.start - end));
            to.uint(u64::from(run.end - run.start));
            end = run.end;
        }
    }

    fn read(from: &mut Reader<'_>, pages_total: u32) -> Result<Self, ImageError> {
        let count = from.uint_to("the number of runs of linked pages", u64::from(pages_total))?;
        let mut runs: Vec<Range<u32>> = Vec::new();
        let mut end = 0;
        for _ in 0..count {
            let gap = from.uint_to("a gap between linked pages", u64::from(pages_total - end))? as u32;
            let start = end + gap;
            let len = from.uint_to("a run of linked pages", u64::from(pages_total - start))? as u32;
            if len == 0 || (gap == 0 && !runs.is_empty()) {
                return Err(from.invalid("a run of linked pages is empty or touches its predecessor"));
            }
            end = start + len;
            runs.push(start..end);
        }
        Ok(Self { runs })
    }
}

impl FromIterator<PageNo> for LinkedPages {
    /// From pages in ascending order.
    fn from_iter<I: IntoIterator<Item = PageNo>>(pages: I) -> Self {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for page in pages {
            match runs.last_mut() {
                Some(run) if run.end == page.0 => run.end += 1,
                _ => runs.push(page.0..page.0 + 1),
            }
        }
        Self { runs }
    }
}

/// Why an image is not linked at page-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum NotLinked {
    /// The splitter was told not to.
    #[error("it was turned off when the image was cut")]
    NotWanted = 1,
    /// `ET_EXEC`.
    #[error("the program is loaded at fixed addresses and needs none")]
    Fixed = 2,
    /// No dynamic section, or no relative relocations at the beginning of its tables.
    #[error("the program has no relative relocations")]
    NothingToDo = 3,
    /// Relocations in a segment that is not writable.
    #[error("relocations change the program's read-only segments")]
    ReadOnly = 4,
    /// A word not at a multiple of its size.
    #[error("a relocated word is not aligned")]
    Unaligned = 5,
    /// A word that two relocations change, or that is mapped twice.
    #[error("a relocated word is relocated or mapped twice")]
    Twice = 6,
    /// The dynamic section or a table is not where or what it should be.
    #[error("the dynamic section or a relocation table is not in the usual form")]
    Malformed = 7,
    /// More than [`MAX_ORIGINALS`] relocated words of one page hold neither zero nor their addends in the file.
    #[error("too many relocated words of a page hold something else in the file")]
    Unforeseen = 8,
}

const REASONS: [NotLinked; 8] = [
    NotLinked::NotWanted,
    NotLinked::Fixed,
    NotLinked::NothingToDo,
    NotLinked::ReadOnly,
    NotLinked::Unaligned,
    NotLinked::Twice,
    NotLinked::Malformed,
    NotLinked::Unforeseen,
];

/// Whether pages are in linked form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linking {
    /// They are.
    On {
        /// The pages that have records.
        pages: LinkedPages,
        /// Relative relocations in all of them, for people to see.
        relocations: u64,
    },
    /// All pages are in file form.
    Off(NotLinked),
}

impl Linking {
    /// The pages that have records; none if it is off.
    pub fn pages(&self) -> &LinkedPages {
        static NONE: LinkedPages = LinkedPages { runs: Vec::new() };
        match self {
            Self::On { pages, .. } => pages,
            Self::Off(_) => &NONE,
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        match self {
            Self::On { pages, relocations } => {
                to.uint(0);
                to.uint(*relocations);
                pages.write(to);
            }
            Self::Off(reason) => to.uint(*reason as u64),
        }
    }

    pub(crate) fn read(from: &mut Reader<'_>, pages_total: u32) -> Result<Self, ImageError> {
        let code = from.uint_to("the linking", REASONS.len() as u64)?;
        if let Some(before) = code.checked_sub(1) {
            return Ok(Self::Off(REASONS[before as usize]));
        }
        let limit = u64::from(pages_total) * WORDS as u64;
        let relocations = from.uint_to("the number of relocations", limit)?;
        Ok(Self::On { relocations, pages: LinkedPages::read(from, pages_total)? })
    }
}
