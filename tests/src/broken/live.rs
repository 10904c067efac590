//! A command that is talked to while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// A running command, line by line. Whatever does not come in time is a failed assertion.
pub struct Live {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status, as a shell shows it.
    pub code: i32,
    /// Lines of standard output that nobody has read.
    pub lines: Vec<String>,
    /// Standard error.
    pub stderr: String,
    /// From the call of [`Live::end`] until all of its processes had closed its output.
    pub time: Duration,
}

impl Live {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (send, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let mut errors = child.stderr.take().expect("it was asked for");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self { input: child.stdin.take(), child, lines, errors: Some(errors) }
    }

    /// The process that was started, and so the program.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive i32"))
    }

    /// Writes a line to it; it may be gone already.
    pub fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = writeln!(input, "{line}");
        }
    }

    /// The next line that it writes.
    #[track_caller]
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(super::DEADLINE) {
            Ok(line) => line,
            Err(error) => {
                self.kill();
                let errors = self.errors.take().map(|thread| thread.join().unwrap_or_default());
                panic!("nothing to hear: {error}; {}", errors.unwrap_or_default())
            }
        }
    }

    /// Says a line and hears the answer.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Closes its input.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Waits until it and all processes that hold its output have ended.
    #[track_caller]
    pub fn end(mut self, deadline: Duration) -> Ended {
        let start = Instant::now();
        let mut lines = Vec::new();
        let mut status = None;
        while status.is_none() || self.errors.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if start.elapsed() > deadline {
                self.kill();
                let errors = self.errors.take().map(|thread| thread.join().unwrap_or_default());
                panic!("has not ended after {deadline:?} (status {status:?}): {errors:?}");
            }
            lines.extend(self.lines.try_iter());
            status = status.or_else(|| self.child.try_wait().expect("waiting for a child of ours"));
            std::thread::sleep(Duration::from_millis(2));
        }
        let time = start.elapsed();
        while let Ok(line) = self.lines.recv_timeout(deadline) {
            lines.push(line);
        }
        let status = status.expect("the loop has ended");
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let errors = self.errors.take().expect("only taken here");
        Ended { code, lines, stderr: errors.join().expect("it does not panic"), time }
    }

    fn kill(&mut self) {
        // ESRCH: everything in it ended just now. The pager is in a session of its own and sees the program's end.
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.kill();
    }
}
