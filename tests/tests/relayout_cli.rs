//! `profile`, `relayout` and `layout` as commands: the relaid program does what the original does.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use pagein_testkit::{Finished, have, run, skip};
use pagein_tests::real::{DEADLINE, pagein, scratch, succeed};

const BASH: &str = "/bin/bash";

/// A profile of a job of bash.
fn profile(name: &str, job: &str, flags: &[&str]) -> PathBuf {
    let out = scratch().join(name);
    let mut command = Command::new(pagein());
    let finished =
        succeed(command.arg("profile").args(flags).arg("-o").arg(&out).args(["--", BASH, "-c", job]));
    let local = succeed(Command::new(BASH).args(["-c", job]));
    assert_eq!(finished.stdout(), local.stdout());
    out
}

fn relayout(app: &Path, profile: &Path, out: &Path, flags: &[&str]) -> Finished {
    let mut command = Command::new(pagein());
    command.arg("relayout").arg(app).arg("--profile").arg(profile).arg("-o").arg(out).args(flags);
    run(&mut command, DEADLINE)
}

/// Asserts that both print and end alike.
fn same(original: &Path, relaid: &Path, job: &[&str]) {
    let [local, relaid] =
        [original, relaid].map(|program| run(Command::new(program).arg0("bash").args(job), DEADLINE));
    assert_eq!(relaid.stdout(), local.stdout(), "{job:?}");
    assert_eq!(relaid.stderr(), local.stderr(), "{job:?}");
    assert_eq!(relaid.code(), local.code(), "{job:?}");
}

#[test]
fn bash_is_relaid_in_every_order() {
    let profile = profile("bash.profile", "echo $((6*7))", &[]);
    let text = std::fs::read_to_string(&profile).unwrap();
    assert!(text.starts_with("pagein-profile 1\nprogram bash\n"), "{text}");
    assert!(text.contains("\nb "), "blocks were watched");
    for order in ["first-touch", "pettis-hansen", "c3", "compilation-unit", "method"] {
        let relaid = scratch().join(format!("bash.{order}"));
        let done = relayout(Path::new(BASH), &profile, &relaid, &["--order", order]).success();
        assert!(done.stdout().contains("lie together now"), "{}", done.stdout());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&relaid), mode(Path::new(BASH)));
        same(Path::new(BASH), &relaid, &["-c", "for i in a b c; do (echo $i; exit 3) | cat; done; exit 42"]);
        same(
            Path::new(BASH),
            &relaid,
            &["-c", "x=(1 2 3); echo ${#x[@]} ${x[-1]}; nosuchcommand; kill -TERM $$"],
        );
        same(Path::new(BASH), &relaid, &["-c", "if"]);
    }
}

#[test]
fn layout_shows_fewer_and_fuller_pages() {
    let profile = profile("layout.profile", "echo $((6*7))", &[]);
    let layout = |flags: &[&str]| {
        let mut command = Command::new(pagein());
        command.args(["layout", BASH, "--profile"]).arg(&profile).args(flags);
        succeed(&mut command).stdout()
    };
    let picture = scratch().join("bash.svg");
    let json = layout(&["--json", "--svg", picture.to_str().unwrap()]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let (before, orders) = (&json["as_shipped"], json["orders"].as_array().unwrap());
    assert_eq!(json["matched_share"], 1.0);
    assert_eq!(orders.len(), 5);
    for after in orders {
        assert!(after["pages"].as_u64().unwrap() < before["pages"].as_u64().unwrap(), "{json}");
        assert!(after["utilisation"].as_f64().unwrap() > before["utilisation"].as_f64().unwrap(), "{json}");
    }
    assert!(std::fs::read_to_string(picture).unwrap().ends_with("</svg>\n"));
    let text = layout(&[]);
    assert!(text.contains("as shipped") && text.contains("first-touch"), "{text}");
}

#[test]
fn profiles_are_merged() {
    let one = profile("one.profile", "echo $((6*7))", &[]);
    let two =
        profile("two.profile", "printf '%s\\n' x | while read -r l; do echo $l; done", &["--functions-only"]);
    assert!(!std::fs::read_to_string(&two).unwrap().contains("\nb "), "only entries were watched");
    let out = scratch().join("merged.profile");
    let said =
        succeed(Command::new(pagein()).args(["profile", "merge"]).args([&one, &two]).arg("-o").arg(&out));
    assert!(said.stdout().contains("runs: 2"), "{}", said.stdout());
    let functions = |path: &Path| {
        std::fs::read_to_string(path).unwrap().lines().filter(|line| line.starts_with("f ")).count()
    };
    assert!(functions(&out) > functions(&one).max(functions(&two)));
    let relaid = scratch().join("bash.merged");
    let done = relayout(Path::new(BASH), &out, &relaid, &[]);
    assert_eq!(done.code(), 0, "{}", done.stderr());
    same(Path::new(BASH), &relaid, &["-c", "printf '%s\\n' x y | while read -r l; do echo $l; done; false"]);
}

#[test]
fn the_programs_exit_status_is_the_commands() {
    let out = scratch().join("status.profile");
    let profile = |job: &[&str]| {
        run(Command::new(pagein()).args(["profile", "-o"]).arg(&out).arg("--").args(job), DEADLINE).code()
    };
    assert_eq!(profile(&[BASH, "-c", "exit 42"]), 42);
    assert_eq!(profile(&[BASH, "-c", "kill -TERM $$"]), 128 + 15);
    assert!(std::fs::read_to_string(&out).unwrap().contains("\nf "), "it was written all the same");
    assert_eq!(profile(&["no-such-program"]), 127);
}

#[test]
fn linkers_get_a_list_of_names_or_the_reason_why_not() {
    if !have(&["cc"]) {
        return;
    }
    let build = |name: &str, flags: &[&str]| {
        let (source, out) = (scratch().join("names.c"), scratch().join(name));
        std::fs::write(
            &source,
            "int helper(int x) { return x + 1; }\nint main(void) { return helper(6); }\n",
        )
        .unwrap();
        succeed(Command::new("cc").args(["-O0", "-o"]).arg(&out).arg(source).args(flags));
        let profile = out.with_extension("profile");
        let run =
            run(Command::new(pagein()).args(["profile", "-o"]).arg(&profile).arg("--").arg(&out), DEADLINE);
        assert_eq!(run.code(), 7, "{}", run.stderr());
        (out, profile)
    };
    let (named, profile) = build("named", &[]);
    let order = scratch().join("named.order");
    let done = relayout(&named, &profile, &order, &["--linker", "lld"]).success();
    assert!(done.stdout().contains("--symbol-ordering-file"), "{}", done.stdout());
    let list = std::fs::read_to_string(&order).unwrap();
    let place =
        |name| list.lines().position(|line| line == name).unwrap_or_else(|| panic!("{name} in {list}"));
    assert!(place("main") < place("helper"));
    let (stripped, profile) = build("nameless", &["-s"]);
    let refused = relayout(&stripped, &profile, &scratch().join("nameless.order"), &["--linker", "lld"]);
    assert_eq!(refused.code(), 126, "{}", refused.stderr());
    assert!(refused.stderr().contains("symbols") && !scratch().join("nameless.order").exists());
}

#[test]
fn every_linker_puts_functions_in_the_order_of_its_file() {
    if !have(&["cc", "nm"]) {
        return;
    }
    // `main` comes last in the file, in a section that GCC names differently from those of the others.
    let source = scratch().join("ordered.c");
    let function = |n| format!("__attribute__((noinline)) int f{n}(int x) {{ return sink += x * {n}; }}\n");
    let calls = "int main(int c, char **v) { return f7(c) + f2(c) + f9(c) > 50; }\n";
    let text = format!("volatile int sink;\n{}{calls}", (0..10).map(function).collect::<String>());
    std::fs::write(&source, text).unwrap();
    let build = |name: &str, flags: &[&str]| {
        let out = scratch().join(name);
        let mut command = Command::new("cc");
        succeed(command.args(["-O2", "-ffunction-sections", "-o"]).arg(&out).arg(&source).args(flags));
        out
    };
    let shipped = build("ordered", &[]);
    let profile = scratch().join("ordered.profile");
    succeed(Command::new(pagein()).args(["profile", "-o"]).arg(&profile).arg("--").arg(&shipped));
    for linker in ["lld", "gold", "bfd"] {
        if !have(&[&format!("ld.{linker}")]) {
            continue;
        }
        let order = scratch().join(format!("ordered.{linker}"));
        let done = relayout(&shipped, &profile, &order, &["--linker", linker]).success().stdout();
        // What it says is what is to be done, word for word.
        let (_, flags) = done.trim_end().split_once("build with ").unwrap();
        let program = build(&format!("ordered-{linker}"), &flags.split(' ').collect::<Vec<_>>());
        let symbols = succeed(Command::new("nm").arg("-n").arg(&program)).stdout();
        let names: Vec<&str> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        let place =
            |name| names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{name}: {symbols}"));
        let main = place("main");
        assert_eq!(names[main..main + 4], ["main", "f7", "f2", "f9"], "{linker}: {symbols}");
        succeed(&mut Command::new(program));
    }
}

#[test]
fn what_cannot_be_treated_is_said_and_nothing_is_written() {
    let profile = profile("refused.profile", "echo $((6*7))", &[]);
    let refuse = |app: &Path, code, expected: &str| {
        let out = scratch().join("refused");
        let refused = relayout(app, &profile, &out, &[]);
        assert_eq!(refused.code(), code, "{}", refused.stderr());
        assert!(refused.stderr().contains(expected), "{}", refused.stderr());
        assert!(!out.exists());
    };
    let script = scratch().join("script");
    std::fs::write(&script, "#!/bin/sh\necho hello\n").unwrap();
    refuse(&script, 126, "not a 64-bit little-endian ELF file");
    refuse(Path::new("/nonexistent/program"), 127, "no such program");
    let other = scratch().join("not-a-profile");
    std::fs::write(&other, b"\x7fELF\xff\n").unwrap();
    let refused = relayout(Path::new(BASH), &other, &scratch().join("refused"), &[]);
    assert_eq!(refused.code(), 125);
    assert!(refused.stderr().contains("first line"), "{}", refused.stderr());

    if !have(&["go"]) {
        return;
    }
    let source = scratch().join("a.go");
    std::fs::write(&source, "package main\nfunc main() { println(1) }\n").unwrap();
    let program = scratch().join("go-program");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(&source).env("GO111MODULE", "off");
    build.env("GOCACHE", scratch().join("go-cache"));
    if run(&mut build, DEADLINE).code() != 0 {
        skip("go does not build here");
        return;
    }
    refuse(&program, 126, "a Go program");
    // The profile is bash's.
    let warned = relayout(&program, &profile, &scratch().join("refused"), &[]).stderr();
    assert!(warned.contains("stale: 0 of its"), "{warned}");
}

#[test]
fn a_program_that_does_not_do_the_same_is_not_written() {
    let profile = profile("verify.profile", "echo $((6*7))", &[]);
    let verified = |name: &str, job: &str| {
        let out = scratch().join(name);
        (relayout(Path::new(BASH), &profile, &out, &["--verify-run", job]), out)
    };
    let bash = std::fs::canonicalize(BASH).unwrap();
    let bash = bash.display();
    let (alike, out) = verified("bash.alike", &format!("{bash} -c 'echo $((2*3)); nosuch; exit 3'"));
    assert_eq!(alike.code(), 0, "{}", alike.stderr());
    same(Path::new(BASH), &out, &["-c", "echo relaid"]);
    // What the file holds is the one thing that must differ.
    let (differs, out) = verified("bash.differs", &format!("{bash} -c 'cksum {bash}'"));
    assert_eq!(differs.code(), 125);
    assert!(differs.stderr().contains("line 1 of stdout was"), "{}", differs.stderr());
    assert!(!out.exists());
    let (changes, out) = verified("bash.changes", &format!("{bash} -c 'cat /proc/sys/kernel/random/uuid'"));
    assert_eq!(changes.code(), 125);
    assert!(changes.stderr().contains("two runs of"), "{}", changes.stderr());
    assert!(!out.exists());
    // Every line starts with the original: a second one compares too.
    let out = scratch().join("bash.second");
    let lines = [format!("{bash} -c true"), format!("{bash} -c 'cksum {bash}'")];
    let [first, second] = &lines;
    let flags = ["--verify-run", first, "--verify-run", second];
    let differs = relayout(Path::new(BASH), &profile, &out, &flags);
    assert_eq!(differs.code(), 125);
    assert!(differs.stderr().contains("line 1 of stdout was"), "{}", differs.stderr());
    assert!(!out.exists());
    let both = relayout(Path::new(BASH), &profile, &out, &["--verify-run", first, "--verify-run", first]);
    assert_eq!(both.code(), 0, "{}", both.stderr());
    let (unused, out) = verified("bash.unused", "true");
    assert_eq!(unused.code(), 125);
    assert!(unused.stderr().contains("did not start"), "{}", unused.stderr());
    assert!(!out.exists());
}

#[test]
fn an_interrupted_comparison_leaves_nothing() {
    let profile = profile("interrupted.profile", "echo $((6*7))", &[]);
    let directory = scratch().join("interrupted");
    std::fs::create_dir_all(&directory).unwrap();
    let started = scratch().join("interrupted.started");
    let _ = std::fs::remove_file(&started);
    let mut command = Command::new("timeout");
    // The signal goes to pagein alone, as that of a supervisor does.
    let line = format!("touch {}; exec sleep 60", started.display());
    command.args(["--foreground", "--signal=TERM", "5"]).arg(pagein()).args(["relayout", BASH, "--profile"]);
    command.arg(&profile).arg("-o").arg(directory.join("out")).args(["--verify-run", &line]);
    let ended = run(&mut command, DEADLINE);
    assert!(started.exists(), "the line ran: {}", ended.stderr());
    assert!(ended.stderr().contains("was interrupted"), "{}", ended.stderr());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn split_reorders_and_takes_traces_of_the_original() {
    let job = ["-c", "echo $((6*7))"];
    let profile = profile("split.profile", job[1], &[]);
    let bash = std::fs::canonicalize(BASH).unwrap();
    let image = |name: &str, flags: &[&Path]| {
        let out = scratch().join("relaid-images").join(name);
        let mut command = Command::new(pagein());
        command.arg("split").arg(&bash).args(flags).args(["--level", "3", "--json", "-o"]).arg(&out);
        let made: serde_json::Value = serde_json::from_str(&succeed(&mut command).stdout()).unwrap();
        (out, made)
    };
    let record = |name: &str, program: &Path| {
        let trace = scratch().join(name);
        let mut command = Command::new(pagein());
        succeed(command.args(["record", "-o"]).arg(&trace).arg("--").arg(program).args(job));
        trace
    };
    let run = |image: &Path, job: &[&str]| {
        let stats = scratch().join("relaid.stats");
        let mut command = Command::new(pagein());
        // With a slash, as when it was recorded: bash looks for itself in PATH otherwise.
        command.args(["run", "--policy", "streamed", "--argv0"]).arg(&bash).arg("--stats").arg(&stats);
        command.arg("--cache").arg(image.with_extension("cache")).arg(image).arg("--").args(job);
        let relaid = pagein_testkit::run(&mut command, DEADLINE);
        let local = pagein_testkit::run(Command::new(&bash).args(job), DEADLINE);
        assert_eq!(
            (relaid.stdout(), relaid.code()),
            (local.stdout(), local.code()),
            "{job:?}: {}",
            relaid.stderr()
        );
        let stats: serde_json::Value = serde_json::from_slice(&std::fs::read(&stats).unwrap()).unwrap();
        stats["demand_faults"].as_u64().unwrap()
    };
    let option = Path::new;
    let trace = record("split.trace", &bash);
    let (_, shipped) = image("shipped", &[option("--trace"), &trace]);
    let flags = [option("--profile"), &profile, option("--trace"), &trace];
    let (carried_image, carried) = image("carried", &flags);
    let hot = |made: &serde_json::Value| made["hot_pages"].as_u64().unwrap();
    assert!(hot(&carried) < hot(&shipped), "{carried} {shipped}");
    let jobs: [&[&str]; 3] = [&job, &["-c", "x=(1 2); printf '%s,' ${x[@]} | cat; (exit 5)"], &["-c", "if"]];
    let missed = jobs.map(|job| run(&carried_image, job))[0];
    assert!(missed <= 8, "the carried trace is nearly what a recording gives: {missed} pages were demanded");

    // The relaid file can be recorded itself, as one more mapped segment of an ordinary program; `split` takes that trace, too.
    let relaid = scratch().join("relaid").join("bash");
    std::fs::create_dir_all(relaid.parent().unwrap()).unwrap();
    assert_eq!(relayout(&bash, &profile, &relaid, &[]).code(), 0);
    let own = record("relaid.trace", &relaid);
    let (own_image, _) = image("own", &[option("--profile"), &profile, option("--trace"), &own]);
    assert_eq!(jobs.map(|job| run(&own_image, job))[0], 0, "nothing is missing for the recorded job");
    let (code_image, code) = image("code", &[option("--profile"), &profile]);
    assert!(hot(&code) > 0 && hot(&code) < hot(&carried), "{code}");
    run(&code_image, &job);
}

#[test]
fn profiles_are_made_of_lists_and_of_perf() {
    if !have(&["cc"]) {
        return;
    }
    let source = scratch().join("import.c");
    std::fs::write(
        &source,
        "__attribute__((noipa)) int leaf(int x) { return x + 1; }\n__attribute__((noipa)) int root(int x) { return leaf(x) * 2; }\n\
         int main(void) { return root(2); }\n",
    )
    .unwrap();
    let program = scratch().join("import");
    succeed(Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source));
    let import = |kind: &str, text: &str| {
        let (list, out) = (scratch().join("import.txt"), scratch().join("import.profile"));
        std::fs::write(&list, text).unwrap();
        let mut command = Command::new(pagein());
        command.args(["profile", "import"]).arg(&program).arg(kind).arg(&list).arg("-o").arg(&out);
        let done = run(&mut command, DEADLINE);
        (done, std::fs::read_to_string(&out).unwrap_or_default())
    };
    let names = |text: &str| -> Vec<String> {
        let functions = text.lines().filter(|line| line.starts_with("f "));
        functions.map(|line| line.rsplit_once(' ').unwrap().1.to_owned()).collect()
    };
    let (done, profile) = import("--symbols", "leaf\nnosuch\nmain\n");
    assert_eq!(
        (done.code(), names(&profile)),
        (0, vec!["leaf".to_owned(), "main".into()]),
        "{}",
        done.stderr()
    );
    let perf =
        format!(" 55d0 leaf+0x2 ({0}) root+0x9/leaf+0x0/P/-/-/0\n 55e0 main+0x5 ({0})\n", program.display());
    let (done, profile) = import("--perf", &perf);
    assert_eq!((done.code(), names(&profile)), (0, vec!["leaf".to_owned(), "root".into(), "main".into()]));
    assert!(profile.ends_with("c 1 0 1\n"), "{profile}");
    let all = "a  318 14942.741435:  250000 cpu-clock:u:  55978cf13151 main+0x18";
    let (done, profile) = import("--perf", &format!("{all} ({})\n", program.display()));
    assert_eq!((done.code(), names(&profile)), (0, vec!["main".to_owned()]), "{}", done.stderr());
    let relaid = scratch().join("import.relaid");
    let refused = relayout(&program, &scratch().join("import.profile"), &relaid, &[]);
    assert!([0, 126].contains(&refused.code()), "{}", refused.stderr());
    let (nothing, _) = import("--symbols", "nosuch\n");
    assert_eq!(nothing.code(), 125);
    assert!(nothing.stderr().contains("none of 1 names"), "{}", nothing.stderr());
}

/// Nearly all functions of the other job are unseen: it touches their pages, and those of the clones of the few others besides.
#[test]
fn what_would_cost_other_jobs_pages_is_left_as_it_was() {
    let profile = profile("unseen.profile", "echo $((6*7))", &[]);
    let relaid = scratch().join("bash.unseen");
    let refused = relayout(Path::new(BASH), &profile, &relaid, &["--unseen", "85"]);
    assert_eq!(refused.code(), 126, "{refused:?}");
    assert!(refused.stderr().contains("another job than those profiled would touch"), "{refused:?}");
    assert!(!relaid.exists());
    let layout = |unseen: &str| {
        let mut command = Command::new(pagein());
        command.args(["layout", BASH, "--unseen", unseen, "--profile"]).arg(&profile);
        succeed(&mut command).stdout()
    };
    assert_eq!(layout("85").matches("stays as shipped").count(), 1);
    assert!(layout("0").contains("functions moved"));
    // There is no picture of it; what there is to say is said.
    let mut command = Command::new(pagein());
    command.args(["layout", BASH, "--unseen", "85", "--svg"]).arg(&relaid).arg("--profile").arg(&profile);
    let undrawn = run(&mut command, DEADLINE);
    assert_eq!(undrawn.code(), 126, "{undrawn:?}");
    assert!(undrawn.stdout().contains("stays as shipped"), "{undrawn:?}");
    assert!(undrawn.stderr().contains("nothing to draw") && !relaid.exists(), "{undrawn:?}");
    let done = relayout(Path::new(BASH), &profile, &relaid, &["--unseen", "0"]).success();
    assert!(done.stdout().contains("lie together now"), "{}", done.stdout());
    same(Path::new(BASH), &relaid, &["-c", "echo $((6*7))"]);
}
