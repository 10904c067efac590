//! userfaultfd: page faults of another process as messages (`userfaultfd(2)`, `ioctl_userfaultfd(2)`).
//!
//! Structures and numbers come from the kernel's headers by way of `linux-raw-sys`. The `userfaultfd` crate is not used:
//! its build needs libclang, and it knows neither `UFFDIO_POISON` nor descriptors that were made in another process.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;

/// The system call or one of the features that lazy paging needs is not to be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserfaultError {
    /// No permission for faults taken inside the kernel or for fork events.
    #[error(
        "userfaultfd is not permitted here ({0}): run as root or with CAP_SYS_PTRACE; in a container also allow the \
         system call (for docker: --cap-add SYS_PTRACE --security-opt seccomp=unconfined)"
    )]
    NotPermitted(io::Error),
    /// The kernel is too old or built without it.
    #[error("this kernel's userfaultfd lacks what pagein needs ({0}): Linux 6.6 or newer has it")]
    NotSupported(io::Error),
}

/// One message.
#[derive(Debug)]
pub enum Event {
    /// A thread waits for the page at `address`.
    Fault {
        /// Address of the page (not of the byte).
        address: u64,
        /// It wanted to write.
        write: bool,
        /// Thread id, in the pager's pid namespace.
        thread: u32,
    },
    /// The process forked; the child's faults come from this descriptor.
    Fork(Userfault),
    /// The process moved a mapping (`mremap(2)`).
    Remap {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
        /// Bytes moved.
        len: u64,
    },
}

/// A userfaultfd.
#[derive(Debug)]
pub struct Userfault {
    fd: OwnedFd,
}

const PAGE: u64 = 4096;
/// The page before the last one that x86-64 gives to user space (`TASK_SIZE_MAX` with four-level page tables).
const LAST_PAGE: u64 = (1 << 47) - 3 * PAGE;
/// Size of `struct uffd_msg`, bytes.
const MESSAGE_LEN: usize = size_of::<raw::uffd_msg>();
/// `UFFDIO_POISON`: `_IOWR(0xAA, 8, struct uffdio_poison)`; Linux 6.6.
const UFFDIO_POISON: u32 =
    0xc000_0000 | (size_of::<raw::uffdio_poison>() as u32) << 16 | 0xaa << 8 | raw::_UFFDIO_POISON;

impl Userfault {
    /// Makes a descriptor for this process, only to see whether it is permitted and has all that is needed.
    pub fn probe() -> Result<(), UserfaultError> {
        Self::for_this_process().map(drop)
    }

    /// Makes a descriptor for faults of this process, to be served by another thread of it.
    pub fn for_this_process() -> Result<Self, UserfaultError> {
        // SAFETY: userfaultfd takes one integer; a result that is not negative is a descriptor nobody else owns.
        let fd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
            if fd < 0 {
                return Err(classify(io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(fd as RawFd)
        };
        Self::new(fd)
    }

    /// Takes over a descriptor that was just made in another process, and agrees on the features with the kernel:
    /// fork and remap events, thread ids; poison must be there.
    pub fn new(fd: OwnedFd) -> Result<Self, UserfaultError> {
        let new = Self { fd };
        new.handshake()?;
        Ok(new)
    }

    fn handshake(&self) -> Result<(), UserfaultError> {
        let wanted =
            raw::UFFD_FEATURE_EVENT_FORK | raw::UFFD_FEATURE_EVENT_REMAP | raw::UFFD_FEATURE_THREAD_ID;
        let mut api =
            raw::uffdio_api { api: u64::from(raw::UFFD_API), features: u64::from(wanted), ioctls: 0 };
        self.ioctl(ioctl::UFFDIO_API, &mut api).map_err(classify)?;
        let needed = raw::UFFD_FEATURE_MISSING_SHMEM | raw::UFFD_FEATURE_POISON;
        if api.features & u64::from(needed) != u64::from(needed) {
            return Err(UserfaultError::NotSupported(io::Error::from_raw_os_error(libc::ENOTTY)));
        }
        Ok(())
    }

    fn ioctl<T>(&self, request: u32, argument: &mut T) -> io::Result<()> {
        // SAFETY: every caller passes the structure that belongs to the request; the kernel reads and writes only it.
        let result =
            unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::Ioctl::from(request), &raw mut *argument) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends the faults on missing pages in `range` here.
    pub fn register(&self, range: &Range<u64>) -> io::Result<()> {
        let mode = u64::from(raw::UFFDIO_REGISTER_MODE_MISSING);
        let mut register = raw::uffdio_register { range: uffd_range(range), mode, ioctls: 0 };
        self.ioctl(ioctl::UFFDIO_REGISTER, &mut register)
    }

    /// Lets the threads go on that wait for a page in `range`. They fault again if it is still missing.
    pub fn wake(&self, range: &Range<u64>) -> io::Result<()> {
        self.ioctl(ioctl::UFFDIO_WAKE, &mut uffd_range(range))
    }

    /// Installs `pages` as private pages of the process from `address` on and wakes who waits for them. Only that process
    /// has them; the file stays as it is. Pages that are there already stay as they are.
    ///
    /// Stops at the first page that cannot be installed: `WouldBlock` while the process forks or remaps (that event must be
    /// read first), `NotFound` where no registered mapping is.
    ///
    /// # Panics
    /// If `pages` is not a whole number of pages.
    pub fn copy(&self, address: u64, pages: &[u8]) -> io::Result<()> {
        assert!(pages.len().is_multiple_of(PAGE as usize), "whole pages");
        let mut done = 0;
        while done < pages.len() {
            let rest = &pages[done..];
            let (dst, src, len) = (address + done as u64, rest.as_ptr() as u64, rest.len() as u64);
            let mut copy = raw::uffdio_copy { dst, src, len, mode: 0, copy: 0 };
            // The kernel only reads `src`.
            let outcome = self.ioctl(ioctl::UFFDIO_COPY, &mut copy);
            let copied = usize::try_from(copy.copy).unwrap_or(0);
            done += copied;
            match outcome {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => done += PAGE as usize,
                // Interrupted after some pages: what stopped it shows at the next.
                Err(_) if copied > 0 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Marks the missing pages in `range` so that touching one raises SIGBUS, and wakes who waits for one.
    /// Pages that are there stay as they are.
    ///
    /// `WouldBlock` while the process forks or remaps: that event must be read before anything can be marked.
    pub fn poison(&self, range: &Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        let mut step = range.end - range.start;
        while at < range.end {
            let end = range.end.min(at + step);
            let mut poison = raw::uffdio_poison { range: uffd_range(&(at..end)), mode: 0, updated: 0 };
            let outcome = self.ioctl(UFFDIO_POISON, &mut poison);
            let updated = u64::try_from(poison.updated).unwrap_or(0);
            at += updated;
            match outcome {
                Ok(()) => {}
                // Stopped at a page that is there: step over it.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => at += PAGE,
                // The range is no longer one mapping (mprotect splits it): page by page. A page without a mapping of ours
                // needs no mark.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) && step > PAGE => step = PAGE,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => at += PAGE,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && updated > 0 => {}
                Err(error) => return Err(error),
            }
        }
        self.wake(range)
    }

    /// Whether the address space that this descriptor belongs to still exists.
    pub fn is_alive(&self) -> bool {
        // The last page below the limit of user addresses is never registered: ENOENT while the address space lives, ESRCH
        // after. (Page zero is refused by older kernels before they look.)
        let probe = LAST_PAGE..LAST_PAGE + PAGE;
        let mut poison = raw::uffdio_poison { range: uffd_range(&probe), mode: 0, updated: 0 };
        let outcome = self.ioctl(UFFDIO_POISON, &mut poison);
        !outcome.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
    }

    /// The messages that are there now; none if there are none.
    pub fn events(&self) -> io::Result<Vec<Event>> {
        let mut buffer = [0u8; 16 * MESSAGE_LEN];
        let len = match nix::unistd::read(&self.fd, &mut buffer) {
            Ok(len) => len,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(buffer[..len].chunks_exact(MESSAGE_LEN).filter_map(parse).collect())
    }
}

impl AsFd for Userfault {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for Userfault {
    /// A descriptor on which the handshake has been done already.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

fn uffd_range(range: &Range<u64>) -> raw::uffdio_range {
    raw::uffdio_range { start: range.start, len: range.end - range.start }
}

fn classify(error: io::Error) -> UserfaultError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => UserfaultError::NotPermitted(error),
        _ => UserfaultError::NotSupported(error),
    }
}

/// `struct uffd_msg`: the event at byte 0, its arguments from byte 8 on.
fn parse(message: &[u8]) -> Option<Event> {
    let word = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("8 bytes"));
    match u32::from(message[0]) {
        raw::UFFD_EVENT_PAGEFAULT => Some(Event::Fault {
            write: word(8) & u64::from(raw::UFFD_PAGEFAULT_FLAG_WRITE) != 0,
            address: word(16) & !4095,
            thread: word(24) as u32,
        }),
        raw::UFFD_EVENT_FORK => {
            // SAFETY: the kernel has just put this descriptor into our table for this message; nobody else knows it.
            let fd = unsafe { OwnedFd::from_raw_fd(word(8) as RawFd) };
            Some(Event::Fork(Userfault { fd }))
        }
        raw::UFFD_EVENT_REMAP => Some(Event::Remap { from: word(8), to: word(16), len: word(24) }),
        _ => None,
    }
}
