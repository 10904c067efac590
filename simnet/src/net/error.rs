//! What can go wrong before a command runs behind a link, and what to do about it.

use std::{io, path::PathBuf, time::Duration};

use crate::{trace_file::TraceError, units::format_duration};

/// pagein net could not do its part. The command's own failures are no errors here; they are its exit status.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Options that contradict each other.
    #[error("{0}")]
    Config(String),
    /// A trace file could not be read.
    #[error("cannot read the trace {}: {cause}", path.display())]
    ReadTrace {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A trace file is wrong.
    #[error("{}: {cause}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Where and why.
        cause: TraceError,
    },
    /// No namespaces for this user.
    #[error(
        "cannot make a {kind} namespace: {cause}. It takes root, or user namespaces open to all users: see \
         `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone kernel.apparmor_restrict_unprivileged_userns`"
    )]
    Namespace {
        /// "network", "user", "mount" or "process".
        kind: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The process has several threads and no privilege.
    #[error(
        "without root the link must be set up before the process starts threads (it has {0}): a user namespace can only be \
         entered by a process with one thread"
    )]
    Threads(usize),
    /// No TUN device.
    #[error(
        "cannot make a TUN device: {0}. It needs the kernel module tun (`modprobe tun`) and a /dev/net/tun that this user may \
         open (`chmod 0666 /dev/net/tun`, the mode that udev gives it)"
    )]
    Tun(io::Error),
    /// A link inside a link, without root.
    #[error(
        "links inside links need root: an ordinary user has no rights over the network namespace it is already in"
    )]
    NestedWithoutRoot,
    /// A step of the set-up failed.
    #[error("{step}: {cause}")]
    Setup {
        /// What was tried.
        step: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The server never listened.
    #[error("the server listens on no port after {}", format_duration(*.0))]
    ServerSilent(Duration),
    /// The server ended at once.
    #[error("the server ended before it listened on a port ({0})")]
    ServerEnded(std::process::ExitStatus),
}

impl NetError {
    /// Names the step that an I/O error belongs to.
    pub(super) fn at(step: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let step = step.into();
        move |cause| Self::Setup { step, cause }
    }
}
