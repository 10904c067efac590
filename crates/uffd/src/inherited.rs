//! What this process had inherited before Rust's runtime changed it.
//!
//! The runtime ignores SIGPIPE and opens /dev/null on closed standard descriptors; a program that is exec'ed later would
//! inherit both. And pagein itself cannot do with an ignored SIGCHLD. An ELF initialiser runs before the runtime and takes notes.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

static SIGPIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static SIGCHLD_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
static COMMAND_LINE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());
static COMMAND_LINE_LEN: AtomicUsize = AtomicUsize::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static TAKE_NOTES: extern "C" fn(c_int, *const *mut c_char) = take_notes;

extern "C" fn take_notes(argc: c_int, argv: *const *mut c_char) {
    // SAFETY: runs once, before main, with one thread. sigaction only reads into a zeroed structure; fcntl takes
    // integers; glibc and musl pass argc and argv to initialisers, argv has argc strings that lie one behind the other.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 {
            SIGPIPE_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        // While it is ignored, nobody can wait for a child.
        let before = libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        SIGCHLD_IGNORED.store(before == libc::SIG_IGN, Ordering::Relaxed);
        for (fd, closed) in CLOSED.iter().enumerate() {
            closed.store(libc::fcntl(fd as c_int, libc::F_GETFD) < 0, Ordering::Relaxed);
        }
        if argc > 0 && !argv.is_null() {
            let last = *argv.offset(argc as isize - 1);
            let end = last.add(libc::strlen(last));
            COMMAND_LINE.store(*argv, Ordering::Relaxed);
            COMMAND_LINE_LEN.store(end.offset_from(*argv).unsigned_abs(), Ordering::Relaxed);
        }
    }
}

/// Puts back what the runtime changed. Call it right before exec.
pub fn restore() {
    let disposition = if SIGPIPE_IGNORED.load(Ordering::Relaxed) { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: sets a disposition that needs no handler; closes descriptors that the runtime opened on its own.
    unsafe {
        libc::signal(libc::SIGPIPE, disposition);
        if SIGCHLD_IGNORED.load(Ordering::Relaxed) {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        for (fd, closed) in CLOSED.iter().enumerate() {
            if closed.load(Ordering::Relaxed) {
                libc::close(fd as c_int);
            }
        }
    }
}

/// Writes `text` over the command line that `ps` shows, as far as there is room.
pub(crate) fn overwrite_command_line(text: &str) {
    let start = COMMAND_LINE.load(Ordering::Relaxed);
    let room = COMMAND_LINE_LEN.load(Ordering::Relaxed);
    if start.is_null() {
        return;
    }
    let len = text.len().min(room);
    // SAFETY: the kernel laid the arguments out here, `room` bytes and a NUL, writable for the life of the process;
    // Rust's runtime keeps pointers to them and reads them only in std::env::args, which nobody calls any more.
    unsafe {
        std::ptr::write_bytes(start, 0, room);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), start, len);
    }
}
