//! What was done, what was refused, and why.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::verify::Mismatch;

/// Why a program has to stay as it is. It can still be split and run, page by page; the text says what would help.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Untreatable {
    #[error("this is not a 64-bit little-endian ELF file; a script or another format stays as it is")]
    NotElf,
    #[error("the program is for machine {0}; functions are reordered on x86-64 (machine 62) only")]
    Machine(u16),
    #[error(
        "the ELF file type is {0}: only executables (2) and position-independent ones (3) can be reordered"
    )]
    FileType(u16),
    #[error("the ELF file is malformed: {0}")]
    Malformed(&'static str),
    #[error("a segment is writable and executable: the program may change its own code")]
    WritableText,
    #[error("the dynamic linker changes the program's code (text relocations); build it with -fPIC or -fPIE")]
    TextRelocations,
    #[error(
        "a Go program: its runtime looks up return addresses in its own table and would not know the clones"
    )]
    Go,
    #[error(
        "function bounds are not known: there is no .eh_frame; build without -fno-asynchronous-unwind-tables"
    )]
    NoBounds,
    #[error("there is no search header for the unwind tables; link with --eh-frame-hdr")]
    NoUnwindHeader,
    #[error("the unwind tables cannot be extended: {0}")]
    UnwindTables(&'static str),
    #[error("none of the profile's functions can be cloned; is it a profile of this program?")]
    NothingToClone,
    #[error(
        "the profile's functions cover {before} pages of code and would still cover {after} (pointers hold them in place)"
    )]
    NoGain { before: usize, after: usize },
    #[error(
        "another job than those profiled would touch an estimated {after} pages of code instead of {before}; profile more jobs and \
         merge the profiles, or `relayout --unseen 0` if only profiled jobs are run"
    )]
    LossElsewhere { before: usize, after: usize },
    #[error("the program was reordered before; start from the file as it was shipped")]
    AlreadyDone,
    #[error(
        "the file goes on for {0} bytes after its last section: the program may look for data at its own end"
    )]
    TrailingData(u64),
    #[error("the program is larger than a call can reach")]
    TooLarge,
    #[error(
        "the new file was checked and is not what was intended, so it was thrown away (please report this): {0}"
    )]
    Mismatch(#[from] Mismatch),
}

/// Why a function is not cloned. The profile's other functions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// No unwind table describes it: written by hand, or laid out by a runtime.
    NoUnwind,
    /// It lies in a section of its own, which the program may know the bounds of.
    OtherSection,
    /// Its bytes are not instructions from end to end.
    NotDecoded,
    /// Its code reads data among its instructions, or jumps between them.
    DataInCode,
    /// A short branch leaves it.
    ShortBranch,
    /// It takes its own address from the stack (`call` to the next instruction).
    OwnAddress,
    /// Transactions, 16-bit branches, 32-bit addressing relative to the program counter.
    Unusual,
}

/// Number of functions refused for each reason.
pub type Refusals = BTreeMap<Refusal, usize>;

/// Bytes of code that have a copy among the clones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Link-time address of the original.
    pub from: u64,
    /// Link-time address of the copy.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// What was done to a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Functions cloned.
    pub cloned: usize,
    /// Of them, functions cut to the blocks that were touched.
    pub clipped: usize,
    /// Touched functions left in place because pointers that cannot be redirected keep their pages in use.
    pub anchored: usize,
    /// Pages of code that the profile's functions cover as shipped, those that cannot be copied included.
    pub pages_before: usize,
    /// Pages of code that they cover now.
    pub pages_after: usize,
    /// Bytes of code in them.
    pub cloned_bytes: u64,
    /// Link-time address of the first clone.
    pub clones_start: u64,
    /// Link-time address after the last clone.
    pub clones_end: u64,
    /// What was copied where.
    pub copies: Vec<Copied>,
    /// Touched functions that were not cloned, by reason.
    pub refused: Refusals,
    /// Direct calls and jumps in the original code that go to clones now.
    pub calls_redirected: usize,
    /// Addresses that the original code takes (`lea`) and that are clones' now.
    pub addresses_redirected: usize,
    /// Functions all references to which go to the clone.
    pub pointers_moved: usize,
    /// Jump table entries redirected.
    pub table_entries: usize,
    /// Whether the program header table stayed where it was.
    pub headers_in_place: bool,
}
