//! `pagein experiment`.

use std::process::ExitCode;

use pagein_experiment::Config;
use pagein_loader::Failure;

use super::{failed, print};
use crate::args;

pub(crate) fn experiment(args: args::Experiment) -> Result<ExitCode, Failure> {
    let config = Config {
        scenario: args.scenario,
        output: args.output,
        // The one that was started, though a newer one may have taken its place on the disk.
        pagein: std::env::current_exe().map_err(failed)?,
        programs: args.programs,
        mode: args.mode,
        parallel: args.parallel,
        retry_failed: args.retry_failed,
    };
    let finished = pagein_experiment::run(&config).map_err(failed)?;
    let mut parts = vec![format!("{} runs", finished.runs)];
    if finished.failed > 0 {
        parts.push(format!("{} failed", finished.failed));
    }
    if finished.skipped > 0 {
        parts.push(format!("{} cells skipped", finished.skipped));
    }
    print(&format!("{}: {}", parts.join(", "), finished.report.display()))?;
    Ok(ExitCode::from(u8::from(finished.failed > 0)))
}
