//! The rest of the program: the frames of `whole` behind the hot ones, so that a job that nobody recorded is bounded by the download of
//! the whole, and a later start needs no network.
//!
//! It must not keep anything that is needed now waiting for long. All of it follows the hot part at once, in the same flow of requests
//! (`flow`), where the model says that it is worth its bytes and its work; or as soon as demands have cost, or are expected to cost, a
//! third of it. Before that it asks for a bandwidth-delay product at a time: one at a time beside the demands when these show that this is
//! another job than the recorded ones, else only when nothing has been demanded for as long as that occupies the link. What comes is unpacked
//! by a thread that yields the processor, in order, since each frame continues the one before.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pagein_image::{Frame, Manifest, PageNo, object};
use pagein_model::cost::worth_prefetching;
use pagein_model::{Link, Shape, UNKNOWN_LINK};
use pagein_source::WireStats;
use tokio::sync::{Notify, watch};

use crate::cache::Cache;
use crate::flow::{self, Asking, Flow, Pace};
use crate::keeper::Keeper;
use crate::lazy::Lazy;
use crate::links;
use crate::processes::lock;
use crate::ranged::Ranged;
use crate::stream::ObjectStream;
use crate::trouble::Trouble;
use crate::worker::Worker;

/// Without a sign that more is needed the fill begins so long after the hot stream has ended: starting is over then, and what the
/// program does with both processors is not disturbed.
const BEGIN_AFTER: Duration = Duration::from_millis(500);
/// Pieces are so much longer than the link's measured product: what the pieces themselves hold up would else be taken for the link's rate.
/// On a link that they fill it is a queue of a quarter of a round trip (the gain of BBR's probing, draft-ietf-ccwg-bbr, 5.3.3).
const GROWTH: f64 = 1.25;
/// How often to look how far the hot stream has come, when there is a reason to follow it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// So many faults on pages that are not hot make it another job: two runs of one differ by two pages at most (node).
const EVIDENCE: u32 = 3;
/// Probability that a run is of another job than the recorded ones, as far as one can know.
const OTHER_JOB: f64 = 0.5;
/// Fewer bytes than these tell too little of a link to be remembered.
const REMEMBERED_BYTES: u64 = 128 << 10;
/// The rest is bought when demands have cost one part of so many of it.
const RENT: u32 = 3;
/// While all of the rest is on its way to another job than the recorded ones, at most one part of so many of it is asked for once more.
const OVERTAKEN: u64 = 64;
/// A hot stream of no more than so many bandwidth-delay products is over before it fills the link for long.
const BESIDE: f64 = 1.5;
/// In [`Plan::frame_of`]: a page that the fill does not bring.
const NONE: u32 = u32::MAX;

/// What `--policy auto` has besides the stream.
pub(crate) struct Fill {
    cache: Cache,
    /// The source knows ranges; otherwise `whole` comes in one response, and every page that is not hot waits for it.
    ranged: Arc<Ranged>,
    /// The host, if there is one, and what an earlier run found out about the way to it.
    host: Option<String>,
    remembered: Option<Link>,
    keeper: Keeper,
    demands: Mutex<Demands>,
    cold_faults: AtomicU32,
    /// Enough of what is cold was demanded.
    evidence: Notify,
    running: AtomicBool,
    /// When the hot stream ended.
    alone: watch::Sender<Option<Instant>>,
    /// All of the rest has been asked for: it comes at the link's rate.
    flows: AtomicBool,
    /// Bytes that were demanded although they were on their way with it.
    overtaken: AtomicU64,
    /// Offset in `whole` up to which the fill has received.
    received: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU32,
    plan: OnceLock<Plan>,
}

/// The frames that are to come.
struct Plan {
    /// Offset in `whole` of the first.
    start: u64,
    frames: Vec<Coming>,
    /// For each page its frame in that list.
    frame_of: Vec<u32>,
}

struct Coming {
    frame: Frame,
    pages: Vec<PageNo>,
    /// Offset in `whole` behind it.
    end: u64,
}

/// Requests that somebody waits for.
#[derive(Default)]
struct Demands {
    waiting: u32,
    since: Option<Instant>,
    /// When the last one ended.
    ended: Option<Instant>,
    /// Time during which there was at least one.
    spent: Duration,
}

impl Fill {
    /// For images from `source`; `ranged` says whether that knows ranges.
    pub(crate) fn new(cache: &Cache, source: &str, ranged: Arc<Ranged>) -> Self {
        let host = links::host(source).map(str::to_owned);
        Self {
            cache: cache.clone(),
            ranged,
            remembered: host.as_deref().and_then(|host| links::recall(cache.root(), host)),
            host,
            keeper: Keeper::default(),
            demands: Mutex::default(),
            cold_faults: AtomicU32::new(0),
            evidence: Notify::new(),
            running: AtomicBool::new(false),
            alone: watch::Sender::new(None),
            flows: AtomicBool::new(false),
            overtaken: AtomicU64::new(0),
            received: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            connections: AtomicU32::new(1),
            plan: OnceLock::new(),
        }
    }

    pub(crate) fn stream_ended(&self) {
        self.alone.send_replace(Some(Instant::now()));
    }

    /// Waits for a sign that the rest is needed, or until it is worth its bytes without; else for some time after the hot stream.
    async fn time_has_come(&self, lazy: &Lazy) {
        let mut alone = self.alone.subscribe();
        loop {
            if rest_is_worth(lazy) {
                return;
            }
            let is_alone = alone.borrow_and_update().is_some();
            tokio::select! {
                () = self.evidence.notified() => return,
                () = tokio::time::sleep(BEGIN_AFTER), if is_alone => return,
                _ = alone.changed(), if !is_alone => {}
                () = tokio::time::sleep(LOOK_AGAIN), if !is_alone => {}
            }
        }
    }

    /// All of the rest comes from now on, at the link's rate.
    fn flow_on(&self, lazy: &Lazy) {
        if let Some(plan) = self.plan.get().filter(|_| !self.flows.swap(true, Ordering::Relaxed)) {
            let mut table = lock(&lazy.table);
            plan.frames.iter().for_each(|frame| table.expect(&frame.pages));
        }
    }

    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    fn plan(&self, lazy: &Lazy) -> &Plan {
        self.plan.get_or_init(|| {
            let plan = plan(lazy);
            self.received.store(plan.start, Ordering::Relaxed);
            plan
        })
    }

    /// Whether the source knows ranges, as soon as that is known.
    pub(crate) async fn is_ranged(&self) -> bool {
        self.ranged.get().await
    }

    pub(crate) fn remembered(&self) -> Option<Link> {
        self.remembered
    }

    /// Notes what was found out about the link, for the next run.
    pub(crate) fn remember(&self, wire: &WireStats) {
        let enough = wire.bytes >= REMEMBERED_BYTES;
        if let (Some(host), Some(bandwidth), Some(round_trip), true) =
            (&self.host, wire.bandwidth, wire.round_trip(), enough)
        {
            links::remember(self.cache.root(), host, &Link { bandwidth: bandwidth as f64, round_trip });
        }
    }

    /// Stored bytes that the fill brought.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Somebody waits for a page that is not hot.
    pub(crate) fn cold_fault(&self) {
        let faults = self.cold_faults.fetch_add(1, Ordering::Relaxed) + 1;
        // Without ranges there is no other way to the page.
        if faults >= EVIDENCE || self.ranged.known() == Some(false) {
            self.evidence.notify_one();
        }
    }

    /// Whether so much was demanded that is not hot that this must be another job than the recorded ones.
    fn is_evident(&self) -> bool {
        self.cold_faults.load(Ordering::Relaxed) >= EVIDENCE
    }

    /// A request that somebody waits for begins; it ends when the result is dropped.
    pub(crate) fn demand(&self) -> Demand<'_> {
        let mut demands = lock(&self.demands);
        demands.waiting += 1;
        demands.since.get_or_insert_with(Instant::now);
        Demand(self)
    }

    /// Bytes that come before a page that the fill brings, where `streamed` of `hot` have come; `None` if it does not bring it.
    pub(crate) fn bytes_ahead(&self, page: PageNo, streamed: u64) -> Option<u64> {
        let plan = self.plan.get().filter(|_| self.ranged.known() != Some(false))?;
        let frame = plan.frames.get(plan.frame_of[page.index()] as usize)?;
        let received = self.received.load(Ordering::Relaxed).max(streamed);
        Some(frame.end.saturating_sub(received))
    }

    /// Whether all of the rest is on its way, at the link's rate.
    pub(crate) fn flows(&self) -> bool {
        self.flows.load(Ordering::Relaxed)
    }

    /// Whether so many bytes that are on their way may be asked for once more: what comes twice delays all the rest, which must not take
    /// much longer than a download. The few pages that another run of a recorded job touches are not worth waiting for.
    pub(crate) fn may_overtake(&self, bytes: u64) -> bool {
        let Some(plan) = self.plan.get().filter(|_| self.is_evident()) else { return true };
        let rest: u64 = plan.frames.last().map_or(0, |frame| frame.end - plan.start);
        let before = self.overtaken.fetch_add(bytes, Ordering::Relaxed);
        let may = before + bytes <= rest / OVERTAKEN;
        if !may {
            self.overtaken.fetch_sub(bytes, Ordering::Relaxed);
        }
        may
    }

    /// Whether a piece may be asked for now. `quiet` is how long nothing must have been demanded.
    fn may_ask(&self, quiet: Duration) -> bool {
        let demands = lock(&self.demands);
        demands.waiting == 0 && demands.ended.is_none_or(|ended| ended.elapsed() >= quiet)
    }

    /// Whether demands, those included that are to be `expected`, take so long that nothing is held back any more, where the `rest`
    /// takes this long at the link's rate.
    ///
    /// That is the rule of who rents skis, who buys them when the rent has cost as much; but a run that has demanded for a while
    /// will go on to (what has lasted long lasts long), so a third is enough.
    fn is_overdue(&self, rest: Duration, expected: Duration) -> bool {
        (lock(&self.demands).spent + expected) * RENT >= rest
    }

    /// How long it is going to take to demand what this job needs, as far as one can know.
    fn expected(&self, lazy: &Lazy, link: &Link) -> Duration {
        let next = link.round_trip * 2;
        if !self.is_evident() {
            return next;
        }
        next.max(pagein_model::on_demand(&shape(lazy), link))
    }

    /// Begins the complete file.
    fn open(&self, manifest: &Manifest) {
        self.keeper.open(&self.cache.complete_path(manifest));
    }

    /// Gives it its name, if it is right.
    fn publish(&self, manifest: &Manifest) -> Result<Option<PathBuf>, Trouble> {
        self.keeper.publish(&self.cache, manifest)
    }

    /// Keeps pages of the program file for the complete file. Their bytes must be the file's own.
    pub(crate) fn keep(&self, pages: &[PageNo], raw: Vec<u8>) {
        self.keeper.keep(pages, raw);
    }
}

/// A request that somebody waits for.
pub(crate) struct Demand<'a>(&'a Fill);

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        let mut demands = lock(&self.0.demands);
        demands.waiting -= 1;
        if demands.waiting == 0 {
            let now = Instant::now();
            let since = demands.since.take().unwrap_or(now);
            demands.spent += now.saturating_duration_since(since);
            demands.ended = Some(now);
        }
    }
}

/// Lets the fill begin when its time has come; nothing happens without `--policy auto`, or the second time.
pub(crate) fn start(lazy: &Arc<Lazy>) {
    let Some(fill) = &lazy.fill else { return };
    if !fill.running.swap(true, Ordering::SeqCst) && !fill.plan(lazy).frames.is_empty() {
        let lazy = Arc::clone(lazy);
        lazy.runtime.clone().spawn(async move { run(&lazy).await });
    }
}

/// The hot object over the connections that have been asked for its first flights, as many as are of use, and behind it the rest as its time
/// comes: in one response, if it is one connection and the rest is worth its bytes.
///
/// What is long comes over one connection alone: bursts of several delay each other, which each takes for a full link (`HyStart`, RFC 9406) and
/// leaves slow start; from then on they are slow for seconds (node's rest at 100 Mbit/s x 100 ms: 4.3 s over four, 2.5 over one).
pub(crate) fn flow(lazy: &Arc<Lazy>, asking: Asking, link: &Link) -> Flow {
    let product = link.product() as u64;
    let (hot_end, end) = (lazy.remote.hot_end(), lazy.remote.whole_end());
    let len = if rest_is_worth(lazy) { end } else { hot_end };
    let connections = flow::useful(asking.connections(), len, link);
    let hot = flow::slow_start(connections, product);
    let Some(fill) = &lazy.fill else { return asking.go_on(object::HOT, hot_end, hot) };
    fill.connections.store(connections, Ordering::Relaxed);
    let is_apart = connections > 1 && flow::is_long(end - hot_end, product);
    if is_apart || fill.ranged.known() != Some(true) || fill.plan(lazy).frames.is_empty() {
        return asking.go_on(object::HOT, hot_end, hot);
    }
    fill.running.store(true, Ordering::SeqCst);
    let lazy = Arc::clone(lazy);
    let pacing = move |number, left| {
        let hot_left = u64::saturating_sub(left, end - hot_end);
        if hot_left == 0 {
            return pace(&lazy, number, left, true);
        }
        let pace = hot(number, hot_left)?;
        if connections == 1 && rest_is_worth(&lazy) {
            lazy.fill.as_ref()?.flow_on(&lazy);
            return Some(pace);
        }
        Some(Pace { piece: pace.piece.min(hot_left), ..pace })
    };
    asking.go_on(object::WHOLE, end, Box::new(pacing))
}

/// Receives what such a flow brings behind the hot object.
pub(crate) async fn receive_behind(lazy: &Arc<Lazy>, stream: ObjectStream) {
    let Some(fill) = &lazy.fill else { return };
    complete(lazy, fill, stream, true).await;
}

/// Nothing of the rest comes any more, unless it is demanded.
pub(crate) fn give_up(lazy: &Arc<Lazy>) {
    let frames = lazy.fill.iter().filter_map(|fill| fill.plan.get()).flat_map(|plan| &plan.frames);
    frames.for_each(|frame| lazy.no_longer_expected(&frame.pages));
}

/// Fetches the index of the groups before one is needed, if a round trip saved with this probability is worth its bytes.
pub(crate) async fn fetch_index(lazy: Arc<Lazy>) {
    let bytes = f64::from(lazy.remote.manifest.groups.index_len);
    let is_worth = lazy.link().is_some_and(|link| worth_prefetching(OTHER_JOB, bytes, &link));
    if is_worth {
        // Whoever needs it asks again.
        let _ = lazy.remote.group_index().await;
    }
}

/// Whether all of the rest is to follow the hot part without a sign that it is needed.
fn rest_is_worth(lazy: &Lazy) -> bool {
    // An earlier run has been here: what is likely is in the cache.
    if lazy.has_kept_frames() {
        return false;
    }
    lazy.link().is_some_and(|link| pagein_model::rest_is_worth(&shape(lazy), &link))
}

/// Whether the connections of the hot stream are there for others.
pub(crate) fn leaves_connections(lazy: &Lazy) -> bool {
    let is_free = |fill: &Fill| fill.alone.borrow().is_some() && !fill.flows();
    lazy.fill.as_ref().is_none_or(|fill| is_free(fill) && !rest_is_worth(lazy))
}

fn shape(lazy: &Lazy) -> Shape {
    Shape::of(&lazy.remote.manifest, lazy.remote.frame_offsets[0])
}

fn plan(lazy: &Lazy) -> Plan {
    let manifest = &lazy.remote.manifest;
    let all = manifest.whole_pages();
    let mut frame_of = vec![NONE; all.len()];
    let mut rest = &all[manifest.hot_pages.len()..];
    let start = lazy.remote.hot_end();
    let (mut frames, mut end) = (Vec::new(), start);
    for frame in &manifest.rest_frames {
        let (pages, after) = rest.split_at(frame.pages as usize);
        rest = after;
        end += u64::from(frame.stored_len);
        for page in pages {
            frame_of[page.index()] = frames.len() as u32;
        }
        frames.push(Coming { frame: *frame, pages: pages.to_vec(), end });
    }
    Plan { start, frames, frame_of }
}

async fn run(lazy: &Arc<Lazy>) {
    let Some(fill) = &lazy.fill else { return };
    fill.time_has_come(lazy).await;
    // Not before: a run that has all it needs in the cache asks for nothing.
    let ranged = fill.is_ranged().await;
    if !ranged && lazy.remote.manifest.page_files {
        return;
    }
    let (remote, source) = (&lazy.remote, Arc::clone(&lazy.remote.source));
    let (start, end) = (remote.hot_end(), remote.whole_end());
    if ranged {
        let paced = Arc::clone(lazy);
        let pacing = Box::new(move |number, left| pace(&paced, number, left, false));
        // Where several have brought the hot object, another one brings the rest.
        let source = if fill.connections() > 1 { source.beside().unwrap_or(source) } else { source };
        fill.connections.store(1, Ordering::Relaxed);
        let flow = Flow::new(Arc::clone(&source), object::WHOLE, start..end, remote.retry.clone(), pacing);
        let stream = ObjectStream::of_flow(source, object::WHOLE, remote.retry.clone(), flow);
        return complete(lazy, fill, stream, ranged).await;
    }
    // There is no other way to these pages.
    fill.flow_on(lazy);
    let mut stream = ObjectStream::new(source, object::WHOLE, remote.retry.clone());
    stream.end = Some(end);
    match skip(&mut stream, start).await {
        Ok(()) => complete(lazy, fill, stream, ranged).await,
        Err(trouble) => lose(lazy, fill, &trouble),
    }
}

/// Without ranges nothing else can bring the pages of the rest.
fn lose(lazy: &Lazy, fill: &Fill, trouble: &Trouble) {
    lazy.lose(fill.plan(lazy).frames[0].pages[0], trouble);
}

/// How much of the rest is to be asked for now. A `joint` flow brings the hot object as well, and may go on before that is all here.
fn pace(lazy: &Lazy, number: u32, left: u64, joint: bool) -> Option<Pace> {
    let fill = lazy.fill.as_ref()?;
    let link = lazy.link().unwrap_or(UNKNOWN_LINK);
    let alone = *fill.alone.borrow();
    let connections = fill.connections();
    // What fills the link for long must not share it.
    let beside = joint && connections > 1 && lazy.remote.hot_end() as f64 <= BESIDE * link.product();
    if alone.is_none() && !beside {
        return None;
    }
    let rest = link.transfer_time(left);
    if fill.flows() || rest_is_worth(lazy) || fill.is_overdue(rest, fill.expected(lazy, &link)) {
        // Demands that have just taken a connection of the stream give it back; a new one would be slower than to wait for it.
        let has_taken = connections > 1 && !fill.flows();
        let taken = if has_taken { lock(&fill.demands).waiting as usize } else { 0 };
        let lanes = (connections as usize).saturating_sub(taken);
        if lanes == 0 {
            return None;
        }
        // The quickest way there is, and pages that are demanded still come beside it.
        fill.flow_on(lazy);
        let shared = flow::shared(connections, number, left, link.product() as u64);
        return Some(Pace { lanes: shared.lanes.min(lanes), ..shared });
    }
    let pace = pagein_model::fill(&link);
    if fill.is_evident() {
        // One at a time has its turn while a demand travels, and is less than a round trip in front of it.
        return alone.map(|_| Pace { piece: pace.piece, ahead: 0, lanes: 1 });
    }
    let piece = (pace.piece as f64 * GROWTH) as u64;
    let is_time = alone.is_some_and(|since| since.elapsed() >= BEGIN_AFTER) && fill.may_ask(pace.quiet);
    is_time.then_some(Pace { piece, ahead: link.product() as u64, lanes: 2 })
}

/// Receives the rest from `stream`, and puts the complete file together.
async fn complete(lazy: &Arc<Lazy>, fill: &Fill, stream: ObjectStream, ranged: bool) {
    // Without a thread there is no fill: pages still come on demand.
    let received = match Worker::start() {
        Ok(worker) => receive(lazy, fill, stream, &worker).await.map(|()| Some(worker)),
        Err(_) => Ok(None),
    };
    // The complete file holds the hot pages, too.
    let _ = fill.alone.subscribe().wait_for(Option::is_some).await;
    match received {
        Err(trouble) if !ranged => return lose(lazy, fill, &trouble),
        Ok(Some(worker)) => {
            let shared = Arc::clone(lazy);
            let publish = move || shared.fill.as_ref().map(|fill| fill.publish(&shared.remote.manifest));
            // A full disk, say, is not the program's problem: the next run fetches again.
            let _ = worker.give(publish).await;
        }
        // The reason of a failure does not matter yet: what is waited for is requested again, and that fails with a reason.
        _ => {}
    }
    give_up(lazy);
}

async fn receive(
    lazy: &Arc<Lazy>,
    fill: &Fill,
    mut stream: ObjectStream,
    worker: &Worker,
) -> Result<(), Trouble> {
    let plan = fill.plan(lazy);
    let opener = Arc::clone(lazy);
    drop(worker.give(move || opener.fill.as_ref().map(|fill| fill.open(&opener.remote.manifest))));
    let mut expected = 0;
    let mut installing = Vec::new();
    for (position, frame) in plan.frames.iter().enumerate() {
        let len = u64::from(frame.frame.stored_len);
        let mut stored = Vec::with_capacity(len as usize);
        while (stored.len() as u64) < len {
            // What has been asked for comes without further ado: who needs it now had better wait for it.
            while expected < plan.frames.len() && plan.frames[expected].end <= stream.asked() {
                lock(&lazy.table).expect(&plan.frames[expected].pages);
                expected += 1;
            }
            let more = stream.take_some(len as usize - stored.len()).await?;
            fill.bytes.fetch_add(more.len() as u64, Ordering::Relaxed);
            fill.received.fetch_add(more.len() as u64, Ordering::Relaxed);
            stored.extend_from_slice(&more);
        }
        let installer = Arc::clone(lazy);
        // Not waited for: what has come must be known to have come, or it is demanded again.
        installing.push(worker.give(move || install(&installer, position, &stored)));
    }
    for installed in installing {
        installed.await.unwrap_or(Ok(()))?;
    }
    Ok(())
}

/// Drops the first `len` bytes of an object that cannot be had without them.
async fn skip(stream: &mut ObjectStream, len: u64) -> Result<(), Trouble> {
    let mut left = len as usize;
    while left > 0 {
        left -= stream.take_some(left).await?.len();
    }
    Ok(())
}

/// Puts one frame behind the hot ones where its pages belong.
fn install(lazy: &Lazy, position: usize, stored: &[u8]) -> Result<(), Trouble> {
    let Some(plan) = lazy.fill.as_ref().and_then(|fill| fill.plan.get()) else { return Ok(()) };
    let Coming { frame, pages, .. } = &plan.frames[position];
    let number = lazy.remote.manifest.hot_frames.len() + position;
    match lazy.unpack(number, frame, stored, pages, object::WHOLE)? {
        Some(unpacked) => lazy.install_and_keep(pages, unpacked),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is written to it.
    fn cache() -> Cache {
        Cache::open(tempfile::tempdir().unwrap().path()).unwrap()
    }

    fn fill() -> Fill {
        let source = pagein_testkit::MemorySource::new([("x", "y")]);
        Fill::new(&cache(), "http://host/image", Arc::new(Ranged::new(Arc::new(source))))
    }

    #[test]
    fn demands_come_first() {
        let fill = fill();
        let quiet = Duration::from_secs(100);
        assert!(fill.may_ask(quiet), "nothing was demanded yet");
        let demand = fill.demand();
        assert!(!fill.may_ask(quiet));
        drop(demand);
        assert!(!fill.may_ask(quiet), "just now");
        assert!(fill.may_ask(Duration::ZERO), "long enough ago");
    }

    #[test]
    fn demands_that_took_a_third_of_the_rest_lose_their_privilege() {
        let fill = fill();
        drop(fill.demand());
        lock(&fill.demands).spent = Duration::from_secs(7);
        let _demand = fill.demand();
        let is_overdue = |rest, next| fill.is_overdue(Duration::from_secs(rest), Duration::from_secs(next));
        assert!(is_overdue(21, 0) && !is_overdue(22, 0));
        assert!(is_overdue(24, 1), "the next demand takes as long as that");
    }

    #[test]
    fn overlapping_demands_count_their_time_once() {
        let fill = fill();
        let (first, second) = (fill.demand(), fill.demand());
        drop(first);
        assert_eq!(lock(&fill.demands).spent, Duration::ZERO);
        drop(second);
        let demands = lock(&fill.demands);
        assert!(demands.spent > Duration::ZERO && demands.waiting == 0 && demands.since.is_none());
    }
}
