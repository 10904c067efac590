//! A process that stays in front of the program when something is to be reported at its end (stats, traces).
//!
//! Without a report there is none: the program takes the place of the command. With one, this process waits like a shell
//! that runs one job: it shares the program's process group, passes signals on, stops when the program stops and ends as
//! the program ended.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2};
use pagein_uffd::process;

use crate::Failure;

/// How the program ended, and what its pager reported.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: WaitStatus,
    /// When that was seen; the report may come later.
    pub(crate) at: Instant,
    /// What the pager wrote; empty if there was none or it died.
    pub(crate) report: Vec<u8>,
}

impl Ended {
    /// The exit status as a shell shows it.
    pub(crate) fn exit_status(&self) -> i32 {
        match self.status {
            WaitStatus::Exited(_, code) => code,
            WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
            _ => i32::from(Failure::PAGEIN),
        }
    }

    /// Ends this process in the same way.
    pub(crate) fn end_alike(&self) -> ExitCode {
        match self.status {
            WaitStatus::Signaled(_, signal, _) => process::die_of(signal),
            _ => ExitCode::from(self.exit_status() as u8),
        }
    }
}

/// Signals that one may send to the command's pid, or that the terminal sends to the job. What stops the program is seen by
/// waiting for it.
const HANDLED: [Signal; 12] = [
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
    Signal::SIGALRM,
    Signal::SIGWINCH,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// Runs `front` in a child (it becomes the program) with the writing end of a pipe for the report, and waits for both.
pub(crate) fn wait_for(front: impl FnOnce(OwnedFd) -> i32) -> Result<Ended, Failure> {
    let error = |what: &str, error: Errno| Failure::pagein(format!("cannot {what}: {error}"));
    let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(|e| error("make a pipe", e))?;
    let before = SigSet::thread_get_mask().map_err(|e| error("read the signal mask", e))?;
    let handled: SigSet = HANDLED.into_iter().collect();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&handled), None).map_err(|e| error("block signals", e))?;
    let child = process::fork_with(|| {
        let _ = before.thread_set_mask();
        front(write)
    });
    let child = child.map_err(|error| Failure::pagein(format!("cannot fork: {error}")))?;
    pass_signals(child, handled);
    let status = wait(child);
    let at = Instant::now();
    let mut report = Vec::new();
    // An error here means no report, which the caller says.
    let _ = File::from(read).read_to_end(&mut report);
    Ok(Ended { status, at, report })
}

/// `si_code` of signals that the kernel sends: here the terminal's, to the whole process group (`sigaction(2)`).
const SI_KERNEL: i32 = 0x80;

/// What somebody sends to this process is meant for the program; what the terminal sends, the program has got itself.
fn pass_signals(child: Pid, handled: SigSet) {
    let Ok(signals) = SignalFd::with_flags(&handled, SfdFlags::SFD_CLOEXEC) else { return };
    thread::spawn(move || {
        loop {
            match signals.read_signal() {
                Ok(Some(info)) if info.ssi_code != SI_KERNEL => {
                    if let Ok(signal) = Signal::try_from(info.ssi_signo as i32) {
                        let _ = kill(child, signal);
                    }
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    });
}

fn wait(child: Pid) -> WaitStatus {
    loop {
        match waitpid(child, Some(WaitPidFlag::WUNTRACED)) {
            // The terminal stops the whole group, a shell sees only this process.
            Ok(WaitStatus::Stopped(..)) => {
                let _ = raise(Signal::SIGSTOP);
            }
            Ok(ended) => return ended,
            Err(Errno::EINTR) => {}
            Err(_) => return WaitStatus::Exited(child, i32::from(Failure::PAGEIN)),
        }
    }
}
