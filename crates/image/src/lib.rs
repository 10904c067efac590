//! Wire format of a pagein image: what travels between a splitter and a loader.
//!
//! An image is a handful of immutable objects under one prefix. This crate defines their bytes and checks every one of
//! them; it does no I/O. `docs/format.md` states the format for a second implementation.
//!
//! | object | contents |
//! |---|---|
//! | `hot` | the manifest, then frames of the pages that the traces touched, in first-touch order |
//! | `whole` | the manifest, then long frames of every page: the hot pages, their neighbours, the others in file order |
//! | `cold`, `cold.index` | groups of the pages that are not hot, each compressed by itself, and the table that finds them |
//! | `paged`, `paged.index` | the same for all pages in file order: the `paged` scheme of Lee et al. (1999) |
//!
//! Pages of `hot`, `cold` and `paged` are in linked form where the manifest says so ([`Linking`]), those of `whole` never.
//!
//! With page files, `cold` and `paged` are replaced by one file for each group, `pages/ab/abcd...`, named by its digest.

mod digest;
mod error;
mod frame;
mod groups;
mod linking;
mod manifest;
mod page;
mod wire;

pub use digest::Digest;
pub use error::ImageError;
pub use frame::{Frame, MAX_FRAME_PAGES, Unpacked, decode_frame, encode_frame, encode_linked_frame};
pub use groups::{Group, GroupId, GroupIndex, page_file_name};
pub use linking::{LinkedPage, LinkedPages, Linking, MAX_ORIGINALS, NotLinked, PageLinks, WORD};
pub use manifest::{
    GroupSet, HEADER_LEN, MAX_FILE_SIZE, MAX_MANIFEST_LEN, Manifest, NEIGHBOURHOOD, VERSION, check_name,
    whole_order,
};
pub use page::{FileOffset, PAGE_SIZE, PageNo, page_count};

/// Object names, relative to the image's prefix.
pub mod object {
    /// The manifest and the hot frames.
    pub const HOT: &str = "hot";
    /// The manifest and every page in long frames.
    pub const WHOLE: &str = "whole";
    /// Groups of the pages that are not hot.
    pub const COLD: &str = "cold";
    /// Table of the cold groups.
    pub const COLD_INDEX: &str = "cold.index";
    /// Groups of all pages in file order.
    pub const PAGED: &str = "paged";
    /// Table of the file-order groups.
    pub const PAGED_INDEX: &str = "paged.index";
    /// Directory of the page files.
    pub const PAGES_DIR: &str = "pages";
}
