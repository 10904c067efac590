//! Telling processes that their missing pages will not come (invariant 2): never a hang, never wrong memory.

use std::fs;
use std::ops::Range;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagein_uffd::Userfault;
use serde::{Deserialize, Serialize};

/// Which memory file; what `/proc/PID/maps` shows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemoryId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Poisons all missing pages, so that touching one raises SIGBUS, and sends SIGBUS to every process that maps the memory
/// file. First the one, then the other: nobody may touch a page between. Whether all could be poisoned: not while a
/// process forks or remaps (`Userfault::poison`).
pub(crate) fn tell<'a>(
    spaces: impl IntoIterator<Item = (&'a Userfault, Vec<Range<u64>>)>,
    memory: MemoryId,
) -> bool {
    let all = poison(spaces);
    for pid in who_maps(memory) {
        let _ = kill(pid, Signal::SIGBUS);
    }
    all
}

/// Poisons all missing pages; whether all could be.
pub(crate) fn poison<'a>(spaces: impl IntoIterator<Item = (&'a Userfault, Vec<Range<u64>>)>) -> bool {
    let mut all = true;
    for (userfault, ranges) in spaces {
        for range in ranges {
            // Any other error is that of an address space that has gone.
            let blocked = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            all &= !userfault.poison(&range).as_ref().is_err_and(blocked);
        }
    }
    all
}

/// Writes one line to standard error, in one piece: the terminal is shared, and this process may end at any time.
pub(crate) fn say(text: &str) {
    // Not by way of std's lock, which another thread may have held when this process was forked. Nobody is left to tell if
    // it fails.
    let _ = nix::unistd::write(std::io::stderr(), format!("pagein: {text}\n").as_bytes());
}

fn who_maps(memory: MemoryId) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let maps_it =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| mentions(&maps, memory));
    pids.filter(maps_it).map(Pid::from_raw).collect()
}

/// `proc_pid_maps(5)`: address, permissions, offset, device as major:minor in hex, inode, path.
fn mentions(maps: &str, memory: MemoryId) -> bool {
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let device = fields.next().and_then(parse_device);
        let inode = fields.next().and_then(|text| text.parse().ok());
        (device, inode) == (Some(memory.device), Some(memory.inode))
    })
}

fn parse_device(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(nix::sys::stat::makedev(number(major)?, number(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_recognised_by_device_and_inode() {
        let maps = "5600-5700 r--p 00000000 fe:00 1234 /usr/bin/x\n\
                    5700-5800 r-xp 00001000 00:01 77 /memfd:node (deleted)\n\
                    7ffe-7fff rw-p 00000000 00:00 0 [stack]\n";
        let id = |major, minor, inode| MemoryId { device: nix::sys::stat::makedev(major, minor), inode };
        assert!(mentions(maps, id(0, 1, 77)));
        assert!(!mentions(maps, id(0, 1, 78)));
        assert!(!mentions(maps, id(0, 2, 77)));
    }
}
