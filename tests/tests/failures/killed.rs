//! kill -9 of parts of pagein while pages are missing.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagein_tests::broken::{Bench, Book, Live, assert_words};

/// Invariant 2 says one second; the rest is for a loaded machine.
const SOON: Duration = Duration::from_secs(3);

/// The book under a policy that leaves nearly everything missing.
fn open(bench: &Bench) -> Live {
    let book = Book::get();
    let mut live =
        Live::start(&mut bench.pagein(["run", "--policy=reordered-paged", book.image.to_str().unwrap()]));
    assert_eq!(live.ask("page 300"), book.page(300));
    live
}

fn kill9(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

#[test]
fn the_pager() {
    let bench = Bench::new();
    let live = open(&bench);
    kill9(bench.process("pagein"));
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.lines().count()), (135, 1), "{ended:?}");
    let source = Book::get().image.display().to_string();
    assert_words(&ended.stderr, &["the pager of book-program was killed", &source, "SIGBUS"]);
}

#[test]
fn the_pager_of_a_program_that_ignores_sigbus() {
    let bench = Bench::new();
    let book = Book::get();
    let mut live = open(&bench);
    assert_eq!(live.ask("ignore"), "ignored");
    kill9(bench.process("pagein"));
    // What is there stays right, however long it takes the guard.
    assert_eq!(live.ask("page 300"), book.page(300));
    // The kernel fails rather than reading zeros, and so does the program.
    assert_eq!(live.ask("pipe 10"), "pipe -1 Bad address");
    live.say("page 20");
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.lines), (135, vec![]), "{}", ended.stderr);
}

#[test]
fn the_pager_of_a_family() {
    let bench = Bench::new();
    let book = Book::get();
    let mut live = open(&bench);
    let child = live.ask("fork");
    let child: i32 = child.strip_prefix("child ").unwrap().parse().unwrap();
    assert_eq!(live.ask("child page 200"), format!("child {}", book.page(200)));
    kill9(bench.process("pagein"));
    // Its output stays open until the child has ended too.
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.lines().count()), (135, 1), "{ended:?}");
    // A zombie, if nobody here reaps orphans, has no memory map.
    assert_eq!(std::fs::read_to_string(format!("/proc/{child}/maps")).unwrap_or_default(), "");
}

#[test]
fn the_pager_of_a_child_whose_parent_has_ended() {
    let bench = Bench::new();
    let book = Book::get();
    let mut live = open(&bench);
    live.ask("fork");
    assert_eq!(live.ask("child page 200"), format!("child {}", book.page(200)));
    live.say("exit 7");
    while bench.processes().iter().filter(|(_, name)| name == "book-program").count() > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill9(bench.process("pagein"));
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.lines().count()), (7, 1), "{ended:?}");
}

/// A signal that comes while the program is being started, even one that is ignored, stops a process that is traced.
#[test]
fn nothing_by_signals_at_the_start() {
    let bench = Bench::new();
    let book = Book::get();
    for _ in 0..10 {
        let args = ["run", "--policy=reordered-paged", book.image.to_str().unwrap()];
        let mut live = Live::start(&mut bench.pagein(args));
        let pid = live.pid();
        live.say("page 300");
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(60) {
            kill(pid, Signal::SIGCHLD).unwrap();
            std::thread::sleep(Duration::from_micros(20));
        }
        assert_eq!(live.hear(), book.page(300));
        live.close();
        assert_eq!(live.end(SOON).code, 0);
    }
}

#[test]
fn the_guard() {
    let bench = Bench::new();
    let book = Book::get();
    let mut live = open(&bench);
    for round in 0..3 {
        let guard = bench.process("uffd-guard");
        kill9(guard);
        assert_eq!(live.ask(&format!("page {round}")), book.page(round));
        while bench.processes().iter().any(|(pid, _)| *pid == guard) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // The new one knows its duty.
    bench.process("uffd-guard");
    std::thread::sleep(Duration::from_millis(50));
    kill9(bench.process("pagein"));
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.lines().count()), (135, 1), "{ended:?}");
}

#[test]
fn the_guard_and_nothing_else() {
    let bench = Bench::new();
    let mut live = open(&bench);
    kill9(bench.process("uffd-guard"));
    live.say("pages 0 400");
    live.close();
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert_eq!(ended.lines.join("\n") + "\n", Book::get().all());
}
