//! The pager of a running program: faults in, pages out.

use std::collections::HashSet;
use std::io::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use pagein_elf::Program;
use pagein_image::{Frame, GroupId, LinkedPage, PAGE_SIZE, PageNo, StreamDecoder, Unpacked, object};
use pagein_model::{Link, Policy, UNKNOWN_LINK, cluster, cluster_pages};
use pagein_source::{Source, SourceError};
use pagein_uffd::MemoryFile;

use crate::cache::Blobs;
use crate::faults::{Fault, Pager};
use crate::fill::{self, Fill};
use crate::launch::Launched;
use crate::linked::LinkedStore;
use crate::processes::{Process, Processes, Waiter, lock};
use crate::remote::Remote;
use crate::stats::Stats;
use crate::stream::ObjectStream;
use crate::table::{Answer, PageState, PageTable};
use crate::tell::{MemoryId, say, tell};
use crate::trouble::Trouble;
use crate::unpack::InOrder;
use crate::watch::Watch;

/// Beyond twice the time that is expected, a page is waited for this much longer: schedulers and retransmissions take as long.
const PATIENCE: Duration = Duration::from_millis(300);

/// Everything that the threads of a pager share.
pub(crate) struct Lazy {
    pub(crate) remote: Remote,
    pub(crate) policy: Policy,
    pub(crate) memory: MemoryFile,
    pub(crate) memory_id: MemoryId,
    /// What is relocated as it is installed; `None` if the dynamic linker is to do it.
    pub(crate) linked: Option<LinkedStore>,
    pub(crate) table: Mutex<PageTable<Waiter>>,
    pub(crate) processes: OnceLock<Arc<Processes>>,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Bytes of the object `hot` that have come with the stream.
    received: AtomicU64,
    /// The rest in the background: `--policy auto`.
    pub(crate) fill: Option<Fill>,
    /// So many of the first hot frames were kept by earlier runs.
    kept_frames: usize,
    /// Unpacks the frames of `hot` and `whole`.
    frames: InOrder,
    /// Groups on their way because somebody waits for them.
    in_flight: Mutex<HashSet<GroupId>>,
    /// All of `hot` once more, from a server that knows no ranges.
    hot_again: tokio::sync::OnceCell<()>,
    /// Somebody is saying that the source is lost.
    losing: AtomicBool,
    /// It has been said.
    lost: AtomicBool,
    report: Mutex<Option<Report>>,
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
        linked: Option<LinkedStore>,
        runtime: tokio::runtime::Handle,
        fill: Option<Fill>,
    ) -> Self {
        let table = Mutex::new(PageTable::new(remote.manifest.page_count()));
        let kept_frames = remote.kept_frames();
        Self {
            remote,
            kept_frames,
            policy,
            memory,
            memory_id,
            linked,
            table,
            processes: OnceLock::new(),
            runtime,
            received: AtomicU64::new(0),
            fill,
            frames: InOrder::default(),
            in_flight: Mutex::default(),
            hot_again: tokio::sync::OnceCell::new(),
            losing: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            report: Mutex::new(None),
        }
    }

    /// Lets a program that stands before its first instruction run, in the care of `watch`.
    pub(crate) fn admit(&self, launched: Launched, program: &Program, watch: &Watch) -> Result<(), Trouble> {
        if let Some(linked) = &self.linked {
            linked.launched(&launched, program)?;
        }
        launched.go(|userfault, map, bias| {
            let added = watch.add(userfault, map, bias);
            let process = added.map_err(Trouble::system("cannot watch the program's faults"))?;
            if let Some(linked) = &self.linked {
                // What came before there was a process to give it to.
                linked.copy_all(&[process]);
            }
            Ok(())
        })
    }

    /// Puts what is to be reported in place, just before the program runs.
    pub(crate) fn set_report(&self, report: Report) {
        *lock(&self.report) = Some(report);
    }

    /// Makes pages available that have arrived and wakes who waits for them. What is not to be relocated is put into the
    /// memory file.
    pub(crate) fn install(&self, pages: &[PageNo], unpacked: Unpacked) -> Result<(), Trouble> {
        let Some(linked) = &self.linked else { return self.put(pages, &unpacked.into_file_form()) };
        let set = self.remote.manifest.linking.pages();
        if !pages.iter().any(|page| set.contains(*page)) {
            return self.put(pages, &unpacked.bytes);
        }
        let mut arrived = Vec::new();
        for (index, links) in unpacked.links {
            if lock(&self.table).state(pages[index]) != PageState::Present {
                let bytes = unpacked.bytes[index * PAGE_SIZE..(index + 1) * PAGE_SIZE].to_vec();
                linked.keep(pages[index], LinkedPage { bytes, links });
                arrived.push(pages[index]);
            }
        }
        self.linked_arrived(linked, &arrived);
        for (first, count) in runs(pages, |page| set.contains(page)) {
            let bytes = &unpacked.bytes[first * PAGE_SIZE..(first + count) * PAGE_SIZE];
            self.put(&pages[first..first + count], bytes)?;
        }
        Ok(())
    }

    /// The same for pages that the kernel reads at exec: all of them go into the memory file, as the file has them.
    fn install_early(&self, pages: &[PageNo], unpacked: Unpacked) -> Result<(), Trouble> {
        if let Some(linked) = &self.linked {
            for (index, links) in &unpacked.links {
                let bytes = unpacked.bytes[index * PAGE_SIZE..(index + 1) * PAGE_SIZE].to_vec();
                linked.keep_early(pages[*index], LinkedPage { bytes, links: links.clone() });
            }
        }
        self.put(pages, &unpacked.into_file_form())
    }

    /// Puts pages into the memory file and wakes who waits for them.
    fn put(&self, pages: &[PageNo], raw: &[u8]) -> Result<(), Trouble> {
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

    fn all_processes(&self) -> Vec<Arc<Process>> {
        self.processes.get().map(|processes| processes.all()).unwrap_or_default()
    }

    /// Unpacks and installs one hot frame. The one before must have been.
    fn install_frame(&self, number: usize, stored: &[u8]) -> Result<(), Trouble> {
        let pages = self.remote.frame_pages(number);
        let frame = &self.remote.manifest.hot_frames[number];
        let Some(unpacked) = self.unpack(number, frame, stored, pages, object::HOT)? else { return Ok(()) };
        self.install_hot(number, unpacked)
    }

    /// Unpacks frame `number` of `object`, when those before it are; `None` if they do not come any more.
    pub(crate) fn unpack(
        &self,
        number: usize,
        frame: &Frame,
        stored: &[u8],
        pages: &[PageNo],
        object: &str,
    ) -> Result<Option<Unpacked>, Trouble> {
        let unpacked = self.frames.decode(number, frame, stored, pages, self.remote.manifest.linking.pages());
        let describe = |error| Trouble::Image { object: self.remote.source.describe(object), error };
        unpacked.transpose().map_err(describe)
    }

    fn install_hot(&self, number: usize, unpacked: Unpacked) -> Result<(), Trouble> {
        let pages = self.remote.frame_pages(number);
        if number >= self.remote.manifest.exec_frames as usize {
            return self.install_and_keep(pages, unpacked);
        }
        let raw = self.fill.is_some().then(|| unpacked.clone().into_file_form());
        self.install_early(pages, unpacked)?;
        self.keep_file_form(pages, raw);
        Ok(())
    }

    /// Installs pages, and keeps them for the complete file if there is to be one.
    pub(crate) fn install_and_keep(&self, pages: &[PageNo], unpacked: Unpacked) -> Result<(), Trouble> {
        let raw = self.fill.is_some().then(|| unpacked.clone().into_file_form());
        self.install(pages, unpacked)?;
        self.keep_file_form(pages, raw);
        Ok(())
    }

    fn keep_file_form(&self, pages: &[PageNo], raw: Option<Vec<u8>>) {
        if let (Some(fill), Some(raw)) = (&self.fill, raw) {
            fill.keep(pages, raw);
        }
    }

    fn linked_arrived(&self, linked: &LinkedStore, pages: &[PageNo]) {
        let woken = lock(&self.table).arrived(pages);
        linked.copy_ahead(pages, &self.all_processes());
        woken.iter().for_each(Waiter::wake);
    }

    /// Whether earlier runs kept the beginning of the hot object.
    pub(crate) fn has_kept_frames(&self) -> bool {
        self.kept_frames > 0
    }

    /// Where the hot stream has to begin: behind what earlier runs kept.
    pub(crate) fn first_missing_offset(&self) -> u64 {
        self.remote.frame_offsets[self.kept_frames]
    }

    /// Reads hot frames from `stream` and installs them, from number `from` on up to `to`.
    pub(crate) async fn receive_frames(
        &self,
        stream: &mut ObjectStream,
        from: usize,
        to: usize,
    ) -> Result<(), Trouble> {
        for number in from..to {
            if number < self.kept_frames {
                self.install_frame(number, &self.remote.stored_frame(number).await?)?;
                continue;
            }
            let len = self.remote.manifest.hot_frames[number].stored_len as usize;
            let stored = stream.take(len).await?;
            self.received.store(stream.received(), Ordering::Relaxed);
            self.install_frame(number, &stored)?;
            self.remote.keep(self.remote.manifest.hot_frames[number].digest, stored);
        }
        Ok(())
    }

    /// Receives the rest of the hot object while the program runs, and then what the stream brings behind it. What it fails to bring is
    /// requested when it is needed.
    pub(crate) async fn receive_rest(self: Arc<Self>, mut stream: ObjectStream) {
        let goes_on = stream.goes_on_behind(self.remote.hot_end());
        if self.fill.is_some() {
            tokio::spawn(fill::fetch_index(Arc::clone(&self)));
            if !goes_on {
                fill::start(&self);
            }
        }
        let first = self.remote.manifest.exec_frames as usize;
        let count = self.remote.manifest.hot_frames.len();
        // The reason does not matter yet: what is waited for is requested again, and that fails with a reason.
        let received = self.receive_frames(&mut stream, first, count).await;
        if received.is_err() {
            self.frames.end();
        }
        self.no_longer_expected(&self.remote.manifest.hot_pages);
        self.stream_ended();
        match received {
            Ok(()) if goes_on => fill::receive_behind(&self, stream).await,
            Err(_) if goes_on => fill::give_up(&self),
            _ => {}
        }
    }

    /// The stream that was to bring these pages brings no more of them.
    pub(crate) fn no_longer_expected(self: &Arc<Self>, pages: &[PageNo]) {
        let waited = lock(&self.table).stream_ended(pages);
        for page in waited {
            self.demand(page);
        }
    }

    /// Nothing comes with the hot stream any more.
    pub(crate) fn stream_ended(&self) {
        if let Some(fill) = &self.fill {
            fill.stream_ended();
        }
    }

    /// Bytes of the object `hot` that have come with the stream.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The link as measured, or as it was when it was used last; `None` before there is anything to tell.
    pub(crate) fn link(&self) -> Option<Link> {
        let wire = self.remote.source.wire();
        match (wire.bandwidth, wire.round_trip()) {
            (Some(bandwidth), Some(round_trip)) => Some(Link { bandwidth: bandwidth as f64, round_trip }),
            _ => self.fill.as_ref().and_then(Fill::remembered),
        }
    }

    /// Whether a page that is on its way is so far behind that it is better requested.
    fn overtakes(&self, page: PageNo) -> bool {
        let (Some(link), Some(ahead)) = (self.link(), self.bytes_ahead(page)) else { return false };
        match (self.remote.frame_of(page), &self.fill) {
            (Some(frame), _) => {
                link.overtakes(ahead, self.remote.frame_offsets[frame + 1] - self.remote.frame_offsets[frame])
            }
            (None, Some(fill)) if fill.flows() => {
                let own = self.remote.group_bytes();
                link.overtakes(ahead, own) && fill.may_overtake(own)
            }
            // A demand brings about what fills the link once.
            (None, _) => link.overtakes(ahead, link.product() as u64),
        }
    }

    /// Bytes that come before a page is complete that is on its way.
    fn bytes_ahead(&self, page: PageNo) -> Option<u64> {
        match self.remote.frame_of(page) {
            Some(frame) => Some(self.remote.frame_offsets[frame + 1].saturating_sub(self.received())),
            None => self.fill.as_ref()?.bytes_ahead(page, self.received()),
        }
    }

    /// Requests a page of the fill after all, if it does not come although it should have: one response may hang where others do not.
    fn lose_patience(self: &Arc<Self>, page: PageNo) {
        let link = self.link().unwrap_or(UNKNOWN_LINK);
        let ahead = link.transfer_time(self.bytes_ahead(page).unwrap_or(0));
        let patience = PATIENCE.saturating_add(link.round_trip * 4).saturating_add(ahead.saturating_mul(2));
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            tokio::time::sleep(patience).await;
            if lock(&this.table).state(page) != PageState::Present {
                this.demand(page);
            }
        });
    }

    /// Requests the unit that holds `page`, in the background.
    pub(crate) fn demand(self: &Arc<Self>, page: PageNo) {
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Err(trouble) = this.fetch(page).await {
                this.lose(page, &trouble);
            }
        });
    }

    async fn fetch(&self, page: PageNo) -> Result<(), Trouble> {
        let _waits = self.fill.as_ref().map(Fill::demand);
        let (id, pages) = self.remote.group_of(page, self.policy).await?;
        // It may have come with the stream or with another page's group meanwhile.
        let is_there = lock(&self.table).state(page) == PageState::Present;
        if is_there || !lock(&self.in_flight).insert(id) {
            return Ok(());
        }
        lock(&self.table).requested(pages);
        let is_hot = self.remote.frame_of(page).is_some();
        if let Some(fill) = self.fill.as_ref().filter(|_| !is_hot)
            && !self.remote.has_kept(id).await?
        {
            fill.cold_fault();
            if !self.remote.manifest.page_files {
                if fill.is_ranged().await {
                    return self.fetch_cluster(id).await;
                }
                // Then the fill is the only way to it, and must begin.
                fill.cold_fault();
                return Ok(());
            }
        }
        match self.remote.fetch(self.demand_source(), id, self.policy).await {
            Err(Trouble::Source(error))
                if is_hot && matches!(error.kind(), SourceError::RangeIgnored { .. }) =>
            {
                self.hot_again.get_or_try_init(|| self.fetch_hot()).await?;
            }
            unpacked => self.install_and_keep(pages, unpacked?)?,
        }
        lock(&self.in_flight).remove(&id);
        Ok(())
    }

    /// Over which connections to ask for what somebody waits for: not over those that the stream or the fill is about to use.
    fn demand_source(&self) -> &Arc<dyn Source> {
        if fill::leaves_connections(self) { &self.remote.source } else { &self.remote.background }
    }

    /// All hot frames, from a server that only sends objects from their beginning.
    async fn fetch_hot(&self) -> Result<(), Trouble> {
        let remote = &self.remote;
        let mut stream = ObjectStream::new(Arc::clone(&remote.source), object::HOT, remote.retry.clone());
        stream.take(remote.frame_offsets[0] as usize).await?;
        let (mut decoder, linked) = (StreamDecoder::default(), remote.manifest.linking.pages());
        for (number, frame) in remote.manifest.hot_frames.iter().enumerate() {
            let stored = stream.take(frame.stored_len as usize).await?;
            let pages = remote.frame_pages(number);
            let unpacked = decoder.decode(frame, &stored, pages, linked, &format!("frame {number}"));
            let object = || remote.source.describe(object::HOT);
            let unpacked = unpacked.map_err(|error| Trouble::Image { object: object(), error })?;
            if number >= remote.manifest.exec_frames as usize {
                self.install_and_keep(pages, unpacked)?;
            }
        }
        Ok(())
    }

    /// Fetches a group and its neighbours, as many as the model says. They are used one by one as they come.
    async fn fetch_cluster(&self, demanded: GroupId) -> Result<(), Trouble> {
        let set = self.remote.manifest.groups;
        let index = self.remote.group_index().await?;
        let per_page =
            set.data_len as f64 / index.groups().iter().map(|group| group.pages.len()).sum::<usize>() as f64;
        // What is on its way in any case is not asked for along.
        let is_alone = self.fill.as_ref().is_some_and(Fill::flows);
        let link = self.link().unwrap_or(UNKNOWN_LINK);
        let budget = if is_alone { 0 } else { cluster_pages(per_page, &link) };
        let demanded = demanded.0 as usize;
        let chosen = {
            let mut table = lock(&self.table);
            let mut in_flight = lock(&self.in_flight);
            let id = |group: usize| GroupId(group as u32);
            let chosen = cluster(demanded, budget, |number| {
                let group = index.groups().get(number)?;
                let is_missing = |page: &PageNo| table.state(*page) == PageState::Missing;
                let is_wanted = || group.pages.iter().any(is_missing) && !in_flight.contains(&id(number));
                (number == demanded || is_wanted()).then_some(group.pages.len() as u32)
            });
            for number in chosen.before.clone().chain(chosen.from.clone()) {
                in_flight.insert(id(number));
                table.requested(&index.groups()[number].pages);
            }
            chosen
        };
        // A second request takes a second connection.
        let _waits = self.fill.as_ref().filter(|_| !chosen.before.is_empty()).map(Fill::demand);
        tokio::try_join!(self.fetch_groups(chosen.from), self.fetch_groups(chosen.before))?;
        Ok(())
    }

    /// Fetches groups that follow each other, in one request.
    async fn fetch_groups(&self, numbers: Range<usize>) -> Result<(), Trouble> {
        let index = self.remote.group_index().await?;
        let groups = || numbers.clone().map(|number| GroupId(number as u32));
        let (Some(first), Some(last)) = (groups().next(), groups().next_back()) else { return Ok(()) };
        let range = index.group(first).offset..index.group(last).range().end;
        let mut stream = self.remote.stream_part(self.demand_source(), object::GROUPS, range);
        for id in groups() {
            let group = index.group(id);
            let stored = stream.take(group.frame.stored_len as usize).await?;
            let what = format!("bytes {}-{}", group.range().start, group.range().end - 1);
            let linked = self.remote.manifest.linking.pages();
            let unpacked = group.frame.decode_group(&stored, &group.pages, linked, &what);
            let unpacked = unpacked.map_err(|error| {
                let object = self.remote.source.describe(object::GROUPS);
                Trouble::Image { object, error }
            })?;
            self.install_and_keep(&group.pages, unpacked)?;
            self.remote.keep(group.frame.digest, stored);
            lock(&self.in_flight).remove(&id);
        }
        Ok(())
    }

    /// The source is lost: says so and tells every process that still has missing pages.
    pub(crate) fn lose(&self, page: PageNo, trouble: &Trouble) {
        if self.losing.swap(true, Ordering::SeqCst) {
            return;
        }
        let name = &self.remote.manifest.name;
        let offset = page.offset();
        say(&format!("page {page} of {name} (file offset {offset}) cannot be had: {trouble}"));
        // Only now: the first process that is told may be the last, and with it the pager ends.
        self.lost.store(true, Ordering::SeqCst);
        let processes = self.all_processes();
        tell(processes.iter().map(|process| (&process.userfault, process.ranges())), self.memory_id);
    }

    fn stats(&self, mut stats: Stats) -> Stats {
        let wire = self.remote.source.wire();
        let counts = lock(&self.table).counts();
        stats.wire_bytes = wire.bytes;
        stats.hot_bytes = self.received.load(Ordering::Relaxed).min(wire.bytes);
        stats.requests = wire.requests;
        stats.pages_total = self.remote.manifest.page_count();
        stats.pages_installed = counts.present;
        stats.linked_pages = self.linked.as_ref().map_or(0, LinkedStore::count);
        stats.faults = counts.faults;
        stats.demand_faults = counts.demand_faults;
        stats.bandwidth_bps = self.link().map(|link| link.bandwidth);
        stats.rtt_ms = wire.round_trip().map(|time| time.as_secs_f64() * 1e3);
        stats.connections = self.fill.as_ref().map_or(1, Fill::connections);
        stats.fill_bytes = self.fill.as_ref().map_or(0, Fill::bytes);
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
            stats.pager_cpu_ms = microseconds as f64 / 1e3;
            stats.pager_memory_bytes = u64::try_from(usage.max_rss()).unwrap_or_default() * 1024;
        }
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
            Answer::Wake => {
                let supplied = lazy.linked.as_ref().is_some_and(|linked| linked.supply(page, &waiter));
                if !supplied {
                    waiter.wake();
                }
            }
            Answer::Demand => lazy.demand(page),
            Answer::Wait if lazy.fill.is_some() => lazy.lose_patience(page),
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

    fn finish(&self) -> bool {
        let lazy = &self.0;
        let finished = |linked: &LinkedStore| linked.finish(&lazy.all_processes(), &lazy.memory);
        lazy.linked.as_ref().is_none_or(finished)
    }

    fn program_ended(&self) {
        if let Some(mut report) = lock(&self.0.report).take() {
            let stats = self.0.stats(report.stats);
            // Who measures runs one after the other finds what was kept.
            let _ = self.0.remote.blobs.as_ref().map(Blobs::finish);
            // If the waiting process has gone, nobody wants the stats.
            let _ = serde_json::to_vec(&stats).map(|json| report.pipe.write_all(&json));
        }
        if let Some(fill) = &self.0.fill {
            fill.remember(&self.0.remote.source.wire());
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
