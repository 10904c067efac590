//! Instances of one program that are started together share one pager: each byte is fetched once, and the pages in its memory
//! file are shared by all.
//!
//! The first one's pager listens at a socket in the cache. A further one connects and becomes the program with that pager's help
//! as the first did. If the pager ends before it has begun to help, its socket closes and the instance looks again: meanwhile
//! the program may be complete in the cache.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, getsockopt, listen, socket,
};
use nix::unistd::{Pid, geteuid};
use pagein_elf::Program;
use pagein_image::Digest;
use pagein_source::Location;
use pagein_uffd::process;

use crate::cache::Cache;
use crate::launch::launch;
use crate::lazy::Lazy;
use crate::start::Front;
use crate::watch::Watch;

/// For so long others may join a pager whose image is not pinned: for longer, its source may have another one.
const TOGETHER: Duration = Duration::from_secs(10);

/// Where this instance's pages come from.
pub(crate) enum Place {
    /// A pager that runs; it has been asked.
    Guest(OwnedFd),
    /// A pager of its own, which listens here for others.
    Host(OwnedFd),
    /// A pager of its own.
    Alone,
}

/// Looks for a running pager of `source`, or takes the place of the one that others will find.
pub(crate) fn find(cache: &Cache, source: &Location) -> Place {
    let directory = cache.root().join("pagers");
    let path = directory.join(&Digest::of(source.argument(&[0; 32]).as_bytes()).to_string()[..32]);
    let try_all = || {
        if let Some(guest) = connect_to(&path)? {
            return Ok(Place::Guest(guest));
        }
        std::fs::create_dir_all(&directory)?;
        // Of many that start at once only one listens.
        let _lock = cache.lock_pagers()?;
        if let Some(guest) = connect_to(&path)? {
            return Ok(Place::Guest(guest));
        }
        let _ = std::fs::remove_file(&path);
        listen_at(&path).map(Place::Host)
    };
    // A cache that is read-only, an address that is too long: every instance for itself.
    let outcome: io::Result<Place> = try_all();
    outcome.unwrap_or(Place::Alone)
}

fn new_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Connects to the pager that listens at `path`; `None` if there is none.
fn connect_to(path: &Path) -> io::Result<Option<OwnedFd>> {
    let socket = new_socket()?;
    let connected = connect(socket.as_raw_fd(), &UnixAddr::new(path)?);
    Ok(connected.is_ok().then_some(socket))
}

fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(socket)
}

/// What a further instance is started with.
pub(crate) struct House {
    pub(crate) lazy: Arc<Lazy>,
    pub(crate) program: Arc<Program>,
    /// What is exec'ed.
    pub(crate) file: PathBuf,
    pub(crate) cache: Cache,
    pub(crate) watch: Arc<Watch>,
}

/// Lets further instances in, each in a thread of its own (one that is stopped must not stop the others), as long as
/// this pager lives; one whose image is not `pinned`, only those that are started together.
pub(crate) fn receive(listener: OwnedFd, house: House, pinned: bool) {
    let house = Arc::new(house);
    std::thread::spawn(move || {
        let started = Instant::now();
        loop {
            let left = if pinned { TOGETHER } else { TOGETHER.saturating_sub(started.elapsed()) };
            if left.is_zero() {
                return;
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout) != Ok(1) {
                continue;
            }
            let Ok(socket) = process::accept(listener.as_fd()) else { continue };
            let house = Arc::clone(&house);
            std::thread::spawn(move || house.let_in(socket));
        }
    });
}

impl House {
    fn let_in(&self, socket: OwnedFd) {
        let Some(_arrival) = self.watch.enter() else { return };
        let Some(pid) = peer(&socket) else { return };
        let front = Front::of_peer(socket, pid);
        let _held = self.cache.hold();
        let outcome = launch(&front, &self.file, &self.program, &self.lazy.memory)
            .and_then(|launched| self.lazy.admit(launched, &self.program, &self.watch));
        front.report(outcome);
    }
}

/// Who is at the other end: only this user's process, and one that sees the same files.
fn peer(socket: &OwnedFd) -> Option<Pid> {
    let peer = getsockopt(socket, PeerCredentials).ok()?;
    let mount = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let here = mount("self")?;
    (peer.uid() == geteuid().as_raw() && mount(&peer.pid().to_string())? == here)
        .then(|| Pid::from_raw(peer.pid()))
}
