//! `pagein record` and `pagein run`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pagein_loader::{Failure, RecordConfig, RunConfig};
use pagein_source::Options;

use crate::args;

pub(crate) fn record(args: args::Record) -> Result<ExitCode, Failure> {
    let (program, rest) = args.command.split_first().expect("clap requires one");
    let default_output = || {
        let mut name = Path::new(program).file_name().unwrap_or(program).to_owned();
        name.push(".trace");
        PathBuf::from(name)
    };
    let output = args.output.unwrap_or_else(default_output);
    pagein_loader::record(&RecordConfig {
        program: program.clone(),
        args: rest.to_vec(),
        output,
        page_in_linking: !args.no_page_in_linking,
    })
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
        cache_limit: args.cache_size.0,
        max_age: Duration::from_secs_f64(args.max_age),
        options,
        page_in_linking: !args.no_page_in_linking,
        quiet: args.quiet,
        started,
    })
}
