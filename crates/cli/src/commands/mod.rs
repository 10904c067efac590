//! One file for each command: from its arguments to one call of a library.

mod cache;
mod demo;
mod experiment;
mod image;
mod inspect;
mod layout;
mod linking;
mod plan;
mod profile;
mod relaid;
mod relayout;
mod run;
mod serve;
mod split;
mod verify;
mod verify_run;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use pagein_loader::Failure;

use crate::args::{Args, Command};

pub(crate) fn dispatch(args: Args, started: Instant) -> Result<ExitCode, Failure> {
    match args.command {
        Command::Record(args) => run::record(args),
        Command::Split(args) => split::split(args),
        Command::Serve(args) => serve::serve(&args),
        Command::Run(args) => run::run(args, started),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Verify(args) => verify::verify(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Profile(args) => profile::profile(args),
        Command::Relayout(args) => relayout::relayout(&args),
        Command::Layout(args) => layout::layout(&args),
        Command::Cache(args) => cache::cache(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Net(args) => net(args),
        Command::Experiment(args) => experiment::experiment(args),
    }
}

/// `pagein net`: a command behind an emulated link.
fn net(args: pagein_simnet::net::NetArgs) -> Result<ExitCode, Failure> {
    use pagein_simnet::net::{exit_code, run};
    let status = args.into_config().and_then(|config| run(&config)).map_err(failed)?;
    Ok(ExitCode::from(exit_code(status)))
}

/// A failure of pagein itself, from any error; causes follow it.
pub(crate) fn failed(error: impl std::error::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    Failure { code: Failure::PAGEIN, text }
}

/// Puts a whole file in place, or leaves what is there.
pub(crate) fn replace(path: &Path, bytes: &[u8], permissions: Permissions) -> Result<(), Failure> {
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(bytes)?;
        file.as_file().set_permissions(permissions)?;
        file.persist(path).map_err(|error| error.error).map(drop)
    };
    write().map_err(|error| pagein(path, &error))
}

/// The usual permissions of a file that is not a program.
pub(crate) fn plain() -> Permissions {
    Permissions::from_mode(0o644)
}

/// A failure of pagein itself that concerns a file.
pub(crate) fn pagein(path: &Path, error: &impl std::fmt::Display) -> Failure {
    Failure { code: Failure::PAGEIN, text: format!("{}: {error}", path.display()) }
}

/// A runtime for commands that mostly wait.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)
}

/// Prints JSON for a machine.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&serde_json::to_string_pretty(value).map_err(failed)?)
}

/// Prints a line; a reader that has gone is not an error worth a message.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(failed),
    }
}

/// Bytes for people: powers of ten, as link speeds are.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..1_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}
