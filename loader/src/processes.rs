//! The address spaces that have missing pages: the program's and those of its forked children.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pagein_uffd::Userfault;

use crate::address_map::AddressMap;

/// One address space.
#[derive(Debug)]
pub(crate) struct Process {
    /// 1 is the program, then in the order of the forks.
    pub(crate) number: u32,
    pub(crate) userfault: Userfault,
    pub(crate) map: Mutex<AddressMap>,
    /// What was added to the addresses of the file.
    pub(crate) bias: u64,
}

impl Process {
    pub(crate) fn wake(&self, address: u64) {
        // The address space may have gone meanwhile: then nobody waits there either.
        let _ = self.userfault.wake(&(address..address + pagein_image::PAGE_SIZE as u64));
    }

    pub(crate) fn ranges(&self) -> Vec<Range<u64>> {
        lock(&self.map).ranges().cloned().collect()
    }
}

/// Somebody who waits for a page.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) process: Arc<Process>,
    pub(crate) address: u64,
}

impl Waiter {
    /// The page will never come: SIGBUS. While the process forks or remaps that cannot be said yet, so it faults again.
    pub(crate) fn refuse(&self) {
        let page = self.address..self.address + pagein_image::PAGE_SIZE as u64;
        if self.process.userfault.poison(&page).is_err() {
            self.wake();
        }
    }

    pub(crate) fn wake(&self) {
        self.process.wake(self.address);
    }
}

/// All of them that live.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    list: Mutex<Vec<Arc<Process>>>,
}

impl Processes {
    pub(crate) fn add(&self, process: Arc<Process>) {
        lock(&self.list).push(process);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Process>> {
        lock(&self.list).clone()
    }

    /// Forgets those whose address space has gone and returns them.
    pub(crate) fn prune(&self) -> Vec<Arc<Process>> {
        lock(&self.list).extract_if(.., |process| !process.userfault.is_alive()).collect()
    }
}

/// A lock whose data stay usable when a thread panicked: the pager's panics abort, so this never matters.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
