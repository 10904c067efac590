//! What is kept between runs, and instances that share a pager.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagein_testkit::{Finished, Origin, Request, run};
use pagein_tests::real::{DEADLINE, compile, image, pagein, scratch, succeed};

const BASH: &str = "/bin/bash";
const JOB: [&str; 2] = ["-c", "echo $((6*7)); type cd"];

/// A served image of bash and an empty cache.
struct Place {
    origin: Origin,
    cache: PathBuf,
    digest: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let _ = image(Path::new(BASH), &JOB);
        let images = scratch().join("images");
        let inspect = succeed(Command::new(pagein()).args(["inspect", "--json"]).arg(images.join("image0")));
        let inspect: serde_json::Value = serde_json::from_slice(&inspect.stdout).unwrap();
        assert_eq!(inspect["program"], "bash");
        Self {
            origin: Origin::serve(&images),
            cache: scratch().join(name),
            digest: inspect["digest"].as_str().unwrap().to_owned(),
        }
    }

    fn pinned(&self) -> String {
        format!("{}#{}", self.origin.url("image0"), self.digest)
    }

    fn command(&self, options: &[&str], url: &str) -> Command {
        let mut command = Command::new(pagein());
        command
            .arg("run")
            .arg("--cache")
            .arg(&self.cache)
            .args(options)
            .args(["--attempts=2", "--timeout=2"])
            // As it was recorded: bash touches other pages if its name has no slash.
            .args(["--argv0", BASH]);
        command.args([url, "--"]).args(JOB);
        command
    }

    /// Runs the job, which must end as a local one; returns its stats.
    fn stats(&self, options: &[&str], url: &str) -> serde_json::Value {
        let file = self.cache.with_extension("stats");
        let mut all = vec!["--stats", file.to_str().unwrap()];
        all.extend(options);
        right(&run(&mut self.command(&all, url), DEADLINE));
        serde_json::from_slice(&fs::read(&file).unwrap()).unwrap()
    }
}

fn right(done: &Finished) {
    let expected = (0, "42\ncd is a shell builtin\n".to_owned(), String::new());
    assert_eq!((done.code(), done.stdout(), done.stderr()), expected);
}

#[test]
fn a_second_run_fetches_the_manifest_and_a_pinned_one_nothing() {
    let place = Place::new("cache-second");
    let url = place.origin.url("image0");
    let first = place.stats(&[], &url);
    assert_eq!(first["policy"], "streamed");
    let all = first["wire_bytes"].as_u64().unwrap();
    let second = place.stats(&[], &url);
    assert_eq!(second["requests"], 1, "{second} {:?}", place.origin.requests());
    assert!(second["wire_bytes"].as_u64().unwrap() * 10 < all, "{second} after {first}");
    place.origin.refuse();
    let third = place.stats(&[], &place.pinned());
    assert_eq!((&third["requests"], &third["wire_bytes"]), (&0.into(), &0.into()));
    // What is not pinned could have changed: without its server it does not run.
    let gone = run(&mut place.command(&[], &url), DEADLINE);
    assert_eq!(gone.code(), 125, "{gone:?}");
}

#[test]
fn what_was_damaged_in_the_cache_is_fetched_again() {
    let place = Place::new("cache-damage");
    let first = place.stats(&[], &place.pinned());
    assert!(first["requests"].as_u64().unwrap() > 0);
    let mut spoiled = 0;
    for directory in fs::read_dir(place.cache.join("blobs")).unwrap() {
        for blob in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = blob.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&path, bytes).unwrap();
            spoiled += 1;
        }
    }
    assert!(spoiled > 2, "{spoiled}");
    assert!(place.stats(&[], &place.pinned())["requests"].as_u64().unwrap() > 0);
    // A run may end before all of it has come again.
    let repaired = (0..10).any(|_| place.stats(&[], &place.pinned())["requests"] == 0);
    assert!(repaired, "{:?}", place.origin.requests());
}

#[test]
fn a_complete_program_starts_without_pager_and_server() {
    let place = Place::new("cache-complete");
    let url = place.origin.url("image0");
    assert_eq!(place.stats(&["--policy=original"], &url)["policy"], "original");
    assert_eq!(place.stats(&[], &url)["policy"], "cached");
    place.origin.refuse();
    for (options, url) in [(&["--max-age=3600"][..], &url), (&[], &place.pinned())] {
        let stats = place.stats(options, url);
        assert_eq!((&stats["policy"], &stats["requests"]), (&"cached".into(), &0.into()));
        right(&run(&mut place.command(options, url), DEADLINE));
    }
    let mut command = Command::new(pagein());
    command.arg("run").arg("--cache").arg(&place.cache).arg(place.pinned());
    let done = run(command.args(["--", "-c", "readlink /proc/$$/exe; true"]), DEADLINE);
    let lines = done.stdout();
    assert!(lines.ends_with("/bash\n"), "{done:?}");
    // Changed behind our back: not executed.
    let program = PathBuf::from(lines.trim_end());
    let mut bytes = fs::read(&program).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&program, bytes).unwrap();
    place.origin.come_back();
    assert_eq!(place.stats(&[], &place.pinned())["policy"], "streamed");
}

/// Requests for parts of the image; one byte is asked for to make a connection ready.
fn requests(place: &Place) -> Vec<Request> {
    let mut requests = place.origin.requests();
    requests.retain(|request| request.range != Some(0..1));
    requests
}

/// Ends with the test, whatever its outcome.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn instances_that_start_together_fetch_each_byte_once_and_share_pages() {
    const COPIES: usize = 20;
    let place = Place::new("cache-instances");
    let gate = place.cache.with_extension("gate");
    let _ = fs::remove_file(&gate);
    let mut running = Running(Vec::new());
    for number in 0..COPIES {
        let out = fs::File::create(place.cache.with_extension(format!("out{number}"))).unwrap();
        let mut command = Command::new(pagein());
        command.arg("run").arg("--cache").arg(&place.cache).arg(place.origin.url("image0")).arg("--");
        let script = "echo ready; until [ -e \"$1\" ]; do sleep 0.1; done; (echo $((6*7)) $0); exit 3";
        command.args(["-c", script]).arg(number.to_string()).arg(&gate);
        running.0.push(command.stdin(Stdio::null()).stdout(out).spawn().unwrap());
    }
    let written =
        |number: usize| fs::read_to_string(place.cache.with_extension(format!("out{number}"))).unwrap();
    let started = Instant::now();
    while (0..COPIES).any(|number| written(number).is_empty()) {
        assert!(started.elapsed() < DEADLINE, "not all instances start");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Their pages of the memory file are the same ones.
    let resident = |pid: u32| {
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
        let of_program = smaps.split_inclusive("VmFlags").filter(|part| part.contains("memfd:bash"));
        let sum = |part: &str, key: &str| {
            let line = part.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        of_program.fold((0, 0), |(shared, own), part| {
            (
                shared + sum(part, "Shared_Clean:") + sum(part, "Shared_Dirty:"),
                own + sum(part, "Private_Clean:"),
            )
        })
    };
    for child in &running.0 {
        let (shared, own) = resident(child.id());
        assert!(shared > 200 && own == 0, "{shared} KiB shared, {own} KiB of its own");
    }
    fs::write(&gate, "").unwrap();
    for (number, child) in running.0.iter_mut().enumerate() {
        assert_eq!(child.wait().unwrap().code(), Some(3), "instance {number}");
        assert_eq!(written(number), format!("ready\n42 {number}\n"));
    }
    let requests = requests(&place);
    let different: HashSet<_> = requests.iter().map(|request| format!("{request:?}")).collect();
    assert_eq!(different.len(), requests.len(), "something was fetched twice: {requests:?}");
    assert!(requests.iter().filter(|request| request.path.ends_with("/hot")).count() >= 1);
}

#[test]
fn a_guest_outlives_the_first_instance() {
    let place = Place::new("cache-guest");
    let start = |script: &str| {
        let mut command = Command::new(pagein());
        command.arg("run").arg("--cache").arg(&place.cache).arg(place.origin.url("image0"));
        let child = command.args(["--", "-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        child.unwrap()
    };
    let mut host = Running(vec![start("sleep 0.5; exit 4")]);
    // The host's pager listens as soon as it is there.
    let sockets = place.cache.join("pagers");
    let started = Instant::now();
    while fs::read_dir(&sockets).map_or(0, Iterator::count) < 2 {
        assert!(started.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut guest = Running(vec![start("sleep 2; help pwd | wc -l; exit 5")]);
    assert_eq!(host.0[0].wait().unwrap().code(), Some(4));
    // It needs pages that nobody has touched yet.
    let child = guest.0.pop().unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&done.stdout).trim().parse::<u32>().unwrap() > 3);
    let first = |request: &Request| {
        let from_start = request.range.as_ref().is_none_or(|range| range.start == 0);
        request.path.ends_with("/hot") && from_start
    };
    let begun = requests(&place).into_iter().filter(first).count();
    assert_eq!(begun, 1, "the guest had a pager of its own: {:?}", place.origin.requests());
}

#[test]
fn a_full_cache_forgets_what_was_not_used_and_never_what_runs() {
    let place = Place::new("cache-full");
    let other = compile("fork.c", &[]);
    let url = image(&other, &[]);
    // A lazy instance that stays.
    let mut stays = Command::new(pagein());
    stays.arg("run").arg("--cache").arg(&place.cache).arg(place.pinned()).args([
        "--",
        "-c",
        "read x; help pwd >/dev/null; exit 6",
    ]);
    let mut stays = Running(vec![stays.stdin(Stdio::piped()).spawn().unwrap()]);
    let started = Instant::now();
    while fs::read_dir(place.cache.join("blobs")).map_or(0, Iterator::count) < 3 {
        assert!(started.elapsed() < DEADLINE);
        std::thread::sleep(Duration::from_millis(5));
    }
    // Others come and go with no room at all.
    for _ in 0..5 {
        let mut command = Command::new(pagein());
        command.args(["run", "--cache-size=0", "--cache"]).arg(&place.cache).arg(&url);
        let _ = run(&mut command, DEADLINE);
    }
    let listed = succeed(Command::new(pagein()).args(["cache", "--json"]).arg(&place.cache));
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(
        listed["headers"]["entries"].as_u64().unwrap() >= 1,
        "the file of a running program is gone: {listed}"
    );
    drop(stays.0[0].stdin.take());
    assert_eq!(stays.0[0].wait().unwrap().code(), Some(6));
    let trimmed = succeed(Command::new(pagein()).args(["cache", "--json", "--trim=0"]).arg(&place.cache));
    let trimmed: serde_json::Value = serde_json::from_slice(&trimmed.stdout).unwrap();
    assert_eq!((&trimmed["left"], &trimmed["in_use"]["entries"]), (&0.into(), &0.into()), "{trimmed}");
}
