//! The access log: one line per response on standard error, written when its body was sent or given up.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Instant;

use hyper::header::{HeaderMap, RANGE};
use hyper::{Method, StatusCode, Uri};

/// What is known of a response.
#[derive(Debug)]
pub(crate) struct Record {
    request: String,
    begun: Instant,
    status: StatusCode,
    length: u64,
    sent: u64,
    failure: Option<String>,
}

impl Record {
    /// Begins with the request. Nothing a client sends can write a control character: `Uri` has none, and the range is
    /// quoted.
    pub(crate) fn new(peer: SocketAddr, method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let mut request = format!("{peer} {method} {}", uri.path());
        if let Some(range) = headers.get(RANGE) {
            // Writing to a string cannot fail.
            let _ = write!(request, " {range:?}");
        }
        Self { request, begun: Instant::now(), status: StatusCode::OK, length: 0, sent: 0, failure: None }
    }

    /// The head of the response is known; `length` is the length of the body to come.
    pub(crate) fn answered(mut self, status: StatusCode, length: u64) -> Self {
        self.status = status;
        self.length = length;
        self
    }

    /// Some of the body was handed to the connection.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// The body broke off.
    pub(crate) fn fail(&mut self, error: &io::Error) {
        self.failure = Some(error.to_string());
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.begun.elapsed().as_secs_f64() * 1e3;
        write!(f, "{} {} {} B {ms:.1} ms", self.request, self.status.as_u16(), self.sent)?;
        match &self.failure {
            Some(failure) => write!(f, ", broken off: {failure}"),
            None if self.sent < self.length => write!(f, " of {} B: the client left", self.length),
            None => Ok(()),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        line(&self);
    }
}

/// One line on standard error. A log that cannot be written does not stop the server.
pub(crate) fn line(text: &dyn fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_how_much_was_sent() {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, "bytes=0-99".parse().unwrap());
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let uri = Uri::from_static("/git/hot?x");
        let mut record =
            Record::new(peer, &Method::GET, &uri, &headers).answered(StatusCode::PARTIAL_CONTENT, 100);
        record.add(60);
        let text = record.to_string();
        assert!(text.starts_with("127.0.0.1:9 GET /git/hot \"bytes=0-99\" 206 60 B "), "{text}");
        assert!(text.ends_with(" ms of 100 B: the client left"), "{text}");
        record.add(40);
        assert!(record.to_string().ends_with(" ms"), "{record}");
        record.fail(&io::Error::other("disk"));
        assert!(record.to_string().ends_with(", broken off: disk"), "{record}");
    }
}
