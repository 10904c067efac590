//! Everything that can go wrong between the command and the program's first instruction, and while its pages come in.

use std::io;
use std::path::PathBuf;

use pagein_elf::ElfError;
use pagein_image::ImageError;
use pagein_source::SourceError;
use pagein_uffd::{TraceError, UserfaultError};

use crate::Failure;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The bytes could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The bytes are not what they should be.
    #[error("{object}: {error}")]
    Image {
        /// URL or path.
        object: String,
        /// What is wrong with it.
        error: ImageError,
    },
    /// The program cannot be run.
    #[error("{program}: {error}")]
    Elf {
        /// Its name or path.
        program: String,
        /// Why.
        error: ElfError,
    },
    /// The dynamic linker that it asks for is not there.
    #[error(
        "{program} needs the dynamic linker {interpreter}, which is not on this machine: install the C library that it \
         was built for (glibc or musl)"
    )]
    NoInterpreter {
        /// Its name or path.
        program: String,
        /// The path of the dynamic linker.
        interpreter: String,
    },
    /// A local file.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The kernel does not page here.
    #[error(transparent)]
    Userfault(#[from] UserfaultError),
    /// The program did not come under the pager.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Memory files behave in a way that pagein cannot use.
    #[error(
        "memory files are made of huge pages here, which cannot have missing pages: set \
         /sys/kernel/mm/transparent_hugepage/shmem_enabled to never or advise"
    )]
    HugePages,
    /// Anything else of the system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl Trouble {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::File { path: path.into(), error }
    }

    /// The exit status that goes with it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Elf { .. } | Self::NoInterpreter { .. } => Failure::CANNOT_RUN,
            Self::Source(error) if matches!(error.kind(), SourceError::NotFound { .. }) => Failure::NOT_FOUND,
            Self::File { error, .. } if error.kind() == io::ErrorKind::NotFound => Failure::NOT_FOUND,
            _ => Failure::PAGEIN,
        }
    }

    /// Whether the program could still be run by fetching all of it first.
    pub(crate) fn allows_eager(&self) -> bool {
        matches!(self, Self::Userfault(_) | Self::HugePages | Self::Trace(TraceError::Userfault(_)))
    }
}
