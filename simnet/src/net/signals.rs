//! Signals while a command runs: those that somebody sends to us are the command's.
//!
//! Keys (Ctrl-C, Ctrl-\, a closed terminal) reach the command by themselves, because it is in our process group; the kernel
//! says so with the signal, and then it is not passed on a second time.

use std::{io::PipeReader, os::fd::AsFd as _};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, Signal, kill},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::Pid,
};

/// Those that would end us, and that a command may want to handle.
pub(super) const PASSED_ON: [Signal; 6] =
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGUSR1, Signal::SIGUSR2];

/// Collects signals in place of their default action, until it is dropped.
pub(super) struct Signals {
    before: SigSet,
    descriptor: SignalFd,
}

impl Signals {
    /// For the calling thread, and for threads that it starts from now on.
    pub(super) fn collect() -> nix::Result<Self> {
        let set: SigSet = PASSED_ON.into_iter().collect();
        let before = set.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        let descriptor = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { before, descriptor })
    }

    /// Passes signals on to `command` until `ended` is closed.
    pub(super) fn pass_on_until(&self, ended: &PipeReader, command: Pid) -> nix::Result<()> {
        loop {
            let mut fds = [
                PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN),
                PollFd::new(ended.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) if fds[1].any().unwrap_or(true) => return Ok(()),
                Ok(_) => self.pass_on(command)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn pass_on(&self, command: Pid) -> nix::Result<()> {
        while let Some(signal) = self.descriptor.read_signal()? {
            // SI_USER and the other codes of processes are not positive (sigaction(2)).
            if signal.ssi_code <= 0
                && let Ok(signal) = Signal::try_from(signal.ssi_signo as i32)
            {
                // It may have ended just now; it stays a zombie, so that its number is still its own.
                let _ = kill(command, signal);
            }
        }
        Ok(())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let _ = self.before.thread_set_mask();
    }
}
