//! A second process that knows what to do when the pager is killed.
//!
//! A userfaultfd whose last descriptor is closed makes faults return pages of zeros, silently. So the guard holds a
//! duplicate of every descriptor. It waits on a socket; if the pager ends without saying good-bye, it tells every process
//! with missing pages. If the guard itself is killed, the pager starts another one.
//! Known limit: if somebody kills both with SIGKILL within the milliseconds that this takes, nobody is left, and the
//! program reads zeros. No process of pagein can prevent that; what kills whole groups kills the program too.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use pagein_image::FileOffset;
use pagein_uffd::process::Detached;
use pagein_uffd::{Event, Userfault, process};
use serde::{Deserialize, Serialize};

use crate::address_map::AddressMap;
use crate::processes::Process;
use crate::tell::{MemoryId, poison, say, tell};

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
        number: u32,
        ranges: Vec<std::ops::Range<u64>>,
    },
    /// Nothing is missing any more, or nobody is left.
    Goodbye,
}

const MESSAGE_LIMIT: usize = 64 * 1024;
/// How often the guard looks again when it has taken over.
const TICK: Duration = Duration::from_millis(20);

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
        let message = Message::Adopt { number: process.number, ranges: process.ranges() };
        self.send(&message, &[process.userfault.as_fd()])
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

/// An address space, as far as the guard knows it.
struct Space {
    number: u32,
    userfault: Userfault,
    map: AddressMap,
}

fn keep_watch(socket: &OwnedFd) {
    let mut ward = None;
    let mut spaces: Vec<Space> = Vec::new();
    let mut errors = 0;
    loop {
        let (bytes, mut fds) = match process::receive(socket, MESSAGE_LIMIT) {
            Ok(received) => received,
            // Out of descriptors or memory: one message is lost, the pager is not.
            Err(_) if errors < 1000 => {
                errors += 1;
                spaces.retain(|space| space.userfault.is_alive());
                std::thread::sleep(TICK);
                continue;
            }
            Err(_) => break,
        };
        if bytes.is_empty() {
            break;
        }
        match serde_json::from_slice(&bytes) {
            Ok(Message::Ward(told)) => ward = Some(told),
            Ok(Message::Adopt { number, ranges }) => {
                // Told again after a remap: the new ranges count.
                spaces.retain(|space| space.number != number && space.userfault.is_alive());
                let map = AddressMap::new(ranges.into_iter().map(|range| (range, FileOffset(0))));
                spaces.extend(fds.pop().map(|fd| Space { number, userfault: fd.into(), map }));
            }
            Ok(Message::Goodbye) => return,
            Err(_) => {}
        }
    }
    spaces.retain(|space| space.userfault.is_alive());
    let Some(ward) = ward.filter(|_| !spaces.is_empty()) else { return };
    say(&format!(
        "the pager of {} was killed: the pages that had not arrived from {} are lost, and every process that \
         misses one gets SIGBUS",
        ward.program, ward.source
    ));
    abandon(spaces, ward.memory);
}

/// Takes the pager's place until no address space is left, only that nobody gets a page any more. It must not end before:
/// a closed userfaultfd gives zeros, and a program may survive SIGBUS.
fn abandon(mut spaces: Vec<Space>, memory: MemoryId) {
    let mut told = false;
    while !spaces.is_empty() {
        let mut children = Vec::new();
        for space in &mut spaces {
            // A fork or a remap that nobody has read blocks both the process and its poisoning.
            for event in space.userfault.events().unwrap_or_default() {
                match event {
                    Event::Fork(userfault) => {
                        children.push(Space { number: 0, userfault, map: space.map.clone() });
                    }
                    Event::Remap { from, to, len } => space.map.remap(from, to, len),
                    // Poisoned with all the others.
                    Event::Fault { .. } => {}
                }
            }
        }
        let forked = !children.is_empty();
        spaces.extend(children);
        let list = || spaces.iter().map(|space| (&space.userfault, space.map.ranges().cloned().collect()));
        if told && !forked {
            poison(list());
        } else {
            told = tell(list(), memory);
        }
        std::thread::sleep(TICK);
        spaces.retain(|space| space.userfault.is_alive());
    }
}
