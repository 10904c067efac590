//! The line a skipped test leaves. The environment cannot be changed safely in a process with threads, so the
//! test runs itself again.

use std::process::Command;
use std::time::Duration;

use pagein_testkit::{run, skip};

#[test]
#[ignore = "run by skipped_tests_leave_a_line, with PAGEIN_SKIP_LOG set"]
fn skips() {
    skip("no such device");
}

#[test]
fn skipped_tests_leave_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("skipped");
    for _ in 0..2 {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--exact", "skips", "--ignored", "--nocapture"]).env("PAGEIN_SKIP_LOG", &log);
        let done = run(&mut again, Duration::from_secs(30)).success();
        assert!(done.stderr().contains("SKIPPED skips: no such device"), "{done:?}");
    }
    let line = "SKIPPED skips: no such device\n";
    assert_eq!(std::fs::read_to_string(&log).unwrap(), line.repeat(2));
}
