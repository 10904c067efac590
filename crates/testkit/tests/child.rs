//! The command harness.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use pagein_testkit::{have, run, run_with_input};

const LONG: Duration = Duration::from_secs(20);

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// What the panic of a command that does not end says.
fn panic_of(script: &str) -> (String, Duration) {
    let start = Instant::now();
    let panic =
        catch_unwind(AssertUnwindSafe(|| run(&mut sh(script), Duration::from_millis(400)))).unwrap_err();
    (panic.downcast_ref::<String>().unwrap().clone(), start.elapsed())
}

#[test]
fn output_and_status() {
    let done = run(&mut sh("echo out; echo err >&2; exit 3"), LONG);
    assert_eq!((done.stdout().as_str(), done.stderr().as_str(), done.code()), ("out\n", "err\n", 3));
    assert_eq!(run(&mut sh("kill -TERM $$"), LONG).code(), 128 + 15);
    assert_eq!(run(&mut sh("head -c 3000000 /dev/zero"), LONG).success().stdout.len(), 3_000_000);
    assert_eq!(run(&mut Command::new("cat"), LONG).success().stdout(), "");
}

#[test]
fn input_larger_than_a_pipe() {
    let input = vec![b'x'; 1_000_000];
    assert_eq!(run_with_input(&mut Command::new("cat"), &input, LONG).success().stdout, input);
    // It does not read all of it.
    assert_eq!(run_with_input(&mut sh("head -c 1"), &input, LONG).success().stdout(), "x");
}

#[test]
fn a_hang_is_a_panic_with_the_output_and_the_group_is_gone() {
    let (message, time) = panic_of("echo child $$; sleep 60 & echo grandchild $!; wait");
    assert!(message.contains("still running") && message.contains("grandchild"), "{message}");
    assert!(time < Duration::from_secs(5), "{time:?}");
    for name in ["child ", "grandchild "] {
        let pid: String =
            message.split(name).last().unwrap().chars().take_while(char::is_ascii_digit).collect();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let gone = || state().is_empty() || state().contains(") Z ");
        let start = Instant::now();
        while !gone() {
            assert!(start.elapsed() < Duration::from_secs(5), "{name}{pid} lives: {}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn an_output_that_a_grandchild_holds_open_is_a_panic_too() {
    let (message, time) = panic_of("echo first; sleep 60 &");
    assert!(message.contains("output is still open") && message.contains("first"), "{message}");
    assert!(time < Duration::from_secs(5), "{time:?}");
}

#[test]
fn programs_that_are_there() {
    assert!(have(&["sh", "cat"]));
    assert!(!have(&["sh", "no-such-program-here"]));
}
