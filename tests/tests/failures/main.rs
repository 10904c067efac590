//! Bad input and failures: what is said, with which status, and that nothing is left behind.
//!
//! | file | what is broken |
//! |---|---|
//! | `input.rs` | programs, traces, directories, arguments |
//! | `images.rs` | bytes of an image: flipped, cut off, missing, of another version |
//! | `sources.rs` | the server, before and during a run |
//! | `killed.rs` | the pager, its guard, or both |
//! | `space.rs` | the cache: full, read-only, noexec, open to others |
//! | `privileges.rs` | no userfaultfd |

mod images;
mod input;
mod killed;
mod privileges;
mod sources;
mod space;
