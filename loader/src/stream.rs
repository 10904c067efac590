//! One object read from its beginning while it arrives, resumed where it broke off.

use std::sync::Arc;

use pagein_source::{Body, First, Retry, Source, SourceError};

use crate::flow::Flow;

/// An object on its way.
pub(crate) struct ObjectStream {
    source: Arc<dyn Source>,
    object: &'static str,
    retry: Retry,
    body: Option<Body>,
    /// Received and not taken.
    buffer: Vec<u8>,
    /// Offset in the object behind the buffer, bytes.
    position: u64,
    /// Bytes of the object that need not be read, if the server cannot resume and sends it from the start.
    skip: u64,
    /// Size of the object, as soon as it is known.
    pub(crate) end: Option<u64>,
    /// The same as the first response says.
    size: Option<u64>,
    /// The first request asks for this many bytes only.
    first_len: Option<u64>,
    /// What the first request does not bring.
    flow: Option<Flow>,
    /// The server sent all of the object, though only the first part was asked for.
    all_comes: bool,
}

impl ObjectStream {
    pub(crate) fn new(source: Arc<dyn Source>, object: &'static str, retry: Retry) -> Self {
        Self {
            source,
            object,
            retry,
            body: None,
            buffer: Vec::new(),
            position: 0,
            skip: 0,
            end: None,
            size: None,
            first_len: None,
            flow: None,
            all_comes: false,
        }
    }

    /// Asks for `len` bytes first, and for the rest only if it is taken.
    pub(crate) fn limit_first_request(&mut self, len: u64) {
        self.first_len = Some(len);
    }

    /// Goes on at `offset` of the object, which has the size `end`: what lies before it is not needed.
    pub(crate) fn skip_to(&mut self, offset: u64, end: u64) {
        if offset > self.position - self.buffer.len() as u64 {
            self.body = None;
            self.first_len = None;
            self.buffer.clear();
            self.position = offset;
            self.end = Some(end);
        }
    }

    /// Whether all of the object comes, although only its first part was asked for: the server knows no ranges.
    pub(crate) fn all_comes(&self) -> bool {
        self.all_comes
    }

    /// What is behind the first request comes by this flow.
    pub(crate) fn go_on_with(&mut self, flow: Flow) {
        self.flow = Some(flow);
    }

    /// Offset behind the last byte that a flow has asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.flow.as_ref().map_or(self.position, Flow::asked)
    }

    /// Whether it goes on behind `offset` of an object that begins like this one.
    pub(crate) fn goes_on_behind(&self, offset: u64) -> bool {
        self.flow.as_ref().is_some_and(|flow| flow.end() > offset)
    }

    /// A part of an object, by a flow alone.
    pub(crate) fn of_flow(source: Arc<dyn Source>, object: &'static str, retry: Retry, flow: Flow) -> Self {
        let mut stream = Self::new(source, object, retry);
        stream.position = flow.start();
        stream.go_on_with(flow);
        stream
    }

    /// Bytes received so far.
    pub(crate) fn received(&self) -> u64 {
        self.position
    }

    /// The next `len` bytes. A broken transfer is resumed; what cannot be resumed is an error.
    pub(crate) async fn take(&mut self, len: usize) -> Result<Vec<u8>, SourceError> {
        self.fill(len).await?;
        let rest = self.buffer.split_off(len);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// The next bytes, at least one and at most `limit`.
    pub(crate) async fn take_some(&mut self, limit: usize) -> Result<Vec<u8>, SourceError> {
        self.fill(1).await?;
        let rest = self.buffer.split_off(limit.min(self.buffer.len()));
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// The next `len` bytes, which stay.
    pub(crate) async fn peek(&mut self, len: usize) -> Result<&[u8], SourceError> {
        self.fill(len).await?;
        Ok(&self.buffer[..len])
    }

    async fn fill(&mut self, len: usize) -> Result<(), SourceError> {
        let mut failures = 0;
        while self.buffer.len() < len {
            let before = self.position;
            match self.more().await {
                // What was here before a resumption is no progress: an object that is too short would be read for ever.
                Ok(()) if self.position > before => failures = 0,
                Ok(()) => {}
                Err(error) if !error.is_transient() => return Err(error),
                Err(error) => {
                    self.body = None;
                    failures += 1;
                    if failures >= self.retry.attempts {
                        return Err(SourceError::GaveUp { attempts: failures, last: Box::new(error) });
                    }
                    tokio::time::sleep(self.retry.pause(failures)).await;
                }
            }
        }
        Ok(())
    }

    async fn more(&mut self) -> Result<(), SourceError> {
        if self.body.is_none() {
            if let Some(flow) = &mut self.flow
                && self.position >= flow.start()
            {
                let Some(chunk) = flow.next().await? else { return Err(self.truncated()) };
                self.position += chunk.len() as u64;
                self.buffer.extend_from_slice(&chunk);
                return Ok(());
            }
            self.body = Some(self.open().await?);
        }
        let body = self.body.as_mut().expect("opened above");
        let chunk = match body.chunk().await {
            // The object may be shorter than the first request; anything else shows when the rest is asked for.
            Err(_) if self.first_len.take().is_some() => {
                self.body = None;
                return Ok(());
            }
            chunk => chunk?,
        };
        let Some(chunk) = chunk else {
            if self.first_len.take().is_some() {
                // All of the first part is here and more is wanted, of a server that keeps its word.
                self.end = self.end.or(self.size);
                self.body = None;
                return Ok(());
            }
            if self.flow.is_some() {
                self.body = None;
                return Ok(());
            }
            return Err(self.truncated());
        };
        let skipped = self.skip.min(chunk.len() as u64);
        self.skip -= skipped;
        let fresh = &chunk[skipped as usize..];
        self.position += fresh.len() as u64;
        self.buffer.extend_from_slice(fresh);
        Ok(())
    }

    fn truncated(&self) -> SourceError {
        let expected = self.end.unwrap_or(self.position + 1);
        let place = self.source.describe(self.object);
        SourceError::Truncated { place, expected, got: self.position }
    }

    async fn open(&mut self) -> Result<Body, SourceError> {
        self.skip = 0;
        let end = self.flow.as_ref().map(Flow::start).or(self.end);
        if self.position > 0
            && let Some(end) = end
        {
            match self.source.get(self.object, Some(self.position..end)).await {
                Err(error) if matches!(error.kind(), SourceError::RangeIgnored { .. }) => {}
                other => return other,
            }
        }
        self.skip = self.position;
        if let Some(len) = self.first_len.filter(|_| self.position == 0) {
            let First { body, ranged, size } = self.source.get_first(self.object, len).await?;
            self.size = size;
            // All of it comes: then what would follow is not asked for.
            if !ranged {
                self.first_len = None;
                self.all_comes = true;
            }
            return Ok(body);
        }
        self.source.get(self.object, None).await
    }
}
