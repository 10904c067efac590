//! One process becomes two: the pager, and the program in the place of the process that the user started.
//!
//! The program keeps the pid, the parent, the terminal and the process group of the command that was typed, so signals,
//! job control and the exit status need no help from anyone. The pager is nobody's child and lives in a session of its
//! own: the program sees no child that it did not start, and Ctrl-C does not reach the pager.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::SigSet;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Pid, getpid};
use pagein_uffd::{inherited, process};

use crate::Failure;
use crate::tell::say;
use crate::trouble::Trouble;

/// Largest message between the two: a tag, a path or an error text.
const MESSAGE_LIMIT: usize = 64 * 1024;
const EXEC: u8 = b'E';
const READY: u8 = b'R';
const GO: u8 = b'G';
const FAIL: u8 = b'F';

/// The pager's end of the conversation with the process that is about to become the program.
pub(crate) struct Front {
    socket: OwnedFd,
    pid: Pid,
}

impl Front {
    /// The process at the other end of `socket`.
    pub(crate) fn of_peer(socket: OwnedFd, pid: Pid) -> Self {
        Self { socket, pid }
    }

    /// The process that becomes the program.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// The socket; it reports a hang-up when the other side has gone or exec'ed.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes the process exec `path`. With a memory file it only gets ready, and this returns the number under which the
    /// program holds it; then [`Self::go`] must follow.
    ///
    /// Not to be called while this thread traces the process: a signal would stop it (an ignored one too), and an answer
    /// that is waited for would never come.
    pub(crate) fn exec(&self, path: &Path, memory: Option<BorrowedFd<'_>>) -> io::Result<Option<RawFd>> {
        let mut message = vec![EXEC];
        message.extend_from_slice(path.as_os_str().as_bytes());
        process::send(&self.socket, &message, memory.as_slice())?;
        if memory.is_none() {
            return Ok(None);
        }
        let (answer, _) = process::receive(&self.socket, 16)?;
        let number = answer.strip_prefix(&[READY]).and_then(|rest| rest.try_into().ok());
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended");
        number.map(|bytes| Some(RawFd::from_ne_bytes(bytes))).ok_or_else(gone)
    }

    /// Waits until the process has exec'ed, or ended: its end of the socket is closed then.
    pub(crate) fn await_exec(&self) {
        crate::faults::hung_up(self.socket(), nix::poll::PollTimeout::NONE);
    }

    /// Lets the process exec what it is ready for. It does not answer.
    pub(crate) fn go(&self) -> io::Result<()> {
        process::send(&self.socket, &[GO], &[])
    }

    /// Ends a pager's life: a failure is reported by the process in front, or, if that is the program already, here.
    /// Returns an exit status that nobody sees.
    pub(crate) fn report(&self, outcome: Result<(), Trouble>) -> i32 {
        let Err(trouble) = outcome else { return 0 };
        let failure = Failure::from(trouble);
        let mut message = vec![FAIL, failure.code];
        message.extend_from_slice(failure.text.as_bytes());
        message.truncate(MESSAGE_LIMIT);
        if process::send(&self.socket, &message, &[]).is_err() {
            say(&failure.text);
        }
        1
    }
}

/// Runs `pager` in a detached process and becomes the program that it prepares. Returns only if that fails.
///
/// `argv0` is the name that the program is called by; by default its file name.
///
/// `keep` are descriptors that the pager needs; all others but the standard ones are closed in it, so that no pipe of
/// the program's is held open.
pub(crate) fn become_program(
    argv0: Option<&CString>,
    args: &[CString],
    keep: &[RawFd],
    pager: impl FnOnce(Front) -> i32,
) -> Failure {
    let flags = SockFlag::SOCK_CLOEXEC;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
    let (mine, theirs) = match pair {
        Ok(pair) => pair,
        Err(error) => return Failure::pagein(format!("cannot make a socket: {error}")),
    };
    let pid = getpid();
    let mut kept = keep.to_vec();
    kept.push(theirs.as_raw_fd());
    let forked = process::fork_detached(move || {
        detach_descriptors(&kept);
        harden();
        pager(Front { socket: theirs, pid })
    });
    if let Err(error) = forked {
        return Failure::pagein(format!("cannot start the pager: {error}"));
    }
    follow(&mine, argv0, args).unwrap_or_else(|| told_to_fail(&[]))
}

/// Does what the pager says. `None` if it ended before it said anything.
pub(crate) fn follow(socket: &OwnedFd, argv0: Option<&CString>, args: &[CString]) -> Option<Failure> {
    let (message, fds) = process::receive(socket, MESSAGE_LIMIT).ok()?;
    Some(match message.split_first()? {
        (&EXEC, path) => match fds.first().map_or(Ok(()), |memory| get_ready(socket, memory)) {
            Ok(()) => exec_program(Path::new(OsStr::from_bytes(path)), argv0, args),
            Err(failure) => failure,
        },
        _ => told_to_fail(&message),
    })
}

/// The failure that is in a message, or that there was none in it.
fn told_to_fail(message: &[u8]) -> Failure {
    match message {
        [FAIL, code, text @ ..] => Failure { code: *code, text: String::from_utf8_lossy(text).into_owned() },
        _ => Failure::pagein("the pager ended before the program was started".to_owned()),
    }
}

/// Becomes the program at `path`, or says why not.
pub(crate) fn exec_program(path: &Path, argv0: Option<&CString>, args: &[CString]) -> Failure {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = argv0.cloned().or_else(|| CString::new(name).ok());
    let all: Vec<CString> = name.into_iter().chain(args.iter().cloned()).collect();
    exec_now(path, &all)
}

/// Says that it is ready to exec with a memory file, and does when it is told to.
fn get_ready(socket: &OwnedFd, memory: &OwnedFd) -> Result<(), Failure> {
    let lost = |error| Failure::pagein(format!("lost the pager: {error}"));
    fcntl(memory, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| lost(errno.into()))?;
    let mut answer = vec![READY];
    answer.extend_from_slice(&memory.as_raw_fd().to_ne_bytes());
    process::send(socket, &answer, &[]).map_err(lost)?;
    let (message, _) = process::receive(socket, MESSAGE_LIMIT).map_err(lost)?;
    if message == [GO] { Ok(()) } else { Err(told_to_fail(&message)) }
}

fn exec_now(path: &Path, argv: &[CString]) -> Failure {
    let shown = path.display();
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return Failure::pagein(format!("{shown} holds a NUL"));
    };
    inherited::restore();
    let error = process::exec(&path, argv);
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; its directory may be mounted noexec: choose another one with --cache DIR"
        }
        io::ErrorKind::NotFound => "; the program's dynamic linker is not installed here",
        _ => "",
    };
    Failure { code: Failure::CANNOT_RUN, text: format!("cannot execute {shown}: {error}{hint}") }
}

/// The program's memory depends on this process, so only SIGKILL may end it: neither what is sent to a whole group or to
/// all processes (SIGTERM at a shutdown), nor a limit on file sizes. Threads and the guard inherit this. A panic ends all of
/// it at once, so that the guard takes over, and not a thread that somebody waits for.
fn harden() {
    let _ = SigSet::all().thread_block();
    std::panic::set_hook(Box::new(|panic| {
        say(&format!("internal error: {panic}"));
        std::process::abort();
    }));
    // Each forked child of the program costs a descriptor.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Closes what the pager has no business with, and frees the working directory.
fn detach_descriptors(keep: &[RawFd]) {
    process::close_others(keep);
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdin(&null);
        let _ = nix::unistd::dup2_stdout(&null);
    }
    let _ = std::env::set_current_dir("/");
}
