//! From the head of a request to the response. Synchronous: it opens and reads the file.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, HeaderMap,
    HeaderName, HeaderValue, LAST_MODIFIED, RANGE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use rustix::io::Errno;

use crate::body::{Piece, ReplyBody};
use crate::conditional::{Validators, Verdict};
use crate::file::{OpenFile, Opened};
use crate::listing;
use crate::path::{RequestPath, Root, Wait};
use crate::range::{ByteRange, Selection, select};

/// What every answer needs.
#[derive(Debug)]
pub(crate) struct Site {
    root: Root,
    cache_control: HeaderValue,
}

const OCTETS: &str = "application/octet-stream";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

impl Site {
    /// Objects may be cached for `max_age`; 0 is to ask each time.
    pub(crate) fn new(root: Root, max_age: Duration) -> Self {
        // A proxy that recompressed an object would change its length and offsets.
        let cache_control = match max_age.as_secs() {
            0 => Ok(HeaderValue::from_static("public, no-cache, no-transform")),
            age => HeaderValue::try_from(format!("public, max-age={age}, immutable, no-transform")),
        };
        Self { root, cache_control: cache_control.unwrap_or(HeaderValue::from_static("no-cache")) }
    }

    /// The response to a request, whose body is not looked at. With [`Wait::Never`], `None` if it would have to wait.
    pub(crate) fn answer(&self, request: &Parts, wait: Wait) -> Option<Response<ReplyBody>> {
        let mut response = match self.try_answer(request, wait) {
            Ok(response) => response,
            Err(error) if wait == Wait::Never && error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) => error_response(&error),
        };
        let length = response.body().remaining();
        if response.status() != StatusCode::NOT_MODIFIED {
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        // The head is that of GET; the body stays away, and so does the descriptor.
        if request.method == Method::HEAD {
            *response.body_mut() = ReplyBody::default();
        }
        Some(response)
    }

    fn try_answer(&self, request: &Parts, wait: Wait) -> io::Result<Response<ReplyBody>> {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(response);
        }
        let Some(path) = RequestPath::parse(request.uri.path()) else { return Ok(not_found()) };
        match Opened::new(self.root.open_beneath(path.relative(), wait)?)? {
            Opened::File(file) if !path.wants_directory() => self.file(file, request, wait),
            Opened::Directory(_) if wait == Wait::Never => Err(io::ErrorKind::WouldBlock.into()),
            Opened::Directory(dir) if path.relative().as_os_str().is_empty() => {
                Ok(text(StatusCode::OK, listing::images(&self.root, dir)?))
            }
            Opened::Directory(_) if listing::is_image(&self.root, path.relative()) => {
                Ok(text(StatusCode::OK, listing::about(path.relative(), authority(request))))
            }
            Opened::File(_) | Opened::Directory(_) | Opened::Special => Ok(not_found()),
        }
    }

    fn file(&self, file: OpenFile, request: &Parts, wait: Wait) -> io::Result<Response<ReplyBody>> {
        let validators = file.validators(SystemTime::now())?;
        let mut response = match validators.evaluate(&request.headers) {
            Verdict::NotModified => status(StatusCode::NOT_MODIFIED),
            Verdict::Failed => {
                text(StatusCode::PRECONDITION_FAILED, "the file is not in that state any more\n")
            }
            Verdict::Proceed => selected(file, range_field(request, &validators), request, wait)?,
        };
        let is_error = response.status().is_client_error();
        let headers = response.headers_mut();
        if !is_error {
            headers.insert(CACHE_CONTROL, self.cache_control.clone());
        }
        headers.insert(ETAG, validators.etag().clone());
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(modified) = validators.modified() {
            insert(headers, LAST_MODIFIED, httpdate::fmt_http_date(modified));
        }
        Ok(response)
    }
}

/// The value of the one `Range` field that counts, if any does: on GET only (RFC 9110, section 14.2), under If-Range,
/// and not if there are two of them, which the grammar does not allow.
fn range_field<'a>(request: &'a Parts, validators: &Validators) -> Option<&'a HeaderValue> {
    let mut fields = request.headers.get_all(RANGE).iter();
    let field = fields.next().filter(|_| fields.next().is_none());
    field.filter(|_| request.method == Method::GET && validators.range_applies(&request.headers))
}

fn selected(
    file: OpenFile,
    field: Option<&HeaderValue>,
    request: &Parts,
    wait: Wait,
) -> io::Result<Response<ReplyBody>> {
    let len = file.len();
    let selection = field.map_or(Selection::Whole, |field| select(field.as_bytes(), len));
    let (code, kind, content_range, pieces) = match selection {
        Selection::Unsatisfiable => {
            let mut response = text(StatusCode::RANGE_NOT_SATISFIABLE, "the file is shorter\n");
            insert(response.headers_mut(), CONTENT_RANGE, format!("bytes */{len}"));
            return Ok(response);
        }
        Selection::Whole => {
            let all = ByteRange::new(0, len).map(Piece::File);
            (StatusCode::OK, OCTETS.to_owned(), None, all.into_iter().collect())
        }
        Selection::Ranges(ranges) => {
            if let [range] = ranges[..] {
                let content_range = range.content_range(len).to_string();
                (
                    StatusCode::PARTIAL_CONTENT,
                    OCTETS.to_owned(),
                    Some(content_range),
                    vec![Piece::File(range)],
                )
            } else {
                let boundary = boundary();
                let kind = format!("multipart/byteranges; boundary={boundary}");
                (StatusCode::PARTIAL_CONTENT, kind, None, multipart(&ranges, len, &boundary))
            }
        }
    };
    let body = if request.method == Method::HEAD {
        ReplyBody::unread(&pieces)
    } else {
        ReplyBody::new(file, pieces, wait)?
    };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    insert(response.headers_mut(), CONTENT_TYPE, kind);
    if let Some(content_range) = content_range {
        insert(response.headers_mut(), CONTENT_RANGE, content_range);
    }
    Ok(response)
}

/// `multipart/byteranges` (RFC 9110, section 14.6; RFC 2046, section 5.1.1).
fn multipart(ranges: &[ByteRange], len: u64, boundary: &str) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(2 * ranges.len() + 1);
    let mut head = String::new();
    for range in ranges {
        // Writing to a string cannot fail.
        let _ = write!(
            head,
            "--{boundary}\r\nContent-Type: {OCTETS}\r\nContent-Range: {}\r\n\r\n",
            range.content_range(len)
        );
        pieces.push(Piece::Text(std::mem::take(&mut head).into()));
        pieces.push(Piece::File(*range));
        // The line break before a delimiter belongs to the delimiter.
        head.push_str("\r\n");
    }
    let _ = write!(head, "--{boundary}--\r\n");
    pieces.push(Piece::Text(head.into()));
    pieces
}

/// 32 hex digits that are not in the file, because whoever wrote the file could not foresee them: the standard library
/// seeds its hashers from the system's random numbers.
fn boundary() -> String {
    let now = SystemTime::now();
    format!("{:016x}{:016x}", RandomState::new().hash_one(now), RandomState::new().hash_one(now))
}

/// Where the client thinks that we are. Only what may stand in a URL, for it goes into a text.
fn authority(request: &Parts) -> Option<&str> {
    let field = || request.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = request.uri.authority().map(hyper::http::uri::Authority::as_str).or_else(field)?;
    host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b)).then_some(host)
}

fn error_response(error: &io::Error) -> Response<ReplyBody> {
    let code = match Errno::from_io_error(error) {
        Some(Errno::ACCESS | Errno::PERM) => StatusCode::FORBIDDEN,
        // Names that cannot be (too long, through a file), and ways that lead out.
        Some(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::ILSEQ
            | Errno::NXIO
            | Errno::NODEV,
        ) => return not_found(),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) => StatusCode::SERVICE_UNAVAILABLE,
        None if error.kind() == io::ErrorKind::UnexpectedEof => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let words = match code {
        StatusCode::FORBIDDEN => "the server may not read this file: check its permissions\n",
        StatusCode::SERVICE_UNAVAILABLE => "busy, or the file is being written: try again\n",
        _ => "the server could not read this file\n",
    };
    let mut response = text(code, words);
    if code == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn not_found() -> Response<ReplyBody> {
    text(StatusCode::NOT_FOUND, "no such object\n")
}

fn status(code: StatusCode) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::default());
    *response.status_mut() = code;
    response
}

/// A short text, for people; nothing may be cached of it.
fn text(code: StatusCode, words: impl Into<Bytes>) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::from(words.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, TEXT);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Only for values that were written here, of visible ASCII.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    #[test]
    fn errors_of_the_system_have_their_status() {
        for (errno, code) in [
            (Errno::NOENT, 404),
            (Errno::XDEV, 404),
            (Errno::LOOP, 404),
            (Errno::ACCESS, 403),
            (Errno::MFILE, 503),
            (Errno::IO, 500),
        ] {
            let response = error_response(&errno.into());
            assert_eq!(response.status().as_u16(), code, "{errno}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), code == 503, "{errno}");
        }
    }

    /// The fast way and the slow way are one answer; which of them is taken depends on the page cache.
    #[test]
    fn waiting_or_not_gives_the_same_answer() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cold"), vec![7; 100_000]).unwrap();
        let site = Site::new(Root::open(dir.path()).unwrap(), Duration::ZERO);
        let (request, ()) =
            Request::builder().uri("/cold").header(RANGE, "bytes=10-99,5000-").body(()).unwrap().into_parts();
        let slow = site.answer(&request, Wait::Allowed).unwrap();
        assert_eq!(slow.status(), StatusCode::PARTIAL_CONTENT);
        if let Some(fast) = site.answer(&request, Wait::Never) {
            assert_eq!(fast.headers()[CONTENT_LENGTH], slow.headers()[CONTENT_LENGTH]);
            assert_eq!(fast.headers()[ETAG], slow.headers()[ETAG]);
        }
        let (request, ()) = Request::builder().uri("/").body(()).unwrap().into_parts();
        assert!(site.answer(&request, Wait::Never).is_none(), "a listing reads directories, which may wait");
        assert!(site.answer(&request, Wait::Allowed).is_some());
    }

    #[test]
    fn boundaries_differ_and_fit() {
        let (one, two) = (boundary(), boundary());
        assert_ne!(one, two);
        assert_eq!(one.len(), 32);
    }

    #[test]
    fn only_an_authority_is_echoed() {
        for (host, want) in
            [("h:80", Some("h:80")), ("[::1]:8080", Some("[::1]:8080")), ("h; rm -rf", None), ("$(x)", None)]
        {
            let (request, ()) =
                Request::builder().uri("/git").header(HOST, host).body(()).unwrap().into_parts();
            assert_eq!(authority(&request), want, "{host}");
        }
    }
}
