//! Objects on a web server, by GET with `Range` (RFC 9110).

mod client;
mod connect;
mod failure;
mod roots;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{FutureExt, Stream, future::BoxFuture, stream};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, LOCATION, RANGE};
use reqwest::{Response, StatusCode, Url};

use crate::{
    Body, ByteRange, ContentRange, First, Location, Meter, Options, Source, SourceError, WireStats, name,
    range,
};
use client::Clients;

/// As many as browsers and curl allow in practice; an image needs one at most.
const REDIRECTS_MAX: usize = 10;

pub(crate) struct HttpSource {
    location: Location,
    clients: Clients,
    stall: Duration,
    meter: Arc<Meter>,
}

impl HttpSource {
    pub(crate) fn new(location: Location, options: Options) -> Result<Self, SourceError> {
        let stall = options.stall;
        let meter = Arc::default();
        let source = Self { clients: Clients::new(options, Arc::clone(&meter)), stall, meter, location };
        if let Some(url) = source.location.url("") {
            source.clients.for_url(&url).map_err(|error| source.setup("", &error))?;
        }
        Ok(source)
    }

    fn setup(&self, object: &str, error: &reqwest::Error) -> SourceError {
        SourceError::Setup { place: self.describe(object), reason: failure::chain(error) }
    }

    async fn request(&self, object: &str, range: Option<ByteRange>) -> Result<Body, SourceError> {
        let place = self.describe(object);
        if let Some(reason) = name::fault(object) {
            return Err(SourceError::BadName { place, reason });
        }
        if range.as_ref().is_some_and(ByteRange::is_empty) {
            return Ok(Body::from_bytes(place, Bytes::new()));
        }
        let Some(url) = self.location.url(object) else {
            return Err(SourceError::Setup { place, reason: "not a URL".to_owned() });
        };
        let response = self.follow(object, url, range.as_ref()).await?;
        let len = check_head(&place, &response, range.as_ref())?;
        let chunks = chunks(place.clone(), response, self.stall, self.meter.clone());
        Ok(Body::new(place, len, chunks))
    }

    async fn request_first(&self, object: &str, len: u64) -> Result<First, SourceError> {
        let place = self.describe(object);
        if let Some(reason) = name::fault(object) {
            return Err(SourceError::BadName { place, reason });
        }
        let Some(url) = self.location.url(object) else {
            return Err(SourceError::Setup { place, reason: "not a URL".to_owned() });
        };
        let response = self.follow(object, url, Some(&(0..len))).await?;
        let (announced, size) = match response.status() {
            StatusCode::OK => (response.content_length(), response.content_length()),
            StatusCode::PARTIAL_CONTENT => {
                let sent = response.headers().get(CONTENT_RANGE).map(reqwest::header::HeaderValue::as_bytes);
                let sent = String::from_utf8_lossy(sent.unwrap_or_default()).into_owned();
                match ContentRange::parse(&sent) {
                    Some(ContentRange { range, total }) if range.start == 0 && range.end <= len => {
                        (Some(range.end), total)
                    }
                    _ => {
                        return Err(SourceError::WrongRange {
                            place,
                            asked: 0..len,
                            sent: format!("{sent:?}"),
                        });
                    }
                }
            }
            // Not even the head is what was asked for: the usual words for it.
            _ => {
                check_head(&place, &response, Some(&(0..len)))?;
                (None, None)
            }
        };
        let ranged = response.status() == StatusCode::PARTIAL_CONTENT || size.is_some_and(|size| size <= len);
        let chunks = chunks(place.clone(), response, self.stall, self.meter.clone());
        Ok(First { body: Body::new(place, announced, chunks), ranged, size })
    }

    /// Sends the request, following redirects here and not in the client, since they may lead from the client
    /// without TLS to the one with it.
    async fn follow(
        &self,
        object: &str,
        mut url: Url,
        range: Option<&ByteRange>,
    ) -> Result<Response, SourceError> {
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(object, &url, range).await?;
            // 304 and 300 have no place to go to that a program could choose.
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            url = next_url(&url, &response).map_err(|reason| self.redirect(object, reason.to_owned()))?;
        }
        Err(self.redirect(object, format!("more than {REDIRECTS_MAX} redirects")))
    }

    fn redirect(&self, object: &str, reason: String) -> SourceError {
        SourceError::Redirect { place: self.describe(object), reason }
    }

    async fn send(
        &self,
        object: &str,
        url: &Url,
        range: Option<&ByteRange>,
    ) -> Result<Response, SourceError> {
        let client = self.clients.for_url(url).map_err(|error| self.setup(object, &error))?;
        // A compressed transfer of a range would be a range of something else.
        let mut request = client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if let Some(range) = range {
            request = request.header(RANGE, range::header(range));
        }
        self.meter.request();
        let start = Instant::now();
        match tokio::time::timeout(self.stall, request.send()).await {
            Ok(Ok(response)) => {
                self.meter.head_after(start.elapsed());
                Ok(response)
            }
            Ok(Err(error)) => Err(failure::of_request(self.describe(object), &error)),
            Err(_) => Err(SourceError::Stalled { place: self.describe(object), waited: self.stall, got: 0 }),
        }
    }
}

impl Source for HttpSource {
    fn get<'a>(
        &'a self,
        object: &'a str,
        range: Option<ByteRange>,
    ) -> BoxFuture<'a, Result<Body, SourceError>> {
        self.request(object, range).boxed()
    }

    fn get_first<'a>(&'a self, object: &'a str, len: u64) -> BoxFuture<'a, Result<First, SourceError>> {
        self.request_first(object, len).boxed()
    }

    fn describe(&self, object: &str) -> String {
        self.location.object(object)
    }

    fn beside(&self) -> Option<Arc<dyn Source>> {
        Some(Arc::new(Self {
            location: self.location.clone(),
            clients: self.clients.beside(),
            stall: self.stall,
            meter: Arc::clone(&self.meter),
        }))
    }

    fn wire(&self) -> WireStats {
        self.meter.stats()
    }
}

fn next_url(from: &Url, response: &Response) -> Result<Url, &'static str> {
    let target = response.headers().get(LOCATION).ok_or("a redirect to nowhere")?;
    let target = target.to_str().map_err(|_| "a redirect to an address that is not ASCII")?;
    let to = from.join(target).map_err(|_| "a redirect to something that is not a URL")?;
    match (from.scheme(), to.scheme()) {
        ("https", "http") => Err("a redirect from https to http"),
        (_, "http" | "https") => Ok(to),
        _ => Err("a redirect to something that is neither http nor https"),
    }
}

/// The length of the body that follows, if the head of the response is the answer to the request.
fn check_head(
    place: &str,
    response: &Response,
    range: Option<&ByteRange>,
) -> Result<Option<u64>, SourceError> {
    let place = place.to_owned();
    let status = response.status();
    match (status, range) {
        (StatusCode::OK, None) => Ok(response.content_length()),
        (StatusCode::OK, Some(range)) => match response.content_length() {
            // The range was the whole object.
            Some(len) if range.start == 0 && len == range.end => Ok(Some(len)),
            _ => Err(SourceError::RangeIgnored { place }),
        },
        (StatusCode::PARTIAL_CONTENT, Some(range)) => {
            let sent = response.headers().get(CONTENT_RANGE);
            let sent = sent.map_or_else(String::new, |v| String::from_utf8_lossy(v.as_bytes()).into_owned());
            check_content_range(place, &sent, range).map(Some)
        }
        (StatusCode::NOT_FOUND | StatusCode::GONE, _) => Err(SourceError::NotFound { place }),
        _ => Err(SourceError::Status { place, code: status.as_u16() }),
    }
}

fn check_content_range(place: String, sent: &str, asked: &ByteRange) -> Result<u64, SourceError> {
    match ContentRange::parse(sent) {
        Some(parsed) if parsed.range == *asked => Ok(asked.end - asked.start),
        // The object ends inside the range.
        Some(ContentRange { range, total: Some(total) })
            if range.start == asked.start && range.end == total && total < asked.end =>
        {
            let (expected, got) = (asked.end - asked.start, range.end - range.start);
            Err(SourceError::Truncated { place, expected, got })
        }
        _ => {
            let sent = if sent.is_empty() { "no Content-Range".to_owned() } else { format!("{sent:?}") };
            Err(SourceError::WrongRange { place, asked: asked.clone(), sent })
        }
    }
}

fn chunks(
    place: String,
    response: Response,
    stall: Duration,
    meter: Arc<Meter>,
) -> impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static {
    let expected = response.content_length();
    let under_way = meter.response();
    stream::try_unfold((response, 0u64, under_way), move |(mut response, got, under_way)| {
        let (place, meter) = (place.clone(), meter.clone());
        async move {
            match tokio::time::timeout(stall, response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    meter.received(bytes.len() as u64);
                    let got = got + bytes.len() as u64;
                    Ok(Some((bytes, (response, got, under_way))))
                }
                Ok(Ok(None)) => Ok(None),
                Ok(Err(error)) => Err(failure::of_body(place, &error, expected, got)),
                Err(_) => Err(SourceError::Stalled { place, waited: stall, got }),
            }
        }
    })
}
