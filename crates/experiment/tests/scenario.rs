//! Scenario files: those that are shipped, and every mistake with its place and the allowed form.

use std::path::Path;

use pagein_experiment::scenario::{Mode, Scenario};
use proptest::prelude::*;

const GOOD: &str = r#"name = "t"
repeats = 2
policies = ["original", "auto"]
time_limit = "30s"
[links]
bandwidths = ["56kbit", "1mbit"]
rtts = ["10ms", "0.2s"]
loss = "1%"
[[program]]
name = "git"
path = "git"
recorded = [["status"]]
measured = ["log", "-1"]
[[override]]
bandwidths = ["56kbit"]
mode = "simulated"
"#;

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, Path::new("t.toml")).map_err(|error| error.to_string())
}

#[test]
fn a_good_one() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!(scenario.mode, Mode::Real);
    assert_eq!((scenario.repeats, scenario.parallel), (2, 1));
    assert_eq!(scenario.bandwidths, [56_000, 1_000_000]);
    assert_eq!(scenario.conditions.options(), ["--loss", "1%"]);
    assert_eq!(scenario.overrides[0].mode, Some(Mode::Simulated));
}

#[test]
fn what_is_measured_has_a_digest_and_how_many_at_a_time_has_none() {
    let digest = |text: &str| parse(text).unwrap().digest();
    assert_eq!(digest(GOOD), digest(&format!("# a comment\nparallel = 7\n{GOOD}")));
    assert_ne!(digest(GOOD), digest(&GOOD.replace("0.2s", "0.3s")));
    assert_ne!(digest(GOOD), digest(&GOOD.replace("-1", "-2")));
}

#[test]
fn mistakes_have_a_place_and_say_what_is_allowed() {
    let mistakes = [
        // What is replaced, by what, line and column, words.
        ("repeats = 2", "repeat = 2", "2:1", "unknown field `repeat`, expected one of"),
        ("repeats = 2", "repeats = 0", "2:11", "write 1 to 1000"),
        ("repeats = 2", "repeats = -1", "2:11", "expected u32"),
        ("repeats = 2", "repeats = \"many\"", "2:11", "expected u32"),
        ("repeats = 2", "parallel = 1000", "2:12", "write 1 to 256"),
        ("\"auto\"", "\"fastest\"", "3:25", "reordered-paged, reordered, streamed, auto"),
        ("\"auto\"", "\"original\"", "3:25", "twice"),
        ("[\"original\", \"auto\"]", "[]", "3:12", "at least one policy"),
        ("\"30s\"", "\"30\"", "4:14", "such as 20ms"),
        ("\"30s\"", "\"1ms\"", "4:14", "at least 100ms"),
        ("\"1mbit\"", "\"1mb\"", "6:25", "such as 10mbit"),
        ("\"1mbit\"", "\"0mbit\"", "6:25", "outside 1bit to 1000gbit"),
        ("\"1mbit\"", "\"0.056mbit\"", "6:25", "twice"),
        ("\"1mbit\"", "1000", "6:25", "expected a string"),
        ("\"10ms\"", "\"-10ms\"", "7:9", "such as 20ms"),
        ("\"1%\"", "\"101%\"", "8:8", "such as 1%"),
        ("\"1%\"", "\"100%\"", "6:14", "below 100%"),
        ("loss", "jitter = \"300ms\"\nloss", "6:14", "does not fit"),
        ("loss", "queue = \"100\"\nloss", "6:14", "1500 bytes"),
        ("loss", "congestion = \"a b\"\nloss", "8:14", "cubic"),
        ("name = \"git\"", "name = \"a/b\"", "10:8", "letters, digits"),
        ("path = \"git\"", "", "10:8", "path = \"/usr/bin/git\""),
        ("path = \"git\"", "path = \"git\"\nfetch = \"git\"", "11:8", "one of them"),
        ("[[\"status\"]]", "[]", "12:12", "recorded = [["),
        ("[\"log\", \"-1\"]", "[\"status\"]", "13:12", "same_job = true"),
        ("[\"log\", \"-1\"]", "\"log -1\"", "13:12", "expected a sequence"),
        ("mode = \"simulated\"", "mode = \"virtual\"", "16:8", "expected `real` or `simulated`"),
        ("mode = \"simulated\"", "", "14:1", "changes nothing"),
        ("bandwidths = [\"56kbit\"]", "bandwidths = [\"57kbit\"]", "15:15", "no cell has this bandwidth"),
        ("[links]", "[link]", "5:2", "unknown field `link`"),
        ("name = \"t\"", "name = ", "1:8", "string"),
        ("name = \"t\"", "name = \"\"", "1:8", "empty"),
        ("measured = [\"log\", \"-1\"]", "", "9:1", "missing field `measured`"),
    ];
    for (good, bad, place, words) in mistakes {
        assert!(GOOD.contains(good), "{good}");
        let said = parse(&GOOD.replacen(good, bad, 1)).expect_err(bad);
        assert!(said.starts_with(&format!("t.toml:{place}: ")) && said.contains(words), "{bad}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn the_measured_job_may_be_the_recorded_one_if_that_is_said() {
    let same = GOOD.replace("[\"log\", \"-1\"]", "[\"status\"]");
    assert!(parse(&same.replace("path = ", "same_job = true\npath = ")).is_ok());
}

#[test]
fn shipped_scenarios_are_good() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            names.push(Scenario::parse(&text, &path).unwrap_or_else(|error| panic!("{error}")).name);
        }
    }
    names.sort();
    assert_eq!(names, ["lee1999", "modern", "smoke"]);
}

fn check(text: &str) {
    match Scenario::parse(text, Path::new("t")) {
        Ok(scenario) => assert!(!scenario.programs.is_empty() && !scenario.rtts.is_empty()),
        Err(error) => {
            assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1, "{error} in {text:?}");
            assert!(!error.why.is_empty() && error.column >= 1);
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_a_scenario_or_an_error_with_a_place(text in "\\PC{0,200}") {
        check(&text);
    }

    /// Lines of a good file, some of them cut, doubled or replaced by others.
    #[test]
    fn a_damaged_scenario_is_one_or_an_error_with_a_place(
        edits in proptest::collection::vec((0usize..17, 0usize..17, 0usize..40), 0..6)
    ) {
        let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        for (at, from, cut) in edits {
            let (at, from) = (at % lines.len(), from % lines.len());
            let mut line = lines[from].clone();
            line.truncate(cut);
            if cut % 2 == 0 { lines[at] = line } else { lines.insert(at, line) }
        }
        check(&lines.join("\n"));
    }
}
