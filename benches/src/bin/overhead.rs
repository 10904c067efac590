//! What `pagein run` costs against running the local file: real programs, every policy, from a server on the loopback
//! interface and an empty cache. Local and paged runs alternate, so that a busy machine slows all of them alike.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use pagein_benches::jobs::{self, Job};
use pagein_benches::measure::{self, Run};
use pagein_benches::report::{self, Conditions, Program, Report, Row};
use pagein_benches::stage::{self, Serving};
use pagein_model::Policy;

/// Measure `pagein run` against local runs. Build the `pagein` command with the same profile first.
#[derive(Parser)]
struct Args {
    /// Rounds; each runs the program locally and once under each policy
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Only these programs; a name, or a command line in quotes, split at blanks [default: git, bash, python3, gdb, node]
    #[arg(long, value_name = "COMMAND")]
    program: Vec<String>,
    /// Only these policies
    #[arg(long)]
    policy: Vec<Policy>,
    /// zstd level of the images
    #[arg(long, default_value_t = 19)]
    level: i32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The pagein command [default: the one beside this program]
    #[arg(long)]
    pagein: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let pagein = args.pagein.clone().map_or_else(stage::pagein_command, Ok)?;
    let jobs = chosen(&args.program)?;
    let policies = if args.policy.is_empty() { Policy::ALL.to_vec() } else { args.policy.clone() };
    let directory = tempfile::tempdir()?;
    let images = directory.path().join("images");
    std::fs::create_dir(&images)?;
    measure::adopt_orphans()?;
    let mut conditions = Conditions::here(args.repeat, args.level);
    let mut programs = Vec::new();
    for job in jobs {
        eprintln!("{}: recording and cutting", job.shown());
        let spread = stage::prepare(&pagein, &job, directory.path(), args.level)?;
        let serving = Serving::start(&pagein, &images)?;
        eprintln!("{}: {} rounds", job.shown(), args.repeat);
        let rows = rounds(&args, &pagein, &job, &policies, &serving)?;
        let file_bytes = std::fs::metadata(&job.path)?.len();
        programs.push(Program { command: job.shown(), file_bytes, spread, rows });
    }
    conditions.load[1] = report::load();
    let report = Report { conditions, programs };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report.table());
    }
    Ok(ExitCode::SUCCESS)
}

fn chosen(programs: &[String]) -> anyhow::Result<Vec<Job>> {
    if programs.is_empty() {
        return Ok(jobs::usual());
    }
    let mut chosen = Vec::new();
    for program in programs {
        let words: Vec<&str> = program.split_ascii_whitespace().collect();
        let Some(job) = jobs::usual_of(program).or_else(|| Job::find(&words)) else {
            bail!("{program}: there is no such program here, or it is a script");
        };
        chosen.push(job);
    }
    Ok(chosen)
}

fn rounds(
    args: &Args,
    pagein: &std::path::Path,
    job: &Job,
    policies: &[Policy],
    serving: &Serving,
) -> anyhow::Result<Vec<Row>> {
    let url = serving.image(&job.name);
    // Once before it counts: the page cache is warm afterwards.
    let expected = measure::local(job, serving.id())?.outcome;
    let mut local: Vec<Run> = Vec::new();
    let mut paged: Vec<Vec<Run>> = vec![Vec::new(); policies.len()];
    for _ in 0..args.repeat {
        local.push(measure::local(job, serving.id())?);
        for (policy, runs) in policies.iter().zip(&mut paged) {
            let run = measure::paged(pagein, job, *policy, &url, serving.id())?;
            if run.outcome != expected {
                bail!("{} under {policy} ended differently from the local run", job.shown());
            }
            runs.push(run);
        }
    }
    let local_row = Row::new("local", &local, 1.0);
    let local_ms = local_row.wall_ms;
    let rows = policies.iter().zip(&paged).map(|(policy, runs)| Row::new(policy.name(), runs, local_ms));
    Ok(std::iter::once(Row { ratio: 1.0, ..local_row }).chain(rows).collect())
}
