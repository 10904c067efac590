//! Where an image's bytes come from.
//!
//! An image is a set of immutable static objects under one prefix (`hot`, `groups`, `groups.index`,
//! `pages/ab/abcdef...`). This crate reads them, whole or by range, from a web server or a directory, and
//! knows nothing of what is in them: digests are checked by whoever asked. What it does promise is that a
//! request *ends*: with the bytes, or with a [`SourceError`] that names the object and says what to do, after
//! a bounded time and a bounded amount of memory.
//!
//! | file | job |
//! |---|---|
//! | `location.rs` | the SOURCE argument and the URLs made from it |
//! | `dir.rs`, `http/` | the two kinds of [`Source`] |
//! | `body.rs` | a response as it arrives, checked against the length that was announced |
//! | `range.rs` | `Range` and `Content-Range` (RFC 9110, section 14) |
//! | `retry.rs` | [`fetch`]: small objects, tried again where that can help |
//! | `error.rs` | every message, in one place |
//! | `meter.rs`, `rate.rs` | what travelled, and how fast |

mod body;
mod dir;
mod error;
mod http;
mod location;
mod meter;
mod name;
mod options;
mod range;
mod rate;
mod retry;

use std::sync::Arc;

pub use body::Body;
pub use error::SourceError;
pub use futures_util::future::BoxFuture;
pub use location::{Location, LocationError};
pub use meter::{Meter, UnderWay, WireStats};
pub use options::Options;
pub use range::ContentRange;
pub use retry::{Retry, fetch};

/// The bytes of an object that are asked for: offsets from its start, the end exclusive.
pub type ByteRange = std::ops::Range<u64>;

/// A place that holds an image's objects.
///
/// The methods take `&self` and may be called from several tasks at once. Objects that need polling by tokio
/// (all of this crate's) must be used inside a tokio runtime with time and I/O enabled.
pub trait Source: Send + Sync {
    /// Starts one request; `None` asks for the whole object. It ends when the first bytes are about to come,
    /// and is cancelled by dropping it. An empty range is answered with an empty body and no request.
    fn get<'a>(
        &'a self,
        object: &'a str,
        range: Option<ByteRange>,
    ) -> BoxFuture<'a, Result<Body, SourceError>>;

    /// Starts one request for the first `len` bytes of an object that may be shorter, or longer on a server that knows no
    /// ranges. What comes may be all of it: a body tells by its length. Sources that cannot ask so ask for the range.
    fn get_first<'a>(&'a self, object: &'a str, len: u64) -> BoxFuture<'a, Result<First, SourceError>> {
        Box::pin(async move {
            let ranged = match self.get(object, Some(0..len)).await {
                Ok(body) => return Ok(First { body, ranged: true, size: None }),
                Err(SourceError::Truncated { .. }) => true,
                Err(SourceError::RangeIgnored { .. }) => false,
                Err(error) => return Err(error),
            };
            Ok(First { body: self.get(object, None).await?, ranged, size: None })
        })
    }

    /// The same place by connections of its own: what is asked for there does not take those that others have made and warmed up.
    /// `None` if there are no connections to share. What travels is counted together.
    fn beside(&self) -> Option<Arc<dyn Source>> {
        None
    }

    /// The object's full URL or path, for messages.
    fn describe(&self, object: &str) -> String;

    /// What has travelled so far.
    fn wire(&self) -> WireStats;
}

/// The answer to [`Source::get_first`].
#[derive(Debug)]
pub struct First {
    /// What comes.
    pub body: Body,
    /// The source knows ranges; otherwise `body` is the whole object.
    pub ranged: bool,
    /// The object's size, if it was told.
    pub size: Option<u64>,
}

/// Opens the source that `location` names. No request is made yet; for `http://` it takes about 0.1 ms.
pub fn open(location: &Location, options: &Options) -> Result<Arc<dyn Source>, SourceError> {
    match location.place() {
        location::Place::Http(_) => Ok(Arc::new(http::HttpSource::new(location.clone(), options.clone())?)),
        location::Place::Dir(path) => Ok(Arc::new(dir::DirSource::new(path.clone(), options.clone()))),
    }
}
