//! What an error of the HTTP client means for whoever asked.

use std::error::Error;
use std::io;

use crate::SourceError;

/// Sending the request, or waiting for the head of the response, failed.
pub(super) fn of_request(place: String, error: &reqwest::Error) -> SourceError {
    if let Some(reason) = certificate(error) {
        return SourceError::Certificate { place, reason };
    }
    let reason = chain(error);
    if error.is_connect() {
        SourceError::Connect { place, reason }
    } else if error.is_builder() {
        SourceError::Setup { place, reason }
    } else {
        SourceError::Broken { place, reason, got: 0 }
    }
}

/// A body broke off after `got` bytes of `expected`.
pub(super) fn of_body(place: String, error: &reqwest::Error, expected: Option<u64>, got: u64) -> SourceError {
    match expected {
        // The server closed in the middle: not an error of the connection, only too few bytes.
        Some(expected) if got < expected && !is_io(error) => SourceError::Truncated { place, expected, got },
        _ => SourceError::Broken { place, reason: chain(error), got },
    }
}

/// The causes, outermost first, without the client's own frame (which repeats the URL) and without
/// repetitions.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut reasons: Vec<String> = Vec::new();
    for cause in causes(error).skip(1) {
        let text = cause.to_string();
        if !reasons.iter().any(|earlier| earlier.contains(&text)) {
            reasons.push(text);
        }
    }
    if reasons.is_empty() { error.to_string() } else { reasons.join(": ") }
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error as &'a (dyn Error + 'static)), |&error| error.source())
}

fn is_io(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() != io::ErrorKind::UnexpectedEof)
    })
}

/// What rustls has against the server's certificate, if that is the cause.
fn certificate(error: &reqwest::Error) -> Option<String> {
    causes(error).find_map(|cause| match tls_error(cause)? {
        tls @ rustls::Error::InvalidCertificate(_) => Some(tls.to_string()),
        _ => None,
    })
}

/// `io::Error` shows what it wraps by `get_ref` and not by `source`, and may wrap another of its kind.
fn tls_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some(tls);
    }
    tls_error(cause.downcast_ref::<io::Error>()?.get_ref()?)
}
