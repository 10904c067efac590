//! Part of an object, in order, by range requests that overlap: each has its own connection over HTTP/1.1, or its own stream.
//!
//! How much is asked for ahead of what has come is the caller's choice, again before each request: a background transfer must
//! not stand in front of what is needed now, a young connection is helped by others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pagein_model::Link;
use pagein_model::slow_start::{FIRST_FLIGHT, SEGMENT};
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

/// Asked before each request, with its number from 0 and the bytes that nobody has asked for yet; `None`: not now.
pub(crate) type Pacing = Box<dyn Fn(u32, u64) -> Option<Pace> + Send + Sync>;

/// What a connection is asked for first, 7 packets: less than its window, so that those of four together, 30 packets with the heads of the
/// responses, are no longer than the queue of a slow link. Of 9 packets, one run in four lost the end of a flight at 10 Mbit/s and a queue of
/// 32, and 0.1 to 0.4 s until it was sent again.
pub(crate) const FLIGHT: u64 = FIRST_FLIGHT - 3 * SEGMENT;
/// A transfer of more than so many bandwidth-delay products is not held up by slow start for long (ruff's hot part, 7 of them at
/// 100 Mbit/s x 20 ms: 0.34 s over four connections, 0.26 over one).
const LONG: u64 = 4;
/// A connection leaves slow start when packets are held up by so much more than before: an eighth of the round trip, within these bounds
/// (`HyStart`, RFC 9406, section 4.2).
const HELD_UP: std::ops::RangeInclusive<f64> = 0.004..=0.016;
/// What hold them up are the others' flights: each connection brings three in the second round and then more.
const BURST: f64 = 9.0 * FLIGHT as f64;
/// How often a pacing that said "not now" is asked again.
const AGAIN: Duration = Duration::from_millis(5);
/// A connection whose response has ended takes so long until it can be used again; a request made before that makes another one.
const IDLE_AFTER: Duration = Duration::from_millis(1);

/// Everything in one request.
pub(crate) fn at_once() -> Pacing {
    Box::new(|_, _| Some(Pace { piece: u64::MAX, ahead: 0, lanes: 1 }))
}

/// How many of so many connections are of use for `len` bytes: all, or one where the first flights fill the link, where the link is full for
/// most of the time, so that one alone brings everything in order, or where they would make each other leave slow start.
pub(crate) fn useful(connections: u32, len: u64, link: &Link) -> u32 {
    let product = link.product() as u64;
    let flights = FIRST_FLIGHT.saturating_mul(connections.into());
    let held_up = (link.round_trip.as_secs_f64() / 8.0).clamp(*HELD_UP.start(), *HELD_UP.end());
    let fits = flights < product && BURST <= held_up * link.bandwidth;
    if fits && !is_long(len, product) { connections } else { 1 }
}

/// Whether `len` bytes fill the link for most of the time that they take.
pub(crate) fn is_long(len: u64, product: u64) -> bool {
    len / LONG > product
}

/// Behind the flights that so many connections have brought first ([`Asking::speculate`]): an equal share for each, so that none waits for
/// requests, but no more than what comes until together they fill the link; then as [`shared`].
pub(crate) fn slow_start(connections: u32, product: u64) -> Pacing {
    Box::new(move |number, left| {
        let first = number < connections * 2 && connections > 1;
        // Windows of 2, 4, 8... flights.
        let doublings =
            (product / (FIRST_FLIGHT * u64::from(connections))).checked_ilog2().unwrap_or(0).min(30);
        let until_full = FIRST_FLIGHT * ((2 << doublings) - 2);
        let pace = shared(connections, number, left, product);
        let piece = if first { pace.piece.min(until_full).max(FLIGHT) } else { pace.piece };
        Some(Pace { piece, ..pace })
    })
}

/// An equal share of what is left for each connection, but no more than the link's `product`: what comes first in the object is wanted
/// first, and one that is slow must not hold up the others for long. A single one brings all of it, and begins when what is under
/// way fills the link no more.
pub(crate) fn shared(connections: u32, number: u32, left: u64, product: u64) -> Pace {
    if connections < 2 {
        return Pace { piece: u64::MAX, ahead: product, lanes: usize::MAX };
    }
    let share = left.div_ceil(u64::from(connections - number % connections));
    Pace { piece: share.min(product).max(FLIGHT), ahead: u64::MAX, lanes: connections as usize }
}

/// A part of an object on its way. It asks by itself, whether somebody waits for its bytes or not.
pub(crate) struct Flow {
    start: u64,
    asked: Arc<AtomicU64>,
    end: u64,
    chunks: Chunks,
    task: tokio::task::JoinHandle<()>,
}

type Chunks = mpsc::UnboundedReceiver<Result<Bytes, SourceError>>;

impl Flow {
    /// The bytes `range` of `object`. Must be called within a tokio runtime.
    pub(crate) fn new(
        source: Arc<dyn Source>,
        object: &'static str,
        range: ByteRange,
        retry: Retry,
        pacing: Pacing,
    ) -> Self {
        Asking::new(source, object, range.start, retry).go_on(object, range.end, pacing)
    }

    /// Offset of its first byte in the object.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind the last byte that was asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Offset behind its last byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The next bytes; `None` at the end of the range. After an error there is nothing more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        self.chunks.recv().await.transpose()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The requests of a flow.
pub(crate) struct Asking {
    source: Arc<dyn Source>,
    object: &'static str,
    retry: Retry,
    pieces: VecDeque<Piece>,
    /// What was asked for ends here.
    asked: u64,
    number: u32,
    /// A piece is complete.
    news: Arc<Notify>,
}

/// One request under way.
struct Piece {
    range: ByteRange,
    chunks: Chunks,
    /// Bytes still to come.
    left: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asking {
    fn new(source: Arc<dyn Source>, object: &'static str, start: u64, retry: Retry) -> Self {
        Self { source, object, retry, pieces: VecDeque::new(), asked: start, number: 0, news: Arc::default() }
    }

    /// Asks for the flights of an object, of which nothing is known yet, that so many connections bring beside each other, except for
    /// the first.
    pub(crate) fn speculate(
        source: Arc<dyn Source>,
        object: &'static str,
        retry: Retry,
        connections: u32,
    ) -> Self {
        let mut asking = Self::new(source, object, FLIGHT, retry);
        asking.number = 1;
        (1..connections).for_each(|_| asking.ask_for(FLIGHT));
        asking
    }

    /// Number of requests so far, including that for the first flight.
    pub(crate) fn connections(&self) -> u32 {
        self.number
    }

    /// The object ends here: what was asked for behind it does not come.
    pub(crate) fn ends_at(mut self, end: u64) -> Self {
        while let Some(piece) = self.pieces.back().filter(|piece| piece.range.end > end) {
            self.asked = piece.range.start;
            self.pieces.pop_back();
        }
        self.asked = self.asked.min(end);
        self
    }

    /// Goes on up to `end` with `object`, which begins with the same bytes.
    pub(crate) fn go_on(mut self, object: &'static str, end: u64, pacing: Pacing) -> Flow {
        self.object = object;
        let start = self.pieces.front().map_or(self.asked, |piece| piece.range.start);
        let asked = Arc::new(AtomicU64::new(0));
        self.ask(end, &pacing, &asked);
        let (tell, chunks) = mpsc::unbounded_channel();
        let task = tokio::spawn(self.run(end, pacing, tell, Arc::clone(&asked)));
        Flow { start, asked, end, chunks, task }
    }

    /// Makes the requests that may be made now.
    fn ask(&mut self, end: u64, pacing: &Pacing, asked: &AtomicU64) {
        while self.asked < end
            && let Some(pace) = pacing(self.number, end - self.asked)
        {
            let (count, left) = self.under_way();
            if count >= pace.lanes || count > 0 && left > pace.ahead {
                break;
            }
            self.ask_for(pace.piece.clamp(1, end - self.asked));
        }
        asked.store(self.asked, Ordering::Relaxed);
    }

    /// Pieces under way, and how much is still to come of them.
    fn under_way(&self) -> (usize, u64) {
        let under_way = self.pieces.iter().map(Piece::left).filter(|&left| left > 0);
        under_way.fold((0, 0), |(count, sum), left| (count + 1, sum + left))
    }

    fn ask_for(&mut self, len: u64) {
        let range = self.asked..self.asked + len;
        self.asked = range.end;
        self.number += 1;
        let (tell, chunks) = mpsc::unbounded_channel();
        let left = Arc::new(AtomicU64::new(len));
        let delivery = Delivery {
            source: Arc::clone(&self.source),
            object: self.object,
            retry: self.retry.clone(),
            left: Arc::clone(&left),
            tell,
        };
        let (news, wanted) = (Arc::clone(&self.news), range.clone());
        let task = tokio::spawn(async move {
            delivery.run(wanted).await;
            tokio::time::sleep(IDLE_AFTER).await;
            news.notify_one();
        });
        self.pieces.push_back(Piece { range, chunks, left, task });
    }

    /// Passes the bytes on in order, and asks for more as its time comes.
    async fn run(
        mut self,
        end: u64,
        pacing: Pacing,
        tell: mpsc::UnboundedSender<Result<Bytes, SourceError>>,
        asked: Arc<AtomicU64>,
    ) {
        loop {
            self.ask(end, &pacing, &asked);
            let news = Arc::clone(&self.news);
            let Some(front) = self.pieces.front_mut() else {
                if self.asked >= end {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            tokio::select! {
                chunk = front.chunks.recv() => match chunk {
                    Some(chunk) => {
                        let is_last = chunk.is_err();
                        if tell.send(chunk).is_err() || is_last {
                            return;
                        }
                    }
                    None => drop(self.pieces.pop_front()),
                },
                () = news.notified() => {}
                () = tokio::time::sleep(AGAIN), if self.asked < end => {}
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
            let pacing: Pacing = Box::new(move |_, _| Some(Pace { piece, ahead, lanes }));
            // Each may break off four times in a row here.
            let retry = Retry { attempts: 6, ..Retry::default() };
            let flow = async { all(&mut Flow::new(source, OBJECT, start as u64..len as u64, retry, pacing)).await };
            prop_assert_eq!(run(flow).unwrap(), &bytes(len)[start..]);
        }
    }

    #[test]
    fn no_more_is_under_way_than_the_pace_allows() {
        let source = faulty(10_000, |_| vec![Fault::Delay(Duration::from_secs(1))]);
        let pacing: Pacing = Box::new(|_, _| Some(Pace { piece: 1000, ahead: 1000, lanes: 9 }));
        run(async {
            let mut flow = Flow::new(source, OBJECT, 0..10_000, Retry::never(), pacing);
            // The second goes behind one whose bytes are all still to come, not a third.
            for (seconds, asked) in [(0, 2000), (1, 4000), (2, 6000)] {
                tokio::time::sleep(Duration::from_millis(1000 * seconds.min(1) + 10)).await;
                assert_eq!(flow.asked(), asked, "after {seconds} s, whether somebody listens or not");
            }
            assert_eq!(all(&mut flow).await.unwrap(), bytes(10_000));
        });
    }

    #[test]
    fn what_was_asked_for_behind_the_end_is_not_used() {
        for len in [FLIGHT, FLIGHT + 5, 3 * FLIGHT, 10 * FLIGHT] {
            let source = faulty(len as usize, |_| vec![]);
            let got = run(async {
                let asking = Asking::speculate(source.clone(), OBJECT, Retry::never(), 4);
                tokio::time::sleep(Duration::from_secs(1)).await;
                all(&mut asking.ends_at(len).go_on(OBJECT, len, at_once())).await
            });
            assert_eq!(got.unwrap(), &bytes(len as usize)[FLIGHT as usize..], "{len}");
        }
    }

    #[test]
    fn a_gate_is_asked_again() {
        let source = faulty(1000, |_| vec![]);
        let asked = AtomicU64::new(0);
        let pacing: Pacing = Box::new(move |_, _| {
            let open = asked.fetch_add(1, Ordering::Relaxed) >= 3;
            open.then_some(Pace { piece: 600, ahead: 0, lanes: 1 })
        });
        let flow =
            async { all(&mut Flow::new(source.clone(), OBJECT, 0..1000, Retry::never(), pacing)).await };
        assert_eq!(run(flow).unwrap(), bytes(1000));
        assert_eq!(source.asked(OBJECT), 2);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_once() {
        let source = faulty(1000, |number| if number == 2 { vec![Fault::Status(404)] } else { vec![] });
        let pacing: Pacing = Box::new(|_, _| Some(Pace { piece: 400, ahead: 0, lanes: 1 }));
        run(async {
            let mut flow = Flow::new(source, OBJECT, 0..1000, Retry::default(), pacing);
            assert_eq!(flow.next().await.unwrap().unwrap(), bytes(400));
            assert!(matches!(flow.next().await, Err(SourceError::NotFound { .. })));
            assert_eq!(flow.next().await, Ok(None));
        });
    }

    #[test]
    fn connections_share_until_they_fill_the_link_and_then_its_product() {
        // Four flights are 58 kB: after another two windows, of two and of four flights, the link of 250 kB is full.
        let pacing = slow_start(4, 250_000);
        let piece = |number, left| pacing(number, left).unwrap().piece;
        assert_eq!(piece(4, 100_000), 25_000, "a share, if that is less");
        assert_eq!(piece(7, 25_000), 25_000);
        assert_eq!(piece(4, 1_000_000), 6 * FIRST_FLIGHT);
        assert_eq!(piece(8, 10_000_000), 250_000);
        assert_eq!(piece(10, 100_000), 50_000);
        assert_eq!(
            slow_start(1, 100_000)(1, 5).unwrap().piece,
            u64::MAX,
            "one connection does that by itself"
        );
    }

    #[test]
    fn connections_are_of_use_while_windows_hold_up_a_transfer_and_not_each_other() {
        let on = |megabytes: f64, ms, len| {
            let link = Link { bandwidth: megabytes * 1e6, round_trip: Duration::from_millis(ms) };
            useful(4, len, &link)
        };
        assert_eq!([on(12.5, 100, 480_000), on(125.0, 20, 480_000), on(125.0, 100, 2_000_000)], [4; 3]);
        assert_eq!(on(1.25, 20, 480_000), 1, "the first flights fill it");
        assert_eq!(on(12.5, 100, 6_000_000), 1, "it is full most of the time");
        assert_eq!(on(12.5, 20, 480_000), 1, "their bursts are longer than an eighth of the round trip");
    }

    #[test]
    fn shares_of_the_rest_are_equal() {
        let source = faulty(1 << 20, |_| vec![Fault::Delay(Duration::from_millis(10))]);
        let pacing: Pacing = Box::new(|number, left| Some(shared(2, number, left, 1 << 20)));
        let flow =
            async { all(&mut Flow::new(source.clone(), OBJECT, 0..1 << 20, Retry::never(), pacing)).await };
        assert_eq!(run(flow).unwrap(), bytes(1 << 20));
        assert_eq!(source.asked(OBJECT), 2, "a half each");
    }
}
