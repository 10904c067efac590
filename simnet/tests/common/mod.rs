//! What the tests over a real packet link share: who can run them, and commands that always end.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::{Pid, geteuid},
};

/// `pagein net` as a program.
pub(crate) const NET: &str = env!("CARGO_BIN_EXE_pagein-net");

/// True, after a line that says why, if a packet link or one of the programs cannot be used here.
pub(crate) fn must_skip(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let path = std::env::var("PATH").unwrap_or_default();
        !path.split(':').any(|folder| Path::new(folder).join(program).exists())
    });
    let reason = if !geteuid().is_root() {
        "it needs root".to_owned()
    } else if !Path::new("/dev/net/tun").exists() {
        "it needs /dev/net/tun".to_owned()
    } else if let Some(program) = missing {
        format!("it needs {program} (Debian: iperf3 iputils-ping iproute2 curl util-linux)")
    } else {
        return false;
    };
    skipped(&reason);
    true
}

/// Says that the running test, or a part of it, is not done.
pub(crate) fn skipped(reason: &str) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    // Past the test harness, which would keep the line of a test that passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// `pagein-net OPTIONS -- COMMAND`, both split at blanks.
pub(crate) fn net(options: &str, command: &str) -> Command {
    with_server(None, options, command)
}

/// The same with a shell command on the far side.
///
/// It all runs before whatever else the machine has to do (nice -19 becomes the program): what is measured is the link.
pub(crate) fn with_server(server: Option<&str>, options: &str, command: &str) -> Command {
    let mut net = Command::new("nice");
    net.args(["-n", "-19", NET]);
    if let Some(server) = server {
        net.args(["--server", server]);
    }
    net.args(options.split_whitespace()).arg("--").args(command.split_whitespace());
    net
}

/// What other processes take of this machine's processors, from when it was made.
pub(crate) struct Load {
    total: u64,
    busy: u64,
    own: u64,
}

impl Load {
    pub(crate) fn now() -> Self {
        // proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; in ticks, over all processors.
        let stat = std::fs::read_to_string("/proc/stat").unwrap();
        let ticks: Vec<u64> = stat
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .skip(1)
            .take(8)
            .map(|tick| tick.parse().unwrap())
            .collect();
        let total: u64 = ticks.iter().sum();
        // proc_pid_stat(5): fields 14 to 17, our own time and that of children that have ended, and theirs.
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = own.rsplit(')').next().unwrap().split_whitespace().collect();
        let own = fields[11..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
        Self { total, busy: total - ticks[3] - ticks[4], own }
    }

    /// A share of all processors, 0 to 1.
    pub(crate) fn of_others(&self) -> f64 {
        let now = Self::now();
        let others = (now.busy - self.busy).saturating_sub(now.own - self.own);
        others as f64 / (now.total - self.total).max(1) as f64
    }
}

/// A process group that ends with this, whatever it has become.
pub(crate) struct Group(pub(crate) Child);

impl Group {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().expect("cannot start"))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.0.id() as i32)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = killpg(self.pid(), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Runs a command to its end, or kills it and fails when it takes longer than `limit`.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Output {
    let deadline = Instant::now() + limit;
    let mut group = Group::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let (mut stdout, mut stderr) = (group.0.stdout.take().unwrap(), group.0.stderr.take().unwrap());
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        text
    });
    let lines = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        text
    });
    let status = loop {
        if let Some(status) = group.0.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            drop(group);
            let stderr = errors.join().unwrap();
            panic!("{command:?} did not end in {limit:?}: {}", String::from_utf8_lossy(&stderr));
        }
        thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: lines.join().unwrap(), stderr: errors.join().unwrap() }
}

/// What a command prints, if it succeeds within ten seconds more than `seconds`.
pub(crate) fn text(command: &mut Command, seconds: u64) -> String {
    let output = output(command, Duration::from_secs(seconds + 10));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}

/// A web server on a loopback port of the outer machine, which answers every request with so many bytes.
pub(crate) fn web_server(address: &str, bytes: usize) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || respond(client, bytes));
        }
    });
    port
}

fn respond(mut client: TcpStream, bytes: usize) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
    // In one go: the head must not become a packet of its own.
    let mut response = head.into_bytes();
    response.resize(response.len() + bytes, b'x');
    client.write_all(&response)
}
