//! The command line itself: help, bad arguments, exit statuses. (That this test exists also makes cargo build the command
//! with the tests.)

use std::process::{Command, Output};

fn pagein(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagein")).args(args).output().expect("it runs")
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn help_has_examples_for_every_command() {
    let help = words(&pagein(&["--help"]).stdout);
    assert!(help.contains("Examples:") && help.contains("Exit status"), "{help}");
    for command in [
        "record",
        "split",
        "serve",
        "run",
        "inspect",
        "verify",
        "demo",
        "net",
        "profile",
        "relayout",
        "layout",
        "experiment",
        "plan",
    ] {
        assert!(help.contains(command), "{command} in {help}");
        let output = pagein(&[command, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        assert!(words(&output.stdout).contains("Example"), "{command} --help");
    }
}

#[test]
fn bad_arguments_end_with_125_and_say_what_is_allowed() {
    let cases: [(&[&str], &str); 10] = [
        (&[], "Usage"),
        (&["no-such-command"], "unrecognized"),
        (&["run"], "SOURCE"),
        (&["run", "--policy", "fastest", "http://localhost/x"], "reordered-paged"),
        (&["run", "ftp://host/x"], "http://"),
        (&["run", "http://host/x#12"], "64 hexadecimal digits"),
        (&["plan", "image", "--rtt", "20ms"], "--bandwidth <RATE>"),
        (&["plan", "image", "--rtt", "20ms", "--bandwidth", "10"], "such as 10mbit"),
        (&["plan", "image", "--rtt", "20", "--bandwidth", "10mbit"], "such as 20ms"),
        (&["split", "/bin/sh", "-o", "x", "--level", "99"], "1..=22"),
    ];
    for (args, expected) in cases {
        let output = pagein(args);
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        let said = words(&output.stderr);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn a_program_that_is_not_there_ends_with_127() {
    for args in [
        &["run", "/nonexistent/image"][..],
        &["record", "--", "no-such-program"],
        &["inspect", "/nonexistent"],
        &["plan", "/nonexistent", "--bandwidth", "10mbit", "--rtt", "20ms"],
    ] {
        assert_eq!(pagein(args).status.code(), Some(127), "{args:?}");
    }
}
