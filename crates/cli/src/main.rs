//! The `pagein` command: arguments in, one call, an exit status out.

mod args;
mod commands;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let started = Instant::now();
    // `pagein net` starts this very program again inside its namespaces.
    pagein_simnet::net::run_if_child();
    // So does `pagein experiment` for its runs.
    pagein_experiment::run_if_child();
    match commands::dispatch(args::parse_or_exit(), started) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("pagein: {failure}");
            ExitCode::from(failure.code)
        }
    }
}
