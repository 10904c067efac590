//! What page-in linking saves: pages, faults, bytes and requests of each job with and without it, each recorded, cut and run in
//! the same way, from a server on the loopback interface and an empty cache.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use clap::Parser;
use pagein_benches::jobs::{self, Job};
use pagein_benches::stage::{self, Serving};
use pagein_model::{Policy, Trace};
use serde_json::Value;

/// Measure page-in linking. Build the `pagein` command with the same profile first.
#[derive(Parser)]
struct Args {
    /// Runs of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Only these programs; a command line in quotes, split at blanks [default: git, bash, python3, gdb, node]
    #[arg(long, value_name = "COMMAND")]
    program: Vec<String>,
    /// zstd level of the images
    #[arg(long, default_value_t = 19)]
    level: i32,
    /// The pagein command [default: the one beside this program]
    #[arg(long)]
    pagein: Option<PathBuf>,
}

const POLICIES: [Policy; 2] = [Policy::Streamed, Policy::ReorderedPaged];

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let pagein = args.pagein.clone().map_or_else(stage::pagein_command, Ok)?;
    let find = |line: &String| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        Job::find(&words).with_context(|| format!("{line}: there is no such program here, or it is a script"))
    };
    let jobs = if args.program.is_empty() {
        jobs::usual()
    } else {
        args.program.iter().map(find).collect::<anyhow::Result<_>>()?
    };
    println!(
        "| job | linking | pages touched | policy | pages | linked | faults | demanded | kB | requests |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for job in &jobs {
        for is_on in [false, true] {
            measure(&args, &pagein, job, is_on)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Args, pagein: &Path, job: &Job, is_on: bool) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let options: &[&str] = if is_on { &[] } else { &["--no-page-in-linking"] };
    let trace = directory.path().join("trace");
    let mut record = Command::new(pagein);
    record.arg("record").args(options).arg("-o").arg(&trace).arg("--").arg(&job.path).args(&job.args);
    succeed(&mut record)?;
    let touched = std::fs::read_to_string(&trace)?.parse::<Trace>()?.pages().count();
    let images = directory.path().join("images");
    std::fs::create_dir(&images)?;
    let mut split = Command::new(pagein);
    split.arg("split").args(options).arg(format!("--level={}", args.level)).arg(&job.path);
    succeed(split.arg("--trace").arg(&trace).arg("-o").arg(images.join(&job.name)))?;
    let serving = Serving::start(pagein, &images)?;
    for policy in POLICIES {
        let mut runs = Vec::new();
        for number in 0..args.repeat {
            let stats = directory.path().join("stats");
            let mut run = Command::new(pagein);
            run.args(["run", "--policy", policy.name(), "--stats"]).arg(&stats).args(options);
            run.arg("--cache").arg(directory.path().join(format!("cache-{policy}-{number}")));
            run.arg("--argv0").arg(&job.path).arg(serving.image(&job.name)).arg("--").args(&job.args);
            succeed(&mut run)?;
            runs.push(serde_json::from_reader::<_, Value>(File::open(&stats)?)?);
        }
        let median = |field: &str| {
            let mut values: Vec<u64> = runs.iter().filter_map(|run| run[field].as_u64()).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        println!(
            "| `{}` | {} | {touched} | {policy} | {} | {} | {} | {} | {} | {} |",
            job.shown(),
            if is_on { "on" } else { "off" },
            median("pages_installed"),
            median("linked_pages"),
            median("faults"),
            median("demand_faults"),
            median("wire_bytes") / 1000,
            median("requests"),
        );
    }
    Ok(())
}

/// Streams as in a pipeline, for the recording and the runs alike.
fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(())
}
