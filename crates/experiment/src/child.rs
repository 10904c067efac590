//! The first thing that runs in a new process: pagein's own executable once more, which arranges that the command dies with
//! the experiment, `kill -9` included, and then becomes it.
//!
//! `prctl(PR_SET_PDEATHSIG)` must be called in the child, and between fork and exec only unsafe code could do that.

use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;
use std::process::{self, Command};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

/// Stands in argv\[0\] of a process that is to become a command of an experiment.
const MARK: &str = "pagein-experiment-child";

/// A command that ends when the thread that starts it does.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(MARK).arg(process::id().to_string()).arg(program).process_group(0);
    command
}

/// Must be called first of all in `main` of a program that uses [`run`](crate::run): does nothing, unless the program was
/// started to become a command of an experiment; then it does not return.
pub fn run_if_child() {
    let mut words = env::args_os();
    if words.next().is_none_or(|name| name != MARK) {
        return;
    }
    let (Some(parent), Some(program)) = (words.next(), words.next()) else { process::exit(125) };
    let bound = prctl::set_pdeathsig(Signal::SIGKILL);
    // Whoever died before the line above cannot be noticed any more.
    if bound.is_err() || parent != getppid().to_string().as_str() {
        process::exit(125);
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("pagein: cannot run {}: {error}", program.display());
    process::exit(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}
