//! A later start of a program that is complete in the cache: one exec, no pager and no network.

use std::ffi::CString;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::fcntl::Flock;

use crate::Failure;
use crate::cache::Cache;
use crate::run::{RunConfig, report_end};
use crate::start::exec_program;
use crate::stats::Stats;

/// A complete program, which nobody deletes before it is executed.
pub(crate) struct Ready {
    path: PathBuf,
    /// Released by exec.
    _held: Option<Flock<File>>,
}

/// Looks whether the cache has all that `config` asks for.
pub(crate) fn find(cache: &Cache, config: &RunConfig) -> Option<Ready> {
    let held = cache.hold();
    let path = cache.ready(&config.source, config.max_age)?;
    Some(Ready { path, _held: held })
}

/// Runs it. Without stats it takes this process's place and this returns only on failure.
pub(crate) fn run(
    ready: &Ready,
    config: &RunConfig,
    argv0: Option<&CString>,
    args: &[CString],
) -> Result<ExitCode, Failure> {
    if config.stats.is_none() {
        return Err(exec_program(&ready.path, argv0, args));
    }
    report_end(config, |pipe| {
        let size = std::fs::metadata(&ready.path).map_or(0, |meta| meta.len());
        let pages = pagein_image::page_count(size);
        let stats = Stats {
            policy: CACHED.into(),
            program: ready
                .path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default(),
            source: config.source.to_string(),
            exec_ms: config.started.elapsed().as_secs_f64() * 1e3,
            pages_total: pages,
            pages_installed: pages,
            ..Stats::default()
        };
        let _ = serde_json::to_writer(File::from(pipe), &stats);
        exec_program(&ready.path, argv0, args)
    })
}

/// What stats call it when a complete copy was used.
pub(crate) const CACHED: &str = "cached";
