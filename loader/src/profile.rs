//! `pagein profile`: a local program with one-shot breakpoints, the first touch of every function (or block) noted.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use nix::sys::signal::Signal;
use pagein_profile::{Profile, Program, Touch};
use pagein_relayout::{Untreatable, points};
use pagein_uffd::breakpoint::{Breakpoints, TraceError, trace};
use pagein_uffd::process;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, find_program};

/// What to profile.
#[derive(Debug, Clone)]
pub struct ProfileConfig {
    /// The program: a path, or a name to be found in PATH.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where the profile goes.
    pub output: PathBuf,
    /// Watch the entries of functions only, not their blocks.
    pub functions_only: bool,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0}: {1}")]
    Untreatable(PathBuf, Untreatable),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("cannot watch for signals: {0}")]
    Signals(io::Error),
}

impl From<ProfileError> for Failure {
    fn from(error: ProfileError) -> Self {
        let code = match &error {
            ProfileError::Untreatable(..) | ProfileError::Trace(TraceError::Start(..)) => Self::CANNOT_RUN,
            _ => Self::PAGEIN,
        };
        Self { code, text: error.to_string() }
    }
}

/// Runs the program and writes its profile. Returns how the program ended.
pub fn profile(config: &ProfileConfig) -> Result<ExitCode, Failure> {
    let path = find_program(&config.program)?;
    Ok(end_alike(Run { config, path: &path }.run()?))
}

struct Run<'a> {
    config: &'a ProfileConfig,
    path: &'a Path,
}

impl Run<'_> {
    fn run(&self) -> Result<ExitStatus, ProfileError> {
        let Self { config, path } = self;
        let file = |path: &Path| {
            let path = path.to_owned();
            move |error| ProfileError::File(path, error)
        };
        let untreatable = |error| ProfileError::Untreatable((*path).to_owned(), error);
        let bytes = File::open(path).and_then(|file| pagein_uffd::map_file(&file)).map_err(file(path))?;
        let program = Program::read(&bytes).map_err(untreatable)?;
        let points = points(&bytes, !config.functions_only).map_err(untreatable)?;
        // Written when the program has ended; a path that cannot be written must not cost a run.
        let directory = config.output.parent().filter(|dir| !dir.as_os_str().is_empty());
        let mut out = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))
            .map_err(file(&config.output))?;

        let mut command = Command::new(path);
        command.arg0(&config.program).args(&config.args);
        let watch = Breakpoints { program: path, entry: points.entry, addresses: &points.addresses };
        leave_signals_to_the_program().map_err(ProfileError::Signals)?;
        let trace = trace(command, watch)?;

        let touches = trace.hits.iter().map(|hit| Touch { address: hit.address, caller: hit.caller });
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let profile = Profile::from_touches(&name, &program, touches);
        out.write_all(profile.to_string().as_bytes()).map_err(file(&config.output))?;
        let keep = out.persist(&config.output).map_err(|error| file(&config.output)(error.error))?;
        // A temporary file is private; a profile need not be.
        let _ = keep.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
        Ok(trace.status)
    }
}

/// Ctrl-C and Ctrl-\ go to the program, which shares the terminal; a tracer that they end takes the program and the profile with it.
/// Handlers, not a mask or `SIG_IGN`: those the program would inherit. They stay when the runtime has gone. A signal that is ignored
/// already (a shell's background job) has to reach the program as ignored.
fn leave_signals_to_the_program() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _within = runtime.enter();
    let ignored = ignored_signals();
    for kind in [SignalKind::interrupt(), SignalKind::quit()] {
        if ignored >> (kind.as_raw_value() - 1) & 1 == 0 {
            drop(signal(kind)?);
        }
    }
    Ok(())
}

/// Set of ignored signals, signal 1 in the lowest bit; proc(5), `SigIgn`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Ends this process as the program ended.
fn end_alike(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal().and_then(|signal| Signal::try_from(signal).ok())) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => process::die_of(signal),
        // A real-time signal has no name to die of.
        (None, None) => ExitCode::from(128 + status.signal().unwrap_or_default() as u8),
    }
}
