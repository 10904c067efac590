//! The `pagein` command: arguments in, one call, an exit status out.

mod args;
mod commands;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let started = Instant::now();
    match commands::dispatch(args::parse_or_exit(), started) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("pagein: {failure}");
            ExitCode::from(failure.code)
        }
    }
}
