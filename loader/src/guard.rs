//! A second process that knows what to do when the pager is killed.
//!
//! A userfaultfd whose last descriptor is closed makes faults return pages of zeros, silently. So the guard holds a
//! duplicate of every descriptor. It waits on a socket; if the pager ends without saying good-bye, it tells every process
//! with missing pages. If the guard itself is killed, the pager starts another one.
//! Known limit: if somebody kills both with SIGKILL within the milliseconds that this takes, nobody is left, and the
//! program reads zeros. No process of pagein can prevent that; what kills whole groups kills the program too.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use pagein_uffd::process::Detached;
use pagein_uffd::{Userfault, process};
use serde::{Deserialize, Serialize};

use crate::processes::Process;
use crate::tell::{MemoryId, say, tell};

/// What the guard must know to tell processes and the user.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ward {
    /// The program's name.
    pub(crate) program: String,
    /// Where its pages come from.
    pub(crate) source: String,
    pub(crate) memory: MemoryId,
}

#[derive(Serialize, Deserialize)]
enum Message {
    Ward(Ward),
    /// Comes with a userfaultfd.
    Adopt {
        ranges: Vec<std::ops::Range<u64>>,
    },
    /// Nothing is missing any more, or nobody is left.
    Goodbye,
}

const MESSAGE_LIMIT: usize = 64 * 1024;

/// The pager's handle of its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    socket: OwnedFd,
    /// Until it is known that the process was made. That is asked when it is first needed: meanwhile the manifest comes.
    starting: Option<Detached>,
}

impl Guard {
    /// Forks the guard.
    pub(crate) fn start() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (mine, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let starting = process::start_detached(|| {
            process::close_others(&[theirs.as_raw_fd()]);
            // Another name than the pager's, so that who kills pagein by name does not also kill this.
            process::set_title("uffd-guard", "uffd-guard");
            keep_watch(&theirs);
            0
        })?;
        drop(theirs);
        Ok(Self { socket: mine, starting: Some(starting) })
    }

    fn send(&self, message: &Message, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
        process::send(&self.socket, &bytes, fds)
    }

    /// Says what is at stake.
    pub(crate) fn brief(&mut self, ward: &Ward) -> io::Result<()> {
        self.starting.take().map_or(Ok(()), Detached::confirm)?;
        self.send(&Message::Ward(ward.clone()), &[])
    }

    /// Gives the guard a process to care for.
    pub(crate) fn adopt(&self, process: &Process) -> io::Result<()> {
        self.send(&Message::Adopt { ranges: process.ranges() }, &[process.userfault.as_fd()])
    }

    /// Ends the guard's work.
    pub(crate) fn dismiss(&mut self) {
        let _ = self.starting.take().map(Detached::confirm);
        let _ = self.send(&Message::Goodbye, &[]);
    }
}

impl AsFd for Guard {
    /// Polls as hung up when the guard has gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn keep_watch(socket: &OwnedFd) {
    let mut ward = None;
    let mut spaces: Vec<(Userfault, Vec<std::ops::Range<u64>>)> = Vec::new();
    loop {
        let Ok((bytes, mut fds)) = process::receive(socket, MESSAGE_LIMIT) else { break };
        if bytes.is_empty() {
            break;
        }
        match serde_json::from_slice(&bytes) {
            Ok(Message::Ward(told)) => ward = Some(told),
            Ok(Message::Adopt { ranges }) => {
                spaces.retain(|(userfault, _)| userfault.is_alive());
                spaces.extend(fds.pop().map(|fd| (Userfault::from(fd), ranges)));
            }
            Ok(Message::Goodbye) => return,
            Err(_) => {}
        }
    }
    spaces.retain(|(userfault, _)| userfault.is_alive());
    let Some(ward) = ward.filter(|_| !spaces.is_empty()) else { return };
    say(&format!(
        "the pager of {} was killed: the pages that had not arrived from {} are lost, and every process that \
         misses one gets SIGBUS",
        ward.program, ward.source
    ));
    tell(spaces.iter().map(|(userfault, ranges)| (userfault, ranges.clone())), ward.memory);
}
