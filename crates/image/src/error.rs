//! What can be wrong with an image's bytes.

use crate::Digest;

/// An image that cannot be used; the text names the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The object does not begin like a manifest.
    #[error("not a pagein image: it begins with {found:02x?} where a manifest begins with \"pagein\"")]
    NotAnImage {
        /// The first bytes that are there.
        found: Vec<u8>,
    },
    /// The image was made by a newer (or broken) splitter.
    #[error(
        "the image has format version {found}, this pagein reads version {known}: update pagein, or cut the image again"
    )]
    Version {
        /// Version byte of the image.
        found: u8,
        /// Version that this code reads.
        known: u8,
    },
    /// The bytes end too early.
    #[error("{what} ends at byte {have}, {needed} bytes are needed: the image is truncated")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Bytes that are there.
        have: u64,
        /// Bytes that should be there.
        needed: u64,
    },
    /// A field has a value that no splitter writes.
    #[error("{what} is invalid at byte {offset}: {why}")]
    Invalid {
        /// Which part.
        what: &'static str,
        /// Offset in that part (after decompression), bytes.
        offset: usize,
        /// What is wrong.
        why: String,
    },
    /// The bytes are not those that the digest was made of.
    #[error("{what} is damaged: its BLAKE3 digest is {found}, not {expected}")]
    Digest {
        /// Which bytes.
        what: String,
        /// Digest in the manifest, index or URL.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
    /// Verified bytes that do not decompress: the splitter that made them was broken.
    #[error("{what} does not decompress to {expected} bytes: {why}")]
    Decompress {
        /// Which bytes.
        what: String,
        /// Expected size, bytes.
        expected: usize,
        /// The decompressor's words.
        why: String,
    },
}
