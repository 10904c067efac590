//! Preconditions (RFC 9110, section 13), in the order of precedence of section 13.2.2.

use std::time::{Duration, SystemTime};

use headers::{ETag, HeaderMapExt as _, IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince};
use hyper::header::{HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE};

/// What identifies one state of a file.
#[derive(Clone, Debug)]
pub(crate) struct Validators {
    etag: HeaderValue,
    modified: Option<SystemTime>,
}

/// What the preconditions decide, before `Range` is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as if there were no preconditions.
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Validators {
    /// `etag` is an opaque tag with its quotes.
    ///
    /// A file may change twice within a second, so a date names one state of it only when that second is over
    /// (section 8.8.2.2). Until then the date is neither sent nor compared; so whoever holds one holds a strong one.
    pub(crate) fn new(etag: HeaderValue, modified: SystemTime, now: SystemTime) -> Self {
        let modified = to_seconds(modified).filter(|second| *second + Duration::from_secs(1) <= now);
        Self { etag, modified }
    }

    /// The value of `ETag`, a strong one.
    pub(crate) fn etag(&self) -> &HeaderValue {
        &self.etag
    }

    /// The value of `Last-Modified`, in whole seconds.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Evaluates If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since for GET and HEAD. A field that
    /// cannot be parsed is ignored.
    pub(crate) fn evaluate(&self, headers: &HeaderMap) -> Verdict {
        let etag: Option<ETag> = self.etag.to_str().ok().and_then(|tag| tag.parse().ok());
        let modified = self.modified;
        if headers.contains_key(IF_MATCH) {
            let field = headers.typed_get::<IfMatch>();
            if field.zip(etag.as_ref()).is_some_and(|(field, etag)| !field.precondition_passes(etag)) {
                return Verdict::Failed;
            }
        } else if let Some((field, modified)) = headers.typed_get::<IfUnmodifiedSince>().zip(modified)
            && !field.precondition_passes(modified)
        {
            return Verdict::Failed;
        }
        if headers.contains_key(IF_NONE_MATCH) {
            let field = headers.typed_get::<IfNoneMatch>();
            if field.zip(etag.as_ref()).is_some_and(|(field, etag)| !field.precondition_passes(etag)) {
                return Verdict::NotModified;
            }
        } else if let Some((field, modified)) = headers.typed_get::<IfModifiedSince>().zip(modified)
            && !field.is_modified(modified)
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// Whether `Range` is to be honoured: there is no If-Range, or it names exactly this state (section 13.1.5).
    pub(crate) fn range_applies(&self, headers: &HeaderMap) -> bool {
        let Some(field) = headers.get(IF_RANGE) else { return true };
        if field == self.etag {
            return true;
        }
        let date = field.to_str().ok().and_then(|text| httpdate::parse_http_date(text).ok());
        date.is_some() && date == self.modified
    }
}

/// HTTP dates have whole seconds. `None` before 1970, which they cannot express.
fn to_seconds(time: SystemTime) -> Option<SystemTime> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Sun, 06 Nov 1994 08:49:37 GMT`, the example of RFC 9110.
    const MODIFIED: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn validators(age: Duration) -> Validators {
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED) + Duration::from_millis(700);
        Validators::new(HeaderValue::from_static("\"a\""), modified, modified + age)
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn precedence_and_comparison() {
        use Verdict::{Failed, NotModified, Proceed};
        let old = validators(Duration::from_secs(10));
        for (fields, want) in [
            (&[][..], Proceed),
            (&[("if-none-match", "\"a\"")], NotModified),
            (&[("if-none-match", "W/\"a\"")], NotModified),
            (&[("if-none-match", "\"x\", \"a\"")], NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", "\"a\"")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"b\"")], Proceed),
            (&[("if-none-match", "\"x,\\\"a\\\"\"")], Proceed),
            (&[("if-modified-since", DATE)], NotModified),
            (&[("if-modified-since", LATER)], NotModified),
            (&[("if-modified-since", EARLIER)], Proceed),
            (&[("if-modified-since", "yesterday")], Proceed),
            (&[("if-none-match", "\"b\""), ("if-modified-since", DATE)], Proceed),
            (&[("if-match", "\"a\"")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"b\"")], Failed),
            (&[("if-match", "W/\"a\"")], Failed),
            (&[("if-match", "\"b\""), ("if-none-match", "\"a\"")], Failed),
            (&[("if-match", "\"a\""), ("if-unmodified-since", EARLIER)], Proceed),
            (&[("if-unmodified-since", EARLIER)], Failed),
            (&[("if-unmodified-since", DATE)], Proceed),
        ] {
            assert_eq!(old.evaluate(&headers(fields)), want, "{fields:?}");
        }
    }

    #[test]
    fn if_range_wants_the_same_state() {
        let old = validators(Duration::from_secs(10));
        for (value, want) in [
            ("\"a\"", true),
            (DATE, true),
            ("W/\"a\"", false),
            ("\"b\"", false),
            (EARLIER, false),
            (LATER, false),
            ("nonsense", false),
        ] {
            assert_eq!(old.range_applies(&headers(&[("if-range", value)])), want, "{value}");
        }
        assert!(old.range_applies(&headers(&[])));
    }

    #[test]
    fn a_date_counts_only_when_its_second_is_over() {
        let fresh = validators(Duration::from_millis(200));
        assert_eq!(fresh.modified(), None);
        assert_eq!(fresh.evaluate(&headers(&[("if-modified-since", DATE)])), Verdict::Proceed);
        assert!(!fresh.range_applies(&headers(&[("if-range", DATE)])));
        let settled = validators(Duration::from_millis(300));
        assert_eq!(settled.modified(), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(MODIFIED)));
    }

    #[test]
    fn a_file_from_the_future_has_no_date() {
        let now = SystemTime::now();
        let etag = HeaderValue::from_static("\"a\"");
        assert_eq!(Validators::new(etag, now + Duration::from_secs(3600), now).modified(), None);
    }
}
