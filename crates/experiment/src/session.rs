//! An experiment from its scenario to its report.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pagein_image::Digest;

use crate::child;
use crate::command;
use crate::directory::Directory;
use crate::error::ExperimentError;
use crate::figures;
use crate::grid::{self, Cell, Task};
use crate::host::Host;
use crate::predict::{self, Forecast};
use crate::prepare::{Candidate, Prepared, Tools};
use crate::progress::Progress;
use crate::real;
use crate::report;
use crate::results::{Outcome, Results, Row};
use crate::scenario::{LinkPoint, Mode, Scenario};
use crate::summary::{self, CellSummary};
use crate::work::work_through;

/// What to do.
#[derive(Debug, Clone)]
pub struct Config {
    /// The scenario file.
    pub scenario: PathBuf,
    /// Where results go; may hold those of an earlier start.
    pub output: PathBuf,
    /// The `pagein` command that is measured.
    pub pagein: PathBuf,
    /// Where fetched programs are.
    pub programs: PathBuf,
    /// Every cell in this mode, whatever the scenario says.
    pub mode: Option<Mode>,
    /// So many runs at a time, whatever the scenario says.
    pub parallel: Option<u32>,
    /// Make runs that have failed again.
    pub retry_failed: bool,
}

/// What an experiment came to.
#[derive(Debug)]
pub struct Finished {
    /// The report.
    pub report: PathBuf,
    /// Runs that are in the results.
    pub runs: usize,
    /// Those of them that failed.
    pub failed: usize,
    /// Cells left out because their program is not there.
    pub skipped: usize,
}

/// Makes every run that is not there yet, then the summary, the figures and the report.
///
/// The calling program must call [`run_if_child`](crate::run_if_child) first of all in `main`.
pub fn run(config: &Config) -> Result<Finished, ExperimentError> {
    let text = std::fs::read_to_string(&config.scenario)
        .map_err(|error| ExperimentError::file(&config.scenario, error))?;
    let mut scenario = Scenario::parse(&text, &config.scenario)?;
    scenario.parallel = config.parallel.unwrap_or(scenario.parallel);
    if let Some(mode) = config.mode {
        scenario.mode = mode;
        scenario.overrides.iter_mut().for_each(|rule| rule.mode = None);
    }
    let directory = Directory::open(&config.output, &scenario, &text)?;
    let (results, mut rows) = Results::open(&directory.path("results.csv"))?;
    let host = Host::this(&config.pagein).map_err(|error| ExperimentError::file(&config.pagein, error))?;
    let pagein_digest = std::fs::read(&config.pagein)
        .map(|bytes| Digest::of(&bytes).to_string())
        .map_err(|error| ExperimentError::file(&config.pagein, error))?;
    let base = config.scenario.parent().map(Path::to_owned).unwrap_or_default();
    let tools = Tools {
        pagein: &config.pagein,
        pagein_digest: &pagein_digest,
        programs: &config.programs,
        base: &base,
        directory: &directory,
        scenario: &scenario,
    };
    let candidates = prepare_all(&tools)?;
    check_unchanged(&candidates, &rows, &directory)?;
    let cells = grid::cells(&scenario);
    let forecasts = forecast_all(&tools, &cells, &candidates);
    if config.retry_failed {
        // Their rows stay: a run that failed has happened.
        rows.retain(|row| row.outcome == Outcome::Ok);
    }
    let session =
        Session { tools: &tools, host: &host, cells: &cells, candidates: &candidates, forecasts: &forecasts };
    session.make_runs(results, &rows)?;
    let (_, rows) = Results::open(&directory.path("results.csv"))?;
    let summaries: Vec<CellSummary> = cells
        .iter()
        .zip(&forecasts)
        .map(|(cell, forecast)| summary::summarise(cell, &rows, forecast.as_ref().ok()))
        .collect();
    directory.write("summary.csv", &summary::csv(&summaries))?;
    let figures = figures::draw_all(&scenario, &summaries)?;
    for figure in &figures {
        directory.write(&format!("{}.svg", figure.name), figure.svg.as_bytes())?;
    }
    let page = report::Page {
        scenario: &scenario,
        candidates: &candidates,
        summaries: &summaries,
        rows: &rows,
        figures: &figures,
    };
    directory.write("report.html", page.html().as_bytes())?;
    let is_missing = |cell: &&Cell| session.prepared(cell).is_none();
    Ok(Finished {
        report: directory.path("report.html"),
        runs: rows.len(),
        failed: rows.iter().filter(|row| row.outcome == Outcome::Failed).count(),
        skipped: cells.iter().filter(is_missing).count(),
    })
}

fn prepare_all<'a>(tools: &Tools<'a>) -> Result<Vec<Candidate<'a>>, ExperimentError> {
    let scenario: &'a Scenario = tools.scenario;
    let mut candidates = Vec::new();
    for program in &scenario.programs {
        eprintln!("preparing {}", program.name);
        let prepared = tools.prepare(program)?;
        if let Err(why) = &prepared {
            eprintln!("skipped: {}: {why}", program.name);
        }
        candidates.push(Candidate { program, prepared });
    }
    if candidates.iter().all(|candidate| candidate.prepared.is_err()) {
        let why: Vec<String> = candidates
            .iter()
            .filter_map(|candidate| {
                Some(format!("{}: {}", candidate.program.name, candidate.prepared.as_ref().err()?))
            })
            .collect();
        return Err(ExperimentError::Impossible(format!(
            "none of the programs can be run: {}",
            why.join("; ")
        )));
    }
    Ok(candidates)
}

/// Runs of two versions of a program are no repeats of each other.
fn check_unchanged(
    candidates: &[Candidate<'_>],
    rows: &[Row],
    directory: &Directory,
) -> Result<(), ExperimentError> {
    for candidate in candidates {
        let Ok(prepared) = &candidate.prepared else { continue };
        let other = |row: &&Row| {
            row.program == candidate.program.name
                && !row.program_digest.is_empty()
                && row.program_digest != prepared.digest
        };
        if rows.iter().any(|row| other(&row)) {
            return Err(ExperimentError::Directory {
                path: directory.path(""),
                why: format!("it holds runs of another version of {}", prepared.path.display()),
            });
        }
    }
    Ok(())
}

fn forecast_all(
    tools: &Tools<'_>,
    cells: &[Cell],
    candidates: &[Candidate<'_>],
) -> Vec<Result<Forecast, String>> {
    let mut models = std::collections::HashMap::new();
    for candidate in candidates.iter().filter(|candidate| candidate.prepared.is_ok()) {
        let name = candidate.program.name.as_str();
        models.insert(name, predict::Model::load(tools.directory, name));
    }
    let one = |cell: &Cell| match models.get(cell.program.as_str()) {
        None => Err("the program is not there".to_owned()),
        Some(Err(why)) => Err(why.clone()),
        Some(Ok(model)) => tools.scenario.link(cell.point).map(|link| model.forecast(cell.scheme, &link)),
    };
    cells.iter().map(one).collect()
}

struct Session<'a> {
    tools: &'a Tools<'a>,
    host: &'a Host,
    cells: &'a [Cell],
    candidates: &'a [Candidate<'a>],
    forecasts: &'a [Result<Forecast, String>],
}

impl Session<'_> {
    fn prepared(&self, cell: &Cell) -> Option<(&Candidate<'_>, &Prepared)> {
        let candidate = self.candidates.iter().find(|candidate| candidate.program.name == cell.program)?;
        Some((candidate, candidate.prepared.as_ref().ok()?))
    }

    fn make_runs(&self, results: Results, rows: &[Row]) -> Result<(), ExperimentError> {
        let possible = |task: &Task| self.prepared(&self.cells[task.cell]).is_some();
        let all: Vec<Task> =
            grid::order(self.cells, self.tools.scenario.seed).into_iter().filter(possible).collect();
        let is_missing =
            |task: &Task| !rows.iter().any(|row| row.is_run_of(&self.cells[task.cell], task.repeat));
        let missing: Vec<Task> = all.iter().copied().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let kept = all.len() - missing.len();
        if kept > 0 {
            eprintln!("{kept} of {} runs are there already", all.len());
        }
        if missing.iter().any(|task| self.cells[task.cell].mode == Mode::Real) {
            self.probe()?;
        }
        let done = std::sync::Arc::new(AtomicUsize::new(kept));
        tell_when_interrupted(&done, all.len());
        let weight: f64 = missing.iter().map(|&task| self.weight(task)).sum();
        let progress = Progress::new(kept, all.len(), weight, self.tools.scenario.parallel);
        let results = Mutex::new(results);
        let outcome = work_through(missing, self.tools.scenario.parallel as usize, |task| {
            let started = Instant::now();
            let row = self.make(task);
            let mut results = results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            results.append(&row)?;
            drop(results);
            done.fetch_add(1, Ordering::SeqCst);
            let outcome = match row.outcome {
                Outcome::Ok => Ok(row.total_ms.unwrap_or(0.0)),
                Outcome::Failed => Err(row.reason.as_str()),
            };
            let cell = &self.cells[task.cell];
            let mode = if cell.mode == Mode::Simulated { " (simulated)" } else { "" };
            let shown = format!("{cell}{mode}, run {} of {}", task.repeat, cell.repeats);
            progress.finished(&shown, &outcome, self.weight(task), started.elapsed());
            Ok(())
        });
        progress.end();
        outcome
    }

    fn make(&self, task: Task) -> Row {
        let cell = &self.cells[task.cell];
        let (candidate, prepared) = self.prepared(cell).expect("impossible tasks are left out");
        match cell.mode {
            Mode::Real => real::run(self.tools, self.host, candidate.program, prepared, cell, task.repeat),
            Mode::Simulated => {
                let mut row = real::blank(self.tools, self.host, cell, task.repeat);
                row.program_digest.clone_from(&prepared.digest);
                predict::fill(&mut row, &self.forecasts[task.cell]);
                row
            }
        }
    }

    /// Seconds that a run is likely to take; only ratios matter once some have ended.
    fn weight(&self, task: Task) -> f64 {
        /// Namespaces, server and processes of a run, seconds.
        const SET_UP: f64 = 0.3;
        let cell = &self.cells[task.cell];
        match (cell.mode, &self.forecasts[task.cell]) {
            (Mode::Simulated, _) => 1e-3,
            (Mode::Real, Ok(forecast)) => SET_UP + forecast.total_ms / 1e3,
            (Mode::Real, Err(_)) => SET_UP + guess(cell.point),
        }
    }

    /// Whether links can be emulated here at all: better said once than in every row.
    fn probe(&self) -> Result<(), ExperimentError> {
        let mut command = child::command(self.tools.pagein);
        command.args(["net", "--rtt=1ms", "--", "true"]);
        let done = command::run(&mut command, Duration::from_secs(20));
        let why = match done {
            Ok(output) if output.status == Some(0) => return Ok(()),
            Ok(output) => output.last_words(),
            Err(error) => error.to_string(),
        };
        Err(ExperimentError::Impossible(format!(
            "no link can be emulated here: {why}; --mode simulated needs none"
        )))
    }
}

/// Seconds for half a megabyte and ten round trips.
fn guess(point: LinkPoint) -> f64 {
    4e6 / point.bandwidth.bits_per_second() as f64 + 10.0 * point.rtt.as_secs_f64()
}

/// Ctrl-C ends the process as `kill -9` does: finished runs are on the disk, runs that are going on die with it. It only says so.
fn tell_when_interrupted(done: &std::sync::Arc<AtomicUsize>, total: usize) {
    let done = std::sync::Arc::clone(done);
    // An error means that somebody else listens already: then they decide.
    let _ = ctrlc::set_handler(move || {
        let done = done.load(Ordering::SeqCst);
        eprintln!(
            "\npagein: interrupted; {done} of {total} runs are kept, the same command goes on from there"
        );
        std::process::exit(130);
    });
}
