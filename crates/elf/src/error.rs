//! Why a file cannot be cut or run; each text says what to do instead.

/// A file that is not a program pagein can treat.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElfError {
    /// No ELF magic.
    #[error("not an ELF program: it begins with {start:02x?}; give the path of a compiled Linux program")]
    NotElf {
        /// The first bytes.
        start: Vec<u8>,
    },
    /// `#!`.
    #[error("a script for {interpreter}: give that program, and the script as its argument")]
    Script {
        /// The program named in the first line.
        interpreter: String,
    },
    /// Built for a machine that pagein does not run on.
    #[error("built for {found}; pagein runs x86-64 programs only")]
    Machine {
        /// What it was built for.
        found: String,
    },
    /// The file ends before something that its headers announce.
    #[error(
        "truncated: {what} needs {needed} bytes, the file has {have}; copy or download the program again"
    )]
    Truncated {
        /// What does not fit.
        what: String,
        /// Size that the file would need, bytes.
        needed: u64,
        /// Size of the file, bytes.
        have: u64,
    },
    /// An object file, a core dump, or a library without entry point.
    #[error("an ELF {kind}, not a program: it cannot be executed")]
    NotExecutable {
        /// What it is.
        kind: &'static str,
    },
    /// Headers that the kernel would not accept, or that pagein cannot map page by page.
    #[error("malformed program header {index}: {why}")]
    Segment {
        /// Index in the program header table.
        index: usize,
        /// What is wrong.
        why: String,
    },
    /// Any other malformed header.
    #[error("malformed ELF header: {why}")]
    Malformed {
        /// What is wrong.
        why: String,
    },
}
