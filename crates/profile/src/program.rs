//! What of a program a profile refers to: its functions, with their hashes, and its identity.

use pagein_relayout::{Functions, Untreatable, build_id};

/// A program's functions, ready for matching.
#[derive(Debug, Clone)]
pub struct Program {
    /// Bounds and names.
    pub functions: Functions,
    /// Beside them: hashes of the position-independent code.
    pub hashes: Vec<Option<u64>>,
    /// Build ID, in hexadecimal.
    pub build_id: Option<String>,
}

impl Program {
    /// Reads a program file's bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Untreatable> {
        let functions = Functions::read(bytes)?;
        let hashes = functions.code_hashes(bytes)?;
        Ok(Self { functions, hashes, build_id: build_id(bytes) })
    }
}
