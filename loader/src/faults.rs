//! The thread that reads page faults, forks and remaps of the program and its children, until none of them is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use pagein_image::PageNo;
use pagein_uffd::{Event, Userfault};

use crate::address_map::AddressMap;
use crate::guard::{Guard, Ward};
use crate::processes::{Process, Processes, Waiter, lock};

/// One fault.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) page: PageNo,
    pub(crate) waiter: Waiter,
    pub(crate) write: bool,
    pub(crate) thread: u32,
}

/// Who brings pages.
pub(crate) trait Pager: Send + Sync {
    /// A thread waits for a page: wake it at once or later.
    fn fault(&self, fault: Fault);
    /// Whether every page is there, so that no pager is needed any more.
    fn is_complete(&self) -> bool;
    /// The process that the user started has ended. Called once.
    fn program_ended(&self);
}

/// How often to look whether address spaces have gone: a fork's end is not announced.
const PRUNE_MS: u16 = 100;
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_millis(10);
/// How often a fault at an address that is not known is let through to fault again.
const UNKNOWN_RETRIES: u32 = 1000;
const PROGRAM: u64 = u64::MAX;
const GUARD: u64 = u64::MAX - 1;

/// Watches over all address spaces of one program.
pub(crate) struct FaultLoop<'a> {
    pub(crate) pager: &'a dyn Pager,
    pub(crate) processes: Arc<Processes>,
    pub(crate) ward: Ward,
    epoll: Epoll,
    guard: Mutex<Guard>,
    next_number: u32,
    /// The last fault at an address that is not known, and how often it came in a row.
    unknown: (u64, u32),
    /// Polls readable when the program has ended.
    program: OwnedFd,
}

impl<'a> FaultLoop<'a> {
    /// A loop for the program that `pidfd` stands for.
    pub(crate) fn new(
        pager: &'a dyn Pager,
        mut guard: Guard,
        ward: Ward,
        program: OwnedFd,
    ) -> std::io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&program, EpollEvent::new(EpollFlags::EPOLLIN, PROGRAM))?;
        guard.brief(&ward)?;
        epoll.add(&guard, EpollEvent::new(EpollFlags::EPOLLHUP, GUARD))?;
        let processes = Arc::default();
        Ok(Self {
            pager,
            processes,
            ward,
            epoll,
            guard: Mutex::new(guard),
            next_number: 1,
            unknown: (0, 0),
            program,
        })
    }

    /// Takes charge of an address space.
    pub(crate) fn add(&mut self, userfault: Userfault, map: AddressMap) -> std::io::Result<()> {
        let process = Arc::new(Process { number: self.next_number, userfault, map: Mutex::new(map) });
        self.next_number += 1;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(process.number));
        self.epoll.add(&process.userfault, event)?;
        self.processes.add(Arc::clone(&process));
        self.adopt(&process);
        Ok(())
    }

    /// Serves until nobody has missing pages any more. Nothing ends it before: a closed userfaultfd gives zeros. What fails
    /// (no descriptors, no memory) is tried again, while whoever faults waits.
    pub(crate) fn run(mut self) {
        let mut program_runs = true;
        let mut pruned = Instant::now();
        loop {
            let mut ready = [EpollEvent::empty(); 32];
            let count = self.epoll.wait(&mut ready, EpollTimeout::from(PRUNE_MS)).unwrap_or(0);
            for event in &ready[..count] {
                match event.data() {
                    PROGRAM => {
                        program_runs = false;
                        let _ = self.epoll.delete(self.program.as_fd());
                        self.pager.program_ended();
                    }
                    GUARD => self.replace_guard(),
                    number => {
                        if self.serve(number).is_err() {
                            // Out of descriptors, most likely: those of the dead may be enough.
                            self.prune();
                            std::thread::sleep(RETRY);
                        }
                    }
                }
            }
            if !program_runs || pruned.elapsed() >= Duration::from_millis(PRUNE_MS.into()) {
                self.prune();
                pruned = Instant::now();
            }
            let nobody_waits = self.processes.all().is_empty() || self.pager.is_complete();
            if nobody_waits {
                lock(&self.guard).dismiss();
                self.processes.clear();
                if program_runs {
                    self.await_program();
                }
                return;
            }
        }
    }

    fn prune(&self) {
        for gone in self.processes.prune() {
            let _ = self.epoll.delete(&gone.userfault);
        }
    }

    /// All pages are there, or the program has exec'ed something else: only its end is of interest now.
    fn await_program(&self) {
        crate::run::wait_for_end(&self.program);
        self.pager.program_ended();
    }

    fn serve(&mut self, number: u64) -> std::io::Result<()> {
        let all = self.processes.all();
        let Some(process) = all.into_iter().find(|process| u64::from(process.number) == number) else {
            return Ok(());
        };
        for event in process.userfault.events()? {
            match event {
                Event::Fault { address, write, thread } => self.fault(&process, address, write, thread),
                Event::Fork(child) => {
                    let map = lock(&process.map).clone();
                    self.add(child, map)?;
                }
                Event::Remap { from, to, len } => {
                    lock(&process.map).remap(from, to, len);
                    self.adopt(&process);
                }
            }
        }
        Ok(())
    }

    fn fault(&mut self, process: &Arc<Process>, address: u64, write: bool, thread: u32) {
        let page = lock(&process.map).page(address);
        let waiter = Waiter { process: Arc::clone(process), address };
        if let Some(page) = page {
            return self.pager.fault(Fault { page, waiter, write, thread });
        }
        // Another thread may have touched the new place of a mapping before its remap was read: it faults again. What stays
        // unknown (a mapping that grew) has no right bytes.
        self.unknown = if self.unknown.0 == address { (address, self.unknown.1 + 1) } else { (address, 1) };
        if self.unknown.1 > UNKNOWN_RETRIES { waiter.refuse() } else { waiter.wake() }
    }

    /// Gives the guard a process to care for; one that has gone is replaced.
    fn adopt(&self, process: &Process) {
        let adopted = lock(&self.guard).adopt(process);
        if adopted.is_err() {
            self.replace_guard();
        }
    }

    /// Without a guard the program is still served; a new one is tried for at the next occasion.
    fn replace_guard(&self) {
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
}

/// Whether the other end of a socket has gone.
pub(crate) fn hung_up(socket: BorrowedFd<'_>, timeout: nix::poll::PollTimeout) -> bool {
    let mut fds = [nix::poll::PollFd::new(socket, nix::poll::PollFlags::empty())];
    nix::poll::poll(&mut fds, timeout).is_ok_and(|count| count > 0)
}
