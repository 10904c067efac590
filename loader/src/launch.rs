//! From a memory file to a running program with a pager: exec, mappings, registration.

use std::path::Path;

use nix::unistd::Pid;
use pagein_elf::{Kind, Program, Segment};
use pagein_image::FileOffset;
use pagein_uffd::{Bootstrap, Mapping, MemoryFile, Tracee, Userfault};

use crate::address_map::AddressMap;
use crate::start::Front;
use crate::trouble::Trouble;

/// A program that stands before its first instruction, with its missing pages registered.
pub(crate) struct Launched {
    tracee: Tracee,
    userfault: Userfault,
    map: AddressMap,
    bias: u64,
}

impl Launched {
    /// What was added to the addresses of the file.
    pub(crate) fn bias(&self) -> u64 {
        self.bias
    }

    /// Writes into the program's own copy of a page that is there. A missing one would never come: nobody serves faults yet.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Trouble> {
        Ok(self.tracee.write(address, bytes)?)
    }

    /// Gives the descriptor, the mappings and the load bias to `take`, then lets the program run: no fault may come before somebody
    /// waits for it.
    pub(crate) fn go(
        self,
        take: impl FnOnce(Userfault, AddressMap, u64) -> Result<(), Trouble>,
    ) -> Result<(), Trouble> {
        take(self.userfault, self.map, self.bias)?;
        Ok(self.tracee.detach()?)
    }
}

/// Makes the front process exec `file` and maps `memory` over the program's segments. The pages that the kernel needs
/// at exec must be in both. Must be called, and the result used, on one thread (ptrace belongs to threads).
pub(crate) fn launch(
    front: &Front,
    file: &Path,
    program: &Program,
    memory: &MemoryFile,
) -> Result<Launched, Trouble> {
    let read_only = memory.reopen_read_only().map_err(Trouble::system("cannot reopen the memory file"))?;
    let memory_fd = front
        .exec(file, Some(std::os::fd::AsFd::as_fd(&read_only)))
        .map_err(Trouble::system("cannot start the program"))?
        .expect("a memory file was sent");
    let mut tracee = Tracee::seize(front.pid())?;
    front.go().map_err(Trouble::system("cannot start the program"))?;
    tracee.wait_for_exec()?;
    let mappings: Vec<Mapping> =
        program.segments.iter().filter(|segment| segment.file_size > 0).map(mapping).collect();
    let plan = Bootstrap { memory_fd, mappings: &mappings, entry: program.entry.0 };
    let (userfault, bias) = tracee.bootstrap(&plan)?;
    debug_assert!(program.kind == Kind::PositionIndependent || bias == 0);
    let biased = |m: &Mapping| m.range.start.wrapping_add(bias)..m.range.end.wrapping_add(bias);
    let map = AddressMap::new(mappings.iter().map(|m| (biased(m), FileOffset(m.offset))));
    Ok(Launched { tracee, userfault, map, bias })
}

fn mapping(segment: &Segment) -> Mapping {
    let mapped = segment.mapped();
    Mapping {
        range: mapped.start.0..mapped.end.0,
        offset: segment.mapped_offset().0,
        permissions: segment.permissions,
        zero: segment.zeroed_tail().map(|tail| tail.start.0..tail.end.0),
    }
}

/// A memory file for a program file of `size` bytes, after a check that it can have single missing pages.
pub(crate) fn memory_file(name: &str, size: u64) -> Result<MemoryFile, Trouble> {
    let page = pagein_image::PAGE_SIZE as u64;
    let error = Trouble::system("cannot make a memory file as large as the program (see ulimit -f)");
    let make = || {
        let probe = MemoryFile::new("probe", 4 << 20)?;
        probe.write(0, &[1; pagein_image::PAGE_SIZE])?;
        let single = probe.allocated()? <= page;
        Ok((single, MemoryFile::new(name, size.next_multiple_of(page))?))
    };
    match make().map_err(error)? {
        (true, memory) => Ok(memory),
        (false, _) => Err(Trouble::HugePages),
    }
}

/// The dynamic linker must be there before the kernel looks for it: its own error would name the program.
pub(crate) fn check_interpreter(name: &str, program: &Program) -> Result<(), Trouble> {
    match &program.interpreter {
        Some(interpreter) if !Path::new(&interpreter.path).exists() => {
            Err(Trouble::NoInterpreter { program: name.to_owned(), interpreter: interpreter.path.clone() })
        }
        _ => Ok(()),
    }
}

/// Whether the process has ended, for the stats; a zombie counts as ended.
pub(crate) fn pidfd(pid: Pid) -> Result<std::os::fd::OwnedFd, Trouble> {
    pagein_uffd::process::pidfd_open(pid).map_err(Trouble::system("cannot watch the program"))
}
