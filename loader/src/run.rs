//! `pagein run`: from a source to a running program.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagein_elf::Program;
use pagein_image::{Digest, Frame, ImageError, Linking, Manifest, PAGE_SIZE, PageNo, object};
use pagein_model::{Decision, HEAD, Link, Policy, Shape, UNKNOWN_LINK, decide, slow_start};
use pagein_source::{Location, Options, Source};
use pagein_uffd::{Userfault, process};

use crate::cache::{Cache, KnownImage, KnownSource};
use crate::cached::CACHED;
use crate::eager;
use crate::exec_file::exec_file;
use crate::faults::{FaultLoop, hung_up};
use crate::fill::{self, Fill};
use crate::flow::{self, Flow};
use crate::guard::{Guard, Ward};
use crate::instances::{self, House, Place};
use crate::launch::{check_interpreter, launch, memory_file, pidfd};
use crate::lazy::{Lazy, LazyPager, Report};
use crate::linked::LinkedStore;
use crate::links;
use crate::ranged::Ranged;
use crate::remote::{Remote, read_manifest};
use crate::start::{Front, become_program, follow};
use crate::stats::Stats;
use crate::stream::ObjectStream;
use crate::table::PageState;
use crate::tell::MemoryId;
use crate::trouble::Trouble;
use crate::watch::Watch;
use crate::{Failure, cached, waiter};

/// What to run and how.
#[derive(Debug, Clone)]
pub struct RunConfig {
    /// Where the image is.
    pub source: Location,
    /// The program's arguments, without its name.
    pub args: Vec<OsString>,
    /// The name that the program is called by; by default that of the image.
    pub argv0: Option<OsString>,
    /// How its pages come in; `None` chooses.
    pub policy: Option<Policy>,
    /// Where to write the stats.
    pub stats: Option<PathBuf>,
    /// Where executable files and what was received are kept.
    pub cache: PathBuf,
    /// Most bytes that are kept there.
    pub cache_limit: u64,
    /// For so long an image without a pinned digest is taken to be the one that its source had.
    pub max_age: Duration,
    /// Time limits and retries.
    pub options: Options,
    /// Apply relative relocations as pages come in, if the image is prepared for it.
    pub page_in_linking: bool,
    /// Say nothing about fallbacks.
    pub quiet: bool,
    /// When the command started.
    pub started: Instant,
}

/// The first request of `auto` where the hot object comes over several connections: what one brings until the others are asked.
const FIRST_LEN: u64 = 3 * slow_start::FIRST_FLIGHT;
/// Size of a hot object that is not known yet: as many connections are made ready as one of this size is worth.
const USUAL_HOT: u64 = 2 << 20;
/// Shortest longest piece where the hot object comes over several connections, bytes.
const PIECE_CAP_MIN: f64 = 65536.0;

/// Runs the program. Without stats it takes this process's place and this returns only on failure.
pub fn run(config: &RunConfig) -> Result<ExitCode, Failure> {
    let cache = Cache::open(&config.cache)?;
    // The pager leaves the working directory.
    let source =
        config.source.clone().absolute().map_err(Trouble::system("cannot find the working directory"))?;
    let config = &RunConfig { source, ..config.clone() };
    let argv0 = config.argv0.as_ref().map(c_string).transpose()?;
    let args = config.args.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let front = |outlets: Outlets| {
        let keep: Vec<_> = outlets.report.iter().chain(&outlets.listener).map(AsRawFd::as_raw_fd).collect();
        become_program(argv0.as_ref(), &args, &keep, |front| pager(&front, config, &cache, outlets))
    };
    // What is measured is measured alone.
    let shares = config.policy.is_none() && config.stats.is_none();
    for _ in 0..LOOKS {
        let ready = config.policy.is_none().then(|| cached::find(&cache, config)).flatten();
        if let Some(ready) = ready {
            return cached::run(&ready, config, argv0.as_ref(), &args);
        }
        match if shares { instances::find(&cache, &config.source) } else { Place::Alone } {
            Place::Guest(socket) => {
                if let Some(failure) = follow(&socket, argv0.as_ref(), &args) {
                    return Err(failure);
                }
            }
            Place::Host(listener) => {
                return Err(front(Outlets { listener: Some(listener), report: None }));
            }
            Place::Alone => break,
        }
    }
    if config.stats.is_none() {
        return Err(front(Outlets::default()));
    }
    report_end(config, |pipe| front(Outlets { report: Some(pipe), listener: None }))
}

/// How often a start looks for a pager that it can share: each look fails only if the one that it found ended meanwhile.
const LOOKS: usize = 3;

/// The descriptors that a pager gets from who starts it.
#[derive(Default)]
struct Outlets {
    /// Where the stats go.
    report: Option<OwnedFd>,
    /// Where further instances knock.
    listener: Option<OwnedFd>,
}

/// Runs `front`, which becomes the program, in a child, and writes the stats when it has ended: what comes through the pipe
/// that `front` gets, and the end.
pub(crate) fn report_end(
    config: &RunConfig,
    front: impl FnOnce(OwnedFd) -> Failure,
) -> Result<ExitCode, Failure> {
    let path = config.stats.as_ref().expect("nothing is reported without a file for it");
    // Before the run: a path that cannot be written must not cost a run.
    let out = File::create(path).map_err(Trouble::file(path))?;
    let ended = waiter::wait_for(|pipe| {
        let failure = front(pipe);
        eprintln!("pagein: {failure}");
        i32::from(failure.code)
    })?;
    let mut stats: Stats = serde_json::from_slice(&ended.report).unwrap_or_else(|_| {
        // A failure before the start has been reported already.
        if !(125..=127).contains(&ended.exit_status()) {
            eprintln!("pagein: the pager left no stats: {} has only the times", path.display());
        }
        Stats::default()
    });
    stats.total_ms = ended.at.duration_since(config.started).as_secs_f64() * 1e3;
    stats.exit_status = ended.exit_status();
    serde_json::to_writer_pretty(&out, &stats)
        .map_err(|error| Failure::pagein(format!("{}: {error}", path.display())))?;
    Ok(ended.end_alike())
}

pub(crate) fn c_string(arg: &OsString) -> Result<CString, Failure> {
    CString::new(arg.as_bytes()).map_err(|_| Failure::pagein("an argument holds a NUL".into()))
}

/// The pager's life. The result is an exit status that nobody sees.
fn pager(front: &Front, config: &RunConfig, cache: &Cache, outlets: Outlets) -> i32 {
    process::set_title("pagein", &format!("pagein: pager of process {}", front.pid()));
    let outcome = Guard::start()
        .map_err(Trouble::system("cannot start the guard"))
        .and_then(|guard| serve(front, config, cache, outlets, guard));
    front.report(outcome)
}

fn serve(
    front: &Front,
    config: &RunConfig,
    cache: &Cache,
    outlets: Outlets,
    guard: Guard,
) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Trouble::system("cannot start threads"))?;
    let outcome = serve_on(&runtime, front, config, cache, outlets, guard);
    // Not ended in order: that would wait for threads that wait for the front process, and the fill's thread still works on it.
    // This process ends now.
    std::mem::forget(runtime);
    outcome
}

fn serve_on(
    runtime: &tokio::runtime::Runtime,
    front: &Front,
    config: &RunConfig,
    cache: &Cache,
    outlets: Outlets,
    mut guard: Guard,
) -> Result<(), Trouble> {
    let source = pagein_source::open(&config.source, &config.options)?;
    let session = Session { front, config, cache, source, runtime };
    let prepared = match session.prepare(config.policy, None) {
        Err(trouble) if trouble.allows_eager() => session.prepare(config.policy, Some(&trouble))?,
        other => other?,
    };
    match prepared {
        Prepared::Complete { path, manifest, policy } => {
            guard.dismiss();
            session.run_complete(&path, &manifest, policy, outlets.report)
        }
        Prepared::Lazy { lazy, program, stream } => session.run_lazy(&lazy, &program, stream, outlets, guard),
    }
}

/// What is needed before exec is here.
enum Prepared {
    /// The whole program, as a file; no policy fetched it if it was in the cache.
    Complete { path: PathBuf, manifest: Box<Manifest>, policy: Option<Policy> },
    /// The pages that the kernel needs.
    Lazy { lazy: Arc<Lazy>, program: Arc<Program>, stream: Option<Box<ObjectStream>> },
}

struct Session<'a> {
    front: &'a Front,
    config: &'a RunConfig,
    cache: &'a Cache,
    source: Arc<dyn Source>,
    runtime: &'a tokio::runtime::Runtime,
}

impl Session<'_> {
    /// Fetches what must be there first; everything, if there is a reason not to page.
    fn prepare(&self, wanted: Option<Policy>, not_lazy: Option<&Trouble>) -> Result<Prepared, Trouble> {
        if wanted != Some(Policy::Original) && not_lazy.is_none() {
            Userfault::probe()?;
        }
        let socket =
            self.front.socket().try_clone_to_owned().map_err(Trouble::system("cannot copy a socket"))?;
        self.runtime.block_on(async {
            let gone =
                tokio::task::spawn_blocking(move || hung_up(socket.as_fd(), nix::poll::PollTimeout::NONE));
            tokio::select! {
                prepared = self.prepare_async(wanted, not_lazy) => prepared,
                // Ctrl-C before the start: nothing to clean up, nobody to tell.
                _ = gone => std::process::exit(1),
            }
        })
    }

    async fn prepare_async(
        &self,
        wanted: Option<Policy>,
        not_lazy: Option<&Trouble>,
    ) -> Result<Prepared, Trouble> {
        let new_stream =
            |object| ObjectStream::new(Arc::clone(&self.source), object, self.config.options.retry());
        if wanted == Some(Policy::Original) || not_lazy.is_some() {
            return self.prepare_complete(new_stream(object::WHOLE), not_lazy).await;
        }
        let mut stream = new_stream(object::HOT);
        if matches!(wanted, Some(Policy::Paged | Policy::ReorderedPaged)) {
            stream.limit_first_request(HEAD);
        }
        // Who names a policy wants to see it at work; a directory is as near as the cache.
        let keeps = wanted.is_none() && !self.config.source.is_directory();
        let blobs = keeps.then(|| self.cache.blobs());
        let known = self.cache.known_source(&self.config.source, Duration::MAX);
        let known = known.filter(|known| blobs.as_ref().is_some_and(|blobs| blobs.has(&known.manifest)));
        let ranged = wanted.is_none().then(|| Arc::new(Ranged::new(Arc::clone(&self.source))));
        let several = wanted.is_none() && known.is_none() && self.connections_known() > 1;
        if let Some(known) = &known {
            // Most likely nothing has changed, and what follows is here.
            stream.limit_first_request(known.manifest_len);
        } else if let Some(ranged) = &ranged {
            self.make_connections_ready(ranged);
        }
        if several {
            stream.limit_first_request(FIRST_LEN);
        }
        let (manifest, stored) =
            read_manifest(&mut stream, &self.config.source, object::HOT, blobs.as_ref()).await?;
        self.learn(&manifest, &stored);
        let mut connections = 1;
        let has = |frame: &Frame| blobs.as_ref().is_some_and(|blobs| blobs.has(&frame.digest));
        let policy = match wanted {
            Some(policy) => policy,
            None => match self.choose(&manifest, stored.len() as u64) {
                Choice::Complete(path) => {
                    let manifest = Box::new(manifest);
                    return Ok(Prepared::Complete { path, manifest, policy: None });
                }
                // Not if all that is likely to be needed is here.
                Choice::Decided(decision)
                    if decision.policy == Policy::Original
                        && (manifest.reads_self
                            || manifest.traces == 0
                            || !manifest.hot_frames.iter().all(has)) =>
                {
                    drop(stream);
                    return self.prepare_complete(new_stream(object::WHOLE), None).await;
                }
                Choice::Decided(decision) => {
                    connections = decision.connections;
                    // The others are never estimated to be quicker than this, which is bounded by the fill.
                    Policy::Streamed
                }
            },
        };
        let manifest_len = stored.len() as u64;
        let hot_len = manifest_len + manifest.hot_frames.iter().map(|f| u64::from(f.stored_len)).sum::<u64>();
        stream.end = Some(hot_len);
        let fill = ranged.map(|ranged| {
            let fill = Fill::new(self.cache, &self.config.source.to_string(), ranged);
            fill.set_connections(if several { connections } else { 1 });
            fill
        });
        let memory = memory_file(&manifest.name, manifest.file_size)?;
        let id = memory.id().map_err(Trouble::system("cannot stat the memory file"))?;
        let memory_id = MemoryId { device: id.0, inode: id.1 };
        let retry = self.config.options.retry();
        let remote = Remote::new(Arc::clone(&self.source), retry.clone(), manifest, stored, blobs);
        let can_link = matches!(remote.manifest.linking, Linking::On { .. });
        let linked = (can_link && self.config.page_in_linking).then(LinkedStore::default);
        let handle = self.runtime.handle().clone();
        let lazy = Lazy::new(remote, policy, memory, memory_id, linked, handle, fill);
        let manifest = &lazy.remote.manifest;
        stream.skip_to(lazy.first_missing_offset(), hot_len);
        let start = FIRST_LEN.max(lazy.first_missing_offset());
        if several && start < hot_len {
            let cap = (self.link().product() / 4.0).max(PIECE_CAP_MIN) as u64;
            let pacing = flow::slow_start(connections, cap);
            let source = Arc::clone(&self.source);
            stream.go_on_with(Flow::new(source, object::HOT, start..hot_len, retry, pacing));
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
        let flows = policy == Policy::Streamed && first < manifest.hot_frames.len();
        if flows {
            let expected = manifest.hot_frames[..first].iter().map(|f| f.pages as usize).sum::<usize>();
            crate::processes::lock(&lazy.table).expect(&manifest.hot_pages[expected..]);
        }
        Ok(Prepared::Lazy {
            lazy: Arc::new(lazy),
            program: Arc::new(program),
            stream: flows.then(|| Box::new(stream)),
        })
    }

    async fn prepare_complete(
        &self,
        mut stream: ObjectStream,
        not_lazy: Option<&Trouble>,
    ) -> Result<Prepared, Trouble> {
        let (manifest, stored) = read_manifest(&mut stream, &self.config.source, object::WHOLE, None).await?;
        self.learn(&manifest, &stored);
        let frames = manifest.whole_frames.iter().map(|frame| u64::from(frame.stored_len));
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

    /// The link as measured so far, or as an earlier run found it.
    fn link(&self) -> Link {
        let wire = self.source.wire();
        let known = self.remembered();
        let measured = wire.bandwidth.map(|bandwidth| bandwidth as f64);
        let or = known.unwrap_or(UNKNOWN_LINK);
        Link {
            // The first packets alone say less than an earlier run.
            bandwidth: known.map(|link| link.bandwidth).or(measured).unwrap_or(or.bandwidth),
            round_trip: wire.round_trip().unwrap_or(or.round_trip),
        }
    }

    fn remembered(&self) -> Option<Link> {
        links::recall(self.cache.root(), links::host(&self.config.source.to_string())?)
    }

    /// Over how many connections the hot object is fetched: several only if an earlier run found a link on which slow start is what
    /// takes the time. The first packets cannot tell: a reader that does not get the processor at once finds them all together.
    fn connections_known(&self) -> u32 {
        self.remembered().map_or(1, |link| slow_start::connections(USUAL_HOT, &link))
    }

    /// Opens connections while the first response is on its way, so that the first page that is demanded, and the hot object where
    /// it comes over several, need not wait for them; over HTTP/2 all requests share one. One of them finds out about ranges.
    fn make_connections_ready(&self, ranged: &Arc<Ranged>) {
        let ranged = Arc::clone(ranged);
        self.runtime.spawn(async move { ranged.get().await });
        for _ in 1..self.connections_known() {
            let source = Arc::clone(&self.source);
            self.runtime.spawn(async move {
                // What comes of it does not matter: the byte is thrown away, and the connection stays.
                if let Ok(body) = source.get(object::HOT, Some(0..1)).await {
                    let _ = body.exactly(1).await;
                }
            });
        }
    }

    /// `--policy auto`.
    fn choose(&self, manifest: &Manifest, manifest_bytes: u64) -> Choice {
        if let Some(path) = self.cache.find_complete(manifest) {
            return Choice::Complete(path);
        }
        Choice::Decided(decide(&Shape::of(manifest, manifest_bytes), &self.link()))
    }

    fn learn(&self, manifest: &Manifest, stored: &[u8]) {
        let known = KnownSource { manifest: Digest::of(stored), manifest_len: stored.len() as u64 };
        self.cache.learn(&self.config.source, &known, &KnownImage::of(manifest));
    }

    fn first_stats(&self, manifest: &Manifest, policy: &str) -> Stats {
        Stats {
            policy: policy.to_owned(),
            chosen: self.config.policy.is_none(),
            program: manifest.name.clone(),
            source: self.config.source.to_string(),
            exec_ms: self.config.started.elapsed().as_secs_f64() * 1e3,
            ..Stats::default()
        }
    }

    fn run_complete(
        &self,
        path: &Path,
        manifest: &Manifest,
        policy: Option<Policy>,
        report: Option<OwnedFd>,
    ) -> Result<(), Trouble> {
        let held = self.cache.hold();
        let program = report.as_ref().map(|_| pidfd(self.front.pid())).transpose()?;
        let wire = self.source.wire();
        let stats = Stats {
            wire_bytes: wire.bytes,
            hot_bytes: wire.bytes,
            requests: wire.requests,
            rtt_ms: wire.round_trip().map(|time| time.as_secs_f64() * 1e3),
            pages_total: manifest.page_count(),
            pages_installed: manifest.page_count(),
            ..self.first_stats(manifest, policy.map_or(CACHED, Policy::name))
        };
        self.front.exec(path, None).map_err(Trouble::system("cannot start the program"))?;
        self.front.await_exec();
        drop(held);
        if policy.is_some() {
            self.cache.trim(self.config.cache_limit, false);
        }
        if let (Some(report), Some(program)) = (report, program) {
            wait_for_end(&program);
            let _ = serde_json::to_writer(File::from(report), &stats);
        }
        Ok(())
    }

    fn run_lazy(
        &self,
        lazy: &Arc<Lazy>,
        program: &Arc<Program>,
        stream: Option<Box<ObjectStream>>,
        outlets: Outlets,
        guard: Guard,
    ) -> Result<(), Trouble> {
        let manifest = &lazy.remote.manifest;
        let page = |number: PageNo| lazy.memory.read(number.offset().0, PAGE_SIZE);
        let command = self.relaunch_command(&lazy.remote.manifest_digest.0);
        let held = self.cache.hold();
        let file = exec_file(self.cache, &manifest.name, manifest.file_size, program, page, &command)?;
        let ward = Ward {
            program: manifest.name.clone(),
            source: self.config.source.to_string(),
            memory: lazy.memory_id,
        };
        let pager = LazyPager(Arc::clone(lazy));
        let watched = pidfd(self.front.pid())?;
        let watch = Watch::new(guard, ward).map(Arc::new);
        let faults =
            watch.and_then(|watch| Ok((FaultLoop::new(&pager, Arc::clone(&watch), watched)?, watch)));
        let (faults, watch) = faults.map_err(Trouble::system("cannot watch for faults"))?;
        let _ = lazy.processes.set(Arc::clone(&watch.processes));
        let launched = launch(self.front, &file, program, &lazy.memory)?;
        if let Some(stream) = stream {
            // Not before: unpacking would take the processor from the exec. What comes meanwhile lies in the socket, and
            // is unpacked faster than any program touches it.
            self.runtime.spawn(Arc::clone(lazy).receive_rest(*stream));
        } else {
            fill::start(lazy);
            lazy.stream_ended();
        }
        let Outlets { report, listener } = outlets;
        if let Some(pipe) = report {
            let stats = self.first_stats(manifest, lazy.policy.name());
            lazy.set_report(Report { pipe: pipe.into(), stats });
        }
        lazy.admit(launched, program, &watch)?;
        drop(held);
        if let Some(listener) = listener {
            let (program, cache) = (Arc::clone(program), self.cache.clone());
            let house = House { lazy: Arc::clone(lazy), program, file, cache, watch };
            instances::receive(listener, house, self.config.source.pinned().is_some());
        }
        faults.run();
        if lazy.remote.blobs.as_ref().is_some_and(|blobs| blobs.finish() > 0) {
            self.cache.trim(self.config.cache_limit, false);
        }
        Ok(())
    }

    /// What starts this program again when it execs its own file.
    fn relaunch_command(&self, manifest_digest: &[u8; 32]) -> Vec<Option<Vec<u8>>> {
        let this = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe"));
        let mut words: Vec<Option<Vec<u8>>> =
            vec![Some(this.into_os_string().into_vec()), Some(b"run".to_vec())];
        if let Some(policy) = self.config.policy {
            words.push(Some(format!("--policy={policy}").into_bytes()));
        }
        if !self.config.page_in_linking {
            words.push(Some(b"--no-page-in-linking".to_vec()));
        }
        words.push(Some([b"--cache=", self.cache.root().as_os_str().as_bytes()].concat()));
        words.push(Some(b"--argv0".to_vec()));
        words.push(None);
        words.push(Some(self.config.source.argument(manifest_digest).into_bytes()));
        words.push(Some(b"--".to_vec()));
        words
    }
}

/// The kernel reads these before there is a pager: one that is not here would be a page of zeros for good.
fn check_exec_pages(lazy: &Lazy, program: &Program) -> Result<(), Trouble> {
    let table = crate::processes::lock(&lazy.table);
    let total = lazy.remote.manifest.page_count();
    let is_missing = |page: &PageNo| page.0 >= total || table.state(*page) != PageState::Present;
    let Some(page) = program.exec_pages().into_iter().find(is_missing) else { return Ok(()) };
    let why = format!("page {page}, which the kernel reads at exec, is in none of the first frames");
    let object = lazy.remote.source.describe(object::HOT);
    Err(Trouble::Image { object, error: ImageError::Invalid { what: "the manifest", offset: 0, why } })
}

enum Choice {
    Complete(PathBuf),
    Decided(Decision),
}

/// Waits for the process behind a pidfd.
pub(crate) fn wait_for_end(fd: &OwnedFd) {
    let mut fds = [nix::poll::PollFd::new(fd.as_fd(), nix::poll::PollFlags::POLLIN)];
    while nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE) == Err(nix::errno::Errno::EINTR) {}
}
