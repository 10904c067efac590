//! `pagein record` and `pagein run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pagein_loader::{Failure, RecordConfig, RunConfig};
use pagein_source::Options;

use crate::args;

pub(crate) fn record(args: args::Record) -> Result<ExitCode, Failure> {
    let (program, rest) = args.command.split_first().expect("clap requires one");
    let name = || Path::new(program).file_name().unwrap_or(program).to_owned();
    let output = args.output.unwrap_or_else(|| PathBuf::from(name()).with_added_extension("trace"));
    pagein_loader::record(&RecordConfig { program: program.clone(), args: rest.to_vec(), output })
}

pub(crate) fn run(args: args::Run, started: Instant) -> Result<ExitCode, Failure> {
    let options = Options {
        stall: Duration::from_secs_f64(args.timeout),
        connect: Duration::from_secs_f64(args.timeout),
        attempts: args.attempts,
        ..Options::default()
    };
    pagein_loader::run(&RunConfig {
        source: args.source,
        args: args.args,
        argv0: args.argv0,
        policy: args.policy.0,
        stats: args.stats,
        cache: args.cache.unwrap_or_else(pagein_loader::default_cache),
        options,
        quiet: args.quiet,
        started,
    })
}
