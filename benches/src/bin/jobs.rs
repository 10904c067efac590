//! What the recorded jobs of a program tell of each other and of jobs that were not recorded: an image is cut with some of them, and all
//! are replayed over a link. With `--against` the same for an older `pagein`, as ratios.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use pagein_benches::fluid::{Layout, Replayed, Sides, replay};
use pagein_benches::report::median;
use pagein_benches::stage;
use pagein_image::{PageNo, page_count};
use pagein_model::{Link, Trace};
use pagein_simnet::replay::Job;

/// Replay recorded jobs and others. `benches/scenarios/record-jobs` makes the traces.
#[derive(Parser)]
struct Args {
    /// Directory with PROGRAM/*.trace
    traces: PathBuf,
    /// Only these programs
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    program: Vec<String>,
    /// How many jobs are recorded
    #[arg(long, value_delimiter = ',', default_value = "1,2,3")]
    recorded: Vec<usize>,
    /// Sets of recorded jobs of each size, evenly chosen from all
    #[arg(long, default_value_t = 4)]
    sets: usize,
    /// zstd level of the images
    #[arg(long, default_value_t = 3)]
    level: i32,
    /// Clusters on one side only of what is demanded
    #[arg(long)]
    behind: bool,
    /// The pagein command [default: the one beside this program]
    #[arg(long)]
    pagein: Option<PathBuf>,
    /// Another one to compare with
    #[arg(long, value_name = "PAGEIN")]
    against: Option<PathBuf>,
    /// Only say how many pages jobs have in common
    #[arg(long)]
    pages: bool,
}

/// Mbit/s and ms.
const LINKS: [(u32, u32); 6] = [(1, 20), (10, 20), (10, 100), (100, 1), (100, 20), (100, 100)];
/// Two recordings with more of their pages in common are of one job.
const SAME: f64 = 0.99;

struct Subject {
    name: String,
    path: PathBuf,
    files: Vec<PathBuf>,
    jobs: Vec<Job>,
    sets: Vec<HashSet<PageNo>>,
    pages: u32,
}

/// Of one recorded set, one job and one link.
struct Cell {
    new: Replayed,
    old: Option<Replayed>,
}

/// Recorded jobs, whether the job is one of them, number of the link; then the program.
type Cells = BTreeMap<(usize, bool, usize), BTreeMap<String, Vec<Cell>>>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&args.traces).with_context(|| args.traces.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    names.retain(|name| args.program.is_empty() || args.program.contains(name));
    let mut subjects = Vec::new();
    for name in names {
        subjects.extend(read(&args.traces.join(&name), &name)?);
    }
    common(&args, &subjects);
    if args.pages {
        return Ok(());
    }
    let mut pagein = vec![args.pagein.clone().map_or_else(stage::pagein_command, Ok)?];
    pagein.extend(args.against.clone());
    let mut cells = Cells::new();
    for subject in &subjects {
        eprintln!("{}", subject.name);
        measure(&args, &pagein, subject, &mut cells)?;
    }
    tables(&cells);
    Ok(())
}

fn read(directory: &Path, name: &str) -> anyhow::Result<Option<Subject>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(None) };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "trace"));
    files.sort();
    let Some(first) = files.first() else { return Ok(None) };
    let of = |file: &Path| anyhow::Ok(std::fs::read_to_string(file)?.parse::<Trace>()?);
    let program = of(first)?;
    let mut subject = Subject {
        name: name.to_owned(),
        path: program.program.into(),
        files: Vec::new(),
        jobs: Vec::new(),
        sets: Vec::new(),
        pages: page_count(program.size),
    };
    for file in files {
        let trace = of(&file)?;
        let set: HashSet<PageNo> = trace.pages().collect();
        let is_like = |other: &HashSet<PageNo>| {
            other.intersection(&set).count() as f64 >= SAME * other.union(&set).count() as f64
        };
        if !subject.sets.iter().any(is_like) {
            subject.jobs.push(Job::from_trace(&trace));
            subject.sets.push(set);
            subject.files.push(file);
        }
    }
    Ok(Some(subject))
}

/// Sets of `size` of the first `count` numbers, at most `limit`, evenly chosen.
fn choices(count: usize, size: usize, limit: usize) -> Vec<Vec<usize>> {
    let all: Vec<Vec<usize>> = (0u32..1 << count)
        .filter(|bits| bits.count_ones() as usize == size)
        .map(|bits| (0..count).filter(|job| bits >> job & 1 == 1).collect())
        .collect();
    let taken = all.len().min(limit);
    (0..taken).map(|number| all[number * all.len() / taken].clone()).collect()
}

/// What the constants of the model rest on, from the traces alone.
fn common(args: &Args, subjects: &[Subject]) {
    println!(
        "| program | jobs | share of its pages that one touches | unseen | useful in 4, 16, 64 cold pages |"
    );
    println!("|---|---|---|---|---|");
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for subject in subjects {
        let touched = subject.sets.iter().map(|set| set.len() as f64 / f64::from(subject.pages));
        let touched = median(touched.collect()).unwrap_or_default();
        all.entry("share touched".into()).or_default().push(touched);
        let (mut unseen, mut useful) = (Vec::new(), Vec::new());
        for &recorded in &args.recorded {
            let mut shares = Vec::new();
            let mut exponents = [4, 16, 64].map(|size| (size, Vec::new()));
            for chosen in choices(subject.sets.len(), recorded, usize::MAX) {
                let seen: HashSet<PageNo> =
                    chosen.iter().flat_map(|job| &subject.sets[*job]).copied().collect();
                let mut left = (0..subject.pages).map(PageNo).filter(|page| !seen.contains(page));
                let rank: BTreeMap<PageNo, u32> = left.by_ref().zip(0..).collect();
                for (_, set) in subject.sets.iter().enumerate().filter(|(job, _)| !chosen.contains(job)) {
                    let cold: Vec<u32> = set.iter().filter_map(|page| rank.get(page).copied()).collect();
                    shares.push(cold.len() as f64 / seen.len() as f64);
                    // A handful says nothing of neighbours.
                    if cold.len() >= 10 {
                        for (size, found) in &mut exponents {
                            let groups: HashSet<u32> = cold.iter().map(|rank| rank / *size).collect();
                            let useful = cold.len() as f64 / groups.len() as f64;
                            found.push(useful.ln() / f64::from(*size).ln());
                        }
                    }
                }
            }
            let share = mean(&shares);
            all.entry(format!("unseen, {recorded} recorded")).or_default().extend(share);
            unseen.push(share.map_or("-".into(), |share| format!("{share:.2}")));
            let exponents = exponents.map(|(size, found)| (size, mean(&found)));
            for (size, found) in exponents {
                let key = format!("exponent of useful in {size}, {recorded} recorded");
                all.entry(key).or_default().extend(found);
            }
            useful
                .push(exponents.map(|(_, found)| found.map_or("-".into(), |e| format!("{e:.2}"))).join(" "));
        }
        println!(
            "| {} | {} | {touched:.2} | {} | {} |",
            subject.name,
            subject.sets.len(),
            unseen.join(", "),
            useful.join(", ")
        );
    }
    for (what, values) in all {
        println!("median over programs, {what}: {:.3}", median(values).unwrap_or(f64::NAN));
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn measure(args: &Args, pagein: &[PathBuf], subject: &Subject, cells: &mut Cells) -> anyhow::Result<()> {
    let sides = if args.behind { Sides::Behind } else { Sides::Both };
    for &recorded in &args.recorded {
        for chosen in choices(subject.jobs.len(), recorded, args.sets) {
            let layouts: Vec<Layout> =
                pagein.iter().map(|pagein| cut(args, pagein, subject, &chosen)).collect::<Result<_, _>>()?;
            for (number, job) in subject.jobs.iter().enumerate() {
                for (at, (mbit, ms)) in LINKS.into_iter().enumerate() {
                    let link = Link {
                        bandwidth: f64::from(mbit) * 125e3,
                        round_trip: Duration::from_millis(ms.into()),
                    };
                    // The older one knows one side only.
                    let new = replay(&layouts[0], job, &link, sides);
                    let old = layouts.get(1).map(|layout| replay(layout, job, &link, Sides::Behind));
                    let of_kind = cells.entry((recorded, chosen.contains(&number), at)).or_default();
                    of_kind.entry(subject.name.clone()).or_default().push(Cell { new, old });
                }
            }
        }
    }
    Ok(())
}

fn cut(args: &Args, pagein: &Path, subject: &Subject, chosen: &[usize]) -> anyhow::Result<Layout> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("image");
    let mut command = Command::new(pagein);
    command.arg("split").arg(&subject.path).arg(format!("--level={}", args.level)).arg("--no-paged");
    for job in chosen {
        command.arg("--trace").arg(&subject.files[*job]);
    }
    command.arg("-o").arg(&image).stdin(Stdio::null()).stdout(Stdio::null());
    if !command.status()?.success() {
        bail!("{command:?} failed");
    }
    Layout::read(&image)
}

fn tables(cells: &Cells) {
    println!(
        "\n| recorded | job | link | time, new / old: median | worst program | worst run | requests | demanded kB | `hot` \
         up to its last page / its bytes |\n|---|---|---|---|---|---|---|---|---|"
    );
    for ((recorded, is_recorded, link), programs) in cells {
        let ratio = |cell: &Cell| cell.old.map(|old| cell.new.time / old.time);
        let mut ratios: Vec<(f64, &String)> = Vec::new();
        for (name, cells) in programs {
            let logs: Vec<f64> = cells.iter().filter_map(ratio).map(f64::ln).collect();
            ratios.extend(mean(&logs).map(|mean| (mean.exp(), name)));
        }
        let worst_run = programs.values().flatten().filter_map(ratio).fold(0.0, f64::max);
        let worst = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
        // Each program counts once.
        let of = |which: &dyn Fn(&Cell) -> Option<Replayed>, what: &dyn Fn(&Replayed) -> f64| {
            let means = programs.values().filter_map(|cells| {
                mean(&cells.iter().filter_map(which).map(|done| what(&done)).collect::<Vec<_>>())
            });
            median(means.collect()).map_or(String::new(), |value| format!("{value:.2}"))
        };
        let pair = |what: &dyn Fn(&Replayed) -> f64| {
            let (old, new) = (of(&|cell| cell.old, what), of(&|cell| Some(cell.new), what));
            if old.is_empty() { new } else { format!("{old} -> {new}") }
        };
        println!(
            "| {recorded} | {} | {} Mbit/s x {} ms | {:.3} | {} | {worst_run:.2} | {} | {} | {} |",
            if *is_recorded { "recorded" } else { "another" },
            LINKS[*link].0,
            LINKS[*link].1,
            median(ratios.iter().map(|(ratio, _)| *ratio).collect()).unwrap_or(f64::NAN),
            worst.map_or(String::new(), |(ratio, name)| format!("{ratio:.2} {name}")),
            pair(&|done| done.requests),
            pair(&|done| done.demanded / 1e3),
            pair(&|done| done.prefix / done.own),
        );
    }
}
