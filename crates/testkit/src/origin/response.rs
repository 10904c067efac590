//! The response to one request, as a list of things to do on the wire.

use std::time::Duration;

use pagein_source::ByteRange;

use crate::Fault;

/// What to do for one request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) delay: Duration,
    /// Close the listener and all connections instead of answering.
    pub(super) refuse: bool,
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    pub(super) then: Then,
}

/// What follows the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Then {
    /// The next request.
    #[default]
    KeepAlive,
    Close,
    /// Nothing, with the connection open.
    Hang,
    /// Zeros for ever.
    Flood,
}

/// Composes the response for `object` (its bytes, or `None` if there is none).
pub(super) fn compose(object: Option<Vec<u8>>, range: Option<ByteRange>, faults: &[Fault]) -> Response {
    let mut response = Response::default();
    let status = faults.iter().find_map(|fault| match fault {
        Fault::Status(code) => Some(*code),
        _ => None,
    });
    let range = if faults.contains(&Fault::IgnoreRange) { None } else { range };
    let endless = faults.contains(&Fault::Endless);
    match (status, object) {
        (Some(code), _) => response.head = head(code, "", Some(0)),
        (None, None) => response.head = head(404, "", Some(0)),
        (None, Some(mut object)) => {
            flip(&mut object, faults);
            let size = object.len() as u64;
            let shift = u64::from(faults.contains(&Fault::WrongRange));
            match range.map(|range| range.start + shift..range.end.saturating_add(shift).min(size)) {
                Some(range) if range.is_empty() => {
                    response.head = head(416, &format!("Content-Range: bytes */{size}\r\n"), Some(0));
                }
                Some(range) => {
                    let sent = format!("Content-Range: bytes {}-{}/{size}\r\n", range.start, range.end - 1);
                    response.body = object[range.start as usize..range.end as usize].to_vec();
                    response.head = head(206, &sent, (!endless).then_some(response.body.len()));
                }
                None => {
                    response.body = object;
                    response.head = head(200, "", (!endless).then_some(response.body.len()));
                }
            }
        }
    }
    for fault in faults {
        apply(&mut response, fault);
    }
    response
}

fn apply(response: &mut Response, fault: &Fault) {
    match *fault {
        Fault::Delay(time) => response.delay += time,
        Fault::Refuse => response.refuse = true,
        Fault::StallAfter(bytes) => {
            response.body.truncate(bytes as usize);
            if bytes == 0 {
                response.head.clear();
            }
            response.then = Then::Hang;
        }
        Fault::CloseAfter(bytes) => {
            response.body.truncate(bytes as usize);
            response.then = Then::Close;
        }
        Fault::Endless => response.then = Then::Flood,
        Fault::Status(_) | Fault::Flip(_) | Fault::IgnoreRange | Fault::WrongRange => {}
    }
}

fn flip(object: &mut [u8], faults: &[Fault]) {
    for fault in faults {
        if let Fault::Flip(offset) = fault
            && let Some(byte) = object.get_mut(*offset as usize)
        {
            *byte = !*byte;
        }
    }
}

/// Without a length the body ends with the connection (RFC 9112, section 6.3).
fn head(code: u16, headers: &str, len: Option<usize>) -> Vec<u8> {
    let len = len.map_or("Connection: close\r\n".to_owned(), |len| format!("Content-Length: {len}\r\n"));
    format!("HTTP/1.1 {code} Injected\r\n{headers}{len}\r\n").into_bytes()
}

/// The range that a head's `Range: bytes=FIRST-LAST` or `bytes=FIRST-` names; any other form is ignored,
/// which RFC 9110 allows.
pub(super) fn asked_range(head: &str) -> Option<ByteRange> {
    let value = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("range").then(|| value.trim())
    })?;
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    let first = first.parse().ok()?;
    let end = if last.is_empty() { u64::MAX } else { last.parse::<u64>().ok()?.checked_add(1)? };
    (first < end).then_some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_heads() {
        assert_eq!(asked_range("GET / HTTP/1.1\r\nrange: bytes=2-4\r\n"), Some(2..5));
        assert_eq!(asked_range("GET / HTTP/1.1\r\nRange: bytes=2-\r\n"), Some(2..u64::MAX));
        for bad in ["", "Range: bytes=4-2", "Range: bytes=-5", "Range: lines=1-2", "Range: bytes=0-1,3-4"] {
            assert_eq!(asked_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn ranges_end_where_the_object_does() {
        let respond = |range| compose(Some(b"01234".to_vec()), Some(range), &[]);
        assert_eq!(respond(3..9).body, b"34");
        assert!(respond(5..6).head.starts_with(b"HTTP/1.1 416"));
        assert_eq!(respond(2..u64::MAX).body, b"234");
    }
}
