//! What must be there before a program can be started: the manifest, the pages that the kernel reads at exec, and the connections
//! over which the rest is on its way. Or all of the program, where it cannot be paged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pagein_elf::Program;
use pagein_image::{Digest, Frame, ImageError, Linking, Manifest, PageNo, object};
use pagein_model::{Decision, HEAD, Link, Policy, Shape, UNKNOWN_LINK, decide, slow_start};
use pagein_source::Source;
use tokio::runtime::Handle;

use crate::cache::{Blobs, Cache, KnownImage, KnownSource};
use crate::eager;
use crate::fill::{self, Fill};
use crate::flow::{self, Asking};
use crate::launch::{check_interpreter, memory_file};
use crate::lazy::Lazy;
use crate::linked::LinkedStore;
use crate::links;
use crate::processes::lock;
use crate::ranged::Ranged;
use crate::remote::{Remote, read_manifest};
use crate::run::RunConfig;
use crate::stream::ObjectStream;
use crate::table::PageState;
use crate::tell::MemoryId;
use crate::trouble::Trouble;

/// Connections over which the hot object is asked for from the beginning, where nothing is known of the host. Each brings a flight in
/// the first round trip.
const CONNECTIONS_AT_FIRST: u32 = 4;
/// Size of a hot object that is not known yet: as many connections are made as one of this size is worth.
const USUAL_HOT: u64 = 2 << 20;

/// What is needed before exec is here.
pub(crate) enum Prepared {
    /// The whole program, as a file; no policy fetched it if it was in the cache.
    Complete { path: PathBuf, manifest: Box<Manifest>, policy: Option<Policy> },
    /// The pages that the kernel needs.
    Lazy { lazy: Arc<Lazy>, program: Arc<Program>, stream: Option<Box<ObjectStream>> },
}

/// The start of a run.
pub(crate) struct Start<'a> {
    config: &'a RunConfig,
    cache: &'a Cache,
    source: Arc<dyn Source>,
    /// What an earlier run found out about the way to the host.
    remembered: Option<Link>,
}

/// The hot object, asked for.
struct Opened {
    stream: ObjectStream,
    /// What follows the first request, asked for beside it on connections of their own.
    speculation: Option<Asking>,
    blobs: Option<Blobs>,
    /// `--policy auto` must know it.
    ranged: Option<Arc<Ranged>>,
}

enum Choice {
    Complete(PathBuf),
    Decided(Decision),
}

impl<'a> Start<'a> {
    pub(crate) fn new(config: &'a RunConfig, cache: &'a Cache, source: Arc<dyn Source>) -> Self {
        let host = config.source.to_string();
        let remembered = links::host(&host).and_then(|host| links::recall(cache.root(), host));
        Self { config, cache, source, remembered }
    }

    fn stream(&self, object: &'static str) -> ObjectStream {
        ObjectStream::new(Arc::clone(&self.source), object, self.config.options.retry())
    }

    /// Fetches what must be there first; everything, if there is a reason not to page.
    pub(crate) async fn prepare(
        &self,
        wanted: Option<Policy>,
        not_lazy: Option<&Trouble>,
    ) -> Result<Prepared, Trouble> {
        if wanted == Some(Policy::Original) || not_lazy.is_some() {
            return self.prepare_complete(not_lazy).await;
        }
        let mut opened = self.open(wanted);
        let (manifest, stored) =
            read_manifest(&mut opened.stream, &self.config.source, object::HOT, opened.blobs.as_ref())
                .await?;
        self.learn(&manifest, &stored);
        let policy = match wanted {
            Some(policy) => policy,
            None => match self.choose(&manifest, stored.len() as u64) {
                Choice::Complete(path) => {
                    let manifest = Box::new(manifest);
                    return Ok(Prepared::Complete { path, manifest, policy: None });
                }
                Choice::Decided(decision)
                    if decision.policy == Policy::Original && !is_kept(&manifest, opened.blobs.as_ref()) =>
                {
                    drop(opened);
                    return self.prepare_complete(None).await;
                }
                // The others are never estimated to be quicker than this, which is bounded by the fill.
                Choice::Decided(_) => Policy::Streamed,
            },
        };
        self.prepare_lazy(opened, policy, manifest, stored).await
    }

    /// Asks for the beginning of the hot object, as much of it as is needed in any case.
    fn open(&self, wanted: Option<Policy>) -> Opened {
        let mut stream = self.stream(object::HOT);
        let opened = |stream, speculation, blobs, ranged| Opened { stream, speculation, blobs, ranged };
        if let Some(policy) = wanted {
            if matches!(policy, Policy::Paged | Policy::ReorderedPaged) {
                stream.limit_first_request(HEAD);
            }
            // Who names a policy wants to see it at work.
            return opened(stream, None, None, None);
        }
        let ranged = Arc::new(Ranged::new(Arc::clone(&self.source)));
        if self.config.source.is_directory() {
            // It is as near as the cache.
            return opened(stream, None, None, Some(ranged));
        }
        let blobs = self.cache.blobs();
        let known = self.cache.known_source(&self.config.source, Duration::MAX);
        if let Some(known) = known.filter(|known| blobs.has(&known.manifest)) {
            // Most likely nothing has changed, and what follows is here.
            stream.limit_first_request(known.manifest_len);
            return opened(stream, None, Some(blobs), Some(ranged));
        }
        let connections = match self.remembered {
            Some(link) => slow_start::connections(USUAL_HOT, &link),
            None => CONNECTIONS_AT_FIRST,
        };
        if connections == 1 {
            // Its connection is ready then for the first page that is demanded.
            let asked = Arc::clone(&ranged);
            tokio::spawn(async move { asked.get().await });
            return opened(stream, None, Some(blobs), Some(ranged));
        }
        stream.limit_first_request(flow::FLIGHT);
        let (source, retry) = (Arc::clone(&self.source), self.config.options.retry());
        let speculation = Asking::speculate(source, object::HOT, retry, connections);
        opened(stream, Some(speculation), Some(blobs), Some(ranged))
    }

    /// `--policy auto`.
    fn choose(&self, manifest: &Manifest, manifest_bytes: u64) -> Choice {
        if let Some(path) = self.cache.find_complete(manifest) {
            return Choice::Complete(path);
        }
        Choice::Decided(decide(&Shape::of(manifest, manifest_bytes), &self.link()))
    }

    /// The link as an earlier run found it, or as measured so far.
    fn link(&self) -> Link {
        let wire = self.source.wire();
        let measured = wire.bandwidth.map(|bandwidth| bandwidth as f64);
        // The first packets alone say less than an earlier run.
        let bandwidth = self.remembered.map(|link| link.bandwidth).or(measured);
        let round_trip = wire.round_trip().or(self.remembered.map(|link| link.round_trip));
        Link {
            bandwidth: bandwidth.unwrap_or(UNKNOWN_LINK.bandwidth),
            round_trip: round_trip.unwrap_or(UNKNOWN_LINK.round_trip),
        }
    }

    async fn prepare_lazy(
        &self,
        opened: Opened,
        policy: Policy,
        manifest: Manifest,
        stored: Vec<u8>,
    ) -> Result<Prepared, Trouble> {
        let Opened { mut stream, speculation, blobs, ranged } = opened;
        let frames = manifest.hot_frames.iter().map(|frame| u64::from(frame.stored_len));
        let hot_len = stored.len() as u64 + frames.sum::<u64>();
        stream.end = Some(hot_len);
        let fill = ranged.map(|ranged| {
            if speculation.is_some()
                && stream.received() > 0
                && (hot_len > flow::FLIGHT || stream.all_comes())
            {
                ranged.learn(!stream.all_comes());
            }
            Fill::new(self.cache, &self.config.source.to_string(), ranged)
        });
        let memory = memory_file(&manifest.name, manifest.file_size)?;
        let id = memory.id().map_err(Trouble::system("cannot stat the memory file"))?;
        let memory_id = MemoryId { device: id.0, inode: id.1 };
        let retry = self.config.options.retry();
        let remote = Remote::new(Arc::clone(&self.source), retry, manifest, stored, blobs);
        let can_link = matches!(remote.manifest.linking, Linking::On { .. });
        let linked = (can_link && self.config.page_in_linking).then(LinkedStore::default);
        let lazy = Arc::new(Lazy::new(remote, policy, memory, memory_id, linked, Handle::current(), fill));
        let manifest = &lazy.remote.manifest;
        if lazy.has_kept_frames() {
            stream.skip_to(lazy.first_missing_offset(), hot_len);
        } else if let Some(asking) =
            speculation.filter(|_| stream.received() <= flow::FLIGHT && !stream.all_comes())
        {
            stream.go_on_with(fill::flow(&lazy, asking.ends_at(hot_len), &self.link()));
        }
        lazy.receive_frames(&mut stream, 0, manifest.exec_frames as usize).await?;
        let read = |offset, len| lazy.memory.read(offset, len).ok();
        let program = Program::parse(manifest.file_size, read)
            .map_err(|error| Trouble::Elf { program: manifest.name.clone(), error })?;
        check_exec_pages(&lazy, &program)?;
        check_interpreter(&manifest.name, &program)?;
        let first = manifest.exec_frames as usize;
        if policy == Policy::Reordered {
            lazy.receive_frames(&mut stream, first, manifest.hot_frames.len()).await?;
        }
        let goes_on = stream.goes_on_behind(hot_len);
        let flows = policy == Policy::Streamed && (first < manifest.hot_frames.len() || goes_on);
        if flows {
            let expected = manifest.hot_frames[..first].iter().map(|f| f.pages as usize).sum::<usize>();
            lock(&lazy.table).expect(&manifest.hot_pages[expected..]);
        }
        Ok(Prepared::Lazy { lazy, program: Arc::new(program), stream: flows.then(|| Box::new(stream)) })
    }

    async fn prepare_complete(&self, not_lazy: Option<&Trouble>) -> Result<Prepared, Trouble> {
        let mut stream = self.stream(object::WHOLE);
        let (manifest, stored) = read_manifest(&mut stream, &self.config.source, object::WHOLE, None).await?;
        self.learn(&manifest, &stored);
        let frames = manifest.whole_frames().map(|frame| u64::from(frame.stored_len));
        stream.end = Some(stored.len() as u64 + frames.sum::<u64>());
        // `original` means to fetch it; who was made to need not do it twice.
        let cached = not_lazy.and_then(|_| self.cache.find_complete(&manifest));
        let path = if let Some(path) = cached {
            path
        } else {
            if let Some(reason) = not_lazy.filter(|_| !self.config.quiet) {
                eprintln!("pagein: fetching all of {} before it starts: {reason}", self.config.source);
            }
            eager::fetch_complete(&*self.source, &mut stream, &manifest, self.cache).await?
        };
        Ok(Prepared::Complete { path, manifest: Box::new(manifest), policy: Some(Policy::Original) })
    }

    fn learn(&self, manifest: &Manifest, stored: &[u8]) {
        let known = KnownSource { manifest: Digest::of(stored), manifest_len: stored.len() as u64 };
        self.cache.learn(&self.config.source, &known, &KnownImage::of(manifest));
    }
}

/// Whether all that is likely to be needed was kept by earlier runs, so that it need not come again with all the rest.
fn is_kept(manifest: &Manifest, blobs: Option<&Blobs>) -> bool {
    let has = |frame: &Frame| blobs.is_some_and(|blobs| blobs.has(&frame.digest));
    !manifest.reads_self && manifest.traces > 0 && manifest.hot_frames.iter().all(has)
}

/// The kernel reads these before there is a pager: one that is not here would be a page of zeros for good.
fn check_exec_pages(lazy: &Lazy, program: &Program) -> Result<(), Trouble> {
    let table = lock(&lazy.table);
    let total = lazy.remote.manifest.page_count();
    let is_missing = |page: &PageNo| page.0 >= total || table.state(*page) != PageState::Present;
    let Some(page) = program.exec_pages().into_iter().find(is_missing) else { return Ok(()) };
    let why = format!("page {page}, which the kernel reads at exec, is in none of the first frames");
    let object = lazy.remote.source.describe(object::HOT);
    Err(Trouble::Image { object, error: ImageError::Invalid { what: "the manifest", offset: 0, why } })
}
