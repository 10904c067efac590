//! A source without I/O.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture, stream};
use pagein_source::{Body, ByteRange, Meter, Source, SourceError, WireStats};

/// Objects from a map. Bodies come in chunks of a settable size.
#[derive(Debug, Default)]
pub struct MemorySource {
    objects: HashMap<String, Bytes>,
    chunk: Option<usize>,
    meter: Meter,
}

impl MemorySource {
    /// A source of these objects.
    pub fn new<N: Into<String>, B: Into<Bytes>>(objects: impl IntoIterator<Item = (N, B)>) -> Self {
        let objects = objects.into_iter().map(|(name, bytes)| (name.into(), bytes.into())).collect();
        Self { objects, ..Self::default() }
    }

    /// The same, with bodies in chunks of `bytes` (at least 1); without it a body is one chunk.
    #[must_use]
    pub fn chunked(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes.max(1));
        self
    }

    fn body(&self, object: &str, range: Option<ByteRange>) -> Result<Body, SourceError> {
        let place = self.describe(object);
        if range.as_ref().is_some_and(ByteRange::is_empty) {
            return Ok(Body::from_bytes(place, Bytes::new()));
        }
        self.meter.request();
        self.meter.head_after(std::time::Duration::ZERO);
        let Some(bytes) = self.objects.get(object) else { return Err(SourceError::NotFound { place }) };
        let range = range.unwrap_or(0..bytes.len() as u64);
        let size = bytes.len() as u64;
        if size < range.end {
            let (expected, got) = (range.end - range.start, size.saturating_sub(range.start));
            return Err(SourceError::Truncated { place, expected, got });
        }
        let part = bytes.slice(range.start as usize..range.end as usize);
        self.meter.received(part.len() as u64);
        let chunk = self.chunk.unwrap_or(part.len().max(1));
        let chunks: Vec<_> = (0..part.len())
            .step_by(chunk)
            .map(|at| Ok(part.slice(at..(at + chunk).min(part.len()))))
            .collect();
        Ok(Body::new(place, Some(part.len() as u64), stream::iter(chunks)))
    }
}

impl Source for MemorySource {
    fn get<'a>(
        &'a self,
        object: &'a str,
        range: Option<ByteRange>,
    ) -> BoxFuture<'a, Result<Body, SourceError>> {
        async move { self.body(object, range) }.boxed()
    }

    fn describe(&self, object: &str) -> String {
        format!("memory:{object}")
    }

    fn wire(&self) -> WireStats {
        self.meter.stats()
    }
}
