//! `pagein run`: from a source to a running program.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use pagein_elf::Program;
use pagein_image::{ImageError, Manifest, PAGE_SIZE, PageNo, object};
use pagein_model::{Decision, Link, Policy, Shape, UNKNOWN_LINK, decide, slow_start};
use pagein_source::{Location, Options, Source, SourceError};
use pagein_uffd::{Userfault, process};

use crate::eager;
use crate::exec_file::{exec_file, open_cache};
use crate::faults::{FaultLoop, hung_up};
use crate::fill::{self, Fill};
use crate::flow::{self, Flow};
use crate::guard::{Guard, Ward};
use crate::launch::{check_interpreter, launch, memory_file, pidfd};
use crate::lazy::{Lazy, LazyPager, Report};
use crate::links;
use crate::remote::{Remote, read_manifest};
use crate::start::{Front, become_program};
use crate::stats::Stats;
use crate::stream::ObjectStream;
use crate::table::PageState;
use crate::tell::MemoryId;
use crate::trouble::Trouble;
use crate::{Failure, waiter};

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
    /// Where executable files are put.
    pub cache: PathBuf,
    /// Time limits and retries.
    pub options: Options,
    /// Say nothing about fallbacks.
    pub quiet: bool,
    /// When the command started.
    pub started: Instant,
}

/// The first request of a policy that does not stream: enough for the manifest and the pages for exec of most programs.
const HEAD_LEN: u64 = 32 * 1024;

/// The first request of `auto` where the hot object comes over several connections: what one brings until the others are asked.
const FIRST_LEN: u64 = 3 * slow_start::FIRST_FLIGHT;
/// Size of a hot object that is not known yet: as many connections are made ready as one of this size is worth.
const USUAL_HOT: u64 = 2 << 20;
/// Shortest longest piece where the hot object comes over several connections, bytes.
const PIECE_CAP_MIN: f64 = 65536.0;

/// Runs the program. Without stats it takes this process's place and this returns only on failure.
pub fn run(config: &RunConfig) -> Result<ExitCode, Failure> {
    let cache = open_cache(&config.cache)?;
    // The pager leaves the working directory.
    let source =
        config.source.clone().absolute().map_err(Trouble::system("cannot find the working directory"))?;
    let config = &RunConfig { source, ..config.clone() };
    let argv0 = config.argv0.as_ref().map(c_string).transpose()?;
    let args = config.args.iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let front = |report: Option<OwnedFd>| {
        let keep: Vec<_> = report.iter().map(AsRawFd::as_raw_fd).collect();
        become_program(argv0.as_ref(), &args, &keep, |front| pager(&front, config, &cache, report))
    };
    let Some(path) = &config.stats else {
        return Err(front(None));
    };
    // Before the run: a path that cannot be written must not cost a run.
    let out = File::create(path).map_err(Trouble::file(path))?;
    let ended = waiter::wait_for(|pipe| {
        let failure = front(Some(pipe));
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
    stats.total_ms = config.started.elapsed().as_secs_f64() * 1e3;
    stats.exit_status = ended.exit_status();
    serde_json::to_writer_pretty(&out, &stats)
        .map_err(|error| Failure::pagein(format!("{}: {error}", path.display())))?;
    Ok(ended.end_alike())
}

pub(crate) fn c_string(arg: &OsString) -> Result<CString, Failure> {
    CString::new(arg.as_bytes()).map_err(|_| Failure::pagein("an argument holds a NUL".into()))
}

/// The pager's life. The result is an exit status that nobody sees.
fn pager(front: &Front, config: &RunConfig, cache: &Path, report: Option<OwnedFd>) -> i32 {
    process::set_title("pagein", &format!("pagein: pager of process {}", front.pid()));
    let outcome = Guard::start()
        .map_err(Trouble::system("cannot start the guard"))
        .and_then(|guard| serve(front, config, cache, report, guard));
    front.report(outcome)
}

fn serve(
    front: &Front,
    config: &RunConfig,
    cache: &Path,
    report: Option<OwnedFd>,
    guard: Guard,
) -> Result<(), Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Trouble::system("cannot start threads"))?;
    let outcome = serve_on(&runtime, front, config, cache, report, guard);
    // In any case: dropping it would wait for threads that wait for the front process.
    runtime.shutdown_background();
    outcome
}

fn serve_on(
    runtime: &tokio::runtime::Runtime,
    front: &Front,
    config: &RunConfig,
    cache: &Path,
    report: Option<OwnedFd>,
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
            session.run_complete(&path, &manifest, policy, report)
        }
        Prepared::Lazy { lazy, program, stream } => session.run_lazy(&lazy, &program, stream, report, guard),
    }
}

/// What is needed before exec is here.
enum Prepared {
    /// The whole program, as a file.
    Complete { path: PathBuf, manifest: Box<Manifest>, policy: Policy },
    /// The pages that the kernel needs.
    Lazy { lazy: Arc<Lazy>, program: Box<Program>, stream: Option<Box<ObjectStream>> },
}

struct Session<'a> {
    front: &'a Front,
    config: &'a RunConfig,
    cache: &'a Path,
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
        let mut ranged = None;
        match wanted {
            None => ranged = Some(self.make_connections_ready()),
            Some(Policy::Paged | Policy::ReorderedPaged) => stream.limit_first_request(HEAD_LEN),
            Some(_) => {}
        }
        let several = wanted.is_none() && self.connections_known() > 1;
        if several {
            stream.limit_first_request(FIRST_LEN);
        }
        let (manifest, stored) = read_manifest(&mut stream, &self.config.source, object::HOT).await?;
        let mut connections = 1;
        let policy = match wanted {
            Some(policy) => policy,
            None => match self.choose(&manifest, stored.len() as u64) {
                Choice::Complete(path) => {
                    let manifest = Box::new(manifest);
                    return Ok(Prepared::Complete { path, manifest, policy: Policy::Original });
                }
                Choice::Decided(decision) if decision.policy == Policy::Original => {
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
        let hot = manifest.hot_frames.iter().map(|frame| u64::from(frame.stored_len)).sum::<u64>();
        let end = manifest_len + hot;
        stream.end = Some(end);
        let fill = ranged.map(|ranged| {
            let fill = Fill::new(self.cache, &self.config.source.to_string(), ranged);
            fill.set_connections(if several { connections } else { 1 });
            fill
        });
        if several && end > FIRST_LEN {
            let cap = (self.link().product() / 4.0).max(PIECE_CAP_MIN) as u64;
            let pacing = flow::slow_start(connections, cap);
            let source = Arc::clone(&self.source);
            let retry = self.config.options.retry();
            stream.go_on_with(Flow::new(source, object::HOT, FIRST_LEN..end, retry, pacing));
        }
        let memory = memory_file(&manifest.name, manifest.file_size)?;
        let id = memory.id().map_err(Trouble::system("cannot stat the memory file"))?;
        let memory_id = MemoryId { device: id.0, inode: id.1 };
        let remote = Remote::new(Arc::clone(&self.source), self.config.options.retry(), manifest, &stored);
        let handle = self.runtime.handle().clone();
        let lazy = Lazy::new(remote, policy, memory, memory_id, handle, fill);
        let manifest = &lazy.remote.manifest;
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
            program: Box::new(program),
            stream: flows.then(|| Box::new(stream)),
        })
    }

    async fn prepare_complete(
        &self,
        mut stream: ObjectStream,
        not_lazy: Option<&Trouble>,
    ) -> Result<Prepared, Trouble> {
        let (manifest, stored) = read_manifest(&mut stream, &self.config.source, object::WHOLE).await?;
        let frames = manifest.whole_frames.iter().map(|frame| u64::from(frame.stored_len));
        stream.end = Some(stored.len() as u64 + frames.sum::<u64>());
        // `original` means to fetch it; who was made to need not do it twice.
        let cached = not_lazy.and_then(|_| eager::find_complete(self.cache, &manifest));
        let path = if let Some(path) = cached {
            path
        } else {
            if let Some(reason) = not_lazy.filter(|_| !self.config.quiet) {
                eprintln!("pagein: fetching all of {} before it starts: {reason}", self.config.source);
            }
            eager::fetch_complete(&*self.source, &mut stream, &manifest, self.cache).await?
        };
        Ok(Prepared::Complete { path, manifest: Box::new(manifest), policy: Policy::Original })
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
        links::recall(self.cache, links::host(&self.config.source.to_string())?)
    }

    /// Over how many connections the hot object is fetched: several only if an earlier run found a link on which slow start is what
    /// takes the time. The first packets cannot tell: a reader that does not get the processor at once finds them all together.
    fn connections_known(&self) -> u32 {
        self.remembered().map_or(1, |link| slow_start::connections(USUAL_HOT, &link))
    }

    /// Opens connections while the first response is on its way, so that the first page that is demanded, and the hot object where
    /// it comes over several, need not wait for them; over HTTP/2 all requests share one. Tells whether the source knows ranges.
    fn make_connections_ready(&self) -> tokio::sync::watch::Receiver<Option<bool>> {
        let (tell, told) = tokio::sync::watch::channel(None);
        let tell = Arc::new(tell);
        for _ in 0..self.connections_known() {
            let (source, tell) = (Arc::clone(&self.source), Arc::clone(&tell));
            self.runtime.spawn(async move {
                let ranged = match source.get(object::HOT, Some(0..1)).await {
                    // The byte is thrown away, and the connection stays.
                    Ok(body) => body.exactly(1).await.map(drop),
                    Err(error) => Err(error),
                };
                let ignored =
                    matches!(&ranged, Err(error) if matches!(error.kind(), SourceError::RangeIgnored { .. }));
                // Any other failure shows when something is needed.
                tell.send_replace(Some(!ignored));
            });
        }
        told
    }

    /// `--policy auto`.
    fn choose(&self, manifest: &Manifest, manifest_bytes: u64) -> Choice {
        if let Some(path) = eager::find_complete(self.cache, manifest) {
            return Choice::Complete(path);
        }
        Choice::Decided(decide(&Shape::of(manifest, manifest_bytes), &self.link()))
    }

    fn first_stats(&self, manifest: &Manifest, policy: Policy) -> Stats {
        Stats {
            policy: policy.to_string(),
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
        policy: Policy,
        report: Option<OwnedFd>,
    ) -> Result<(), Trouble> {
        let program = report.as_ref().map(|_| pidfd(self.front.pid())).transpose()?;
        let wire = self.source.wire();
        let stats = Stats {
            wire_bytes: wire.bytes,
            requests: wire.requests,
            rtt_ms: wire.round_trip().map(|time| time.as_secs_f64() * 1e3),
            pages_total: manifest.page_count(),
            pages_installed: manifest.page_count(),
            ..self.first_stats(manifest, policy)
        };
        self.front.exec(path, None).map_err(Trouble::system("cannot start the program"))?;
        if let (Some(report), Some(program)) = (report, program) {
            wait_for_end(&program);
            let _ = serde_json::to_writer(File::from(report), &stats);
        }
        Ok(())
    }

    fn run_lazy(
        &self,
        lazy: &Arc<Lazy>,
        program: &Program,
        stream: Option<Box<ObjectStream>>,
        report: Option<OwnedFd>,
        guard: Guard,
    ) -> Result<(), Trouble> {
        let manifest = &lazy.remote.manifest;
        let page = |number: PageNo| lazy.memory.read(number.offset().0, PAGE_SIZE);
        let command = self.relaunch_command(&lazy.remote.manifest_digest.0);
        let file = exec_file(self.cache, &manifest.name, manifest.file_size, program, page, &command)?;
        let ward = Ward {
            program: manifest.name.clone(),
            source: self.config.source.to_string(),
            memory: lazy.memory_id,
        };
        let pager = LazyPager(Arc::clone(lazy));
        let watched = pidfd(self.front.pid())?;
        let mut faults = FaultLoop::new(&pager, guard, ward, watched)
            .map_err(Trouble::system("cannot watch for faults"))?;
        let _ = lazy.processes.set(Arc::clone(&faults.processes));
        let launched = launch(self.front, &file, program, &lazy.memory)?;
        if let Some(stream) = stream {
            // Not before: unpacking would take the processor from the exec. What comes meanwhile lies in the socket, and
            // is unpacked faster than any program touches it.
            self.runtime.spawn(Arc::clone(lazy).receive_rest(*stream));
        } else {
            fill::start(lazy);
            lazy.stream_ended();
        }
        if let Some(pipe) = report {
            let stats = self.first_stats(manifest, lazy.policy);
            lazy.set_report(Report { pipe: pipe.into(), stats });
        }
        launched.go(|userfault, map| {
            faults.add(userfault, map).map_err(Trouble::system("cannot watch the program's faults"))
        })?;
        faults.run();
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
        words.push(Some([b"--cache=", self.cache.as_os_str().as_bytes()].concat()));
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
