//! Serves images over HTTP: every file below a directory, as an immutable object.
//!
//! An image needs no server logic, so this is a static file server, and any other will do. What it takes care of is
//! what a pager needs: ranges, many in one request; little between a small request and its answer; and never a mix of
//! two versions of a file.
//!
//! - [`range`]: which bytes a `Range` field means. Pure.
//! - `conditional`: preconditions. Pure.
//! - `path`: from the path of a request to a descriptor that is inside the directory.
//! - `file`, `body`: one state of a file, sent in chunks.
//! - `answer`: puts those together: request in, response out.
//! - `listing`: what a directory answers.
//! - `serve`, `guard`: connections, their limits, their end.
//! - `log`: a line per response.
//!
//! HTTP/1.1 and HTTP/2 without TLS (with prior knowledge) share the port. There is no TLS here: what is served is
//! checked against digests by whoever runs it, and a proxy in front can add TLS.

mod answer;
mod body;
mod conditional;
mod config;
mod error;
mod file;
mod guard;
mod listing;
mod log;
mod path;
pub mod range;
mod serve;

pub use config::Config;
pub use error::ServeError;
pub use serve::Server;
