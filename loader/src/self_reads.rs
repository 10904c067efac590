//! Whether a program opens its own file while it runs (fanotify(7)): archives and runtimes that carry their data behind
//! the code. Such a program must find all of its file, so it is not paged by default.

use std::fs;
use std::path::Path;

use nix::fcntl::AT_FDCWD;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use nix::unistd::Pid;

/// A watch on one file for the descendants of one process.
pub(crate) struct SelfReads {
    watch: Fanotify,
    program: Pid,
}

impl SelfReads {
    /// Begins to watch; `None` where the kernel does not permit it.
    pub(crate) fn watch(path: &Path, program: Pid) -> Option<Self> {
        let flags = InitFlags::FAN_CLASS_NOTIF | InitFlags::FAN_CLOEXEC | InitFlags::FAN_NONBLOCK;
        let watch = Fanotify::init(flags, EventFFlags::O_RDONLY | EventFFlags::O_CLOEXEC).ok()?;
        let mask = MaskFlags::FAN_OPEN | MaskFlags::FAN_OPEN_EXEC;
        watch.mark(MarkFlags::FAN_MARK_ADD, mask, AT_FDCWD, Some(path)).ok()?;
        Some(Self { watch, program })
    }

    /// Whether the program or a child of it has opened the file since, other than to execute it.
    pub(crate) fn seen(&self) -> bool {
        let mut seen = false;
        while let Ok(events) = self.watch.read_events() {
            if events.is_empty() {
                break;
            }
            seen |= events.iter().any(|event| {
                !event.mask().contains(MaskFlags::FAN_OPEN_EXEC) && self.is_descendant(event.pid())
            });
        }
        seen
    }

    /// A process that has gone counts as none: its parents cannot be asked any more, and the program itself is still a
    /// zombie when this is called.
    fn is_descendant(&self, mut pid: i32) -> bool {
        while pid > 1 {
            if pid == self.program.as_raw() {
                return true;
            }
            let Some(parent) = parent_of(pid) else { return false };
            pid = parent;
        }
        false
    }
}

/// Field 4 of `/proc/PID/stat` (proc_pid_stat(5)); the name in field 2 may hold anything but ends at the last bracket.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
