//! Servers that are gone, go away, or answer something else.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pagein_testkit::{Fault, Origin, Rule};
use pagein_tests::broken::{Bench, Book, Live, POLICIES, assert_failed, assert_words};

/// One second without a byte, a second attempt after that, and a loaded machine.
const SOON: Duration = Duration::from_secs(6);
const READ_ALL: &str = "pages 0 400\n";

/// The book from `origin`, all of it, whatever goes wrong on the way.
#[track_caller]
fn reads_all(bench: &Bench, policy: &str, origin: &Origin, image: &str) {
    let done = bench.read_book(policy, &origin.url(image), READ_ALL).success();
    assert!(done.stdout() == Book::get().all(), "{policy}: {done:?}");
    assert_eq!(done.stderr(), "", "{policy}");
}

/// The book from a server that has gone after page 300 was read.
fn open_and_lose(bench: &Bench, fault: Fault) -> (Origin, Live) {
    let book = Book::get();
    let origin = Origin::serve(&book.root);
    let args = ["run", "--timeout=1", "--attempts=2", "--policy=reordered-paged", &origin.url("book")];
    let mut live = Live::start(&mut bench.pagein(args));
    assert_eq!(live.ask("page 300"), book.page(300));
    if fault == Fault::Refuse {
        origin.refuse();
    } else {
        origin.rule(Rule::new("*", fault));
    }
    // What is there stays.
    assert_eq!(live.ask("page 300"), book.page(300));
    (origin, live)
}

#[test]
fn gone_before_the_run() {
    let bench = Bench::new();
    let origin = Origin::serve(&Book::get().root);
    let url = origin.url("book");
    origin.refuse();
    for policy in POLICIES.into_iter().chain(["auto"]) {
        let words = [&url, "cannot connect", "refused", "tried 2 times", "check the host"];
        assert_failed(&bench.read_book(policy, &url, READ_ALL), 125, &words);
    }
    for command in ["inspect", "verify"] {
        assert_failed(&bench.run([command, &url]), 125, &[&url, "cannot connect"]);
    }
    assert!(bench.cached().is_empty(), "{:?}", bench.cached());
}

#[test]
fn gone_during_the_run() {
    let bench = Bench::new();
    let (origin, mut live) = open_and_lose(&bench, Fault::Refuse);
    live.say("page 10");
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.lines, ended.stderr.lines().count()), (135, vec![], 1), "{}", ended.stderr);
    let words = ["pagein: page ", "of book-program", "file offset", &origin.url("book/groups"), "refused"];
    assert_words(&ended.stderr, &words);
}

#[test]
fn wrong_answers_during_the_run() {
    let cases = [
        (Fault::Status(404), "not found"),
        (Fault::Status(403), "the server answered 403"),
        (Fault::Status(500), "the server answered 500"),
        (Fault::Status(503), "the server answered 503"),
        (Fault::IgnoreRange, "--page-files"),
        (Fault::WrongRange, "the server sent"),
        (Fault::StallAfter(0), "stalled"),
        (Fault::StallAfter(100), "stalled"),
        (Fault::CloseAfter(100), "cut short"),
        (Fault::CloseAfter(0), "cut short"),
        (Fault::Endless, "longer than"),
    ];
    for (fault, words) in cases {
        let bench = Bench::new();
        let (origin, mut live) = open_and_lose(&bench, fault);
        live.say("page 350");
        let ended = live.end(SOON);
        assert_eq!((ended.code, ended.lines.len()), (135, 0), "{fault:?}: {ended:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{fault:?}: {ended:?}");
        assert_words(&ended.stderr, &["page ", "of book-program", &origin.url("book/groups"), words]);
    }
}

#[test]
fn a_child_with_missing_pages_is_told_too() {
    let bench = Bench::new();
    let (_origin, mut live) = open_and_lose(&bench, Fault::Refuse);
    live.ask("fork");
    live.say("child page 10");
    // The child keeps the output open until it has ended.
    let ended = live.end(SOON);
    assert_eq!((ended.code, ended.stderr.lines().count()), (135, 1), "{ended:?}");
}

#[test]
fn gone_for_a_moment() {
    let bench = Bench::new();
    let book = Book::get();
    let (origin, mut live) = open_and_lose(&bench, Fault::Refuse);
    live.say("page 10");
    origin.come_back();
    assert_eq!(live.hear(), book.page(10));
    live.close();
    assert_eq!(live.end(SOON).code, 0);
}

#[test]
fn wrong_answers_before_the_run() {
    let bench = Bench::new();
    let cases = [
        (Fault::Status(404), 127, "not found"),
        (Fault::Status(403), 125, "the server answered 403"),
        (Fault::Status(500), 125, "the server answered 500"),
        (Fault::StallAfter(0), 125, "stalled"),
        (Fault::StallAfter(10), 125, "stalled"),
        (Fault::CloseAfter(0), 125, "cut short"),
        (Fault::CloseAfter(10), 125, "cut short"),
        (Fault::Status(204), 125, "the server answered 204"),
    ];
    for (fault, code, words) in cases {
        let origin = Origin::serve(&Book::get().root);
        origin.rule(Rule::new("*", fault));
        let url = origin.url("book");
        for policy in ["original", "reordered-paged", "streamed"] {
            let done = bench.read_book(policy, &url, READ_ALL);
            assert!(done.time < SOON, "{fault:?}: {done:?}");
            assert_failed(&done, code, &[&url, words]);
        }
    }
    assert!(bench.cached().is_empty(), "{:?}", bench.cached());
}

#[test]
fn failures_that_pass() {
    let bench = Bench::new();
    for policy in POLICIES {
        let origin = Origin::serve(&Book::get().root);
        // Each object fails once, each in its own way.
        for (object, fault) in [
            ("hot", Fault::Status(503)),
            ("whole", Fault::Status(500)),
            ("groups.index", Fault::CloseAfter(10)),
            ("groups", Fault::Status(429)),
            ("paged.index", Fault::Status(502)),
            ("paged", Fault::CloseAfter(100)),
        ] {
            origin.rule(Rule::new(&format!("book/{object}"), fault).times(1));
        }
        reads_all(&bench, policy, &origin, "book");
    }
}

#[test]
fn connections_cut_in_the_middle_and_slow_answers() {
    let bench = Bench::new();
    for (policy, object) in [("original", "whole"), ("reordered", "hot"), ("streamed", "hot")] {
        let origin = Origin::serve(&Book::get().root);
        origin.rule(Rule::new(&format!("book/{object}"), Fault::CloseAfter(70_000)).times(3));
        origin.rule(Rule::new("*", Fault::Delay(Duration::from_millis(20))));
        reads_all(&bench, policy, &origin, "book");
        let asked: Vec<_> = origin.requests().into_iter().filter(|r| r.path.ends_with(object)).collect();
        assert!(asked.len() > 2, "{asked:?}");
        // It was resumed and not begun again, where the size is known by then.
        assert!(asked.iter().skip(1).any(|request| request.range.is_some()), "{policy}: {asked:?}");
    }
}

#[test]
fn a_server_without_ranges() {
    let bench = Bench::new();
    let origin = Origin::serve(&Book::get().root);
    origin.rule(Rule::new("*", Fault::IgnoreRange));
    for policy in POLICIES {
        let done = bench.read_book(policy, &origin.url("book"), READ_ALL);
        if policy == "original" {
            assert_eq!((done.code(), done.stdout()), (0, Book::get().all()), "{done:?}");
        } else {
            assert_eq!((done.code(), done.stderr().lines().count()), (135, 1), "{policy}: {done:?}");
            assert_words(&done.stderr(), &[&origin.url("book"), "ignores ranges", "--page-files"]);
        }
        // Cut for it, everything works.
        reads_all(&bench, policy, &origin, "files");
    }
}

#[test]
fn endless_objects() {
    let bench = Bench::new();
    let origin = Origin::serve(&Book::get().root);
    origin.rule(Rule::new("*", Fault::Endless));
    for policy in POLICIES {
        let done = bench.read_book(policy, &origin.url("book"), READ_ALL);
        assert!(Book::get().all().starts_with(&done.stdout()), "{policy}: {done:?}");
        assert!(matches!(done.code(), 0 | 125 | 135), "{policy}: {done:?}");
        assert_eq!(done.stderr().lines().count(), usize::from(done.code() != 0), "{policy}: {done:?}");
    }
}

/// `python3 -m http.server`, the server without ranges that everybody has; it ends when this is dropped.
struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn pythons_server() {
    let python = "/usr/bin/python3";
    if !std::path::Path::new(python).exists() {
        return pagein_testkit::skip("there is no /usr/bin/python3");
    }
    let bench = Bench::new();
    let mut server = Command::new(python);
    server.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]);
    server.current_dir(&Book::get().root).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Python(server.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.split_once("port ").expect(&line).1.split(' ').next().unwrap();
    for policy in POLICIES {
        let url = format!("http://127.0.0.1:{port}/files");
        let done = bench.read_book(policy, &url, READ_ALL).success();
        assert!(done.stdout() == Book::get().all() && done.stderr().is_empty(), "{policy}: {done:?}");
    }
    let _ = bench.run(["verify", &format!("http://127.0.0.1:{port}/files")]).success();
}
