//! Runs a command to its end or its time limit, and keeps what it writes.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often to look whether a command has ended. Its times come from `--stats`, not from here.
const POLL: Duration = Duration::from_millis(5);

/// How long a descendant may hold the output open after the command has ended: the pager sees the end a moment later.
const LINGER: Duration = Duration::from_secs(2);

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit status, 128+N if signal N ended it; `None` if it took too long and was killed.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// From its start to its end.
    pub(crate) time: Duration,
}

impl Output {
    /// The last line with letters on standard error, for messages.
    pub(crate) fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let mut lines = text.lines().rev().map(str::trim);
        let line = lines.find(|line| line.contains(char::is_alphabetic)).unwrap_or("it said nothing");
        line.chars().take(500).collect()
    }
}

/// Runs a command made by [`child::command`](crate::child::command) with empty standard input.
pub(crate) fn run(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let started = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        if started.elapsed() >= limit {
            // The group is the command's own; ESRCH means that it ended just now.
            let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
            child.wait()?;
            break None;
        }
        thread::sleep(POLL);
    };
    let time = started.elapsed();
    let until = Instant::now() + LINGER;
    Ok(Output { status, stdout: take(&stdout, until), stderr: take(&stderr, until), time })
}

/// Reads a pipe from a thread; chunks come through the channel, which closes at the end.
fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    if let Some(mut pipe) = pipe {
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

fn take(chunks: &mpsc::Receiver<Vec<u8>>, until: Instant) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(chunk) = chunks.recv_timeout(until.saturating_duration_since(Instant::now())) {
        all.extend(chunk);
    }
    all
}
