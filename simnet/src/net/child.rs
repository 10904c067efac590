//! The first thing that runs in a new process: pagein's own executable once more, which arranges that the command or the
//! server dies with us, and then becomes it.
//!
//! `prctl(PR_SET_PDEATHSIG)` must be called in the child. Between fork and exec only unsafe code could do that; after an exec
//! of ourselves it is an ordinary call.

use std::{
    convert::Infallible,
    env,
    ffi::OsString,
    io::{self, ErrorKind, Read as _},
    os::unix::process::CommandExt as _,
    process::{self, Command, Stdio},
    thread,
};

use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal},
        wait::{WaitStatus, waitpid},
    },
    unistd::{Pid, getppid},
};

use super::signals::PASSED_ON;

/// Stands in argv\[0\] of a process that is to become the command or the server.
const MARK: &str = "pagein-net-child";

/// What a new process is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The command: takes our terminal, dies when the thread that made it does.
    Command,
    /// The server's init: first process of its PID namespace, so that all processes of the server end with it; ends itself
    /// when its standard input does.
    Server,
}

impl Role {
    fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Server => "server",
        }
    }
}

/// A command line that starts this executable again in a role.
pub(super) fn command(role: Role, words: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(MARK).arg(role.word()).arg(process::id().to_string()).args(words);
    command
}

/// Must be the first call of `main` in a program that uses [`run`](super::run): does nothing, unless the program was started
/// by `run` to become the command or the server; then it does not return.
pub fn run_if_child() {
    let mut words = env::args_os();
    if words.next().is_none_or(|name| name != MARK) {
        return;
    }
    let (role, parent) = (words.next(), words.next());
    let words: Vec<OsString> = words.collect();
    let Some((program, arguments)) = words.split_first() else { process::exit(125) };
    let mut command = Command::new(program);
    command.args(arguments);
    // They were blocked so that we could pass them on.
    let _ = PASSED_ON.into_iter().collect::<SigSet>().thread_unblock();
    let is_server = role.is_some_and(|role| role == Role::Server.word());
    let Err(error) = if is_server { serve(command) } else { become_command(command, parent) };
    eprintln!("pagein net: cannot run {}: {error}", program.display());
    process::exit(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

fn become_command(mut command: Command, parent: Option<OsString>) -> io::Result<Infallible> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // Whoever died before the line above cannot be noticed any more.
    if parent.is_none_or(|parent| parent != getppid().to_string().as_str()) {
        process::exit(125);
    }
    Err(command.exec())
}

fn serve(mut command: Command) -> io::Result<Infallible> {
    let server = command.stdin(Stdio::null()).stdout(io::stderr()).spawn()?;
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        process::exit(0)
    });
    let server = Pid::from_raw(server.id() as i32);
    loop {
        // The first process of a PID namespace is also where its orphans end up.
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == server => process::exit(code),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == server => process::exit(128 + signal as i32),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
