//! The body of a response: pieces of text and of a file, read a chunk at a time, when the connection asks for it.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::file::OpenFile;
use crate::log::Record;
use crate::path::Wait;
use crate::range::ByteRange;

/// The most that is read at once, and so, per response, the memory that a slow client can hold. Large enough that the
/// hand-over to a blocking thread (some 10 µs) does not count.
pub(crate) const CHUNK: u64 = 256 << 10;

/// A part of a body.
#[derive(Debug)]
pub(crate) enum Piece {
    /// As it is.
    Text(Bytes),
    /// From the file.
    File(ByteRange),
}

/// A body of known length.
#[derive(Debug, Default)]
pub(crate) struct ReplyBody {
    pieces: VecDeque<Piece>,
    file: Option<Arc<OpenFile>>,
    remaining: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    record: Option<Record>,
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(range) => range.len(),
        }
    }
}

impl From<Bytes> for ReplyBody {
    fn from(text: Bytes) -> Self {
        Self { remaining: text.len() as u64, pieces: VecDeque::from([Piece::Text(text)]), ..Self::default() }
    }
}

impl ReplyBody {
    /// A body of pieces of `file`. The first chunk is read at once, so that a file that cannot be read is still an error
    /// with a status of its own, and a small answer is complete.
    pub(crate) fn new(file: OpenFile, pieces: Vec<Piece>, wait: Wait) -> io::Result<Self> {
        let remaining = pieces.iter().map(Piece::len).sum();
        let mut body = Self { pieces: pieces.into(), remaining, ..Self::default() };
        if let Some(at) = body.pieces.iter().position(|piece| matches!(piece, Piece::File(_)))
            && let Some(Piece::File(range)) = body.pieces.remove(at)
        {
            let (now, later) = split(range);
            if let Some(later) = later {
                body.pieces.insert(at, Piece::File(later));
            }
            body.pieces.insert(at, Piece::Text(file.read(now, wait)?));
        }
        if body.pieces.iter().any(|piece| matches!(piece, Piece::File(_))) {
            body.file = Some(Arc::new(file));
        }
        Ok(body)
    }

    /// Pieces that are only measured, for HEAD.
    pub(crate) fn unread(pieces: &[Piece]) -> Self {
        Self { remaining: pieces.iter().map(Piece::len).sum(), ..Self::default() }
    }

    /// Number of bytes still to come.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Logs the response when the body is sent or given up.
    pub(crate) fn set_record(&mut self, record: Record) {
        self.record = Some(record);
    }
}

/// The first chunk of a range, and the rest.
fn split(range: ByteRange) -> (ByteRange, Option<ByteRange>) {
    let middle = range.start() + CHUNK;
    match (ByteRange::new(range.start(), middle), ByteRange::new(middle, range.end())) {
        (Some(now), Some(later)) => (now, Some(later)),
        _ => (range, None),
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            let bytes = if let Some(reading) = &mut this.reading {
                let result = ready!(Pin::new(reading).poll(cx));
                this.reading = None;
                match result.map_err(io::Error::other).flatten() {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        this.pieces.clear();
                        if let Some(record) = &mut this.record {
                            record.fail(&error);
                        }
                        return Poll::Ready(Some(Err(error)));
                    }
                }
            } else {
                match (this.pieces.pop_front(), &this.file) {
                    (Some(Piece::Text(text)), _) => text,
                    (Some(Piece::File(range)), Some(file)) => {
                        let (now, later) = split(range);
                        if let Some(later) = later {
                            this.pieces.push_front(Piece::File(later));
                        }
                        let file = Arc::clone(file);
                        this.reading = Some(spawn_blocking(move || file.read(now, Wait::Allowed)));
                        continue;
                    }
                    _ => return Poll::Ready(None),
                }
            };
            this.remaining -= bytes.len() as u64;
            if let Some(record) = &mut this.record {
                record.add(bytes.len() as u64);
            }
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
