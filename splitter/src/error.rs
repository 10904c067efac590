//! Why a program was not cut.

use std::io;
use std::path::PathBuf;

use pagein_elf::ElfError;
use pagein_model::TraceError;

/// What went wrong; nothing is left behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// A file could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The program cannot be treated.
    #[error("{path}: {error}")]
    Elf {
        /// The program.
        path: PathBuf,
        /// Why.
        error: ElfError,
    },
    /// The file is larger than the format allows.
    #[error("{path}: {size} bytes; an image holds at most {limit}")]
    TooLarge {
        /// The program.
        path: PathBuf,
        /// Its size, bytes.
        size: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// The program's file name cannot be kept.
    #[error("{path}: {why}; rename the file")]
    Name {
        /// The program.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file that is no trace.
    #[error("{path}: {error}")]
    Trace {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: TraceError,
    },
    /// A trace of another program, or of another build.
    #[error("{path} is a trace of another build of {program}: record it again with this one")]
    StaleTrace {
        /// The trace.
        path: PathBuf,
        /// The program that it names.
        program: String,
    },
    /// The output directory is something else.
    #[error("{path} exists and is not an image: remove it, or give another directory")]
    OutputExists {
        /// The directory.
        path: PathBuf,
    },
    /// The caller broke off.
    #[error("interrupted; nothing was written")]
    Interrupted,
}

impl SplitError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { path: path.into(), error }
    }
}
