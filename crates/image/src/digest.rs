//! BLAKE3 digests (<https://github.com/BLAKE3-team/BLAKE3-specs>), 32 bytes, shown as 64 hex digits.

use std::fmt;
use std::str::FromStr;

use crate::ImageError;

/// The BLAKE3 digest of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Checks `bytes` against this digest; `what` names them in the error.
    pub fn check(&self, bytes: &[u8], what: &str) -> Result<(), ImageError> {
        let found = Self::of(bytes);
        if found == *self {
            return Ok(());
        }
        Err(ImageError::Digest { what: what.to_owned(), expected: *self, found })
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = blake3::HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes()))
    }
}
