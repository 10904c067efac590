//! Variable-length integers and bounded reads: the primitive of every table in an image.
//!
//! Unsigned integers are LEB128 (DWARF 5, section 7.6); signed differences are zigzag-coded first.

use crate::{Digest, ImageError, PageNo};

/// Appends fields to a table.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn uint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn int(&mut self, value: i64) {
        self.uint(((value << 1) ^ (value >> 63)) as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn digest(&mut self, digest: &Digest) {
        self.0.extend_from_slice(&digest.0);
    }

    /// A list of pages: their number, then each as the difference from its predecessor plus one, so that neighbours are 0.
    pub(crate) fn pages(&mut self, pages: &[PageNo]) {
        self.uint(pages.len() as u64);
        let mut expected = 0;
        for page in pages {
            self.int(i64::from(page.0) - expected);
            expected = i64::from(page.0) + 1;
        }
    }
}

/// Takes fields from a table, never past its end.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, at: 0 }
    }

    pub(crate) fn invalid(&self, why: impl Into<String>) -> ImageError {
        ImageError::Invalid { what: self.what, offset: self.at, why: why.into() }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ImageError> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            let needed = self.at as u64 + len as u64;
            return Err(ImageError::Truncated { what: self.what, have: self.bytes.len() as u64, needed });
        };
        self.at += len;
        Ok(taken)
    }

    pub(crate) fn uint(&mut self) -> Result<u64, ImageError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return Err(self.invalid("a number exceeds 64 bits"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.invalid("a number exceeds 64 bits"))
    }

    /// An integer of at most `limit`; `field` names it in the error.
    pub(crate) fn uint_to(&mut self, field: &str, limit: u64) -> Result<u64, ImageError> {
        let value = self.uint()?;
        if value > limit {
            return Err(self.invalid(format!("{field} is {value}, the limit is {limit}")));
        }
        Ok(value)
    }

    fn int(&mut self) -> Result<i64, ImageError> {
        let coded = self.uint()?;
        Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    pub(crate) fn bytes(&mut self, limit: u64) -> Result<&'a [u8], ImageError> {
        let len = self.uint_to("a length", limit)?;
        self.take(len as usize)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ImageError> {
        Ok(self.take(N)?.try_into().expect("so many bytes were taken"))
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, ImageError> {
        self.array().map(Digest)
    }

    /// A list of at most `limit` pages, each below `page_count`.
    pub(crate) fn pages(&mut self, limit: u64, page_count: u32) -> Result<Vec<PageNo>, ImageError> {
        let count = self.uint_to("a number of pages", limit)?;
        let mut expected = 0i64;
        // Not `with_capacity(count)`: the count is not trusted before as many bytes were seen.
        let mut pages = Vec::new();
        for _ in 0..count {
            let page = expected.checked_add(self.int()?).filter(|&p| (0..i64::from(page_count)).contains(&p));
            let Some(page) = page else {
                return Err(self.invalid(format!("a page number is not below {page_count}")));
            };
            pages.push(PageNo(page as u32));
            expected = page + 1;
        }
        Ok(pages)
    }

    pub(crate) fn end(&self) -> Result<(), ImageError> {
        if self.at == self.bytes.len() {
            return Ok(());
        }
        Err(self.invalid(format!("{} bytes follow the last field", self.bytes.len() - self.at)))
    }
}
