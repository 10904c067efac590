//! A mistake in a scenario file: where it is and what may be written there.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A mistake, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}:{column}: {why}", file.display())]
pub struct ScenarioError {
    /// The file as it was named.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong, and the allowed form.
    pub why: String,
}

impl ScenarioError {
    pub(super) fn from_toml(error: &toml::de::Error, text: &str, file: &Path) -> Self {
        // One line: the reader of the terminal finds the place by its number.
        let why = error.message().lines().collect::<Vec<_>>().join("; ");
        Mistake { span: error.span().unwrap_or(0..0), why }.at(text, file)
    }
}

/// A mistake, by its place in the text.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) span: Range<usize>,
    pub(super) why: String,
}

impl Mistake {
    pub(super) fn new(span: Range<usize>, why: impl Into<String>) -> Self {
        Self { span, why: why.into() }
    }

    pub(super) fn at(self, text: &str, file: &Path) -> ScenarioError {
        let before = text.get(..self.span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        ScenarioError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            why: self.why,
        }
    }
}
