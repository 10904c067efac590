//! Runs a command with a deadline.
//!
//! What is tested here can hang by design (a fault that nobody answers), so a hang has to become a failed
//! assertion with the output so far, and never a stuck test run.

use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often to look whether the command has ended: well below what a test can tell, well above what costs
/// CPU time.
const POLL: Duration = Duration::from_millis(2);

/// A command that has ended.
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// From its start to its end, the end of its output included.
    pub time: Duration,
}

impl Finished {
    /// Its exit code; 128+N if signal N ended it, as a shell says it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Standard output as text.
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Panics with all of its output unless it exited with 0; then returns itself.
    #[track_caller]
    #[must_use]
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }
}

impl fmt::Debug for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (out, err) = (self.stdout(), self.stderr());
        write!(f, "{} after {:?}\n--- stdout\n{out}\n--- stderr\n{err}\n---", self.status, self.time)
    }
}

/// Runs `command` with empty standard input in a process group of its own.
///
/// If it has not ended after `deadline`, or something still holds its output open then, the whole group is
/// killed and this panics with what was written so far.
#[track_caller]
pub fn run(command: &mut Command, deadline: Duration) -> Finished {
    run_with_input(command, b"", deadline)
}

/// [`run`], with `input` on standard input.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8], deadline: Duration) -> Finished {
    let start = Instant::now();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    feed(&mut child, input.to_vec());
    let stdout = Capture::start(child.stdout.take());
    let stderr = Capture::start(child.stderr.take());
    let mut status = None;
    loop {
        status = status.or_else(|| child.try_wait().expect("waiting for a child of ours"));
        if let Some(status) = status
            && stdout.is_finished()
            && stderr.is_finished()
        {
            let time = start.elapsed();
            return Finished { status, stdout: stdout.bytes(), stderr: stderr.bytes(), time };
        }
        if start.elapsed() >= deadline {
            kill_group(&mut child);
            let (out, err) = (stdout.bytes(), stderr.bytes());
            panic!(
                "{command:?} {} after {deadline:?}; killed\n--- stdout\n{}\n--- stderr\n{}\n---",
                if status.is_some() { "has ended, but its output is still open" } else { "is still running" },
                String::from_utf8_lossy(&out),
                String::from_utf8_lossy(&err),
            );
        }
        std::thread::sleep(POLL);
    }
}

/// The group may outlive its first process, so it is killed even if that has been waited for.
fn kill_group(child: &mut Child) {
    let group = Pid::from_raw(i32::try_from(child.id()).expect("process ids are positive i32"));
    // ESRCH: everything in it ended just now.
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}

/// Writes from a thread, since the command may not read.
fn feed(child: &mut Child, input: Vec<u8>) {
    if let Some(mut stdin) = child.stdin.take()
        && !input.is_empty()
    {
        std::thread::spawn(move || stdin.write_all(&input).is_ok());
    }
}

/// A pipe that is read from a thread; what has come so far can be had while it is open.
struct Capture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Capture {
    fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = bytes.clone();
        let reader = std::thread::spawn(move || {
            let mut pipe = pipe.expect("the pipe was asked for");
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read) = pipe.read(&mut buffer) {
                if read == 0 {
                    break;
                }
                sink.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..read]);
            }
        });
        Self { bytes, reader }
    }

    fn is_finished(&self) -> bool {
        self.reader.is_finished()
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
