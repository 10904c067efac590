//! How pagein itself fails: words for the user and an exit status.

use crate::trouble::Trouble;

/// A failure before the program runs. The codes follow docker(1) and env(1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Exit status.
    pub code: u8,
    /// What went wrong and what to do, one line.
    pub text: String,
}

impl Failure {
    /// pagein failed: bad arguments, source gone, damaged image, no space.
    pub const PAGEIN: u8 = 125;
    /// The program cannot run here: wrong machine, no dynamic linker, cannot be executed.
    pub const CANNOT_RUN: u8 = 126;
    /// There is no such program or image.
    pub const NOT_FOUND: u8 = 127;

    pub(crate) fn pagein(text: String) -> Self {
        Self { code: Self::PAGEIN, text }
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self { code: trouble.exit_code(), text: trouble.to_string() }
    }
}
