//! Who is watched: the address spaces that have missing pages, the program, the guard; and who may still come in.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use pagein_uffd::Userfault;

use crate::address_map::AddressMap;
use crate::guard::{Guard, Ward};
use crate::processes::{Process, Processes, lock};

const PROGRAM: u64 = u64::MAX;
const GUARD: u64 = u64::MAX - 1;

/// What has something to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// The program that the user started has ended.
    Program,
    /// The guard has gone.
    Guard,
    /// The address space with this number.
    Process(u32),
}

/// All that a pager watches. Shared by the loop that reads faults and the threads that let further instances in.
pub(crate) struct Watch {
    pub(crate) processes: Arc<Processes>,
    ward: Ward,
    epoll: Epoll,
    guard: Mutex<Guard>,
    next_number: AtomicU32,
    door: Mutex<Door>,
}

/// Whether further instances may come in.
#[derive(Debug)]
struct Door {
    is_open: bool,
    /// They have begun to come in.
    arriving: u32,
}

/// Somebody who comes in: the pager stays at least until this is dropped.
pub(crate) struct Arrival<'a>(&'a Watch);

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        lock(&self.0.door).arriving -= 1;
    }
}

impl Watch {
    /// Nobody is watched yet, and `guard` knows what is at stake.
    pub(crate) fn new(mut guard: Guard, ward: Ward) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        guard.brief(&ward)?;
        epoll.add(&guard, EpollEvent::new(EpollFlags::EPOLLHUP, GUARD))?;
        Ok(Self {
            processes: Arc::default(),
            ward,
            epoll,
            guard: Mutex::new(guard),
            next_number: AtomicU32::new(1),
            door: Mutex::new(Door { is_open: true, arriving: 0 }),
        })
    }

    pub(crate) fn watch_program(&self, pidfd: &OwnedFd) -> io::Result<()> {
        Ok(self.epoll.add(pidfd, EpollEvent::new(EpollFlags::EPOLLIN, PROGRAM))?)
    }

    pub(crate) fn forget_program(&self, pidfd: &OwnedFd) {
        let _ = self.epoll.delete(pidfd.as_fd());
    }

    /// Waits for at most so many milliseconds.
    pub(crate) fn wait(&self, milliseconds: u16) -> Vec<Ready> {
        let mut ready = [EpollEvent::empty(); 32];
        let count = self.epoll.wait(&mut ready, EpollTimeout::from(milliseconds)).unwrap_or(0);
        let what = |event: &EpollEvent| match event.data() {
            PROGRAM => Ready::Program,
            GUARD => Ready::Guard,
            number => Ready::Process(number as u32),
        };
        ready[..count].iter().map(what).collect()
    }

    /// Takes charge of an address space, in which `bias` was added to the addresses of the file.
    pub(crate) fn add(&self, userfault: Userfault, map: AddressMap, bias: u64) -> io::Result<Arc<Process>> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let process = Arc::new(Process { number, userfault, map: Mutex::new(map), bias });
        // In the list first: what the loop reads must be known.
        self.processes.add(Arc::clone(&process));
        self.epoll.add(&process.userfault, EpollEvent::new(EpollFlags::EPOLLIN, u64::from(number)))?;
        self.adopt(&process);
        Ok(process)
    }

    /// Forgets the address spaces that have gone.
    pub(crate) fn prune(&self) {
        for gone in self.processes.prune() {
            let _ = self.epoll.delete(&gone.userfault);
        }
    }

    /// Gives the guard a process to care for; one that has gone is replaced.
    pub(crate) fn adopt(&self, process: &Process) {
        let adopted = lock(&self.guard).adopt(process);
        if adopted.is_err() {
            self.replace_guard();
        }
    }

    /// Without a guard the program is still served; a new one is tried for at the next occasion.
    pub(crate) fn replace_guard(&self) {
        let mut guard = lock(&self.guard);
        let _ = self.epoll.delete(&*guard);
        let replaced = Guard::start().and_then(|mut fresh| {
            fresh.brief(&self.ward)?;
            self.processes.all().iter().try_for_each(|process| fresh.adopt(process))?;
            self.epoll.add(&fresh, EpollEvent::new(EpollFlags::EPOLLHUP, GUARD))?;
            Ok(fresh)
        });
        if let Ok(fresh) = replaced {
            *guard = fresh;
        }
    }

    /// Lets another instance begin to come in; `None` if the pager is about to end.
    pub(crate) fn enter(&self) -> Option<Arrival<'_>> {
        let mut door = lock(&self.door);
        door.is_open.then(|| {
            door.arriving += 1;
            Arrival(self)
        })
    }

    /// Lets nobody in any more; `false` if somebody is coming in.
    pub(crate) fn close(&self) -> bool {
        let mut door = lock(&self.door);
        door.is_open = door.arriving > 0;
        !door.is_open
    }

    /// Lets others in again.
    pub(crate) fn open(&self) {
        lock(&self.door).is_open = true;
    }

    /// Ends the guard's work: nobody needs it any more.
    pub(crate) fn end(&self) {
        lock(&self.guard).dismiss();
    }
}
