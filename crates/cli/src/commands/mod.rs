//! One file for each command: from its arguments to one call of a library.

mod run;

use std::process::ExitCode;
use std::time::Instant;

use pagein_loader::Failure;

use crate::args::{Args, Command};

pub(crate) fn dispatch(args: Args, started: Instant) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Record(args) => run::record(args),
        Command::Run(args) => run::run(args, started),
        _ => Err(Failure { code: 125, text: "wip".into() }),
    }
}
