//! A response body as it arrives.

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};

use crate::SourceError;

/// Set aside at most this much before bytes have come: an announced length is only a claim.
const RESERVE_MAX: u64 = 1 << 20;

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, SourceError>> + Send>>;

/// A response body: a stream of chunks of whatever size they arrive in, never more and never fewer bytes than
/// announced.
pub struct Body {
    place: String,
    len: Option<u64>,
    got: u64,
    chunks: Option<Chunks>,
}

impl Body {
    /// A body of the object at `place` (for messages), of `len` bytes if that is known.
    pub fn new(
        place: String,
        len: Option<u64>,
        chunks: impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static,
    ) -> Self {
        Self { place, len, got: 0, chunks: Some(Box::pin(chunks)) }
    }

    /// A body that is here already.
    pub fn from_bytes(place: String, bytes: Bytes) -> Self {
        let len = bytes.len() as u64;
        Self::new(place, Some(len), stream::iter((len > 0).then_some(Ok(bytes))))
    }

    /// The announced length of this body in bytes (of the range, if a range was asked for).
    #[allow(clippy::len_without_is_empty, reason = "the length may be unknown, and emptiness with it")]
    pub fn len(&self) -> Option<u64> {
        self.len
    }

    /// The object's full URL or path.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The next bytes, never empty; `None` at the end. A body that ends before its announced length is
    /// `Truncated`, one that goes on after it `TooLong`. After an error it has ended. Cancel safe.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            let Some(chunks) = &mut self.chunks else { return Ok(None) };
            let step = match chunks.next().await {
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) => self.count(bytes).map(Some),
                Some(Err(error)) => Err(error),
                None => self.end().map(|()| None),
            };
            if !matches!(step, Ok(Some(_))) {
                self.chunks = None;
            }
            return step;
        }
    }

    fn count(&mut self, bytes: Bytes) -> Result<Bytes, SourceError> {
        self.got = self.got.saturating_add(bytes.len() as u64);
        match self.len {
            Some(len) if self.got > len => {
                Err(SourceError::TooLong { place: self.place.clone(), expected: len })
            }
            _ => Ok(bytes),
        }
    }

    fn end(&self) -> Result<(), SourceError> {
        match self.len {
            Some(len) if self.got < len => {
                Err(SourceError::Truncated { place: self.place.clone(), expected: len, got: self.got })
            }
            _ => Ok(()),
        }
    }

    /// The whole body, which has to be `len` bytes long: `Truncated` if it is shorter, `TooLong` if it is
    /// longer, in which case the rest is not read. Memory grows with what arrives.
    pub async fn exactly(mut self, len: u64) -> Result<Vec<u8>, SourceError> {
        if let Some(announced) = self.len {
            if announced < len {
                return Err(SourceError::Truncated { place: self.place, expected: len, got: announced });
            }
            if announced > len {
                return Err(SourceError::TooLong { place: self.place, expected: len });
            }
        }
        let mut all = Vec::with_capacity(len.min(RESERVE_MAX) as usize);
        while let Some(bytes) = self.chunk().await? {
            if all.len() as u64 + bytes.len() as u64 > len {
                return Err(SourceError::TooLong { place: self.place, expected: len });
            }
            all.extend_from_slice(&bytes);
        }
        let got = all.len() as u64;
        if got < len {
            return Err(SourceError::Truncated { place: self.place, expected: len, got });
        }
        Ok(all)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("place", &self.place)
            .field("len", &self.len)
            .field("got", &self.got)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(len: Option<u64>, chunks: &[&'static str]) -> Body {
        let chunks: Vec<_> = chunks.iter().map(|c| Ok(Bytes::from_static(c.as_bytes()))).collect();
        Body::new("x".into(), len, stream::iter(chunks))
    }

    #[tokio::test]
    async fn joins_chunks() {
        for len in [None, Some(5)] {
            assert_eq!(body(len, &["ab", "", "cde"]).exactly(5).await.unwrap(), b"abcde");
        }
        assert_eq!(body(None, &[]).exactly(0).await.unwrap(), b"");
        assert_eq!(Body::from_bytes("x".into(), Bytes::new()).exactly(0).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn names_what_is_missing() {
        let expected = SourceError::Truncated { place: "x".into(), expected: 5, got: 4 };
        assert_eq!(body(None, &["ab", "cd"]).exactly(5).await, Err(expected.clone()));
        assert_eq!(body(Some(4), &["ab", "cd"]).exactly(5).await, Err(expected.clone()));
        assert_eq!(body(Some(5), &["ab", "cd"]).exactly(5).await, Err(expected));
    }

    #[tokio::test]
    async fn stops_reading_what_is_too_long() {
        let endless = stream::repeat_with(|| Ok(Bytes::from_static(&[0; 1000])));
        let too_long = SourceError::TooLong { place: "x".into(), expected: 5500 };
        assert_eq!(Body::new("x".into(), None, endless.clone()).exactly(5500).await, Err(too_long.clone()));
        assert_eq!(
            Body::new("x".into(), Some(5500), endless.clone()).exactly(5500).await,
            Err(too_long.clone())
        );
        assert_eq!(Body::new("x".into(), Some(9000), endless).exactly(5500).await, Err(too_long));
    }

    #[tokio::test]
    async fn ends_after_an_error() {
        let mut body = body(Some(3), &["ab", "cd", "ef"]);
        assert_eq!(body.chunk().await.unwrap().unwrap(), "ab");
        assert!(matches!(body.chunk().await, Err(SourceError::TooLong { expected: 3, .. })));
        assert_eq!(body.chunk().await, Ok(None));
    }

    #[tokio::test]
    async fn a_claimed_length_reserves_nothing() {
        // Would abort the process if the length were taken at its word.
        let error = body(None, &["ab"]).exactly(u64::MAX).await.unwrap_err();
        assert_eq!(error, SourceError::Truncated { place: "x".into(), expected: u64::MAX, got: 2 });
    }
}
