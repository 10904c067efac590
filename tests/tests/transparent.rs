//! A program under pagein cannot be told from a local one: terminal, job control, signals, descriptors, debuggers.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pagein_testkit::{have, run, skip};
use pagein_tests::real::{DEADLINE, compile, image, pagein, pagein_run, same_as_local, scratch, succeed};
use rexpect::session::{PtySession, spawn_command};

const BASH: &str = "/bin/bash";
const STEP_MS: u64 = 20_000;

fn bash_image() -> String {
    image(Path::new(BASH), &["-c", "true"])
}

/// A command on a terminal of its own.
fn on_terminal(command: Command) -> PtySession {
    spawn_command(command, Some(STEP_MS)).expect("a terminal")
}

/// A terminal with an interactive bash of the paged kind, and one in which a local bash is the shell.
fn shell(mut command: Command) -> PtySession {
    command.args(["--norc", "--noprofile", "-i"]).env("PS1", "ready> ").env("TERM", "dumb");
    let mut session = on_terminal(command);
    session.exp_string("ready> ").expect("a prompt");
    session
}

fn say(session: &mut PtySession, line: &str, answer: &str) {
    session.send_line(line).expect("the terminal takes a line");
    session.exp_string(answer).unwrap_or_else(|error| panic!("{line:?}: no {answer:?}: {error}"));
}

#[test]
fn an_interactive_shell_with_job_control_runs_paged() {
    let mut session = shell(pagein_run("streamed", &bash_image()));
    say(&mut session, "echo $((6*7))", "42\r\n");
    say(&mut session, "sh -c 'echo asleep; exec sleep 100'", "asleep\r\n");
    session.send_control('z').unwrap();
    session.exp_string("Stopped").unwrap();
    say(&mut session, "bg; kill %1; wait %1; echo status $?", "status 143");
    say(&mut session, "test -t 0 && echo \"is a\" terminal", "is a terminal");
    session.send_line("exit 7").unwrap();
    let status = session.process.wait().unwrap();
    assert!(matches!(status, rexpect::process::wait::WaitStatus::Exited(_, 7)), "{status:?}");
}

/// Ctrl-C, Ctrl-Z and fg reach a paged program that a local shell runs, with and without a process that waits for stats.
#[test]
fn a_local_shell_controls_a_paged_job() {
    let url = bash_image();
    for extra in [&[][..], &["--stats", "job-stats.json"]] {
        let mut command = Command::new(BASH);
        command.current_dir(scratch());
        let mut session = shell(command);
        let cache = scratch().join("job-cache");
        let script = "trap 'echo got INT; exit 5' INT; echo up $((40+2)); while :; do sleep 0.1; done";
        let line = format!(
            "{} run {} --cache {} {url} -- -c \"{script}\"",
            pagein().display(),
            extra.join(" "),
            cache.display()
        );
        say(&mut session, &line, "up 42");
        session.send_control('z').unwrap();
        session.exp_string("Stopped").unwrap();
        session.exp_string("ready> ").unwrap();
        session.send_line("fg").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        session.send_control('c').unwrap();
        session.exp_string("got INT").unwrap();
        say(&mut session, "echo status $?", "status 5");
        say(&mut session, &line, "up 42");
        session.send_control('z').unwrap();
        session.exp_string("Stopped").unwrap();
        say(&mut session, "kill -KILL %1; fg; echo status $?", "status 137");
        session.send_line("exit").unwrap();
    }
}

#[test]
fn gdb_and_python_talk_on_a_terminal() {
    let gdb = PathBuf::from("/usr/bin/gdb");
    let python = PathBuf::from("/usr/bin/python3.11");
    if gdb.exists() {
        let mut command = pagein_run("streamed", &image(&gdb, &["--batch", "-ex", "print 1"]));
        command.args(["-q", "-nx", "/bin/true"]).env("TERM", "dumb");
        let mut session = on_terminal(command);
        session.exp_string("(gdb) ").unwrap();
        say(&mut session, "print 6*7", "$1 = 42");
        say(&mut session, "run", "exited normally");
        session.send_line("quit").unwrap();
        assert!(matches!(session.process.wait(), Ok(rexpect::process::wait::WaitStatus::Exited(_, 0))));
    } else {
        skip("gdb is not installed");
    }
    if python.exists() {
        let mut command = pagein_run("streamed", &image(&python, &["-c", "print(1)"]));
        command.arg("-q").env("TERM", "dumb");
        let mut session = on_terminal(command);
        session.exp_string(">>> ").unwrap();
        say(&mut session, "print(6 * 7)", "42\r\n");
        say(&mut session, "import time; print('as' + 'leep'); time.sleep(100)", "asleep\r\n");
        session.send_control('c').unwrap();
        session.exp_string("KeyboardInterrupt").unwrap();
        session.send_line("raise SystemExit(6)").unwrap();
        assert!(matches!(session.process.wait(), Ok(rexpect::process::wait::WaitStatus::Exited(_, 6))));
    } else {
        skip("/usr/bin/python3.11 is not installed");
    }
}

#[test]
fn what_is_inherited_is_what_a_local_program_inherits() {
    let url = bash_image();
    let same = |script: &str, prepare: &dyn Fn(&mut Command)| {
        same_as_local(Path::new(BASH), &url, &["-c", script], prepare)
    };
    let plain: &dyn Fn(&mut Command) = &|_| {};
    // Open descriptors, ignored and blocked signals, limits, mask, nice value, environment, directory.
    same("ls /proc/self/fd; grep -E '^(SigIgn|SigBlk|SigCgt|ShdPnd)' /proc/self/status", plain);
    same("grep -E '^(SigIgn|SigBlk|Seccomp|NoNewPrivs|TracerPid|CapEff|Umask)' /proc/$$/status", plain);
    same("ulimit -a; umask; nice; pwd; set -o; export -p | grep -v _=", &|command| {
        command.current_dir("/usr/lib").env("A_VARIABLE", "with\nlines");
    });
    // A glob and not `ls`: forks and pipes of the shell's own come and go.
    same("for fd in /proc/$$/fd/*; do echo ${fd##*/}; done", plain);
    same("yes | head -1; echo ${PIPESTATUS[0]}", plain);
    same("cat <&0; echo end", &|command| {
        command.stdin(Stdio::null());
    });
    // A closed standard input stays closed.
    let closed = |command: String| {
        succeed(
            Command::new("sh").args(["-c", &format!("{command} -c 'ls -l /proc/$$/fd/0 2>&1 | wc -c' 0<&-")]),
        )
    };
    let paged = format!("{:?}", pagein_run("streamed", &url)).replace('"', "");
    assert_eq!(closed(paged).stdout().len() > 1, closed(BASH.into()).stdout().len() > 1);
}

#[test]
fn standard_input_flows_through() {
    let mut command = pagein_run("streamed", &bash_image());
    command.args(["-c", "while read -r line; do echo \"<$line>\"; done; exit 11"]);
    let lines: Vec<String> = (0..10_000).map(|n| format!("line {n}")).collect();
    let text = lines.join("\n") + "\n";
    let finished = pagein_testkit::run_with_input(&mut command, text.as_bytes(), DEADLINE);
    assert_eq!(finished.code(), 11);
    assert_eq!(finished.stdout().lines().count(), 10_000);
    assert!(finished.stdout().ends_with("<line 9999>\n"));
}

/// The command's own pid is the program's: signals need nobody to pass them on.
#[test]
fn signals_reach_the_program_and_its_own_signals_are_seen() {
    use nix::sys::signal::{Signal, kill};
    let url = bash_image();
    for policy in ["streamed", "paged"] {
        let mut command = pagein_run(policy, &url);
        command.args(["-c", "trap 'echo usr1; exit 21' USR1; echo $$; while :; do sleep 0.05; done"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        assert_eq!(line.trim(), child.id().to_string(), "the program has the command's pid");
        kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGUSR1).unwrap();
        assert_eq!(wait(&mut child).code(), Some(21));
    }
    let killed = run(pagein_run("streamed", &url).args(["-c", "kill -ABRT $$; sleep 9"]), DEADLINE);
    assert_eq!(killed.code(), 134);
}

fn wait(child: &mut std::process::Child) -> std::process::ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if started.elapsed() > DEADLINE {
            let _ = child.kill();
            panic!("the program did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_core_dump_shows_the_same_backtrace() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        return skip(&format!("core dumps go to {}", pattern.trim()));
    }
    if !have(&["gdb"]) {
        return;
    }
    let program = compile("crash.c", &[]);
    let url = image(&program, &[]);
    let backtrace = |mut command: Command, name: &str| {
        let directory = scratch().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let shell = format!("ulimit -c unlimited && exec {}", format!("{command:?}").replace('"', ""));
        command = Command::new("sh");
        command.args(["-c", &shell]).current_dir(&directory);
        assert_eq!(run(&mut command, DEADLINE).code(), 139);
        let core = std::fs::read_dir(&directory)
            .unwrap()
            .flatten()
            .find(|e| e.file_name().to_string_lossy().starts_with("core"));
        let core = core.expect("a core dump").path();
        let text =
            succeed(Command::new("gdb").args(["-q", "-nx", "-batch", "-ex", "bt"]).arg(&program).arg(core))
                .stdout();
        let frames = text.lines().filter(|line| line.starts_with('#')).map(|line| line.split_whitespace());
        frames
            .map(|words| words.filter(|word| !word.starts_with("0x")).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    let local = backtrace(Command::new(&program), "core-local");
    assert!(local.len() >= 3 && local[0].contains("innermost"), "{local:?}");
    assert_eq!(backtrace(pagein_run("streamed", &url), "core-paged"), local);
    assert_eq!(backtrace(pagein_run("paged", &url), "core-paged-2"), local);
}

#[test]
fn gdb_attaches_to_the_running_program() {
    if !have(&["gdb"]) {
        return;
    }
    let url = bash_image();
    let mut command = pagein_run("streamed", &url);
    let mut child = command
        .args(["-c", "echo up; read line; exit 8"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let gdb = |extra: &[&str]| {
        let pid = child.id().to_string();
        let mut gdb = Command::new("gdb");
        gdb.args(["-q", "-nx", "-batch"]).args(extra).args(["-p", &pid, "-ex", "bt", "-ex", "info threads"]);
        succeed(&mut gdb).stdout()
    };
    let with_file = gdb(&[BASH]);
    assert!(with_file.contains("read_builtin") || with_file.contains(" in read"), "{with_file}");
    assert!(with_file.contains("main ("), "unwound through the program to main: {with_file}");
    let without = gdb(&[]);
    assert!(without.contains("Thread") && without.contains("#0"), "{without}");
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(wait(&mut child).code(), Some(8), "it goes on after the debugger has gone");
}

#[test]
fn nothing_is_left_when_the_program_has_ended() {
    let url = bash_image();
    let mut command = pagein_run("streamed", &url);
    let mut child =
        command.args(["-c", "echo; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let title = format!("pager of process {}", child.id());
    let pagers = || {
        let ps = succeed(Command::new("ps").args(["-eo", "args"])).stdout();
        ps.lines().filter(|line| line.contains(&title)).count()
    };
    assert_eq!(pagers(), 1);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    wait(&mut child);
    let started = Instant::now();
    while pagers() > 0 {
        assert!(started.elapsed() < DEADLINE, "the pager outlives the program");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The trace of a job lists what a repeat of it touches: no page has to be requested but for what differs by itself.
#[test]
fn a_repeat_of_the_recorded_job_demands_next_to_nothing() {
    for (program, job) in [(BASH, &["-c", "echo $((1+1))"][..]), ("/usr/bin/git", &["--version"])] {
        let stats_path = scratch().join("repeat.json");
        let url = image(Path::new(program), job);
        let mut command = Command::new(pagein());
        command.args(["run", "--policy", "streamed", "--cache"]).arg(scratch().join("repeat-cache"));
        command.arg("--stats").arg(&stats_path).arg(&url).arg("--").args(job);
        succeed(&mut command);
        let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats_path).unwrap()).unwrap();
        let number = |key: &str| stats[key].as_u64().unwrap_or_else(|| panic!("no {key} in {stats}"));
        assert!(number("demand_faults") <= 3, "{stats}");
        assert!(number("wire_bytes") < 800_000, "{stats}");
        assert!(number("pages_installed") < number("pages_total"), "{stats}");
        assert_eq!(number("exit_status"), 0);
        assert_eq!(stats["policy"], "streamed");
        for key in ["requests", "faults"] {
            number(key);
        }
        for key in ["exec_ms", "total_ms", "bandwidth_bps", "rtt_ms"] {
            assert!(stats[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {stats}");
        }
    }
}

/// Forks by the hundred with room for few descriptors: those of the dead are given back in time.
#[test]
fn a_program_that_forks_all_the_time_needs_few_descriptors() {
    let script = "for i in $(seq 300); do (:) ; done; echo $((6*7))";
    let command = format!("{:?}", pagein_run("streamed", &bash_image())).replace('"', "");
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n 64; exec {command} -c \"$0\""), script]);
    assert_eq!(run(&mut shell, DEADLINE).stdout(), "42\n");
}

/// Only SIGKILL ends the pager: what a shutdown sends to everybody must not take the pages from a program that handles it.
#[test]
fn the_pager_outlives_a_sigterm_to_everybody() {
    use nix::sys::signal::{Signal, kill};
    let mut command = pagein_run("paged", &bash_image());
    let script = "echo up; read line; help pwd >/dev/null; type cd; exit 12";
    let mut child =
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let title = format!("pager of process {}", child.id());
    let ps = succeed(Command::new("ps").args(["-eo", "pid,args"])).stdout();
    let pager =
        ps.lines().find(|line| line.contains(&title)).expect("a pager").split_whitespace().next().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        kill(nix::unistd::Pid::from_raw(pager.parse().unwrap()), signal).unwrap();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(wait(&mut child).code(), Some(12));
}

/// What is sent to the process that waits for the stats reaches the program; an ignored SIGCHLD does not disturb.
#[test]
fn the_waiting_process_passes_signals_on() {
    use nix::sys::signal::{Signal, kill};
    let stats = scratch().join("signal-stats.json");
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' CHLD; exec \"$@\"", "sh"]).arg(pagein());
    command
        .arg("run")
        .arg("--stats")
        .arg(&stats)
        .arg("--cache")
        .arg(scratch().join("signal-cache"))
        .arg(bash_image());
    command.args(["--", "-c", "trap 'exit 33' INT; echo up; while :; do sleep 0.05; done"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(wait(&mut child).code(), Some(33));
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    assert_eq!(written["exit_status"], 33);
}
