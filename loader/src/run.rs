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
use pagein_image::{Manifest, PAGE_SIZE, PageNo};
use pagein_model::Policy;
use pagein_source::{Location, Options, Source};
use pagein_uffd::{Userfault, process};

use crate::cache::Cache;
use crate::cached::CACHED;
use crate::exec_file::exec_file;
use crate::faults::{FaultLoop, hung_up};
use crate::fill;
use crate::guard::{Guard, Ward};
use crate::instances::{self, House, Place};
use crate::launch::{launch, pidfd};
use crate::lazy::{Lazy, LazyPager, Report};
use crate::prepare::{Prepared, Start};
use crate::start::{Front, become_program, follow};
use crate::stats::Stats;
use crate::stream::ObjectStream;
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
        let start = Start::new(self.config, self.cache, Arc::clone(&self.source));
        self.runtime.block_on(async {
            let gone =
                tokio::task::spawn_blocking(move || hung_up(socket.as_fd(), nix::poll::PollTimeout::NONE));
            tokio::select! {
                prepared = start.prepare(wanted, not_lazy) => prepared,
                // Ctrl-C before the start: nothing to clean up, nobody to tell.
                _ = gone => std::process::exit(1),
            }
        })
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

/// Waits for the process behind a pidfd.
pub(crate) fn wait_for_end(fd: &OwnedFd) {
    let mut fds = [nix::poll::PollFd::new(fd.as_fd(), nix::poll::PollFlags::POLLIN)];
    while nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE) == Err(nix::errno::Errno::EINTR) {}
}
