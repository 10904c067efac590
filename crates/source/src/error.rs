//! Every way a transfer can fail, with the words for it.

use std::time::Duration;

use crate::ByteRange;

/// Why bytes could not be had. `place` is always the object's full URL or path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// 404, 410, or no such file.
    #[error("{place}: not found; check the address, and that the whole image was uploaded")]
    NotFound {
        /// URL or path.
        place: String,
    },
    /// Any other status that is not a success.
    #[error("{place}: the server answered {code}{}", status_hint(*.code))]
    Status {
        /// URL.
        place: String,
        /// HTTP status code.
        code: u16,
    },
    /// No connection: name resolution, refused, unreachable, timed out, TLS handshake broken off.
    #[error("{place}: cannot connect: {reason}; check the host, the port and the proxy settings")]
    Connect {
        /// URL.
        place: String,
        /// What the system said.
        reason: String,
    },
    /// The server's certificate was not accepted.
    #[error(
        "{place}: the server's certificate is not accepted: {reason}; check the host name and the clock, or \
         name the certificate authority in SSL_CERT_FILE"
    )]
    Certificate {
        /// URL.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing came for as long as [`crate::Options::stall`].
    #[error(
        "{place}: stalled: nothing arrived for {} s, after {got} bytes; is the network or the server down?",
        .waited.as_secs_f64()
    )]
    Stalled {
        /// URL or path.
        place: String,
        /// How long it was waited for.
        waited: Duration,
        /// Bytes of the body that had come.
        got: u64,
    },
    /// Fewer bytes than expected.
    #[error(
        "{place}: {got} of {expected} bytes: the transfer was cut short, or the object was not uploaded completely"
    )]
    Truncated {
        /// URL or path.
        place: String,
        /// Bytes that were asked for or announced.
        expected: u64,
        /// Bytes that came, or that exist.
        got: u64,
    },
    /// More bytes than expected. The rest was not read.
    #[error(
        "{place}: longer than the {expected} bytes expected; is it part of another image? upload the image again"
    )]
    TooLong {
        /// URL or path.
        place: String,
        /// Bytes that were asked for or announced.
        expected: u64,
    },
    /// 200 with the whole object in answer to a request for a range of it.
    #[error("{place}: the server ignores ranges; cut the image with --page-files")]
    RangeIgnored {
        /// URL.
        place: String,
    },
    /// 206 with another range than asked for.
    #[error(
        "{place}: asked for bytes {}-{}, the server sent {sent}; cut the image with --page-files, or bypass \
         the proxy that does this",
        .asked.start,
        .asked.end.saturating_sub(1)
    )]
    WrongRange {
        /// URL.
        place: String,
        /// What was asked for.
        asked: ByteRange,
        /// The `Content-Range` that came.
        sent: String,
    },
    /// A redirect that cannot be followed.
    #[error("{place}: {reason}; give the final address instead")]
    Redirect {
        /// URL.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An established connection broke, or what came over it was not HTTP.
    #[error("{place}: the connection broke after {got} bytes: {reason}")]
    Broken {
        /// URL.
        place: String,
        /// What the system said.
        reason: String,
        /// Bytes of the body that had come.
        got: u64,
    },
    /// A file could not be read.
    #[error("{place}: cannot be read: {reason}; check the file's permissions and the mount")]
    Io {
        /// Path.
        place: String,
        /// What the system said.
        reason: String,
        /// Its class.
        kind: std::io::ErrorKind,
    },
    /// The name is not one an image's object can have, so nothing was asked for.
    #[error("{place}: refused as an object's name: {reason}; the image is damaged or hostile")]
    BadName {
        /// URL or path of the image, and the name.
        place: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The client could not be set up.
    #[error("{place}: cannot set up the client: {reason}; check the proxy settings")]
    Setup {
        /// URL.
        place: String,
        /// What went wrong.
        reason: String,
    },
    /// [`crate::fetch`] tried more than once.
    #[error("{last} (tried {attempts} times)")]
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// What the last attempt ended with.
        last: Box<SourceError>,
    },
}

impl SourceError {
    /// Whether the same request may succeed a moment later: connections, stalls, cut transfers, 5xx, 408 and
    /// 429. Not 404, ignored ranges, other 4xx, or what has been tried enough already.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Stalled { .. } | Self::Truncated { .. } | Self::Broken { .. } => {
                true
            }
            // 501 and 505 say that it will never work.
            Self::Status { code, .. } => {
                matches!(code, 408 | 429) || (500..600).contains(code) && !matches!(code, 501 | 505)
            }
            Self::Io { kind, .. } => matches!(
                kind,
                std::io::ErrorKind::Interrupted
                    | std::io::ErrorKind::TimedOut
                    | std::io::ErrorKind::WouldBlock
                    | std::io::ErrorKind::StaleNetworkFileHandle
            ),
            _ => false,
        }
    }

    /// How often it was tried.
    pub fn attempts(&self) -> u32 {
        if let Self::GaveUp { attempts, .. } = self { *attempts } else { 1 }
    }

    /// What went wrong in the end: the error inside `GaveUp`, or this one.
    pub fn kind(&self) -> &SourceError {
        if let Self::GaveUp { last, .. } = self { last.kind() } else { self }
    }
}

fn status_hint(code: u16) -> &'static str {
    match code {
        401 | 403 | 407 => "; it wants other credentials, or the object is not public",
        416 => "; the object is shorter than the image says: upload the image again",
        408 | 429 => "; it is busy, try again later",
        500..600 => "; its log says why, or try again later",
        _ => "; check the address",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_transient() {
        let place = || String::from("http://h/hot");
        let status = |code| SourceError::Status { place: place(), code };
        for code in [408, 429, 500, 502, 503, 504] {
            assert!(status(code).is_transient(), "{code}");
        }
        for code in [400, 401, 403, 416, 501, 505] {
            assert!(!status(code).is_transient(), "{code}");
        }
        assert!(!SourceError::NotFound { place: place() }.is_transient());
        assert!(!SourceError::RangeIgnored { place: place() }.is_transient());
        assert!(SourceError::Truncated { place: place(), expected: 2, got: 1 }.is_transient());
        let inner = SourceError::Truncated { place: place(), expected: 2, got: 1 };
        let gave_up = SourceError::GaveUp { attempts: 3, last: Box::new(inner.clone()) };
        assert!(!gave_up.is_transient());
        assert_eq!((gave_up.kind(), gave_up.attempts()), (&inner, 3));
        assert!(gave_up.to_string().contains("http://h/hot") && gave_up.to_string().contains("3 times"));
    }
}
