//! Bytes on the wire of a start: the program as it was shipped and relaid, each recorded, cut with page-in linking and run from a
//! server on the loopback interface with an empty cache. The recorded job is the measured one; so is the profiled one.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use clap::Parser;
use pagein_benches::jobs::Job;
use pagein_benches::relaid::alike::without_times;
use pagein_benches::relaid::jobs::{install, make_files};
use pagein_benches::stage::{Serving, pagein_command};
use pagein_model::Policy;
use serde_json::Value;

/// Bytes received for a start, as shipped and relaid, beside the targets.
///
/// Build the `pagein` command with the same profile first. Needs root (userfaultfd).
#[derive(Parser)]
#[command(after_help = "Example:\n  totals --program ruff=/opt/ruff/bin/ruff --only ruff,git")]
struct Args {
    /// A program that is not in PATH, or another one of that name
    #[arg(long = "program", value_name = "NAME=PATH")]
    programs: Vec<String>,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Runs of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// zstd level of the images
    #[arg(long, default_value_t = 19)]
    level: i32,
    /// Keep everything that is made in this directory (it must not exist)
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// A job and what its start may take, in kB: as shipped (no target for biome), and with functions reordered.
struct Target {
    name: &'static str,
    args: &'static [&'static str],
    shipped: Option<u64>,
    relaid: u64,
}

const TARGETS: [Target; 7] = [
    Target { name: "ruff", args: &["check", "--no-cache", "a.py"], shipped: Some(1900), relaid: 1250 },
    Target { name: "uv", args: &["--version"], shipped: Some(650), relaid: 440 },
    Target { name: "biome", args: &["check", "a.js"], shipped: None, relaid: 1800 },
    Target { name: "cmake", args: &["-P", "a.cmake"], shipped: Some(1050), relaid: 400 },
    Target { name: "gdb", args: &["-batch"], shipped: Some(1200), relaid: 450 },
    Target { name: "git", args: &["status"], shipped: Some(580), relaid: 260 },
    Target { name: "node", args: &["-e", "1"], shipped: Some(4300), relaid: 2500 },
];

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let pagein = pagein_command()?;
    let scratch = tempfile::tempdir()?;
    let directory = args.keep.clone().unwrap_or_else(|| scratch.path().to_owned());
    let work = directory.join("work");
    make_files(&work)?;
    println!("| job | as shipped, kB | target | pages | demanded | relaid, kB | target | pages | demanded |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for target in &TARGETS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == target.name) {
            continue;
        }
        let given = args.programs.iter().find_map(|p| p.strip_prefix(target.name)?.strip_prefix('='));
        let Some(job) = Job::find(&[given.unwrap_or(target.name)]) else {
            eprintln!("{} is not here", target.name);
            continue;
        };
        let bench = Bench { args: &args, pagein: &pagein, target, work: &work, directory: &directory };
        match bench.row(&job.path) {
            Ok(row) => println!("{row}"),
            Err(error) => eprintln!("{}: {error:#}", target.name),
        }
    }
    Ok(())
}

struct Bench<'a> {
    args: &'a Args,
    pagein: &'a Path,
    target: &'a Target,
    work: &'a Path,
    directory: &'a Path,
}

/// Of the runs of one image, medians.
struct Start {
    wire_bytes: u64,
    pages: u64,
    demand_faults: u64,
}

impl Bench<'_> {
    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.target.name))
    }

    fn row(&self, original: &Path) -> anyhow::Result<String> {
        let shipped = install(original, self.target.name, original, &self.path("shipped"))?;
        let profile = self.path("profile");
        self.observe("profile", &profile, &shipped)?;
        let file = self.path("file");
        let mut relayout = Command::new(self.pagein);
        relayout.arg("relayout").arg(&shipped).arg("--profile").arg(&profile).arg("-o").arg(&file);
        // The job that is measured is the one that was profiled.
        succeed(relayout.args(["--unseen", "0"]))?;
        let relaid = install(original, self.target.name, &file, &self.path("relaid"))?;
        let (before, expected) = self.start(&shipped)?;
        let (after, got) = self.start(&relaid)?;
        if got != expected {
            bail!("the relaid program does not do the same: {got:?}\ninstead of {expected:?}");
        }
        let cells = |start: &Start, target: Option<u64>| {
            let target = target.map_or_else(|| "-".to_owned(), |kb| kb.to_string());
            format!("{} | {target} | {} | {}", start.wire_bytes / 1000, start.pages, start.demand_faults)
        };
        Ok(format!(
            "| {} {} | {} | {} |",
            self.target.name,
            self.target.args.join(" "),
            cells(&before, self.target.shipped),
            cells(&after, Some(self.target.relaid))
        ))
    }

    /// Records, cuts, serves and runs a program.
    fn start(&self, program: &Path) -> anyhow::Result<(Start, (String, Option<i32>))> {
        let trace = program.with_extension("trace");
        let expected = self.observe("record", &trace, program)?;
        let images = program.with_extension("images");
        std::fs::create_dir(&images)?;
        let mut split = Command::new(self.pagein);
        split.arg("split").arg(program).arg("--trace").arg(&trace).arg("-o").arg(images.join("image"));
        succeed(split.arg(format!("--level={}", self.args.level)))?;
        let serving = Serving::start(self.pagein, &images)?;
        let mut runs = Vec::new();
        for number in 0..self.args.repeat {
            let stats = images.join(format!("{number}.stats"));
            let mut run = Command::new(self.pagein);
            run.args(["run", "--policy", Policy::Streamed.name(), "--stats"]).arg(&stats);
            run.arg("--cache").arg(images.join(format!("{number}.cache"))).arg("--argv0").arg(program);
            let got = self.outcome(run.arg(serving.image("image")).arg("--"))?;
            if got != expected {
                bail!("run does not do what was recorded: {got:?}\ninstead of {expected:?}");
            }
            runs.push(serde_json::from_reader::<_, Value>(File::open(&stats)?)?);
        }
        let median = |field: &str| {
            let mut values: Vec<u64> = runs.iter().filter_map(|run| run[field].as_u64()).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().with_context(|| format!("{field} is not in the stats"))
        };
        let start = Start {
            wire_bytes: median("wire_bytes")?,
            pages: median("pages_installed")?,
            demand_faults: median("demand_faults")?,
        };
        Ok((start, expected))
    }

    /// `profile` or `record` of the job.
    fn observe(&self, command: &str, result: &Path, program: &Path) -> anyhow::Result<(String, Option<i32>)> {
        let mut line = Command::new(self.pagein);
        let outcome = self.outcome(line.arg(command).arg("-o").arg(result).arg("--").arg(program))?;
        if !result.exists() {
            bail!("{line:?} wrote nothing");
        }
        Ok(outcome)
    }

    /// Adds the job's arguments and runs the command; standard output and exit status.
    fn outcome(&self, command: &mut Command) -> anyhow::Result<(String, Option<i32>)> {
        command.args(self.target.args).current_dir(self.work).stdin(Stdio::null());
        command.env("TZ", "UTC").env("NO_COLOR", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let output = command.output().with_context(|| format!("{command:?}"))?;
        if output.status.code().is_none_or(|code| (125..=127).contains(&code)) {
            bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok((without_times(&String::from_utf8_lossy(&output.stdout)), output.status.code()))
    }
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
