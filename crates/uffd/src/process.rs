//! Processes: the detached pager, exec, descriptors sent over a socket or taken from another process.

use std::ffi::CString;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, setsid};

/// Runs `child` in a new process that is nobody's child and in a session of its own; its result is the exit status.
///
/// The caller does not become its parent, so that a program that is exec'ed in the caller's place sees no child that it
/// did not start.
pub fn fork_detached(child: impl FnOnce() -> i32) -> io::Result<()> {
    start_detached(child)?.confirm()
}

/// Begins to do what [`fork_detached`] does, without waiting until it is done.
pub fn start_detached(child: impl FnOnce() -> i32) -> io::Result<Detached> {
    fork_with(|| {
        match fork_with(|| {
            let _ = setsid();
            child()
        }) {
            Ok(_) => 0,
            Err(_) => 1,
        }
    })
    .map(Detached)
}

/// A detached process that is being made: the process between it and this one, which ends at once.
#[derive(Debug)]
#[must_use = "the process between stays a zombie until it is waited for"]
pub struct Detached(Pid);

impl Detached {
    /// Waits until the process is detached; an error if it could not be made.
    pub fn confirm(self) -> io::Result<()> {
        match waitpid(self.0, None)? {
            nix::sys::wait::WaitStatus::Exited(_, 0) => Ok(()),
            _ => Err(io::Error::other("cannot fork")),
        }
    }
}

/// Runs `child` in a forked process; its result is the exit status. Returns the child's pid.
///
/// Call it while the process has one thread, or let `child` use nothing that another thread may hold locked.
pub fn fork_with(child: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: the child runs `child` and exits; the callers fork before they start threads (or, for the guard, run code
    // whose only lock is the allocator's, which glibc's fork leaves usable).
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let status = child();
            // SAFETY: _exit only ends the process; destructors of the parent's state must not run twice.
            unsafe { libc::_exit(status) }
        }
    }
}

/// Replaces this process's image, with the environment as it is. Returns only if that fails.
pub fn exec(path: &CString, argv: &[CString]) -> io::Error {
    match nix::unistd::execv(path, argv) {
        Err(error) => error.into(),
        Ok(never) => match never {},
    }
}

/// A descriptor for a process that stays valid (and polls readable) when it ends (`pidfd_open(2)`).
pub fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: two integers in, a new descriptor out.
    unsafe { new_fd(libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0)) }
}

/// A duplicate of descriptor `fd` of another process (`pidfd_getfd(2)`); needs the right to trace it.
pub fn pidfd_getfd(pidfd: BorrowedFd<'_>, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: three integers in, a new descriptor out.
    unsafe { new_fd(libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0)) }
}

/// # Safety
/// `result` is what a system call returned that makes a descriptor.
unsafe fn new_fd(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) })
}

/// Accepts a connection; its descriptor is close-on-exec.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (no_address, no_length) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: two null pointers, which mean that no address is wanted; a new descriptor out.
    unsafe {
        let fd = libc::accept4(listener.as_raw_fd(), no_address, no_length, libc::SOCK_CLOEXEC);
        new_fd(fd.into())
    }
}

/// Sends one message with the given descriptors over a Unix socket.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&fds)];
    let control = if fds.is_empty() { &control[..0] } else { &control[..] };
    let flags = MsgFlags::MSG_NOSIGNAL;
    sendmsg::<()>(socket.as_fd().as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
    Ok(())
}

/// Receives one message of at most `limit` bytes and up to eight descriptors; an empty message is the end of the stream.
/// The descriptors are close-on-exec.
pub fn receive(socket: impl AsFd, limit: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; limit];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let mut control = cmsg_space!([RawFd; 8]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let raw_fd = socket.as_fd().as_raw_fd();
    let message = loop {
        match recvmsg::<()>(raw_fd, &mut slices, Some(&mut control), flags) {
            Err(nix::errno::Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw_fds) = part {
            // SAFETY: recvmsg has just put these descriptors into our table; nobody else knows them.
            fds.extend(raw_fds.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    let len = message.bytes;
    bytes.truncate(len);
    Ok((bytes, fds))
}

/// Ends this process by `signal`, without a core dump of it: as if the program had been in its place.
pub fn die_of(signal: Signal) -> ! {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on this process; the structure outlives the call.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        libc::signal(signal as i32, libc::SIG_DFL);
    }
    let _ = SigSet::from(signal).thread_unblock();
    let _ = nix::sys::signal::raise(signal);
    // Only a signal whose default is not to end the process gets here.
    std::process::exit(128 + signal as i32)
}

/// Sets what `ps` shows of this process, so that whoever looks sees what it is for.
pub fn set_title(comm: &str, command_line: &str) {
    if let Ok(name) = CString::new(comm) {
        let _ = nix::sys::prctl::set_name(&name);
    }
    crate::inherited::overwrite_command_line(command_line);
}

/// Closes every descriptor from 3 on except those in `keep` (`close_range(2)`).
///
/// For a process that was just forked and has not opened anything yet that is not in `keep`.
pub fn close_others(keep: &[RawFd]) {
    let mut keep: Vec<u32> =
        keep.iter().filter_map(|&fd| u32::try_from(fd).ok()).filter(|&fd| fd > 2).collect();
    keep.sort_unstable();
    let mut first = 3u32;
    for next in keep.into_iter().chain([u32::MAX]) {
        if next > first {
            let last = if next == u32::MAX { u32::MAX } else { next - 1 };
            // SAFETY: three integers; by this function's contract nobody uses what is closed.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = next.saturating_add(1);
    }
}
