//! `pagein demo`: all of it in one go, on this machine.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use pagein_loader::{Failure, Stats, find_program};
use pagein_model::Policy;
use pagein_server::{Config, Server};
use pagein_splitter::SplitConfig;
use serde::Serialize;

use super::split::split_with_progress;
use super::{bytes, failed, print, print_json, runtime};
use crate::args;

/// What is tried when no command is given.
const CANDIDATES: [(&str, &[&str]); 5] = [
    ("node", &["-e", "console.log(1)"]),
    ("python3", &["-c", "print(1)"]),
    ("gdb", &["--batch", "-ex", "info line main"]),
    ("git", &["--version"]),
    ("bash", &["-c", "echo $((6*7))"]),
];

#[derive(Serialize)]
struct Row {
    policy: &'static str,
    wire_bytes: u64,
    requests: u64,
    faults: u64,
    demand_faults: u64,
    exec_ms: f64,
    total_ms: f64,
    /// Median time against that of the local run.
    ratio: f64,
}

#[derive(Serialize)]
struct Json {
    program: PathBuf,
    args: Vec<String>,
    file_bytes: u64,
    repeat: u32,
    local_ms: f64,
    rows: Vec<Row>,
}

pub(crate) fn demo(args: &args::Demo) -> Result<ExitCode, Failure> {
    let (program, rest) = choose(&args.command)?;
    let directory = tempfile::tempdir().map_err(failed)?;
    let demo = Demo { directory: directory.path(), program: &program, args: &rest, repeat: args.repeat };
    let note = |text: &str| {
        if !args.json {
            eprintln!("{text}");
        }
    };
    note(&format!("program: {} {}", program.display(), shown(&rest).join(" ")));
    note("record: which pages does it touch?");
    let expected = demo.record()?;
    note("split: hot pages in first-touch order, the rest in groups");
    let mut config = SplitConfig::new(&program, directory.path().join("images").join("app"));
    config.traces = vec![demo.trace()];
    // Quick rather than small: this is a demonstration of starting, not of compressing.
    config.level = 6;
    let report = split_with_progress(&config)?;

    let runtime = runtime()?;
    let images = directory.path().join("images");
    let server =
        runtime.block_on(Server::bind(Config::new(images, ([127, 0, 0, 1], 0).into()))).map_err(failed)?;
    let url = format!("http://{}/app", server.local_addr());
    runtime.spawn(server.run(std::future::pending()));
    note(&format!("serve and run: {url}, each policy {} times from an empty cache\n", args.repeat));
    let local_ms = demo.local(&expected)?;
    let rows = Policy::ALL.iter().map(|policy| demo.policy(*policy, &url, local_ms, &expected));
    let rows = rows.collect::<Result<Vec<Row>, Failure>>()?;
    runtime.shutdown_background();

    let json = Json {
        args: shown(&rest),
        file_bytes: report.manifest.file_size,
        repeat: args.repeat,
        local_ms,
        rows,
        program: program.clone(),
    };
    if args.json {
        print_json(&json)?;
    } else {
        print(&table(&json))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// The given command, or the first candidate that is a program rather than a script and that runs here.
fn choose(command: &[OsString]) -> Result<(PathBuf, Vec<OsString>), Failure> {
    if let Some((program, args)) = command.split_first() {
        return Ok((find_program(program)?, args.to_vec()));
    }
    let is_elf = |path: &PathBuf| {
        let mut magic = [0; 4];
        File::open(path).is_ok_and(|mut file| std::io::Read::read_exact(&mut file, &mut magic).is_ok())
            && magic == *b"\x7fELF"
    };
    let found = CANDIDATES.iter().find_map(|(name, args)| {
        let path = find_program(&OsString::from(name)).ok().filter(is_elf)?;
        Some((path, args.iter().map(OsString::from).collect()))
    });
    found.ok_or_else(|| Failure {
        code: Failure::NOT_FOUND,
        text: "none of node, python3, gdb, git and bash is here; give a program: pagein demo -- APP ARGS..."
            .into(),
    })
}

/// What a run printed and how it ended.
#[derive(PartialEq)]
struct Outcome {
    stdout: Vec<u8>,
    status: Option<i32>,
}

struct Demo<'a> {
    directory: &'a Path,
    program: &'a Path,
    args: &'a [OsString],
    repeat: u32,
}

impl Demo<'_> {
    fn trace(&self) -> PathBuf {
        self.directory.join("trace")
    }

    fn record(&self) -> Result<Outcome, Failure> {
        let mut command = this_command()?;
        command.arg("record").arg("-o").arg(self.trace()).arg("--").arg(self.program).args(self.args);
        let (outcome, errors, _) = finish(command)?;
        if self.trace().exists() {
            return Ok(outcome);
        }
        Err(Failure { code: Failure::PAGEIN, text: errors.trim().trim_start_matches("pagein: ").to_owned() })
    }

    fn local(&self, expected: &Outcome) -> Result<f64, Failure> {
        self.median(|| {
            let mut command = Command::new(self.program);
            command.args(self.args);
            let (outcome, _, ms) = finish(command)?;
            self.check(&outcome, expected, "the local run")?;
            Ok(ms)
        })
    }

    fn policy(&self, policy: Policy, url: &str, local_ms: f64, expected: &Outcome) -> Result<Row, Failure> {
        let stats_path = self.directory.join("stats.json");
        let mut last = Stats::default();
        let mut exec = Vec::new();
        let total_ms = self.median(|| {
            let cache = tempfile::tempdir_in(self.directory).map_err(failed)?;
            let mut command = this_command()?;
            command.args(["run", "--policy", policy.name(), "--stats"]).arg(&stats_path);
            command.arg("--cache").arg(cache.path()).arg(url).arg("--").args(self.args);
            let (outcome, errors, _) = finish(command)?;
            if outcome != *expected && !errors.is_empty() {
                return Err(Failure { code: Failure::PAGEIN, text: format!("{policy}: {}", errors.trim()) });
            }
            self.check(&outcome, expected, policy.name())?;
            last = serde_json::from_reader(File::open(&stats_path).map_err(failed)?).map_err(failed)?;
            exec.push(last.exec_ms);
            Ok(last.total_ms)
        })?;
        exec.sort_by(f64::total_cmp);
        Ok(Row {
            policy: policy.name(),
            wire_bytes: last.wire_bytes,
            requests: last.requests,
            faults: last.faults,
            demand_faults: last.demand_faults,
            exec_ms: exec[exec.len() / 2],
            total_ms,
            ratio: total_ms / local_ms,
        })
    }

    fn check(&self, outcome: &Outcome, expected: &Outcome, what: &str) -> Result<(), Failure> {
        if outcome == expected {
            return Ok(());
        }
        let text = format!(
            "{what} ended differently: status {:?} and {} bytes, recorded {:?} and {}; does {} print the same each time?",
            outcome.status,
            outcome.stdout.len(),
            expected.status,
            expected.stdout.len(),
            self.program.display(),
        );
        Err(Failure { code: Failure::PAGEIN, text })
    }

    fn median(&self, mut once: impl FnMut() -> Result<f64, Failure>) -> Result<f64, Failure> {
        let mut times = (0..self.repeat).map(|_| once()).collect::<Result<Vec<f64>, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }
}

fn this_command() -> Result<Command, Failure> {
    std::env::current_exe().map(Command::new).map_err(failed)
}

fn finish(mut command: Command) -> Result<(Outcome, String, f64), Failure> {
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(failed)?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    let outcome = Outcome { stdout: output.stdout, status: output.status.code() };
    Ok((outcome, String::from_utf8_lossy(&output.stderr).into_owned(), ms))
}

fn table(json: &Json) -> String {
    let mut lines = vec![
        format!(
            "{} has {}; a local run takes {:.1} ms",
            json.program.display(),
            bytes(json.file_bytes),
            json.local_ms
        ),
        String::new(),
        format!(
            "{:<16} {:>10} {:>9} {:>7} {:>7} {:>9} {:>9} {:>8}",
            "policy", "bytes", "requests", "faults", "demand", "exec ms", "total ms", "x local"
        ),
    ];
    lines.extend(json.rows.iter().map(|row| {
        format!(
            "{:<16} {:>10} {:>9} {:>7} {:>7} {:>9.1} {:>9.1} {:>8.2}",
            row.policy,
            bytes(row.wire_bytes),
            row.requests,
            row.faults,
            row.demand_faults,
            row.exec_ms,
            row.total_ms,
            row.ratio
        )
    }));
    lines.join("\n")
}
