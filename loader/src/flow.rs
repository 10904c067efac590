//! Part of an object, in order, by range requests that overlap: each has its own connection over HTTP/1.1, or its own stream.
//!
//! How much is asked for ahead of what has come is the caller's choice, again before each request: a background transfer must
//! not stand in front of what is needed now, a young connection is helped by others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pagein_model::slow_start::FIRST_FLIGHT;
use pagein_source::{ByteRange, Retry, Source, SourceError};
use tokio::sync::{Notify, mpsc};

/// What the next request is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Its bytes.
    pub(crate) piece: u64,
    /// It is made when no more than so many bytes of the earlier ones are still to come.
    pub(crate) ahead: u64,
    /// So many may be under way, it included.
    pub(crate) lanes: usize,
}

/// Asked before each request, with its number from 0; `None`: not now.
pub(crate) type Pacing = Box<dyn Fn(u32) -> Option<Pace> + Send + Sync>;

/// How often a pacing that said "not now" is asked again.
const AGAIN: Duration = Duration::from_millis(5);

/// Everything in one request.
pub(crate) fn at_once() -> Pacing {
    Box::new(|_| Some(Pace { piece: u64::MAX, ahead: 0, lanes: 1 }))
}

/// Slow start on several connections: each asks for as much as its window lets through in one round trip, so that what comes first in
/// the object comes first. `cap` is the longest piece, bytes.
pub(crate) fn slow_start(connections: u32, cap: u64) -> Pacing {
    Box::new(move |number| {
        let piece = FIRST_FLIGHT.checked_shl(number / connections).unwrap_or(u64::MAX).min(cap);
        Some(Pace { piece, ahead: u64::MAX, lanes: connections as usize })
    })
}

/// A part of an object on its way.
pub(crate) struct Flow {
    source: Arc<dyn Source>,
    object: &'static str,
    retry: Retry,
    /// What has not been asked for.
    rest: ByteRange,
    pacing: Pacing,
    pieces: VecDeque<Piece>,
    number: u32,
    /// A piece is complete.
    news: Arc<Notify>,
}

/// One request under way.
struct Piece {
    chunks: mpsc::UnboundedReceiver<Result<Bytes, SourceError>>,
    /// Bytes still to come.
    left: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Flow {
    /// The bytes `range` of `object`. Nothing is asked for yet.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        object: &'static str,
        range: ByteRange,
        retry: Retry,
        pacing: Pacing,
    ) -> Self {
        let (pieces, number, news) = (VecDeque::new(), 0, Arc::default());
        Self { source, object, retry, rest: range, pacing, pieces, number, news }
    }

    /// Offset behind the last byte that was asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.rest.start
    }

    /// Makes the requests that may be made now. Must be called within a tokio runtime.
    pub(crate) fn ask(&mut self) {
        while !self.rest.is_empty() {
            let Some(pace) = (self.pacing)(self.number) else { return };
            let under_way = self.pieces.iter().filter(|piece| piece.left() > 0);
            let (count, left) =
                under_way.fold((0, 0u64), |(count, left), piece| (count + 1, left + piece.left()));
            if count >= pace.lanes || count > 0 && left > pace.ahead {
                return;
            }
            let end = self.rest.end.min(self.rest.start.saturating_add(pace.piece.max(1)));
            let range = self.rest.start..end;
            self.rest.start = end;
            self.number += 1;
            self.pieces.push_back(self.piece(range));
        }
    }

    fn piece(&self, range: ByteRange) -> Piece {
        let (tell, chunks) = mpsc::unbounded_channel();
        let left = Arc::new(AtomicU64::new(range.end - range.start));
        let delivery = Delivery {
            source: Arc::clone(&self.source),
            object: self.object,
            retry: self.retry.clone(),
            left: Arc::clone(&left),
            tell,
        };
        let news = Arc::clone(&self.news);
        let task = tokio::spawn(async move {
            delivery.run(range).await;
            news.notify_one();
        });
        Piece { chunks, left, task }
    }

    /// The next bytes; `None` at the end of the range. After an error there is nothing more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        loop {
            self.ask();
            let news = Arc::clone(&self.news);
            let Some(front) = self.pieces.front_mut() else {
                if self.rest.is_empty() {
                    return Ok(None);
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            tokio::select! {
                chunk = front.chunks.recv() => match chunk {
                    Some(Ok(bytes)) => return Ok(Some(bytes)),
                    Some(Err(error)) => {
                        self.rest.start = self.rest.end;
                        self.pieces.clear();
                        return Err(error);
                    }
                    None => drop(self.pieces.pop_front()),
                },
                () = news.notified() => {}
            }
        }
    }
}

impl Piece {
    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

/// Reads one piece, resumed where it broke off.
struct Delivery {
    source: Arc<dyn Source>,
    object: &'static str,
    retry: Retry,
    left: Arc<AtomicU64>,
    tell: mpsc::UnboundedSender<Result<Bytes, SourceError>>,
}

impl Delivery {
    async fn run(self, range: ByteRange) {
        let mut failures = 0;
        loop {
            let before = self.left.load(Ordering::Relaxed);
            let Err(error) = self.read(range.end - before..range.end).await else { return };
            if self.left.load(Ordering::Relaxed) < before {
                failures = 0;
            }
            failures += 1;
            let gives_up = failures >= self.retry.attempts;
            if !error.is_transient() || gives_up {
                let attempts = failures;
                let told = if attempts > 1 {
                    SourceError::GaveUp { attempts, last: Box::new(error) }
                } else {
                    error
                };
                // Nobody listens any more: then nobody wants it.
                let _ = self.tell.send(Err(told));
                return;
            }
            tokio::time::sleep(self.retry.pause(failures)).await;
        }
    }

    async fn read(&self, range: ByteRange) -> Result<(), SourceError> {
        let expected = range.end - range.start;
        let mut body = self.source.get(self.object, Some(range)).await?;
        let mut got = 0;
        while let Some(bytes) = body.chunk().await? {
            got += bytes.len() as u64;
            if got > expected {
                return Err(SourceError::TooLong { place: body.place().to_owned(), expected });
            }
            self.left.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
            let _ = self.tell.send(Ok(bytes));
        }
        if got < expected {
            return Err(SourceError::Truncated { place: body.place().to_owned(), expected, got });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagein_testkit::{Fault, FaultySource, MemorySource};
    use proptest::prelude::*;

    const OBJECT: &str = "o";

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 % 251) as u8).collect()
    }

    fn faulty(len: usize, script: impl Fn(u64) -> Vec<Fault> + Send + Sync + 'static) -> Arc<FaultySource> {
        let memory = MemorySource::new([(OBJECT, bytes(len))]).chunked(700);
        Arc::new(FaultySource::new(Arc::new(memory), move |_, number| script(number)))
    }

    async fn all(flow: &mut Flow) -> Result<Vec<u8>, SourceError> {
        let mut all = Vec::new();
        while let Some(chunk) = flow.next().await? {
            all.extend_from_slice(&chunk);
        }
        Ok(all)
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap().block_on(work)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Whatever the pieces, the pauses of single responses and where they break off: the bytes, in order, once.
        #[test]
        fn in_order_and_complete(
            len in 1usize..40_000, start in 0usize..1000, piece in 1u64..9000, ahead in 0u64..20_000, lanes in 1usize..6,
            delays in prop::collection::vec(0u64..300, 1..8), broken in prop::collection::hash_set(1u64..12, 0..4),
        ) {
            let start = start.min(len - 1);
            let source = faulty(len, move |number| {
                let delay = Fault::Delay(Duration::from_millis(delays[number as usize % delays.len()]));
                let cut = broken.contains(&number).then_some(Fault::CloseAfter(350));
                std::iter::once(delay).chain(cut).collect()
            });
            let pacing: Pacing = Box::new(move |_| Some(Pace { piece, ahead, lanes }));
            // Each may break off four times in a row here.
            let retry = Retry { attempts: 6, ..Retry::default() };
            let mut flow = Flow::new(source, OBJECT, start as u64..len as u64, retry, pacing);
            prop_assert_eq!(run(all(&mut flow)).unwrap(), &bytes(len)[start..]);
        }
    }

    #[test]
    fn no_more_is_under_way_than_the_pace_allows() {
        let source = faulty(10_000, |_| vec![Fault::Delay(Duration::from_secs(1))]);
        let pacing: Pacing = Box::new(|_| Some(Pace { piece: 1000, ahead: 1000, lanes: 9 }));
        let mut flow = Flow::new(source, OBJECT, 0..10_000, Retry::never(), pacing);
        run(async {
            flow.ask();
            assert_eq!(
                flow.asked(),
                2000,
                "the second goes behind one whose bytes are all still to come, not a third"
            );
            while flow.next().await.unwrap().is_some() {
                assert!(flow.pieces.iter().map(Piece::left).sum::<u64>() <= 2000);
            }
        });
    }

    #[test]
    fn a_gate_is_asked_again() {
        let source = faulty(1000, |_| vec![]);
        let asked = AtomicU64::new(0);
        let pacing: Pacing = Box::new(move |_| {
            let open = asked.fetch_add(1, Ordering::Relaxed) >= 3;
            open.then_some(Pace { piece: 600, ahead: 0, lanes: 1 })
        });
        let mut flow = Flow::new(source.clone(), OBJECT, 0..1000, Retry::never(), pacing);
        assert_eq!(run(all(&mut flow)).unwrap(), bytes(1000));
        assert_eq!(source.asked(OBJECT), 2);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_once() {
        let source = faulty(1000, |number| if number == 2 { vec![Fault::Status(404)] } else { vec![] });
        let pacing: Pacing = Box::new(|_| Some(Pace { piece: 400, ahead: 0, lanes: 1 }));
        let mut flow = Flow::new(source, OBJECT, 0..1000, Retry::default(), pacing);
        run(async {
            assert_eq!(flow.next().await.unwrap().unwrap(), bytes(400));
            assert!(matches!(flow.next().await, Err(SourceError::NotFound { .. })));
            assert_eq!(flow.next().await, Ok(None));
        });
    }

    #[test]
    fn windows_of_slow_start() {
        let pacing = slow_start(4, 50_000);
        let sizes: Vec<u64> = [0, 3, 4, 7, 8, 100].map(|n| pacing(n).unwrap().piece).to_vec();
        assert_eq!(sizes, [14_480, 14_480, 28_960, 28_960, 50_000, 50_000]);
    }
}
