//! The thread that reads page faults, forks and remaps of the program and its children, until none of them is left.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagein_image::PageNo;
use pagein_uffd::Event;

use crate::processes::{Process, Waiter, lock};
use crate::watch::{Ready, Watch};

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
    /// Every page is there and nobody comes in any more: brings all processes into a state in which no pager is needed.
    /// `false` if that has to be tried again later.
    fn finish(&self) -> bool;
    /// The process that the user started has ended. Called once.
    fn program_ended(&self);
}

/// How often to look whether address spaces have gone: a fork's end is not announced.
const PRUNE_MS: u16 = 100;
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_millis(10);
/// How often a fault at an address that is not known is let through to fault again.
const UNKNOWN_RETRIES: u32 = 1000;

/// Serves the faults of all address spaces of one program.
pub(crate) struct FaultLoop<'a> {
    pager: &'a dyn Pager,
    watch: Arc<Watch>,
    /// The last fault at an address that is not known, and how often it came in a row.
    unknown: (u64, u32),
    /// Polls readable when the program has ended.
    program: OwnedFd,
}

impl<'a> FaultLoop<'a> {
    /// A loop for the program that `pidfd` stands for.
    pub(crate) fn new(pager: &'a dyn Pager, watch: Arc<Watch>, program: OwnedFd) -> std::io::Result<Self> {
        watch.watch_program(&program)?;
        Ok(Self { pager, watch, unknown: (0, 0), program })
    }

    /// Serves until nobody has missing pages any more. Nothing ends it before: a closed userfaultfd gives zeros. What fails
    /// (no descriptors, no memory) is tried again, while whoever faults waits.
    pub(crate) fn run(mut self) {
        let mut program_runs = true;
        let mut pruned = Instant::now();
        loop {
            for ready in self.watch.wait(PRUNE_MS) {
                match ready {
                    Ready::Program => {
                        program_runs = false;
                        self.watch.forget_program(&self.program);
                        self.pager.program_ended();
                    }
                    Ready::Guard => self.watch.replace_guard(),
                    Ready::Process(number) => {
                        if self.serve(number).is_err() {
                            // Out of descriptors, most likely: those of the dead may be enough.
                            self.watch.prune();
                            std::thread::sleep(RETRY);
                        }
                    }
                }
            }
            if !program_runs || pruned.elapsed() >= Duration::from_millis(PRUNE_MS.into()) {
                self.watch.prune();
                pruned = Instant::now();
            }
            if self.nobody_waits() {
                self.watch.end();
                if program_runs {
                    self.await_program();
                }
                return;
            }
        }
    }

    /// Whether nobody needs a page any more, now or later.
    fn nobody_waits(&self) -> bool {
        let nobody_is_left = || self.watch.processes.all().is_empty();
        if !(nobody_is_left() || self.pager.is_complete()) || !self.watch.close() {
            return false;
        }
        let is_over = nobody_is_left() || self.pager.finish();
        if !is_over {
            self.watch.open();
        }
        is_over
    }

    /// All pages are there, or the program has exec'ed something else: only its end is of interest now.
    fn await_program(&self) {
        crate::run::wait_for_end(&self.program);
        self.pager.program_ended();
    }

    fn serve(&mut self, number: u32) -> std::io::Result<()> {
        let all = self.watch.processes.all();
        let Some(process) = all.into_iter().find(|process| process.number == number) else {
            return Ok(());
        };
        for event in process.userfault.events()? {
            match event {
                Event::Fault { address, write, thread } => self.fault(&process, address, write, thread),
                Event::Fork(child) => {
                    let map = lock(&process.map).clone();
                    self.watch.add(child, map, process.bias)?;
                }
                Event::Remap { from, to, len } => {
                    lock(&process.map).remap(from, to, len);
                    self.watch.adopt(&process);
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
}

/// Whether the other end of a socket has gone.
pub(crate) fn hung_up(socket: BorrowedFd<'_>, timeout: nix::poll::PollTimeout) -> bool {
    let mut fds = [nix::poll::PollFd::new(socket, nix::poll::PollFlags::empty())];
    nix::poll::poll(&mut fds, timeout).is_ok_and(|count| count > 0)
}
