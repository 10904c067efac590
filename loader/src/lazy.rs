//! The pager of a running program: faults in, pages out.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use pagein_image::{PAGE_SIZE, PageNo};
use pagein_model::{Link, Policy};
use pagein_uffd::MemoryFile;

use crate::faults::{Fault, Pager};
use crate::processes::{Processes, Waiter, lock};
use crate::remote::{Remote, Unit};
use crate::stats::Stats;
use crate::stream::ObjectStream;
use crate::table::{Answer, PageState, PageTable};
use crate::tell::{MemoryId, say, tell};
use crate::trouble::Trouble;

/// Everything that the threads of a pager share.
pub(crate) struct Lazy {
    pub(crate) remote: Remote,
    pub(crate) policy: Policy,
    pub(crate) memory: MemoryFile,
    pub(crate) memory_id: MemoryId,
    pub(crate) table: Mutex<PageTable<Waiter>>,
    pub(crate) processes: OnceLock<Arc<Processes>>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) stream: StreamProgress,
    in_flight: Mutex<HashSet<Unit>>,
    /// Somebody is saying that the source is lost.
    losing: AtomicBool,
    /// It has been said.
    lost: AtomicBool,
    report: Mutex<Option<Report>>,
}

/// How far the hot stream is.
#[derive(Debug)]
pub(crate) struct StreamProgress {
    started: Instant,
    received: AtomicU64,
    /// Microseconds after `started` at which the last bytes came.
    last_us: AtomicU64,
}

/// What is to be reported when the program ends.
pub(crate) struct Report {
    pub(crate) pipe: std::fs::File,
    pub(crate) stats: Stats,
}

impl Lazy {
    pub(crate) fn new(
        remote: Remote,
        policy: Policy,
        memory: MemoryFile,
        memory_id: MemoryId,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let table = Mutex::new(PageTable::new(remote.manifest.page_count()));
        let stream = StreamProgress {
            started: Instant::now(),
            received: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
        };
        Self {
            remote,
            policy,
            memory,
            memory_id,
            table,
            processes: OnceLock::new(),
            runtime,
            stream,
            in_flight: Mutex::default(),
            losing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            report: Mutex::new(None),
        }
    }

    /// Puts what is to be reported in place, just before the program runs.
    pub(crate) fn set_report(&self, report: Report) {
        *lock(&self.report) = Some(report);
    }

    /// Puts pages into the memory file and wakes who waits for them.
    pub(crate) fn install(&self, pages: &[PageNo], raw: &[u8]) -> Result<(), Trouble> {
        let runs = {
            let table = lock(&self.table);
            runs(pages, |page| table.state(page) == PageState::Present)
        };
        for (first, count) in runs {
            let bytes = &raw[first * PAGE_SIZE..(first + count) * PAGE_SIZE];
            self.memory
                .write(pages[first].offset().0, bytes)
                .map_err(Trouble::system("cannot put pages into memory (is it full?)"))?;
        }
        let woken = lock(&self.table).arrived(pages);
        for waiter in woken {
            waiter.wake();
        }
        Ok(())
    }

    /// Decodes and installs one hot frame.
    pub(crate) fn install_frame(&self, number: usize, stored: &[u8]) -> Result<(), Trouble> {
        let frame = &self.remote.manifest.hot_frames[number];
        let raw = frame.decode(stored, &format!("hot frame {number}")).map_err(|error| {
            let object = self.remote.source.describe(pagein_image::object::HOT);
            Trouble::Image { object, error }
        })?;
        self.install(self.remote.frame_pages(number), &raw)
    }

    /// Reads hot frames from `stream` and installs them, from number `from` on up to `to`.
    pub(crate) async fn receive_frames(
        &self,
        stream: &mut ObjectStream,
        from: usize,
        to: usize,
    ) -> Result<(), Trouble> {
        for number in from..to {
            let len = self.remote.manifest.hot_frames[number].stored_len as usize;
            let stored = stream.take(len).await?;
            self.stream.received.store(stream.received(), Ordering::Relaxed);
            self.stream.last_us.store(self.stream.started.elapsed().as_micros() as u64, Ordering::Relaxed);
            self.install_frame(number, &stored)?;
        }
        Ok(())
    }

    /// Receives the rest of the hot object while the program runs. What it fails to bring is requested when it is needed.
    pub(crate) async fn receive_rest(self: Arc<Self>, mut stream: ObjectStream) {
        let first = self.remote.manifest.exec_frames as usize;
        let count = self.remote.manifest.hot_frames.len();
        // The reason does not matter yet: what is waited for is requested again, and that fails with a reason.
        let _ = self.receive_frames(&mut stream, first, count).await;
        let waited = lock(&self.table).stream_ended();
        for page in waited {
            self.demand(page);
        }
    }

    /// What the hot stream tells about the link; `None` before there is anything to tell.
    fn link(&self) -> Option<Link> {
        let round_trip = self.remote.source.wire().first_byte_min?;
        let received = self.stream.received.load(Ordering::Relaxed);
        let time = Duration::from_micros(self.stream.last_us.load(Ordering::Relaxed));
        (received > 0 && !time.is_zero())
            .then(|| Link { bandwidth: received as f64 / time.as_secs_f64(), round_trip })
    }

    /// Whether a page of the stream is so far ahead that it is better requested.
    fn overtakes(&self, page: PageNo) -> bool {
        let (Policy::Streamed, Some(frame), Some(link)) =
            (self.policy, self.remote.frame_of(page), self.link())
        else {
            return false;
        };
        let end = self.remote.frame_offsets[frame + 1];
        link.overtakes(end.saturating_sub(self.stream.received.load(Ordering::Relaxed)))
    }

    /// Requests the unit that holds `page`, in the background.
    fn demand(self: &Arc<Self>, page: PageNo) {
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Err(trouble) = this.fetch(page).await {
                this.lose(page, &trouble);
            }
        });
    }

    async fn fetch(&self, page: PageNo) -> Result<(), Trouble> {
        let (unit, pages) = self.remote.unit(page, self.policy).await?;
        // It may have come with the stream or with another page's unit meanwhile.
        let is_there = lock(&self.table).state(page) == PageState::Present;
        if is_there || !lock(&self.in_flight).insert(unit.clone()) {
            return Ok(());
        }
        lock(&self.table).requested(&pages);
        let raw = self.remote.fetch(&unit, self.policy).await?;
        self.install(&pages, &raw)?;
        lock(&self.in_flight).remove(&unit);
        Ok(())
    }

    /// The source is lost: says so and tells every process that still has missing pages.
    fn lose(&self, page: PageNo, trouble: &Trouble) {
        if self.losing.swap(true, Ordering::SeqCst) {
            return;
        }
        let name = &self.remote.manifest.name;
        let offset = page.offset();
        say(&format!("page {page} of {name} (file offset {offset}) cannot be had: {trouble}"));
        // Only now: the first process that is told may be the last, and with it the pager ends.
        self.lost.store(true, Ordering::SeqCst);
        let processes = self.processes.get().map(|processes| processes.all()).unwrap_or_default();
        tell(processes.iter().map(|process| (&process.userfault, process.ranges())), self.memory_id);
    }

    fn stats(&self, mut stats: Stats) -> Stats {
        let wire = self.remote.source.wire();
        let counts = lock(&self.table).counts();
        stats.wire_bytes = wire.bytes;
        stats.hot_bytes = self.stream.received.load(Ordering::Relaxed).min(wire.bytes);
        stats.requests = wire.requests;
        stats.pages_total = self.remote.manifest.page_count();
        stats.pages_installed = counts.present;
        stats.faults = counts.faults;
        stats.demand_faults = counts.demand_faults;
        stats.bandwidth_bps = self.link().map(|link| link.bandwidth);
        stats.rtt_ms = wire.first_byte_min.map(|time| time.as_secs_f64() * 1e3);
        stats
    }
}

/// The pager as the fault loop sees it.
pub(crate) struct LazyPager(pub(crate) Arc<Lazy>);

impl Pager for LazyPager {
    fn fault(&self, fault: Fault) {
        let lazy = &self.0;
        let page = fault.page;
        let waiter = fault.waiter;
        let answer = lock(&lazy.table).fault(page, waiter.clone(), || lazy.overtakes(page));
        match answer {
            Answer::Wake => waiter.wake(),
            Answer::Demand => lazy.demand(page),
            Answer::Wait => {}
        }
        if lazy.lost.load(Ordering::SeqCst) {
            // Nothing comes any more: whoever faults now was not told yet.
            waiter.refuse();
        }
    }

    fn is_complete(&self) -> bool {
        lock(&self.0.table).is_complete()
    }

    fn program_ended(&self) {
        if let Some(mut report) = lock(&self.0.report).take() {
            let stats = self.0.stats(report.stats);
            // If the waiting process has gone, nobody wants the stats.
            let _ = serde_json::to_vec(&stats).map(|json| report.pipe.write_all(&json));
        }
    }
}

/// Runs of pages that lie one behind the other in the file and are not there yet: (index of the first, number).
pub(crate) fn runs(pages: &[PageNo], is_present: impl Fn(PageNo) -> bool) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (index, &page) in pages.iter().enumerate() {
        if is_present(page) {
            continue;
        }
        match runs.last_mut() {
            Some((first, count)) if *first + *count == index && pages[*first].0 + *count as u32 == page.0 => {
                *count += 1;
            }
            _ => runs.push((index, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_written_together_and_present_pages_not_at_all() {
        let pages: Vec<PageNo> = [4, 5, 6, 9, 2, 3, 4].map(PageNo).to_vec();
        assert_eq!(runs(&pages, |_| false), [(0, 3), (3, 1), (4, 3)]);
        assert_eq!(runs(&pages, |page| page.0 == 5), [(0, 1), (2, 1), (3, 1), (4, 3)]);
    }
}
