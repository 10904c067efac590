//! What each program needs before its runs: traces of the recorded jobs, an image cut with them, a trace of the measured job
//! (for predictions), and what the measured job does locally. Kept in the output directory: a resumed experiment uses it again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pagein_image::Digest;
use serde::{Deserialize, Serialize};

use crate::child;
use crate::command::{self, Output};
use crate::directory::{Directory, replace};
use crate::error::ExperimentError;
use crate::scenario::{Compare, Location, Program, Scenario};

/// Local runs of the measured job: the first warms the page cache.
const LOCAL_RUNS: usize = 4;

/// What is known of a program that can be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// Everything that this depends on.
    key: String,
    /// The program file.
    pub path: PathBuf,
    /// Its BLAKE3 digest.
    pub digest: String,
    /// Its size, bytes.
    pub size: u64,
    /// Exit status of the measured job.
    pub status: i32,
    /// Digest of its standard output.
    pub stdout: String,
    /// Median time of the measured job here, from the page cache, ms.
    pub local_ms: f64,
    /// Pages that the measured job touches.
    pub measured_pages: usize,
    /// Those of them that no recorded job touches.
    pub unforeseen_pages: usize,
}

impl Prepared {
    /// Whether a run did what the local one did; if not, why not.
    pub(crate) fn compare(&self, compare: Compare, output: &Output) -> Result<(), String> {
        if output.status != Some(self.status) {
            let status = output.status.map_or("none".to_owned(), |status| status.to_string());
            let said = output.last_words();
            return Err(format!("exit status {status} instead of {}: {said}", self.status));
        }
        let same = Digest::of(&output.stdout).to_string() == self.stdout;
        if compare == Compare::Output && !same {
            return Err(format!("its output ({} bytes) is not that of the local run", output.stdout.len()));
        }
        Ok(())
    }
}

/// A program and what became of it.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    /// As in the scenario.
    pub program: &'a Program,
    /// What is needed for its runs, or why it cannot be run.
    pub prepared: Result<Prepared, String>,
}

/// Where things are that the jobs of all programs need.
#[derive(Debug)]
pub(crate) struct Tools<'a> {
    /// The `pagein` command.
    pub(crate) pagein: &'a Path,
    /// Its digest.
    pub(crate) pagein_digest: &'a str,
    /// Where fetched programs are.
    pub(crate) programs: &'a Path,
    /// Paths of the scenario file are relative to this.
    pub(crate) base: &'a Path,
    pub(crate) directory: &'a Directory,
    pub(crate) scenario: &'a Scenario,
}

impl Tools<'_> {
    /// `program` with the environment in which all its jobs run.
    pub(crate) fn command(&self, program: &Program, executable: &Path, scratch: &Path) -> Command {
        let work = self.directory.work(&program.name);
        let mut command = child::command(executable);
        command.current_dir(&work).env("HOME", &work).env("TMPDIR", scratch).env("LC_ALL", "C");
        command.envs(&program.env);
        command
    }

    /// Prepares a program, or takes what an earlier start prepared.
    pub(crate) fn prepare(&self, program: &Program) -> Result<Result<Prepared, String>, ExperimentError> {
        let Some(path) = self.find(&program.location) else {
            return Ok(Err(self.missing(&program.location)));
        };
        let bytes = fs::read(&path).map_err(|error| ExperimentError::file(&path, error))?;
        let digest = Digest::of(&bytes).to_string();
        let spec = serde_json::to_string(program).expect("plain data");
        let key = format!("{digest} {} {} {spec}", self.scenario.level, self.pagein_digest);
        let key = Digest::of(key.as_bytes()).to_string();
        let home = self.directory.program(&program.name);
        let record = home.join("prepared.json");
        let known = fs::read(&record).ok().and_then(|bytes| serde_json::from_slice::<Prepared>(&bytes).ok());
        if let Some(known) = known.filter(|known| known.key == key) {
            return Ok(Ok(known));
        }
        for directory in [&home, &self.directory.work(&program.name)] {
            let _ = fs::remove_dir_all(directory);
            fs::create_dir_all(directory).map_err(|error| ExperimentError::file(directory, error))?;
        }
        let made = self.make(program, &path, &home).map(|made| Prepared {
            key,
            path,
            digest,
            size: bytes.len() as u64,
            ..made
        });
        if let Ok(made) = &made {
            let json = serde_json::to_vec_pretty(made).expect("plain data");
            replace(&record, &json).map_err(|error| ExperimentError::file(&record, error))?;
        }
        Ok(made)
    }

    fn make(&self, program: &Program, path: &Path, home: &Path) -> Result<Prepared, String> {
        let scratch = self.directory.scratch();
        if let Some(setup) = &program.setup {
            let mut shell = self.command(program, Path::new("/bin/sh"), &scratch);
            self.succeed(shell.args(["-c", setup]), "its setup")?;
        }
        let mut recorded = Vec::new();
        for (index, job) in program.recorded.iter().enumerate() {
            recorded.push(self.record(
                program,
                path,
                job,
                home.join(format!("recorded{}.trace", index + 1)),
            )?);
        }
        let measured = self.record(program, path, &program.measured, home.join("measured.trace"))?;
        let mut split = self.command(program, self.pagein, &scratch);
        split.arg("split").arg(path).arg("-o").arg(self.directory.images().join(&program.name));
        split.arg(format!("--level={}", self.scenario.level));
        for trace in &recorded {
            split.arg("--trace").arg(&trace.0);
        }
        self.succeed(&mut split, "pagein split")?;
        let mut times = Vec::new();
        let mut last = None;
        for _ in 0..LOCAL_RUNS {
            let mut local = self.command(program, path, &scratch);
            let output = self.run(local.args(&program.measured))?;
            let outcome = (output.status, Digest::of(&output.stdout).to_string());
            let compared =
                if program.compare == Compare::Output { outcome.clone() } else { (outcome.0, String::new()) };
            let before = last.replace((compared.clone(), outcome));
            if before.is_some_and(|(before, _)| before != compared) {
                return Err(
                    "two local runs of the measured job differ in output or status; choose another job, or write compare = \"status\""
                        .to_owned(),
                );
            }
            times.push(output.time.as_secs_f64() * 1e3);
        }
        let (_, (status, stdout)) = last.expect("there was one");
        let status = status.ok_or("the measured job does not end within the time limit")?;
        times[1..].sort_by(f64::total_cmp);
        let known: std::collections::HashSet<u32> =
            recorded.iter().flat_map(|(_, trace)| trace.pages().map(|page| page.0)).collect();
        let unforeseen = measured.1.pages().filter(|page| !known.contains(&page.0)).count();
        Ok(Prepared {
            key: String::new(),
            path: path.to_owned(),
            digest: String::new(),
            size: 0,
            status,
            stdout,
            local_ms: times[times.len().div_ceil(2)],
            measured_pages: measured.1.touches.len(),
            unforeseen_pages: unforeseen,
        })
    }

    fn record(
        &self,
        program: &Program,
        path: &Path,
        job: &[String],
        output: PathBuf,
    ) -> Result<(PathBuf, pagein_model::Trace), String> {
        let mut record = self.command(program, self.pagein, &self.directory.scratch());
        record.arg("record").arg("-o").arg(&output).arg("--").arg(path).args(job);
        let done = self.run(&mut record)?;
        let text = fs::read_to_string(&output)
            .map_err(|_| format!("recording {job:?} left no trace: {}", done.last_words()))?;
        let trace = text.parse().map_err(|error| format!("{}: {error}", output.display()))?;
        Ok((output, trace))
    }

    fn succeed(&self, command: &mut Command, what: &str) -> Result<(), String> {
        let output = self.run(command)?;
        if output.status == Some(0) { Ok(()) } else { Err(format!("{what} failed: {}", output.last_words())) }
    }

    fn run(&self, command: &mut Command) -> Result<Output, String> {
        // Cutting a program of 100 MB takes its time, whatever the limit of a run is.
        let limit = self.scenario.time_limit.max(Duration::from_secs(900));
        command::run(command, limit).map_err(|error| format!("cannot start a command: {error}"))
    }

    fn find(&self, location: &Location) -> Option<PathBuf> {
        let candidates: Vec<PathBuf> = match location {
            Location::Path(path) if path.components().count() == 1 => {
                let directories = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&directories).map(|directory| directory.join(path)).collect()
            }
            Location::Path(path) => vec![self.base.join(path)],
            Location::Fetched(name) => vec![self.programs.join(name)],
        };
        // Managers of versions put scripts before the program.
        let is_elf = |path: &PathBuf| {
            let mut magic = [0; 4];
            let read =
                fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
            read.is_ok() && magic == *b"\x7fELF"
        };
        // Not resolved: some programs are several, by the name that they are called by.
        candidates.into_iter().filter_map(|path| std::path::absolute(path).ok()).find(is_elf)
    }

    fn missing(&self, location: &Location) -> String {
        match location {
            Location::Path(path) if path.components().count() == 1 => {
                format!("no ELF program {} in PATH", path.display())
            }
            Location::Path(path) => format!("no ELF program at {}", self.base.join(path).display()),
            Location::Fetched(name) => format!(
                "no ELF program {}: run benches/scenarios/fetch, or give its directory with --programs",
                self.programs.join(name).display()
            ),
        }
    }
}
