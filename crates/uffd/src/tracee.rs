//! A process under ptrace from its exec to the moment when its pager is registered.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::fs::FileExt;

use libc::c_long;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::userfault::{Userfault, UserfaultError};
use crate::{arch, process};

/// Why a program did not come under the pager.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// ptrace itself failed.
    #[error("cannot trace the program ({0}): a debugger or a security module may forbid it")]
    Ptrace(#[from] Errno),
    /// The process ended first.
    #[error("the program ended before it was started")]
    Gone,
    /// A system call made in the program's name failed.
    #[error("{call} in the new program failed: {error}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its errno.
        error: io::Error,
    },
    /// Its memory or /proc entry could not be read.
    #[error("cannot read {what} of the new program: {error}")]
    Proc {
        /// What was read.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// No permission for userfaultfd, or too old a kernel.
    #[error(transparent)]
    Userfault(#[from] UserfaultError),
}

/// A part of a file to be mapped privately into the program, addresses without load bias.
#[derive(Debug, Clone)]
pub struct Mapping {
    /// Page-aligned addresses.
    pub range: Range<u64>,
    /// Page-aligned offset in the file.
    pub offset: u64,
    /// May be read, written, executed.
    pub permissions: [bool; 3],
    /// Addresses to be zeroed, because the file does not end at a page boundary.
    pub zero: Option<Range<u64>>,
}

/// What is to be done to a program at its exec.
#[derive(Debug)]
pub struct Bootstrap<'a> {
    /// Number, in the program, of the descriptor of the memory file; closed afterwards.
    pub memory_fd: RawFd,
    /// What to map from it.
    pub mappings: &'a [Mapping],
    /// The file's entry point; tells the load bias.
    pub entry: u64,
}

/// A process that this thread traces. It is killed if this process ends first.
#[derive(Debug)]
pub struct Tracee {
    pid: Pid,
    /// Signals that came at a bad time, to be sent again.
    postponed: Vec<Signal>,
}

impl Tracee {
    /// Begins to trace a running process. Only this thread may use the result.
    pub fn seize(pid: Pid) -> Result<Self, TraceError> {
        let options =
            Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACESYSGOOD;
        ptrace::seize(pid, options)?;
        Ok(Self { pid, postponed: Vec::new() })
    }

    /// Waits until the process has exec'ed and stands before its first instruction.
    pub fn wait_for_exec(&mut self) -> Result<(), TraceError> {
        loop {
            match self.wait()? {
                WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXEC) => break,
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.pid, signal)?,
                _ => ptrace::cont(self.pid, None)?,
            }
        }
        // A system call made at the event stop would be swallowed: go on to the end of execve.
        ptrace::syscall(self.pid, None)?;
        loop {
            match self.wait()? {
                WaitStatus::PtraceSyscall(_) => return Ok(()),
                WaitStatus::Stopped(_, signal) => self.postponed.push(signal),
                _ => {}
            }
            ptrace::syscall(self.pid, None)?;
        }
    }

    fn wait(&self) -> Result<WaitStatus, TraceError> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) | Err(Errno::ECHILD) => {
                    return Err(TraceError::Gone);
                }
                Err(Errno::EINTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Maps the memory file over the program's segments and registers a userfaultfd for them. Returns it with the load
    /// bias, the number to add to the file's addresses.
    pub fn bootstrap(&mut self, plan: &Bootstrap<'_>) -> Result<(Userfault, u64), TraceError> {
        let (entry, vdso) = self.entry_and_vdso()?;
        let bias = entry.wrapping_sub(plan.entry);
        let memory = self.memory()?;
        let instruction = find_syscall(&memory, vdso)?;
        let saved = ptrace::getregs(self.pid)?;
        let mask = self.block_signals()?;
        let pid = self.pid;
        let mut call = |name: &'static str, number: c_long, args: [u64; 6]| -> Result<u64, TraceError> {
            let mut regs = saved;
            arch::set_call(&mut regs, instruction, number, args);
            self.step_call(regs, instruction)
                .and_then(|value| value.map_err(|error| TraceError::Call { call: name, error }))
        };
        for mapping in plan.mappings {
            let start = mapping.range.start.wrapping_add(bias);
            let len = mapping.range.end - mapping.range.start;
            let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
            let args =
                [start, len, protection(mapping.permissions), flags, plan.memory_fd as u64, mapping.offset];
            call("mmap", libc::SYS_mmap, args)?;
            if let Some(zero) = &mapping.zero {
                // In this order: the next segment may begin in the same page, and is mapped over the zeros. The page is
                // there, and the write takes the program's own copy of it.
                let zeros = vec![0; (zero.end - zero.start) as usize];
                memory
                    .write_all_at(&zeros, zero.start.wrapping_add(bias))
                    .map_err(|error| TraceError::Proc { what: "memory", error })?;
            }
        }
        call("close", libc::SYS_close, [plan.memory_fd as u64, 0, 0, 0, 0, 0])?;
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
        let made = call("userfaultfd", libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]);
        let number = made.map_err(|error| match error {
            TraceError::Call { error, .. } => UserfaultError::NotPermitted(error).into(),
            other => other,
        })?;
        let taken = process::pidfd_open(pid)
            .and_then(|pidfd| process::pidfd_getfd(pidfd.as_fd(), number as RawFd))
            .map_err(|error| TraceError::Call { call: "pidfd_getfd", error })?;
        call("close", libc::SYS_close, [number, 0, 0, 0, 0, 0])?;

        let userfault = Userfault::new(taken)?;
        for mapping in plan.mappings {
            let range = mapping.range.start.wrapping_add(bias)..mapping.range.end.wrapping_add(bias);
            userfault
                .register(&range)
                .map_err(|error| TraceError::Call { call: "UFFDIO_REGISTER", error })?;
        }
        ptrace::setregs(self.pid, saved)?;
        self.set_signal_mask(mask)?;
        Ok((userfault, bias))
    }

    /// Runs one system call instruction. The inner result is the call's own.
    fn step_call(
        &mut self,
        regs: libc::user_regs_struct,
        instruction: u64,
    ) -> Result<Result<u64, io::Error>, TraceError> {
        ptrace::setregs(self.pid, regs)?;
        loop {
            ptrace::step(self.pid, None)?;
            if let WaitStatus::Stopped(_, signal) = self.wait()?
                && signal != Signal::SIGTRAP
            {
                self.postponed.push(signal);
            }
            let now = ptrace::getregs(self.pid)?;
            if arch::has_returned(&now, instruction) {
                let result = arch::result(&now);
                let failed = (-4095..0).contains(&result);
                return Ok(if failed {
                    Err(io::Error::from_raw_os_error(-result as i32))
                } else {
                    Ok(result as u64)
                });
            }
        }
    }

    /// Writes into the program's own copy of pages that it has, whatever their protection.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), TraceError> {
        self.memory()?
            .write_all_at(bytes, address)
            .map_err(|error| TraceError::Proc { what: "memory", error })
    }

    /// Lets the program run, no longer traced.
    pub fn detach(self) -> Result<(), TraceError> {
        ptrace::detach(self.pid, None)?;
        for signal in self.postponed {
            let _ = kill(self.pid, signal);
        }
        Ok(())
    }

    fn memory(&self) -> Result<File, TraceError> {
        let open = File::options().read(true).write(true).open(format!("/proc/{}/mem", self.pid));
        open.map_err(|error| TraceError::Proc { what: "memory", error })
    }

    /// `AT_ENTRY` and `AT_SYSINFO_EHDR` of the auxiliary vector (`getauxval(3)`).
    fn entry_and_vdso(&self) -> Result<(u64, u64), TraceError> {
        let error = |error| TraceError::Proc { what: "the auxiliary vector", error };
        let auxv = fs::read(format!("/proc/{}/auxv", self.pid)).map_err(error)?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
        let value = |key: u64| {
            let entry = auxv.chunks_exact(16).find(|entry| word(&entry[..8]) == key);
            let missing = || io::Error::other(format!("it has no entry {key}"));
            entry.map(|entry| word(&entry[8..])).ok_or_else(|| error(missing()))
        };
        Ok((value(libc::AT_ENTRY)?, value(libc::AT_SYSINFO_EHDR)?))
    }

    fn block_signals(&self) -> Result<u64, TraceError> {
        let mut mask = 0u64;
        self.signal_mask_request(libc::PTRACE_GETSIGMASK, &mut mask)?;
        // Not SIGTRAP: a step that traps while it is blocked resets what the program inherited for it.
        self.set_signal_mask(!(1 << (libc::SIGTRAP - 1)))?;
        Ok(mask)
    }

    fn set_signal_mask(&self, mut mask: u64) -> Result<(), TraceError> {
        self.signal_mask_request(libc::PTRACE_SETSIGMASK, &mut mask)
    }

    fn signal_mask_request(&self, request: libc::c_uint, mask: &mut u64) -> Result<(), TraceError> {
        // SAFETY: the request reads or writes the 8 bytes of a kernel signal set at the address given.
        let result = unsafe { libc::ptrace(request, self.pid.as_raw(), 8usize, &raw mut *mask) };
        Errno::result(result).map(drop).map_err(TraceError::from)
    }
}

fn protection(permissions: [bool; 3]) -> u64 {
    let bits = [libc::PROT_READ, libc::PROT_WRITE, libc::PROT_EXEC];
    let set = bits.iter().zip(permissions).filter(|(_, allowed)| *allowed);
    set.map(|(bit, _)| *bit as u64).sum()
}

/// Address of a system call instruction in the vDSO, which every program has mapped.
fn find_syscall(memory: &File, vdso: u64) -> Result<u64, TraceError> {
    let mut code = vec![0; 2 * 4096];
    let error = |error| TraceError::Proc { what: "the vDSO", error };
    let len = memory.read_at(&mut code, vdso).map_err(error)?;
    let found = code[..len].windows(2).position(|bytes| bytes == arch::SYSCALL_INSTRUCTION);
    let missing = || error(io::Error::other("it has no system call instruction"));
    found.map(|at| vdso + at as u64).ok_or_else(missing)
}
