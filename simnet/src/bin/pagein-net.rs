//! `pagein net` as a program of its own.

use std::process::ExitCode;

use clap::Parser;
use pagein_simnet::net::{NetArgs, exit_code, run, run_if_child};

/// Run a command behind an emulated network link
#[derive(Parser)]
#[command(name = "pagein-net", version)]
struct Cli {
    #[command(flatten)]
    net: NetArgs,
}

fn main() -> ExitCode {
    run_if_child();
    match Cli::parse().net.into_config().and_then(|config| run(&config)) {
        Ok(status) => ExitCode::from(exit_code(status)),
        Err(error) => {
            eprintln!("pagein net: {error}");
            // As with docker(1) and env(1): the failure is ours and not the command's.
            ExitCode::from(125)
        }
    }
}
