//! Wire format of a pagein image: what travels between a splitter and a loader.
//!
//! An image is a handful of immutable objects under one prefix. This crate defines their bytes and checks every one of
//! them; it does no I/O. `docs/format.md` states the format for a second implementation.
//!
//! | object | contents |
//! |---|---|
//! | `hot` | the manifest, then frames of the pages that the traces touched, in first-touch order |
//! | `whole` | the same, then frames of all other pages: the neighbours of the hot ones, then the rest in file order |
//! | `groups`, `groups.index` | all pages once more in small groups, each compressed by itself, and the table that finds them |
//! | `paged`, `paged.index` | the same in file order: the `paged` scheme of Lee et al. (1999) |
//!
//! The frames are pieces of one zstd frame, to be unpacked in order. All pages are in linked form where the manifest says so ([`Linking`]).
//!
//! With page files, `groups` and `paged` are replaced by one file for each group, `pages/ab/abcd...`, named by its digest.

mod branch;
mod digest;
mod error;
mod frame;
mod groups;
mod linking;
mod manifest;
mod page;
mod stream;
mod wire;

pub use digest::Digest;
pub use error::ImageError;
pub use frame::{Frame, MAX_FRAME_PAGES, Unpacked, encode_group};
pub use groups::{Group, GroupId, GroupIndex, page_file_name};
pub use linking::{LinkedPage, LinkedPages, Linking, MAX_ORIGINALS, NotLinked, PageLinks, WORD};
pub use manifest::{
    GroupSet, HEADER_LEN, MAX_FILE_SIZE, MAX_MANIFEST_LEN, Manifest, NEIGHBOURHOOD, VERSION, check_name,
    whole_order,
};
pub use page::{FileOffset, PAGE_SIZE, PageNo, page_count};
pub use stream::{StreamDecoder, StreamEncoder};

/// Object names, relative to the image's prefix.
pub mod object {
    /// The manifest and the hot frames.
    pub const HOT: &str = "hot";
    /// The manifest and the frames of every page.
    pub const WHOLE: &str = "whole";
    /// Groups of all pages, as they are likely to be needed together.
    pub const GROUPS: &str = "groups";
    /// Table of these groups.
    pub const GROUPS_INDEX: &str = "groups.index";
    /// Groups of all pages in file order.
    pub const PAGED: &str = "paged";
    /// Table of the file-order groups.
    pub const PAGED_INDEX: &str = "paged.index";
    /// Directory of the page files.
    pub const PAGES_DIR: &str = "pages";
}
