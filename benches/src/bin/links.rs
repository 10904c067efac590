//! Time to exit over emulated links: `auto`, the five policies, and what people do without pagein: fetch the file, or the file at
//! zstd -19, then run it. Everything cold: each run has its own emulated link, server and cache. Ways alternate, so that a busy
//! machine slows all of them alike. Root, as `pagein net` and paging need it; curl and zstd must be installed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use clap::Parser;
use pagein_benches::jobs::Job;
use pagein_benches::report::{self, Conditions, median};
use pagein_benches::stage;
use serde_json::Value;

/// Measure time to exit over emulated links. Build the `pagein` command with the same profile first.
///
/// Example: links --record 'git log -3' --record 'git diff' 'git status' --bandwidth 1mbit,10mbit --rtt 20ms
#[derive(Parser)]
#[command(verbatim_doc_comment)]
struct Args {
    /// The job that is measured, in quotes, split at blanks
    job: String,
    /// Jobs that are recorded [default: the measured one]
    #[arg(long, value_name = "JOB")]
    record: Vec<String>,
    /// Rates
    #[arg(long, value_delimiter = ',', default_value = "1mbit,10mbit,100mbit,1gbit")]
    bandwidth: Vec<String>,
    /// Round trips
    #[arg(long, value_delimiter = ',', default_value = "1ms,20ms,100ms")]
    rtt: Vec<String>,
    /// Ways: auto, a policy, zstd or raw
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "auto,streamed,reordered,reordered-paged,paged,original,zstd,raw"
    )]
    way: Vec<String>,
    /// Runs of each way in each cell; the table shows medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// zstd level of the image
    #[arg(long, default_value_t = 19)]
    level: i32,
    /// Keep the image here, or take the one that is here already
    #[arg(long, value_name = "DIR")]
    images: Option<PathBuf>,
    /// The pagein command [default: the one beside this program]
    #[arg(long)]
    pagein: Option<PathBuf>,
}

/// One run.
struct Run {
    seconds: f64,
    stats: Value,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let pagein = args.pagein.clone().map_or_else(stage::pagein_command, Ok)?;
    let job = job(&args.job)?;
    let scratch = tempfile::tempdir()?;
    let images = args.images.clone().unwrap_or_else(|| scratch.path().join("images"));
    if !images.join("image").is_dir() {
        prepare(&args, &pagein, &job, scratch.path(), &images)?;
    }
    let mut conditions = Conditions::here(args.repeat, args.level);
    let cells = args.bandwidth.iter().flat_map(|rate| args.rtt.iter().map(move |rtt| (rate, rtt)));
    let mut table = String::from(
        "| link | way | s | min | kB | requests | demanded | background, kB |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (rate, rtt) in cells {
        let mut runs: Vec<Vec<Run>> = args.way.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.repeat {
            for (way, runs) in args.way.iter().zip(&mut runs) {
                runs.push(one(&pagein, &images, &job, (rate, rtt), way)?);
            }
        }
        for (way, runs) in args.way.iter().zip(&runs) {
            let line = row(&format!("{rate} x {rtt}"), way, runs);
            eprintln!("{line}");
            writeln!(table, "{line}")?;
        }
    }
    conditions.load[1] = report::load();
    println!("Command: `{}`", conditions.command.join(" "));
    println!(
        "Conditions: {} x {}, Linux {}, load {:.1} before and {:.1} after; medians of {}\n\n{table}",
        conditions.processors,
        conditions.processor,
        conditions.kernel,
        conditions.load[0],
        conditions.load[1],
        args.repeat
    );
    Ok(ExitCode::SUCCESS)
}

fn job(text: &str) -> anyhow::Result<Job> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    Job::find(&words).with_context(|| format!("{text}: there is no such program here, or it is a script"))
}

/// Records, cuts into `images/image`, and puts the file itself and its compressed form beside it.
fn prepare(args: &Args, pagein: &Path, job: &Job, scratch: &Path, images: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(images)?;
    let recorded = if args.record.is_empty() { std::slice::from_ref(&args.job) } else { &args.record[..] };
    let mut split = Command::new(pagein);
    split.arg("split").arg(&job.path).arg(format!("--level={}", args.level));
    for (number, text) in recorded.iter().enumerate() {
        let other = self::job(text)?;
        if other.path != job.path {
            bail!("{text} is another program than {}", job.shown());
        }
        let trace = scratch.join(format!("{number}.trace"));
        let mut record = Command::new(pagein);
        record.arg("record").arg("-o").arg(&trace).arg("--").arg(&other.path).args(&other.args);
        // The job's own status says nothing: a linter's is not 0.
        record.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        split.arg("--trace").arg(trace);
    }
    let file = images.join("file");
    std::fs::copy(&job.path, &file)?;
    let mut compress = Command::new("zstd");
    compress.args(["-19", "-q", "-f"]).arg(&file);
    for mut command in [compress, {
        split.arg("-o").arg(images.join("image"));
        split
    }] {
        if !command.stdout(Stdio::null()).status()?.success() {
            bail!("{command:?} failed");
        }
    }
    Ok(())
}

/// The commands by which each way runs `"$@"` with the program's arguments; `$D` is a fresh directory.
fn script(way: &str) -> String {
    let url = "http://server.pagein:8080";
    match way {
        "raw" => {
            format!("curl -sf -o $D/file {url}/file && chmod +x $D/file && (exec -a \"$A\" $D/file \"$@\")")
        }
        "zstd" => format!(
            "curl -sf {url}/file.zst | zstd -dq -o $D/file && chmod +x $D/file && (exec -a \"$A\" $D/file \"$@\")"
        ),
        policy => format!(
            "\"$P\" run --policy {policy} --stats $D/stats --cache $D/cache --argv0 \"$A\" {url}/image -- \"$@\""
        ),
    }
}

fn one(pagein: &Path, images: &Path, job: &Job, link: (&str, &str), way: &str) -> anyhow::Result<Run> {
    let directory = tempfile::tempdir()?;
    // The clock runs inside: the emulator's own start is not measured.
    let commands = format!(
        "s=$(date +%s%N); {}; r=$?; e=$(date +%s%N); echo $s $e $r >$D/times",
        script(way).replace("$@\"", "$@\" </dev/null >/dev/null 2>$D/err")
    );
    let server = format!("'{}' serve --listen 0.0.0.0:8080 '{}'", pagein.display(), images.display());
    let mut command = Command::new(pagein);
    command.args([
        "net",
        "--bandwidth",
        link.0,
        "--rtt",
        link.1,
        "--server",
        &server,
        "--",
        "bash",
        "-c",
        &commands,
    ]);
    command.arg("bash").args(&job.args).env("D", directory.path()).env("A", &job.path).env("P", pagein);
    let output = command.stdin(Stdio::null()).output()?;
    let times = std::fs::read_to_string(directory.path().join("times")).with_context(|| {
        format!("{way} over {} x {}: {}", link.0, link.1, String::from_utf8_lossy(&output.stderr))
    })?;
    let times: Vec<u64> = times.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [start, end, code] = times[..] else { bail!("{way}: no times") };
    let errors = std::fs::read_to_string(directory.path().join("err")).unwrap_or_default();
    if (125..=127).contains(&code) || errors.contains("pagein:") {
        bail!("{way} over {} x {} ended with {code}: {errors}", link.0, link.1);
    }
    let stats = std::fs::read(directory.path().join("stats")).ok();
    let stats = stats.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    Ok(Run { seconds: end.saturating_sub(start) as f64 / 1e9, stats })
}

fn row(link: &str, way: &str, runs: &[Run]) -> String {
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let of = |key: &str| median(runs.iter().filter_map(|run| run.stats[key].as_f64()).collect());
    let count =
        |key: &str, unit: f64| of(key).map_or_else(String::new, |value| format!("{:.0}", value / unit));
    format!(
        "| {link} | {way} | {:.2} | {least:.2} | {} | {} | {} | {} |",
        median(seconds).unwrap_or_default(),
        count("wire_bytes", 1e3),
        count("requests", 1.0),
        count("demand_faults", 1.0),
        count("fill_bytes", 1e3)
    )
}
