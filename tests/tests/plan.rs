//! What `pagein plan` predicts against what a run really transfers, and what it says of traces that do not belong to the image.

use std::path::Path;
use std::process::Command;

use pagein_testkit::run;
use pagein_tests::image::trace;
use pagein_tests::real::{DEADLINE, image, pagein, scratch, succeed};
use serde_json::Value;

const BASH: &str = "/bin/bash";
const JOB: [&str; 2] = ["-c", "true"];

fn plan(url: &str, extra: &[&str]) -> Value {
    let mut command = Command::new(pagein());
    command.args(["plan", url, "--bandwidth", "10mbit", "--rtt", "20ms", "--json"]).args(extra);
    serde_json::from_slice(succeed(&mut command).stdout().as_bytes()).expect("JSON")
}

fn predicted<'a>(plan: &'a Value, policy: &str) -> &'a Value {
    let policies = plan["jobs"][0]["policies"].as_array().expect("an array");
    policies.iter().find(|of| of["policy"] == policy).expect("each policy is there")
}

#[test]
fn a_run_transfers_the_bytes_that_were_predicted() {
    let url = image(Path::new(BASH), &JOB);
    let recorded = scratch().join(format!("{}.trace", url.rsplit_once('/').expect("a URL").1));
    let plan = plan(&url, &["--trace", recorded.to_str().expect("a path in UTF-8")]);
    for policy in ["original", "reordered"] {
        let stats = scratch().join(format!("plan-{policy}.json"));
        let mut command = Command::new(pagein());
        command.args(["run", "--policy", policy, "--cache"]).arg(scratch().join(format!("plan-{policy}")));
        // Called as it was when it was recorded: the name is part of the job.
        command.args(["--argv0", BASH, "--stats"]).arg(&stats).arg(&url).arg("--").args(JOB);
        succeed(&mut command);
        let stats: Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        let expected = predicted(&plan, policy);
        for count in ["wire_bytes", "requests", "demand_faults"] {
            assert_eq!(stats[count], expected[count], "{count} of {policy}: {stats} {expected}");
        }
    }
    let job = &plan["jobs"][0];
    let floor = job["floor_ms"].as_f64().expect("a number");
    assert!(floor > 40.0, "two round trips: {job}");
    for of in job["policies"].as_array().expect("an array") {
        assert!(of["total_ms"].as_f64() > Some(floor), "{of} below the floor {floor}");
    }
}

#[test]
fn without_a_trace_the_hot_pages_are_touched_in_order_and_people_get_a_table() {
    let url = image(Path::new(BASH), &JOB);
    let plan = plan(&url, &[]);
    assert_eq!(plan["jobs"][0]["cpu_ms"], 0.0);
    assert_eq!(predicted(&plan, "streamed")["unused_bytes"], 0);
    let mut command = Command::new(pagein());
    let table = succeed(command.args(["plan", &url, "--bandwidth", "1mbit", "--rtt", "100ms"])).stdout();
    for word in ["1 Mbit/s, round trip 100ms", "reordered-paged", "floor", "equation 3", "auto"] {
        assert!(table.contains(word), "{word} in {table}");
    }
}

#[test]
fn a_trace_of_another_program_and_impossible_links_are_refused() {
    let url = image(Path::new(BASH), &JOB);
    let other = scratch().join("other.trace");
    std::fs::write(&other, trace(pagein(), &[0])).unwrap();
    let other = other.to_str().expect("a path in UTF-8");
    for (extra, expected) in [
        (["--trace", other], "another file than the image's"),
        (["--trace", "/nonexistent"], "/nonexistent"),
        (["--loss", "100%"], "below 100%"),
        (["--queue", "100"], "at least one packet"),
    ] {
        let mut command = Command::new(pagein());
        command.args(["plan", &url, "--bandwidth", "10mbit", "--rtt", "20ms"]).args(extra);
        let refused = run(&mut command, DEADLINE);
        assert_eq!(refused.code(), 125);
        assert!(refused.stderr().contains(expected), "{extra:?}: {}", refused.stderr());
    }
}
