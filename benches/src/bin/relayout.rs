//! Pages and compressed bytes of startup, before and after `pagein relayout`, program by program.
//!
//! For each program: profiles of one job, of three jobs merged, and of the measured job itself; the program relaid with each; the measured job
//! recorded with the original and with each relaid program, which must print and end as the original.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, bail};
use clap::Parser;
use pagein_benches::jobs::Job;
use pagein_benches::relaid::alike::without_times;
use pagein_benches::relaid::jobs::{SUBJECTS, Subject, install, make_files};
use pagein_benches::relaid::startup::Startup;
use pagein_benches::report::median;
use pagein_benches::stage::pagein_command;
use serde::Serialize;

/// Pages and compressed bytes of startup, as shipped and relaid.
///
/// The measured job is not one of those profiled, but in the column "same job". Needs root (userfaultfd).
#[derive(Parser)]
#[command(after_help = "Example:\n  relayout --program ruff=/opt/ruff/bin/ruff --only ruff,git")]
struct Args {
    /// A program that is not in PATH, or another one of that name
    #[arg(long = "program", value_name = "NAME=PATH")]
    programs: Vec<String>,
    /// Only these programs
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Keep everything that is made in this directory (it must not exist)
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only print what a recording says: pages of code, their compressed bytes, all pages, their bytes
    #[arg(long, value_name = "PROGRAM=TRACE", exclusive = true)]
    of: Option<String>,
}

/// One program's figures.
#[derive(Serialize)]
struct Row {
    program: String,
    file_bytes: u64,
    shipped: Startup,
    one_job: Option<Startup>,
    three_jobs: Option<Startup>,
    same_job: Option<Startup>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some((program, trace)) = args.of.as_deref().and_then(|of| of.rsplit_once('=')) {
        let s = Startup::read(Path::new(program), Path::new(trace))?;
        println!(
            "code {:>4} pages {:>5} kB   all {:>4} pages {:>5} kB",
            s.text_pages,
            s.text_bytes / 1000,
            s.pages,
            s.bytes / 1000
        );
        return Ok(());
    }
    let pagein = pagein_command()?;
    let scratch = tempfile::tempdir()?;
    let directory = args.keep.clone().unwrap_or_else(|| scratch.path().to_owned());
    let work = directory.join("work");
    make_files(&work)?;
    let mut rows = Vec::new();
    for subject in &SUBJECTS {
        if !args.only.is_empty() && !args.only.iter().any(|name| name == subject.name) {
            continue;
        }
        let given = args.programs.iter().find_map(|p| p.strip_prefix(subject.name)?.strip_prefix('='));
        let Some(job) = Job::find(&[given.unwrap_or(subject.name)]) else {
            eprintln!("{} is not here", subject.name);
            continue;
        };
        let bench =
            Bench { pagein: &pagein, subject, original: &job.path, work: &work, directory: &directory };
        match bench.row() {
            Ok(row) => {
                if !args.json {
                    println!("{}", row.text());
                }
                rows.push(row);
            }
            Err(error) => eprintln!("{}: {error:#}", subject.name),
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        println!("{}", summary(&rows));
    }
    Ok(())
}

struct Bench<'a> {
    pagein: &'a Path,
    subject: &'a Subject,
    original: &'a Path,
    work: &'a Path,
    directory: &'a Path,
}

impl Bench<'_> {
    fn path(&self, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", self.subject.name))
    }

    fn row(&self) -> anyhow::Result<Row> {
        let shipped = install(self.original, self.subject.name, self.original, &self.path("shipped"))?;
        let mut profiles = Vec::new();
        for (n, job) in self.subject.profiled.iter().chain([&self.subject.measured]).enumerate() {
            let profile = self.path(&format!("{n}.profile"));
            self.run("profile", &profile, &shipped, job)?;
            profiles.push(profile);
        }
        let merged = self.path("merged.profile");
        let mut merge = Command::new(self.pagein);
        merge.args(["profile", "merge"]).args(&profiles[..3]).arg("-o").arg(&merged);
        output(&mut merge)?;
        let (startup, expected) = self.record(&shipped)?;
        let relaid = |kind: &str, profile: &Path| -> anyhow::Result<Option<Startup>> {
            let file = self.path(&format!("{kind}.file"));
            let mut command = Command::new(self.pagein);
            command.arg("relayout").arg(&shipped).arg("--profile").arg(profile).arg("-o").arg(&file);
            let done = output(&mut command)?;
            if done.status.code() == Some(126) {
                eprint!("{kind}: {}", String::from_utf8_lossy(&done.stderr));
                return Ok(None);
            }
            if !done.status.success() {
                bail!("{command:?}: {}", String::from_utf8_lossy(&done.stderr));
            }
            let program = install(self.original, self.subject.name, &file, &self.path(kind))?;
            let (startup, got) = self.record(&program)?;
            if got.status != expected.status || got.stdout != expected.stdout {
                bail!("{} does not do the same: {got:?}\ninstead of {expected:?}", program.display());
            }
            Ok(Some(startup))
        };
        Ok(Row {
            program: self.subject.name.to_owned(),
            file_bytes: std::fs::metadata(self.original)?.len(),
            shipped: startup,
            one_job: relaid("one", &profiles[0])?,
            three_jobs: relaid("three", &merged)?,
            same_job: relaid("same", &profiles[3])?,
        })
    }

    fn record(&self, program: &Path) -> anyhow::Result<(Startup, Output)> {
        let trace = program.with_extension("trace");
        let output = self.run("record", &trace, program, self.subject.measured)?;
        Ok((Startup::read(program, &trace)?, output))
    }

    fn run(&self, command: &str, result: &Path, program: &Path, job: &[&str]) -> anyhow::Result<Output> {
        let mut line = Command::new(self.pagein);
        line.arg(command).arg("-o").arg(result).arg("--").arg(program).args(job);
        line.current_dir(self.work).stdin(Stdio::null());
        // Two runs are compared: nothing that changes from one to the next may be in them.
        line.env("TZ", "UTC").env("NO_COLOR", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let alongside = self.subject.alongside.map(|shell| {
            Command::new("sh").args(["-c", shell]).current_dir(self.work).stdout(Stdio::null()).spawn()
        });
        let done = output(&mut line)?;
        if let Some(child) = alongside {
            child?.wait()?;
        }
        if !result.exists() {
            bail!("{line:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let mut done = done;
        if self.subject.alongside.is_some() {
            // A server's log: times and process numbers.
            done.stdout.clear();
        }
        done.stdout = without_times(&String::from_utf8_lossy(&done.stdout)).into_bytes();
        Ok(done)
    }
}

fn output(command: &mut Command) -> anyhow::Result<Output> {
    command.output().with_context(|| format!("{command:?}"))
}

impl Row {
    fn text(&self) -> String {
        let pages = |s: Option<Startup>| s.map_or_else(|| "-".to_owned(), |s| s.text_pages.to_string());
        let kb = |s: Option<Startup>| s.map_or_else(|| "-".to_owned(), |s| (s.text_bytes / 1000).to_string());
        let all = |s: Option<Startup>| s.map_or_else(|| "-".to_owned(), |s| (s.bytes / 1000).to_string());
        let columns = [Some(self.shipped), self.one_job, self.three_jobs, self.same_job];
        let part = |show: &dyn Fn(Option<Startup>) -> String| columns.map(show).join(" | ");
        format!("| {} | {} | {} | {} |", self.program, part(&pages), part(&kb), part(&all))
    }
}

/// Medians over the programs of what is left; a program that stays as it is counts with all of it.
fn summary(rows: &[Row]) -> String {
    let share = |pick: &dyn Fn(&Row) -> Option<Startup>, of: &dyn Fn(Startup) -> usize| {
        let left: Vec<f64> = rows
            .iter()
            .map(|row| of(pick(row).unwrap_or(row.shipped)) as f64 / of(row.shipped) as f64)
            .collect();
        let worst = left.iter().copied().fold(0.0, f64::max);
        format!("{:.0} % (worst {:.0} %)", median(left).unwrap_or(1.0) * 100.0, worst * 100.0)
    };
    let line = |name: &str, of: &dyn Fn(Startup) -> usize| {
        format!(
            "{name} left, median: one job {}; three jobs {}; same job {}",
            share(&|row| row.one_job, of),
            share(&|row| row.three_jobs, of),
            share(&|row| row.same_job, of)
        )
    };
    [
        line("pages of code", &|s| s.text_pages),
        line("compressed bytes of code", &|s| s.text_bytes),
        line("compressed bytes of all pages", &|s| s.bytes),
    ]
    .join("\n")
}
