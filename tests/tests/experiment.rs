//! `pagein experiment` on benches/scenarios/smoke.toml: killed in the middle, resumed, and what it leaves behind.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use pagein_testkit::{Finished, have, run, skip};
use pagein_tests::real::{pagein, scratch};

/// The whole scenario takes half a minute on two idle processors.
const DEADLINE: Duration = Duration::from_secs(400);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the repository").to_owned()
}

fn experiment(scenario: &Path, output: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(pagein());
    command.arg("experiment").arg(scenario).arg("-o").arg(output).args(more).current_dir(repository());
    command
}

fn rows(output: &Path) -> Vec<String> {
    let text = fs::read_to_string(output.join("results.csv")).unwrap_or_default();
    text.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
}

/// Mode, program, policy, link and repeat: what a run is.
fn identity(row: &str) -> String {
    row.splitn(7, ',').take(6).collect::<Vec<_>>().join(",")
}

/// Whether links can be emulated and programs recorded here.
fn possible() -> bool {
    let net = run(Command::new(pagein()).args(["net", "--rtt=1ms", "--", "true"]), Duration::from_secs(30));
    if !geteuid().is_root() || net.code() != 0 || !have(&["git", "bash"]) {
        skip("an experiment needs root, network namespaces and /dev/net/tun, git and bash");
        return false;
    }
    true
}

/// Lets it make some runs, then SIGKILL.
fn kill_in_the_middle(scenario: &Path, output: &Path) -> Vec<String> {
    let mut child: Child = experiment(scenario, output, &[])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("pagein starts");
    let started = Instant::now();
    while rows(output).len() < 9 {
        assert!(started.elapsed() < DEADLINE, "no runs are made");
        assert!(child.try_wait().expect("a child of ours").is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("it runs");
    child.wait().expect("a child of ours");
    let killed = Instant::now();
    while !processes_of(output).is_empty() {
        assert!(
            killed.elapsed() < Duration::from_secs(5),
            "runs outlive the experiment: {:?}",
            processes_of(output)
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    rows(output)
}

/// Command lines of the live processes that have to do with a directory.
fn processes_of(output: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let texts = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    texts.filter(|line| line.contains(&*output.to_string_lossy())).collect()
}

#[test]
fn a_killed_experiment_is_resumed_and_its_report_says_what_the_summary_says() {
    if !possible() {
        return;
    }
    let scenario = repository().join("benches/scenarios/smoke.toml");
    let output = scratch().join("smoke");
    let before = kill_in_the_middle(&scenario, &output);
    // The machine might have stopped within a write as well.
    let mut torn = fs::read(output.join("results.csv")).unwrap();
    torn.extend_from_slice(b"real,git,paged,10000");
    fs::write(output.join("results.csv"), &torn).unwrap();

    let done = run(&mut experiment(&scenario, &output, &[]), DEADLINE).success();
    assert!(done.stderr().contains(&format!("{} of 70 runs are there already", before.len())), "{done:?}");
    let all = rows(&output);
    assert_eq!(all[..before.len()], before, "runs that had ended are kept as they were");
    let distinct: HashSet<String> = all.iter().map(|row| identity(row)).collect();
    assert_eq!((all.len(), distinct.len()), (70, 70), "every run is there once");
    assert!(all.iter().all(|row| row.contains(",ok,")), "{all:?}");

    // Nothing is left to do.
    let again = run(&mut experiment(&scenario, &output, &[]), DEADLINE).success();
    assert!(!again.stderr().contains("[70/70]"), "{again:?}");
    assert_eq!(rows(&output), all);

    check_report(&output);
    check_refusals(&scenario, &output);
}

fn check_report(output: &Path) {
    let report = fs::read_to_string(output.join("report.html")).unwrap();
    for section in
        ["programs", "findings", "equation3", "improvement", "bytes", "times", "predicted", "floor", "cells"]
    {
        assert!(report.contains(&format!("<section id=\"{section}\">")), "{section}");
    }
    for figure in ["improvement", "bytes", "times"]
        .map(|kind| ["bash", "git"].map(|program| format!("{kind}-{program}")))
        .iter()
        .flatten()
        .chain(["predicted".to_owned(), "floor".to_owned()].iter())
    {
        let svg = fs::read_to_string(output.join(format!("{figure}.svg")))
            .unwrap_or_else(|error| panic!("{figure}: {error}"));
        assert!(svg.contains("<circle") || svg.contains("<rect"), "{figure} has nothing in it");
        assert!(report.contains(&format!("<figure id=\"figure-{figure}\">")), "{figure}");
        assert!(report.contains(svg.trim_end()), "{figure} in the page is the one in the file");
    }
    // It needs nothing else.
    for outside in ["<script", "src=", "@import", "url(", "<link"] {
        assert!(!report.contains(outside), "{outside}");
    }
    let summary = fs::read_to_string(output.join("summary.csv")).unwrap();
    let mut lines = summary.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let mut cells = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |name: &str| fields[names.iter().position(|known| *known == name).expect(name)];
        let start = format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            field("program"),
            field("bandwidth"),
            field("rtt"),
            field("policy"),
            field("mode")
        );
        let at = report.find(&start).unwrap_or_else(|| panic!("{start}"));
        let row = &report[at..at + report[at..].find("</tr>").expect("a row ends")];
        let median: f64 = field("total_ms_median").parse().expect("every cell has runs");
        assert!(row.contains(&format!("<td class=\"n\">{median:.3}</td>")), "{line}: {row}");
        let bytes: f64 = field("wire_bytes").parse().unwrap();
        assert!(row.contains(&format!("<td class=\"n\">{bytes:.0}</td>")), "{line}: {row}");
        for predicted in ["predicted_ms", "floor_ms"] {
            assert!(field(predicted).parse::<f64>().is_ok_and(|ms| ms > 0.0), "{predicted} of {line}");
        }
        assert_eq!(field("runs"), if field("mode") == "real" { "2" } else { "1" });
        cells += 1;
    }
    assert_eq!(cells, 40);
}

fn check_refusals(scenario: &Path, output: &Path) {
    let refused = |done: &Finished, words: &str| {
        assert_eq!(done.code(), 125, "{done:?}");
        assert!(done.stderr().contains(words), "{done:?}");
    };
    let other = scratch().join("other.toml");
    let text = fs::read_to_string(scenario).unwrap();
    fs::write(&other, text.replace("\"2ms\"", "\"3ms\"")).unwrap();
    refused(&run(&mut experiment(&other, output, &[]), DEADLINE), "another scenario");
    fs::write(&other, text.replace("\"2ms\"", "\"2 parsecs\"")).unwrap();
    refused(
        &run(&mut experiment(&other, output, &[]), DEADLINE),
        "other.toml:13:9: \"2 parsecs\" is not a length of time",
    );
    let busy = fs::File::options().write(true).open(output.join("lock")).unwrap();
    busy.lock().unwrap();
    refused(&run(&mut experiment(scenario, output, &[]), DEADLINE), "another `pagein experiment`");
}

#[test]
fn a_missing_program_is_said_and_the_others_are_run() {
    if !geteuid().is_root() {
        skip("recording needs root");
        return;
    }
    let scenario = scratch().join("missing.toml");
    let head = "name = \"m\"\nmode = \"simulated\"\npolicies = [\"original\", \"streamed\", \"auto\"]\n[links]\nbandwidths = [\"1mbit\"]\n\
                rtts = [\"10ms\"]\n";
    let absent = "[[program]]\nname = \"absent\"\nfetch = \"no-such-program\"\nrecorded = [[\"a\"]]\nmeasured = [\"b\"]\n";
    let bash = "[[program]]\nname = \"bash\"\npath = \"bash\"\nrecorded = [[\"-c\", \"true\"]]\nmeasured = [\"-c\", \"echo 1\"]\n";
    fs::write(&scenario, format!("{head}{absent}{bash}")).unwrap();
    let output = scratch().join("missing");
    let done = run(&mut experiment(&scenario, &output, &[]), DEADLINE).success();
    assert!(
        done.stderr().contains("skipped: absent: no ELF program")
            && done.stdout().contains("3 cells skipped"),
        "{done:?}"
    );
    assert_eq!(rows(&output).len(), 3);
    assert!(fs::read_to_string(output.join("report.html")).unwrap().contains("skipped: no ELF program"));

    fs::write(&scenario, format!("{head}{absent}")).unwrap();
    let nothing = run(&mut experiment(&scenario, &scratch().join("nothing"), &[]), DEADLINE);
    assert_eq!(nothing.code(), 125);
    assert!(nothing.stderr().contains("none of the programs can be run"), "{nothing:?}");
}
