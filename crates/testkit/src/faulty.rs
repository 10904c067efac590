//! A source that fails on cue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use pagein_source::{Body, ByteRange, Source, SourceError, WireStats};

use crate::Fault;

type Script = dyn Fn(&str, u64) -> Vec<Fault> + Send + Sync;

/// Wraps a source and injects the faults that a script names for each request. Time is tokio's, so a test
/// with a paused clock does not wait for delays and stalls.
pub struct FaultySource {
    inner: Arc<dyn Source>,
    script: Box<Script>,
    stall: Duration,
    asked: Mutex<HashMap<String, u64>>,
}

impl FaultySource {
    /// `script` gets the object's name and the number of this request for it (1 for the first), and answers
    /// with the faults of the response; none: an honest one. Faults of the head apply in their order, and the
    /// first that is an error ends the request.
    pub fn new(
        inner: Arc<dyn Source>,
        script: impl Fn(&str, u64) -> Vec<Fault> + Send + Sync + 'static,
    ) -> Self {
        Self { inner, script: Box::new(script), stall: Duration::from_secs(10), asked: Mutex::default() }
    }

    /// How long a stalled response hangs before it becomes [`SourceError::Stalled`]; 10 s unless told, like a
    /// real source.
    #[must_use]
    pub fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// How many requests for this object there were.
    pub fn asked(&self, object: &str) -> u64 {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(object).copied().unwrap_or(0)
    }

    fn count(&self, object: &str) -> u64 {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(object.to_owned()).or_default();
        *count += 1;
        *count
    }

    async fn respond(&self, object: &str, range: Option<ByteRange>) -> Result<Body, SourceError> {
        let faults = (self.script)(object, self.count(object));
        let place = self.describe(object);
        for fault in &faults {
            match fault {
                Fault::Delay(time) => tokio::time::sleep(*time).await,
                Fault::Status(404 | 410) => return Err(SourceError::NotFound { place }),
                Fault::Status(code) => return Err(SourceError::Status { place, code: *code }),
                Fault::Refuse => {
                    return Err(SourceError::Connect { place, reason: "injected: refused".to_owned() });
                }
                Fault::StallAfter(0) => {
                    tokio::time::sleep(self.stall).await;
                    return Err(SourceError::Stalled { place, waited: self.stall, got: 0 });
                }
                Fault::IgnoreRange if range.is_some() => return self.whole_instead(object, range).await,
                Fault::WrongRange => {
                    if let Some(asked) = range {
                        let sent = format!("\"bytes {}-{}/*\"", asked.start + 1, asked.end);
                        return Err(SourceError::WrongRange { place, asked, sent });
                    }
                }
                // A real source learns of the range only from the server: nothing to change in an endless or
                // a cut response.
                Fault::IgnoreRange
                | Fault::StallAfter(_)
                | Fault::CloseAfter(_)
                | Fault::Endless
                | Fault::Flip(_) => {}
            }
        }
        let start = range.as_ref().map_or(0, |range| range.start);
        let body = self.inner.get(object, range).await?;
        Ok(faults.into_iter().fold(body, |body, fault| self.spoil(body, start, fault)))
    }

    /// What the HTTP source makes of a 200 in answer to a range.
    async fn whole_instead(&self, object: &str, range: Option<ByteRange>) -> Result<Body, SourceError> {
        let body = self.inner.get(object, None).await?;
        match (body.len(), range) {
            (Some(len), Some(range)) if range == (0..len) => Ok(body),
            _ => Err(SourceError::RangeIgnored { place: self.describe(object) }),
        }
    }

    /// Applies a fault of the body, which begins at offset `start` of the object.
    fn spoil(&self, body: Body, start: u64, fault: Fault) -> Body {
        let (place, len) = (body.place().to_owned(), body.len());
        match fault {
            Fault::Flip(offset) => {
                let mut at = start;
                Body::new(place, len, chunks(body).map(move |chunk| chunk.map(|c| flip(&c, &mut at, offset))))
            }
            Fault::CloseAfter(bytes) => Body::new(place, len, first(body, bytes)),
            Fault::StallAfter(bytes) if bytes > 0 => {
                let (stall, error_place) = (self.stall, place.clone());
                let hang = stream::once(async move {
                    tokio::time::sleep(stall).await;
                    Err(SourceError::Stalled { place: error_place, waited: stall, got: bytes })
                });
                Body::new(place, len, first(body, bytes).chain(hang))
            }
            Fault::Endless => {
                let zeros = stream::repeat_with(|| Ok(Bytes::from_static(&[0; 4096])));
                Body::new(place, None, chunks(body).chain(zeros))
            }
            _ => body,
        }
    }
}

type Chunks = stream::BoxStream<'static, Result<Bytes, SourceError>>;

fn chunks(body: Body) -> Chunks {
    stream::try_unfold(body, |mut body| async move { Ok(body.chunk().await?.map(|bytes| (bytes, body))) })
        .boxed()
}

/// The first `bytes` of a body.
fn first(body: Body, bytes: u64) -> Chunks {
    stream::try_unfold((body, bytes), |(mut body, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(mut chunk) = body.chunk().await? else { return Ok(None) };
        chunk.truncate(left.min(chunk.len() as u64) as usize);
        let left = left - chunk.len() as u64;
        Ok(Some((chunk, (body, left))))
    })
    .boxed()
}

fn flip(chunk: &Bytes, at: &mut u64, offset: u64) -> Bytes {
    let mut bytes = chunk.to_vec();
    if let Some(byte) = offset.checked_sub(*at).and_then(|i| bytes.get_mut(i as usize)) {
        *byte = !*byte;
    }
    *at += bytes.len() as u64;
    bytes.into()
}

impl Source for FaultySource {
    fn get<'a>(
        &'a self,
        object: &'a str,
        range: Option<ByteRange>,
    ) -> BoxFuture<'a, Result<Body, SourceError>> {
        self.respond(object, range).boxed()
    }

    fn describe(&self, object: &str) -> String {
        self.inner.describe(object)
    }

    fn wire(&self) -> WireStats {
        self.inner.wire()
    }
}
