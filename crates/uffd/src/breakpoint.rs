//! First touch of addresses by one-shot breakpoints: `int3` at every address, taken out again when it is hit. Every function (or
//! block) costs one stop, however often it runs. Threads, `fork`, `vfork` and `exec` are followed: a child of `fork` inherits
//! the breakpoints with its memory, a new program that is the same file gets them anew, another program gets none.
//!
//! Like `strace -f`, tracing ends when all descendants have ended. A stop signal (`SIGTSTP`) does not stop a traced
//! program.

#![cfg(target_arch = "x86_64")]

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use libc::{c_int, c_void, pid_t};
use thiserror::Error;

const INT3: u8 = 0xcc;
const PAGE: u64 = 4096;
/// `AT_ENTRY` of the auxiliary vector.
const AT_ENTRY: u64 = 9;
/// `si_code` of a trap that an `int3` made.
const SI_KERNEL: c_int = 0x80;

/// What to watch.
#[derive(Debug, Clone, Copy)]
pub struct Breakpoints<'a> {
    /// The file whose code is watched, wherever it is executed in the command.
    pub program: &'a Path,
    /// Its entry point, as in the ELF header.
    pub entry: u64,
    /// Link-time addresses, ascending: each the first byte of an instruction.
    pub addresses: &'a [u64],
}

/// The first touch of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Link-time address.
    pub address: u64,
    /// The word on top of the stack, as a link-time address: at a function's entry the return address. 0 if it is unreadable.
    pub caller: u64,
}

/// What happened.
#[derive(Debug)]
pub struct Trace {
    /// First touches, in order.
    pub hits: Vec<Hit>,
    /// How the command ended.
    pub status: ExitStatus,
    /// How often the program was executed.
    pub images: usize,
}

/// Why a command could not be traced.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The program file cannot be examined.
    #[error("{0}: {1}")]
    Program(PathBuf, io::Error),
    /// The command cannot be started.
    #[error("starting {0}: {1}")]
    Start(String, io::Error),
    /// A system call on a traced process failed.
    #[error(
        "{0} process {1}: {2} (is ptrace allowed here? containers need CAP_SYS_PTRACE or a seccomp profile that permits it)"
    )]
    Process(&'static str, pid_t, io::Error),
    /// The command never executed the program.
    #[error("the command did not execute {0}; name the program file itself")]
    NotExecuted(PathBuf),
}

/// A traced thread.
struct Tracee {
    mem: File,
    /// Load bias, if it runs the watched program.
    bias: Option<u64>,
}

struct Tracer<'a> {
    watch: Breakpoints<'a>,
    file: (u64, u64),
    /// Beside the addresses: the byte that the breakpoint replaces. `None` before the program was first seen.
    bytes: Option<Vec<u8>>,
    tracees: HashMap<pid_t, Tracee>,
    seen: HashSet<u64>,
    hits: Vec<Hit>,
    images: usize,
}

/// Runs a command to its end, and reports in what order the addresses were touched. Waits for the children of the calling thread only.
pub fn trace(mut command: Command, watch: Breakpoints<'_>) -> Result<Trace, TraceError> {
    let meta =
        std::fs::metadata(watch.program).map_err(|e| TraceError::Program(watch.program.to_owned(), e))?;
    let mut tracer = Tracer {
        watch,
        file: (meta.dev(), meta.ino()),
        bytes: None,
        tracees: HashMap::new(),
        seen: HashSet::new(),
        hits: Vec::new(),
        images: 0,
    };
    // SAFETY: the closure runs in the child between fork and exec and makes one system call, which is async-signal-safe; it
    // touches no memory of the parent.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|e| TraceError::Start(name, e))?;
    let main = child.id() as pid_t;
    let status = tracer.follow(main)?;
    if tracer.images == 0 {
        return Err(TraceError::NotExecuted(watch.program.to_owned()));
    }
    Ok(Trace { hits: tracer.hits, status, images: tracer.images })
}

impl Tracer<'_> {
    fn follow(&mut self, main: pid_t) -> Result<ExitStatus, TraceError> {
        let mut ended = None;
        let mut started = false;
        while let Some((pid, status)) = wait()? {
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                self.tracees.remove(&pid);
                if pid == main {
                    ended = Some(ExitStatus::from_raw(status));
                }
                continue;
            }
            if !libc::WIFSTOPPED(status) {
                continue;
            }
            let outcome = if pid == main && !started {
                started = true;
                set_options(pid).and_then(|()| self.executed(pid)).map(|()| 0)
            } else {
                self.stopped(pid, libc::WSTOPSIG(status), status >> 16)
            };
            // A process may be killed at any moment; its end is reported by wait.
            match outcome.and_then(|signal| resume(pid, signal)) {
                Err(TraceError::Process(_, _, e)) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
        ended.ok_or_else(|| {
            TraceError::Process("waiting for", main, io::Error::from_raw_os_error(libc::ECHILD))
        })
    }

    /// Handles a stop; returns the signal to deliver.
    fn stopped(&mut self, pid: pid_t, signal: c_int, event: c_int) -> Result<c_int, TraceError> {
        if event == libc::PTRACE_EVENT_EXEC {
            self.executed(pid)?;
            return Ok(0);
        }
        let new = !self.tracees.contains_key(&pid);
        if new {
            self.tracees.insert(pid, self.open(pid)?);
        }
        match signal {
            _ if event != 0 => Ok(0),
            // The stop with which a new thread or process begins.
            libc::SIGSTOP if new => Ok(0),
            libc::SIGTRAP if self.hit(pid)? => Ok(0),
            libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU if signal_info(pid)?.is_none() => {
                Ok(0)
            }
            other => Ok(other),
        }
    }

    fn open(&self, pid: pid_t) -> Result<Tracee, TraceError> {
        let failed = |e| TraceError::Process("opening the memory of", pid, e);
        let mem =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).map_err(failed)?;
        let exe = std::fs::metadata(format!("/proc/{pid}/exe"));
        let watched = exe.is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        let bias = if watched {
            let auxv = std::fs::read(format!("/proc/{pid}/auxv")).map_err(failed)?;
            let mut pairs = auxv.chunks_exact(16).map(|p| {
                let word = |at: usize| u64::from_ne_bytes(p[at..at + 8].try_into().expect("8 bytes"));
                (word(0), word(8))
            });
            pairs.find(|(tag, _)| *tag == AT_ENTRY).map(|(_, entry)| entry.wrapping_sub(self.watch.entry))
        } else {
            None
        };
        Ok(Tracee { mem, bias })
    }

    /// A new program runs in the process: if it is the watched one, puts the breakpoints in.
    fn executed(&mut self, pid: pid_t) -> Result<(), TraceError> {
        let tracee = self.open(pid)?;
        if let Some(bias) = tracee.bias {
            self.images += 1;
            let mut bytes = Vec::with_capacity(self.watch.addresses.len());
            let same_page = |a: &u64, b: &u64| a / PAGE == b / PAGE;
            for page in self.watch.addresses.chunk_by(same_page) {
                let (first, last) = (page[0], page[page.len() - 1]);
                let mut window = vec![0; (last - first + 1) as usize];
                let at = first.wrapping_add(bias);
                let failed = |e| TraceError::Process("setting breakpoints in", pid, e);
                tracee.mem.read_exact_at(&mut window, at).map_err(failed)?;
                for addr in page {
                    let byte = &mut window[(addr - first) as usize];
                    bytes.push(std::mem::replace(byte, INT3));
                }
                tracee.mem.write_all_at(&window, at).map_err(failed)?;
            }
            self.bytes.get_or_insert(bytes);
        }
        self.tracees.insert(pid, tracee);
        Ok(())
    }

    /// Whether the process stopped at a breakpoint; if so, takes it out and steps back onto the instruction.
    fn hit(&mut self, pid: pid_t) -> Result<bool, TraceError> {
        let (Some(Tracee { mem, bias: Some(bias) }), Some(bytes)) = (self.tracees.get(&pid), &self.bytes)
        else {
            return Ok(false);
        };
        if signal_info(pid)? != Some(SI_KERNEL) {
            return Ok(false);
        }
        let mut registers = registers(pid)?;
        let at = registers.rip.wrapping_sub(1);
        let address = at.wrapping_sub(*bias);
        let Ok(index) = self.watch.addresses.binary_search(&address) else { return Ok(false) };
        if bytes[index] == INT3 {
            // The program's own.
            return Ok(false);
        }
        let failed = |e| TraceError::Process("taking a breakpoint out of", pid, e);
        mem.write_all_at(&bytes[index..=index], at).map_err(failed)?;
        registers.rip = at;
        set_registers(pid, &registers)?;
        if self.seen.insert(address) {
            let mut top = [0; 8];
            let caller = mem.read_exact_at(&mut top, registers.rsp);
            let caller = caller.map_or(0, |()| u64::from_ne_bytes(top).wrapping_sub(*bias));
            self.hits.push(Hit { address, caller });
        }
        Ok(true)
    }
}

/// The next change of state of a child or tracee of this thread; `None` when there are none left.
fn wait() -> Result<Option<(pid_t, c_int)>, TraceError> {
    loop {
        let mut status = 0;
        // SAFETY: waitpid writes one c_int through the pointer, which is valid for the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if pid >= 0 {
            return Ok(Some((pid, status)));
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(None),
            _ => return Err(TraceError::Process("waiting for", -1, e)),
        }
    }
}

/// `ptrace` with plain numbers as arguments.
fn ptrace(request: libc::c_uint, pid: pid_t, data: usize, what: &'static str) -> Result<(), TraceError> {
    // SAFETY: only used with requests whose arguments are numbers (SETOPTIONS, CONT), so that no memory of this process is
    // accessed.
    match unsafe { libc::ptrace(request, pid, 0usize, data) } {
        -1 => Err(TraceError::Process(what, pid, io::Error::last_os_error())),
        _ => Ok(()),
    }
}

fn set_options(pid: pid_t) -> Result<(), TraceError> {
    let options = libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        // If the tracer dies, nobody would take the breakpoints out.
        | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS, pid, options as usize, "following")
}

fn resume(pid: pid_t, signal: c_int) -> Result<(), TraceError> {
    ptrace(libc::PTRACE_CONT, pid, signal as usize, "resuming")
}

/// `si_code` of the signal that stopped the process; `None` in a group stop, which has none.
fn signal_info(pid: pid_t) -> Result<Option<c_int>, TraceError> {
    // SAFETY: siginfo_t is plain data, for which zeros are a value; the kernel writes one siginfo_t through the pointer, which
    // is valid for the call.
    let (done, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let done = libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0usize, (&raw mut info).cast::<c_void>());
        (done, info)
    };
    if done != -1 {
        return Ok(Some(info.si_code));
    }
    let e = io::Error::last_os_error();
    if e.raw_os_error() == Some(libc::EINVAL) {
        return Ok(None);
    }
    Err(TraceError::Process("reading the signal of", pid, e))
}

fn registers(pid: pid_t) -> Result<libc::user_regs_struct, TraceError> {
    // SAFETY: user_regs_struct is plain data, for which zeros are a value; the kernel writes one through the pointer, which is
    // valid for the call.
    let (done, registers) = unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let done = libc::ptrace(libc::PTRACE_GETREGS, pid, 0usize, (&raw mut registers).cast::<c_void>());
        (done, registers)
    };
    match done {
        -1 => Err(TraceError::Process("reading the registers of", pid, io::Error::last_os_error())),
        _ => Ok(registers),
    }
}

fn set_registers(pid: pid_t, registers: &libc::user_regs_struct) -> Result<(), TraceError> {
    // SAFETY: the kernel reads one user_regs_struct through the pointer, which is valid for the call.
    match unsafe {
        libc::ptrace(libc::PTRACE_SETREGS, pid, 0usize, std::ptr::from_ref(registers).cast::<c_void>())
    } {
        -1 => Err(TraceError::Process("setting the registers of", pid, io::Error::last_os_error())),
        _ => Ok(()),
    }
}
