//! What can go wrong with an experiment as a whole. A run that goes wrong is a row of its results instead.

use std::path::{Path, PathBuf};

use crate::scenario::ScenarioError;

/// Why an experiment cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The scenario file has a mistake.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A file cannot be read or written.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The output directory is in use.
    #[error("{}: another `pagein experiment` works in this directory; wait for it or choose another one with -o", .0.display())]
    Busy(PathBuf),
    /// The output directory has something else in it.
    #[error("{}: {why}; choose another directory with -o", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is in it.
        why: String,
    },
    /// `results.csv` cannot be understood.
    #[error("{}: {why}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Nothing can be run on this machine.
    #[error("{0}")]
    Impossible(String),
    /// A figure cannot be drawn.
    #[error("cannot draw {name}: {why}")]
    Figure {
        /// The file name.
        name: String,
        /// What the library says.
        why: String,
    },
}

impl ExperimentError {
    pub(crate) fn file(path: &Path, cause: std::io::Error) -> Self {
        Self::File { path: path.to_owned(), cause }
    }
}
