//! Profiles: which functions a program touches, and in what order. Text that can be kept under version control, merged, and applied
//! to a rebuilt program.
//!
//! # Format
//!
//! UTF-8 lines; empty lines and lines that start with `#` do not count. Numbers are hexadecimal without prefix, counts are decimal.
//!
//! ```text
//! pagein-profile 1
//! program git
//! build-id a91136fac508c2f5e175d2f171ba40c017b37072
//! runs 2
//! f 3b1040 2f a8f1c2d3e4f50617 2 main
//! b 0 1c 2a
//! f 25540 113 - 1 -
//! c 0 1 1
//! ```
//!
//! `f ADDRESS SIZE HASH RUNS NAME` is a function, in order of first touch: link-time address, bytes of code, hash of its
//! position-independent code, number of runs that touched it, symbol as it stands in the file (mangled, may contain
//! spaces); `-` where there is none. `b OFFSET...` lists the basic blocks of the function before it that were touched, if they were watched. `c CALLER CALLEE WEIGHT` is a call between the functions with those numbers (decimal, the first
//! `f` line is 0). The version stands in the first line; a reader refuses one that it does not know.
//!
//! # Where things are
//!
//! | what | module |
//! |---|---|
//! | reading and writing | [`Profile::parse`], [`Profile`]'s `Display` |
//! | from addresses that a tracer saw | [`Profile::from_touches`] |
//! | from `perf script` and from lists of symbols | [`import`] |
//! | several runs in one | [`Profile::merge`] |
//! | a rebuilt program | [`Matched`] |
//! | orders of functions | [`order`] |
//! | ordering files for linkers | [`linker`] |
//! | what a layout gains, in numbers and as a picture | [`layout`] |
//!
//! No I/O: text and bytes in, text and values out.

mod format;
pub mod import;
pub mod layout;
pub mod linker;
mod matching;
mod merge;
pub mod order;
mod program;
mod record;

pub use format::ParseError;
pub use matching::{Matched, STALE_BELOW};
pub use program::Program;
pub use record::Touch;

/// What one or more runs of a program touched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Name of the program, for people.
    pub program: String,
    /// Build ID of the file that ran, in hexadecimal, where it has one.
    pub build_id: Option<String>,
    /// Number of runs.
    pub runs: u32,
    /// Functions in order of first touch.
    pub functions: Vec<Entry>,
    /// Calls between them, without duplicates, ascending.
    pub calls: Vec<Call>,
}

/// A function that was touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Link-time address in the program that ran.
    pub address: u64,
    /// Bytes of code.
    pub size: u64,
    /// Hash of the code without what the linker fills in.
    pub hash: Option<u64>,
    /// Number of runs that touched it.
    pub runs: u32,
    /// The symbol, as it stands in the file.
    pub name: Option<String>,
    /// Offsets of the basic blocks that were touched, ascending; empty if only the entry was watched.
    pub blocks: Vec<u32>,
}

/// A call that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Number of the calling function in the profile.
    pub caller: usize,
    /// Number of the called function in the profile.
    pub callee: usize,
    /// How often, as far as it was counted: 1 for a first touch, samples for imported ones.
    pub weight: u64,
}

/// A symbol for people: demangled where it is a Rust or C++ name.
pub fn demangled(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    match cpp_demangle::Symbol::new(symbol) {
        Ok(cpp) => cpp.demangle().unwrap_or_else(|_| symbol.to_owned()),
        Err(_) => symbol.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_are_demangled_where_they_are_mangled() {
        assert_eq!(demangled("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(demangled("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled("main"), "main");
    }
}
