//! One run, timed from outside, with the CPU time of every process that it took.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use pagein_model::Policy;
use serde_json::Value;

use crate::jobs::Job;

/// What a run took.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// From spawning the command to its end, milliseconds.
    pub wall_ms: f64,
    /// User and system time of the command and all that it started, milliseconds.
    pub cpu_ms: f64,
    /// Standard output and exit status, to be compared.
    pub outcome: (Vec<u8>, Option<i32>),
    /// What `--stats` wrote; null for a local run.
    pub stats: Value,
}

/// Makes this process the parent of orphans, so that the CPU time of a pager, which is nobody's child, can be had.
pub fn adopt_orphans() -> anyhow::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// The program itself, from the page cache.
pub fn local(job: &Job, server: u32) -> anyhow::Result<Run> {
    let mut command = Command::new(&job.path);
    command.args(&job.args);
    timed(command, server)
}

/// The program by `pagein run`, with an empty cache.
pub fn paged(pagein: &Path, job: &Job, policy: Policy, url: &str, server: u32) -> anyhow::Result<Run> {
    let directory = tempfile::tempdir()?;
    let stats = directory.path().join("stats.json");
    let mut command = Command::new(pagein);
    command.args(["run", "--policy", policy.name(), "--stats"]).arg(&stats);
    // The name that it was recorded with: bash and python look themselves up in PATH if it has no slash.
    command.arg("--argv0").arg(&job.path);
    command.arg("--cache").arg(directory.path().join("cache")).arg(url).arg("--").args(&job.args);
    let run = timed(command, server)?;
    let stats = serde_json::from_reader(File::open(&stats)?).context("no stats were written")?;
    Ok(Run { stats, ..run })
}

/// `server` is the one child that is not waited for.
fn timed(mut command: Command, server: u32) -> anyhow::Result<Run> {
    let before = cpu_ms()?;
    let started = Instant::now();
    // Not captured: the pager holds stderr a little longer than the program.
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let output = output.spawn()?.wait_with_output()?;
    let wall_ms = started.elapsed().as_secs_f64() * 1e3;
    reap(server)?;
    Ok(Run {
        wall_ms,
        cpu_ms: cpu_ms()? - before,
        outcome: (output.stdout, output.status.code()),
        stats: Value::Null,
    })
}

/// Waits for the orphans. They also must not run on into the next measurement.
fn reap(server: u32) -> anyhow::Result<()> {
    loop {
        let children =
            std::fs::read_to_string("/proc/thread-self/children").context("children of this process")?;
        let mut pids = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok());
        let Some(pid) = pids.find(|&pid: &i32| pid.unsigned_abs() != server) else { return Ok(()) };
        if let Err(error) = waitpid(Pid::from_raw(pid), None) {
            bail!("cannot wait for process {pid}: {error}");
        }
    }
}

/// CPU time of the children that have been waited for.
fn cpu_ms() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 * 1e3 + time.tv_usec() as f64 / 1e3;
    Ok(ms(usage.user_time()) + ms(usage.system_time()))
}
