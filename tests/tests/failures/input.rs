//! Programs that cannot be recorded, cut or run, traces that do not fit, directories that are something else.

use std::path::Path;

use pagein_testkit::run;
use pagein_tests::broken::{Bench, Book, DEADLINE, assert_failed, assert_words, files_below};

/// Bytes 18 and 19 of an ELF header are `e_machine` (System V ABI, chapter 4); 183 is `EM_AARCH64`.
const E_MACHINE: usize = 18;
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";
const NO_LOADER: &[u8] = b"/lib64/not-on-this-machine.";

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's path")
}

/// Neither command takes `program`, for the reason that `words` say, and nothing is written.
#[track_caller]
fn refused(bench: &Bench, program: &str, code: i32, words: &[&str]) {
    assert_failed(&bench.run(["record", "-o", "out.trace", "--", program]), code, words);
    assert_failed(&bench.run(["split", "-o", "out", program]), code, words);
    let left = files_below(&bench.path(""));
    assert!(!left.iter().any(|name| name.starts_with("out")), "{left:?}");
}

#[test]
fn programs_that_are_none() {
    let bench = Bench::new();
    let book = std::fs::read(&Book::get().program).unwrap();
    let refused = |name: &str, bytes: &[u8], code: i32, words: &[&str]| {
        let path = bench.file(name, bytes);
        refused(&bench, text(&path), code, &[&[text(&path)][..], words].concat());
    };
    refused("text", b"once upon a time", 126, &["not an ELF program", "compiled Linux program"]);
    refused("empty", b"", 126, &["not an ELF program"]);
    refused(
        "script",
        b"#!/usr/bin/env python3\nprint(1)\n",
        126,
        &["a script for /usr/bin/env", "give that"],
    );
    let mut foreign = book.clone();
    foreign[E_MACHINE..E_MACHINE + 2].copy_from_slice(&183u16.to_le_bytes());
    refused("foreign", &foreign, 126, &["built for", "arch64", "x86-64"]);
    refused("half", &book[..book.len() / 2], 126, &["truncated", &(book.len() / 2).to_string(), "again"]);
    refused("header", &book[..64], 126, &["truncated", "64"]);
    refused("stub", &book[..20], 126, &["truncated", "20"]);
    // Any cut gives words and no panic.
    for len in (0..book.len().min(8192)).step_by(257) {
        let path = bench.file("cut", &book[..len]);
        let done = bench.run(["split", "-o", "out", text(&path)]);
        assert_failed(&done, 126, &[text(&path)]);
    }
}

#[test]
fn object_files_and_libraries() {
    let bench = Bench::new();
    bench.file("f.c", "int f(void) { return 1; }");
    for (name, option) in [("f.o", "-c"), ("f.so", "-shared")] {
        let _ = run(bench.command("cc").args([option, "-fPIC", "-o", name, "f.c"]), DEADLINE).success();
        let path = bench.path(name);
        refused(&bench, text(&path), 126, &[text(&path), "not a program"]);
    }
}

#[test]
fn places_without_a_program() {
    let bench = Bench::new();
    let directory = bench.path("tmp");
    refused(&bench, text(&directory), 127, &[text(&directory), "no such program"]);
    refused(&bench, "/no/such/program", 127, &["/no/such/program", "no such program"]);
    refused(&bench, "no-such-program-in-path", 127, &["no-such-program-in-path", "give its path"]);
    for command in ["run", "inspect", "verify"] {
        let nowhere = bench.path("nowhere");
        assert_failed(&bench.run([command, text(&nowhere)]), 127, &[text(&nowhere), "not found"]);
        let elsewhere = bench.path("tmp");
        assert_failed(&bench.run([command, text(&elsewhere)]), 127, &[text(&elsewhere), "not found"]);
    }
    // A directory with something else under an image's name.
    std::fs::create_dir(bench.path("page")).unwrap();
    bench.file("page/hot", "<!DOCTYPE html><title>Not here</title>");
    bench.file("page/whole", "<!DOCTYPE html><title>Not here</title>");
    for command in ["run", "inspect", "verify"] {
        assert_failed(&bench.run([command, "page"]), 125, &["page/hot", "not a pagein image", "3c, 21"]);
    }
    for policy in ["original", "paged"] {
        assert_failed(&bench.read_book(policy, "page", ""), 125, &["page/", "not a pagein image"]);
    }
}

#[test]
fn a_program_whose_dynamic_linker_is_missing() {
    let bench = Bench::new();
    let mut bytes = std::fs::read(&Book::get().program).unwrap();
    let at = bytes.windows(LOADER.len()).position(|window| window == LOADER).expect("a dynamic program");
    bytes[at..at + LOADER.len()].copy_from_slice(NO_LOADER);
    let program = bench.file("elsewhere", bytes);
    let words = ["elsewhere", "/lib64/not-on-this-machine.", "install the C library"];
    assert_failed(&bench.run(["record", "-o", "out.trace", "--", text(&program)]), 126, &words);
    // It may be cut for another machine.
    let _ = bench.run(["split", "--level=1", "-o", "image", text(&program)]).success();
    for policy in ["auto", "original", "paged", "streamed"] {
        assert_failed(&bench.read_book(policy, "image", "page 0\n"), 126, &words);
        assert!(bench.cached().iter().all(|name| !name.contains("elsewhere")), "{:?}", bench.cached());
    }
}

#[test]
fn traces_that_do_not_fit() {
    let bench = Bench::new();
    let book = Book::get();
    let other = bench.path("other.trace");
    let _ = bench.run(["record", "-o", text(&other), "--", "/bin/true"]).success();
    let good = std::fs::read_to_string(&book.trace).unwrap();
    let split =
        |trace: &str| bench.run(["split", "--level=1", "-o", "out", "-t", trace, text(&book.program)]);
    assert_failed(&split(text(&other)), 125, &["other.trace", "another build", "true", "record it again"]);
    let cut = bench.file("cut.trace", &good[..good.len() * 2 / 3]);
    assert_failed(&split(text(&cut)), 125, &["cut.trace", "line "]);
    let newer = bench.file("newer.trace", good.replacen("pagein-trace 1", "pagein-trace 9", 1));
    assert_failed(&split(text(&newer)), 125, &["newer.trace", "line 1", "version 9", "record it again"]);
    let noise = bench.file("noise.trace", [0xff; 100]);
    assert_failed(&split(text(&noise)), 125, &["noise.trace"]);
    let empty = bench.file("empty.trace", "");
    assert_failed(&split(text(&empty)), 125, &["empty.trace", "pagein record"]);
    assert_failed(&split(text(&book.program)), 125, &["book-program"]);
    assert_failed(&split("/no/such.trace"), 127, &["/no/such.trace"]);
    assert!(!bench.path("out").exists());
}

#[test]
fn outputs_that_cannot_be_written() {
    let bench = Bench::new();
    let book = text(&Book::get().program);
    bench.file("file", "precious");
    std::fs::create_dir(bench.path("directory")).unwrap();
    bench.file("directory/letter", "precious");
    for (output, words) in
        [("file", ["file exists", "not an image"]), ("directory", ["directory exists", "another directory"])]
    {
        assert_failed(&bench.run(["split", "--level=1", "-o", output, book]), 125, &words);
    }
    for output in ["/proc/no/image", "file/image"] {
        let done = bench.run(["split", "--level=1", "-o", output, book]);
        assert!(matches!(done.code(), 125 | 127), "{done:?}");
        assert_words(&done.stderr(), &["pagein: ", Path::new(output).parent().unwrap().to_str().unwrap()]);
        // Before the program has run.
        let done = bench.run(["record", "-o", output, "--", "sh", "-c", "echo ran"]);
        assert_words(&done.stderr(), &["pagein: ", output]);
        assert_eq!(
            (done.code(), done.stdout()),
            (if output == "file/image" { 125 } else { 127 }, String::new())
        );
    }
    let image = text(&Book::get().image);
    let done = bench.run(["run", "--stats", "/proc/no/stats", image]);
    assert!(matches!(done.code(), 125 | 127), "{done:?}");
    assert_words(&done.stderr(), &["/proc/no/stats"]);
    assert_eq!(std::fs::read_to_string(bench.path("file")).unwrap(), "precious");
    assert_eq!(std::fs::read_to_string(bench.path("directory/letter")).unwrap(), "precious");
}

#[test]
fn an_image_is_replaced_and_an_interrupted_cut_leaves_the_old_one() {
    let bench = Bench::new();
    let book = text(&Book::get().program);
    let _ = bench.run(["split", "--level=1", "-o", "image", "/bin/true"]).success();
    let before = std::fs::read(bench.path("image/hot")).unwrap();
    // 22 takes long enough to be interrupted.
    let script = "pagein=$1; shift; \"$pagein\" \"$@\" & sleep 0.1; kill -INT $!; wait $!";
    let mut command = bench.command("bash");
    command.args(["-c", &format!("set -m; {script}"), "bash"]).arg(pagein_tests::broken::pagein());
    let python = "/usr/bin/python3";
    let done = run(command.args(["split", "--level=22", "-o", "image", python]), DEADLINE);
    if done.code() == 130 {
        assert_words(&done.stderr(), &["interrupted", "nothing was written"]);
        assert_eq!(std::fs::read(bench.path("image/hot")).unwrap(), before);
    }
    let _ = bench.run(["split", "--level=1", "-o", "image", book]).success();
    assert_ne!(std::fs::read(bench.path("image/hot")).unwrap(), before);
}

#[test]
fn bad_arguments() {
    let bench = Bench::new();
    let image = text(&Book::get().image);
    let cases: [(&[&str], &[&str]); 16] = [
        (&[], &["Usage"]),
        (&["fly"], &["fly", "Usage"]),
        (&["run"], &["<SOURCE>"]),
        (&["run", "--policy", "eager", image], &["eager", "reordered-paged"]),
        (&["run", "--timeout", "0", image], &["--timeout", "positive"]),
        (&["run", "--timeout", "soon", image], &["soon", "number"]),
        (&["run", "--attempts", "0", image], &["--attempts", "1..=100"]),
        (&["run", "--no-such-option", image], &["--no-such-option"]),
        (&["run", "ftp://host/image"], &["ftp://", "http://"]),
        (&["run", "http:host"], &["http://"]),
        (&["run", "image#abc"], &["64 hexadecimal digits", "abc"]),
        (&["run", ""], &["empty"]),
        (&["split", "-o", "out"], &["<APP>"]),
        (&["split", "--level", "23", "-o", "out", "true"], &["23", "1..=22"]),
        (&["split", "--min-probability", "1.5", "-o", "out", "true"], &["1.5", "between 0 and 1"]),
        (&["record", "-o", "out"], &["<APP>"]),
    ];
    for (args, words) in cases {
        let done = bench.run(args);
        assert_eq!((done.code(), done.stdout()), (125, String::new()), "{args:?}: {done:?}");
        assert_words(&done.stderr(), words);
    }
    // What is asked for is no error.
    for args in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert_eq!(bench.run(args).success().stderr(), "");
    }
}

#[test]
fn the_programs_own_failures_are_not_pagein_s() {
    let bench = Bench::new();
    let book = Book::get();
    for (input, code) in [("exit 2\n", 2), ("exit 125\n", 125), ("page 399\nexit 126\n", 126)] {
        let done = bench.read_book("streamed", text(&book.image), input);
        assert_eq!((done.code(), done.stderr()), (code, String::new()), "{done:?}");
    }
}
