//! `--policy auto`: the rest in the background, jobs that were not recorded, and servers that do not play along.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use pagein_testkit::{Fault, Origin, Rule, run, run_with_input};
use pagein_tests::broken::{Bench, Book, DEADLINE, Live, PAGES, pagein};

/// The complete file in the cache, as soon as it is there.
fn complete(bench: &Bench) -> Option<PathBuf> {
    let names =
        bench.cached().into_iter().filter(|name| name.contains("/all-") && !name.ends_with(".checked"));
    names.map(|name| bench.cache().join(name)).find(|path| path.is_file())
}

#[track_caller]
fn wait_for_complete(bench: &Bench) -> PathBuf {
    let start = Instant::now();
    loop {
        match complete(bench) {
            Some(path) => return path,
            None if start.elapsed() < DEADLINE => std::thread::sleep(Duration::from_millis(20)),
            None => panic!("no complete file: {:?}", bench.cached()),
        }
    }
}

fn run_auto(bench: &Bench, source: &str) -> Live {
    Live::start(&mut bench.pagein(["run", "--timeout=2", "--attempts=2", source]))
}

#[test]
fn the_fill_brings_every_page_and_the_next_start_needs_the_manifest_only() {
    let (bench, book) = (Bench::new(), Book::get());
    let origin = Origin::serve(&book.root);
    let mut live = run_auto(&bench, &origin.url("book"));
    assert_eq!(live.ask("page 300"), book.page(300));
    let path = wait_for_complete(&bench);
    let same = std::fs::read(path).unwrap() == std::fs::read(&book.program).unwrap();
    assert!(same, "the complete file is not the program");
    // Everything is there: the server is not needed any more.
    origin.refuse();
    live.say(&format!("pages 0 {PAGES}"));
    let all: String = (0..PAGES).map(|_| live.hear() + "\n").collect();
    assert_eq!(all, book.all());
    live.close();
    assert_eq!(live.end(DEADLINE).code, 0);
    origin.come_back();
    let before = origin.requests().len();
    let again = bench.read_book("auto", &origin.url("book"), "page 17\n");
    assert_eq!((again.code(), again.stdout()), (0, book.page(17) + "\n"));
    let asked: Vec<String> =
        origin.requests().split_off(before).into_iter().map(|request| request.path).collect();
    assert!(asked.len() <= 2 && asked.iter().all(|path| path == "book/hot"), "{asked:?}");
}

/// Nothing of the program is recorded, groups have one page, and every answer takes 50 ms: a request for each of the 400 pages that
/// the job reads, one after the other, would take 20 s. Allowed are four requests at the start (the first, the connection made ready,
/// the index, the page that the kernel did not want); pieces of the fill, which are a bandwidth-delay product long: a loopback gives at
/// least 1.3 MB/s, times 50 ms is 64 KiB, of 1.6 MB 25 pieces; and as many demands, as the program waits for one page at a time,
/// for a round trip at least, in which a piece comes.
#[test]
fn a_job_that_was_not_recorded_never_pays_a_round_trip_a_page() {
    let (bench, book) = (Bench::new(), Book::get());
    let image = book.root.join("untraced-single");
    let mut split = bench.pagein(["split", "--level=1", "--group-pages=1", "-o"]);
    let _ = run(split.arg(&image).arg(&book.program), DEADLINE).success();
    let origin = Origin::serve(&book.root);
    origin.rule(Rule::new("*", Fault::Delay(Duration::from_millis(50))));
    let done = bench.read_book("auto", &origin.url("untraced-single"), &format!("pages 0 {PAGES}\n"));
    assert_eq!((done.code(), done.stdout()), (0, book.all()), "{}", done.stderr());
    let requests = origin.requests();
    assert!(requests.len() <= 4 + 25 + 25, "{} requests: {requests:?}", requests.len());
}

/// The server stops in the middle of the first piece of the fill; what is demanded comes all the same.
#[test]
fn a_demand_overtakes_the_fill() {
    let (bench, book) = (Bench::new(), Book::get());
    let origin = Origin::serve(&book.root);
    origin.rule(Rule::new("book/whole", Fault::StallAfter(5000)));
    let mut live = Live::start(&mut bench.pagein(["run", "--timeout=30", &origin.url("book")]));
    // The first cold page starts the fill, which hangs from then on.
    for page in [399, 200, 120, 300] {
        assert_eq!(live.ask(&format!("page {page}")), book.page(page));
    }
    let asked = |path: &str| origin.requests().iter().filter(|request| request.path == path).count();
    let start = Instant::now();
    while asked("book/whole") == 0 && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(asked("book/whole") >= 1, "the fill began");
    assert!(asked("book/groups") >= 1, "and was overtaken");
    live.close();
    assert_eq!(live.end(DEADLINE).code, 0, "the fill ends with the program");
    assert_eq!(complete(&bench), None);
}

#[test]
fn a_server_without_ranges() {
    let book = Book::get();
    for image in ["book", "files"] {
        let bench = Bench::new();
        let origin = Origin::serve(&book.root);
        origin.rule(Rule::new("*", Fault::IgnoreRange));
        let done = bench.read_book("auto", &origin.url(image), &format!("pages 0 {PAGES}\n"));
        assert_eq!((done.code(), done.stdout()), (0, book.all()), "{image}: {}", done.stderr());
        let whole = origin.requests().iter().filter(|request| request.path.ends_with("/whole")).count();
        assert_eq!(whole, usize::from(image == "book"), "page files are fetched one by one");
    }
}

#[test]
fn what_the_fill_cannot_bring_is_demanded() {
    let (bench, book) = (Bench::new(), Book::get());
    let origin = Origin::serve(&book.root);
    origin.rule(Rule::new("book/whole", Fault::Status(404)));
    let done = bench.read_book("auto", &origin.url("book"), &format!("pages 0 {PAGES}\n"));
    assert_eq!((done.code(), done.stdout()), (0, book.all()), "{}", done.stderr());
    assert_eq!(complete(&bench), None);
}

/// Damaged on the way: nothing of it is used, and no complete file comes of it.
#[test]
fn a_damaged_fill_is_not_used() {
    let (bench, book) = (Bench::new(), Book::get());
    let size = std::fs::metadata(book.image.join("whole")).unwrap().len();
    let origin = Origin::serve(&book.root);
    origin.rule(Rule::new("book/whole", Fault::Flip(size - 100)));
    let done = bench.read_book("auto", &origin.url("book"), &format!("pages 0 {PAGES}\n"));
    assert_eq!((done.code(), done.stdout()), (0, book.all()), "{}", done.stderr());
    assert_eq!(complete(&bench), None);
}

#[test]
fn killed_during_the_fill() {
    let (bench, book) = (Bench::new(), Book::get());
    let origin = Origin::serve(&book.root);
    origin.rule(Rule::new("book/whole", Fault::StallAfter(100_000)));
    let mut live = Live::start(&mut bench.pagein(["run", "--timeout=30", &origin.url("book")]));
    assert_eq!(live.ask("page 300"), book.page(300));
    let start = Instant::now();
    while !origin.requests().iter().any(|request| request.path == "book/whole") {
        assert!(start.elapsed() < Duration::from_secs(10), "no fill");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill(bench.process("pagein"), Signal::SIGKILL).unwrap();
    assert_eq!(live.end(DEADLINE).code, 135);
    assert_eq!(complete(&bench), None);
    origin.clear();
    let done = bench.read_book("auto", &origin.url("book"), &format!("pages 0 {PAGES}\n"));
    assert_eq!((done.code(), done.stdout()), (0, book.all()), "{}", done.stderr());
}

#[test]
fn a_memory_of_links_that_is_garbage_is_ignored() {
    let (bench, book) = (Bench::new(), Book::get());
    let origin = Origin::serve(&book.root);
    let read = || {
        let done = bench.read_book("auto", &origin.url("book"), "pages 80 250\n");
        assert_eq!((done.code(), done.stderr()), (0, String::new()));
        assert_eq!(done.stdout().lines().count(), 170);
    };
    read();
    // It is written by the pager, just after the program's end.
    let start = Instant::now();
    let links = loop {
        let found: Vec<String> =
            bench.cached().into_iter().filter(|name| name.starts_with("links/")).collect();
        if found.len() == 1 {
            break found;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{found:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    for garbage in [&b"\xff\xfe\0"[..], b"pagein-link 1\nbandwidth 0\nround-trip-us 0\n", b""] {
        std::fs::write(bench.cache().join(&links[0]), garbage).unwrap();
        read();
    }
}

/// The cache has room for the small file that is exec'ed and not for the program: that costs the next run, not this one.
#[test]
fn a_full_disk_is_not_the_programs_problem() {
    let (bench, book) = (Bench::new(), Book::get());
    let mut probe = bench.command("unshare");
    if !run(probe.args(["--mount", "true"]), DEADLINE).status.success() {
        return pagein_testkit::skip("mount namespaces are not permitted");
    }
    let mount = bench.path("mount");
    std::fs::create_dir_all(&mount).unwrap();
    // The pages are read when the fill has had the time to be complete.
    let script = "mount -t tmpfs -o size=512k none \"$2\" || exit 99
        (echo 'page 300'; sleep 2; echo 'pages 0 400') | \"$1\" run --cache \"$2/cache\" \"$3\"
        status=$?; find \"$2\" -path '*/all-*' -type f >&2; exit $status";
    let mut command = bench.command("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(pagein()).arg(&mount).arg(&book.image);
    let done = run_with_input(&mut command, b"", DEADLINE);
    assert_eq!((done.code(), done.stderr()), (0, String::new()));
    assert_eq!(done.stdout(), book.page(300) + "\n" + &book.all());
}
