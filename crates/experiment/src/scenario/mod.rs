//! What an experiment consists of: the scenario file, read and checked.
//!
//! A file is read in two steps. `raw.rs` says which keys there are and reads each value with its place in the file;
//! `check.rs` looks at what only several values together can get wrong. `docs/experiment.md` lists every key.

mod check;
mod error;
mod raw;
mod value;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagein_image::Digest;
use pagein_simnet::net::NetArgs;
use pagein_simnet::units::{Bandwidth, format_duration};
use serde::{Deserialize, Serialize};

pub use error::ScenarioError;
pub use value::{Scheme, UnknownScheme};

/// Where a cell's figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// `pagein run` behind `pagein net`.
    Real,
    /// The replay simulator, in virtual time.
    Simulated,
}

impl Mode {
    /// As in scenarios and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Simulated => "simulated",
        }
    }
}

/// What of a run must equal the local run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compare {
    /// Standard output and exit status.
    #[default]
    Output,
    /// The exit status: for programs that print times or process numbers.
    Status,
}

/// A program and its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its name in results; also that of its image.
    pub name: String,
    /// Where it is.
    pub location: Location,
    /// Arguments of each job that the image is cut with.
    pub recorded: Vec<Vec<String>>,
    /// Arguments of the job that is measured.
    pub measured: Vec<String>,
    /// A shell command that fills the jobs' working directory, once.
    pub setup: Option<String>,
    /// What is added to the jobs' environment.
    pub env: BTreeMap<String, String>,
    /// What must equal the local run.
    pub compare: Compare,
}

/// Where a program is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Location {
    /// A path, or a name to be found in PATH.
    Path(PathBuf),
    /// The name of a file in the directory of fetched programs.
    Fetched(String),
}

/// What the links of a grid have in common; `None` is what `pagein net` does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Conditions {
    /// As `--loss`.
    pub loss: Option<String>,
    /// As `--queue`.
    pub queue: Option<String>,
    /// As `--jitter`.
    pub jitter: Option<String>,
    /// As `--uplink`.
    pub uplink: Option<String>,
    /// As `--congestion`.
    pub congestion: Option<String>,
}

impl Conditions {
    /// As options of `pagein net`.
    pub fn options(&self) -> Vec<String> {
        let all = [
            ("--loss", &self.loss),
            ("--queue", &self.queue),
            ("--jitter", &self.jitter),
            ("--uplink", &self.uplink),
            ("--congestion", &self.congestion),
        ];
        let given = all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.flat_map(|(name, value)| [name.to_owned(), value.clone()]).collect()
    }
}

/// One link of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkPoint {
    /// Rate, bit/s.
    pub bandwidth: Bandwidth,
    /// Round trip.
    pub rtt: Duration,
}

impl LinkPoint {
    /// Bandwidth x round trip, bytes: what equation 3 of the paper compares with.
    pub fn product(&self) -> f64 {
        self.bandwidth.bits_per_second() as f64 / 8.0 * self.rtt.as_secs_f64()
    }
}

impl std::fmt::Display for LinkPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.bandwidth, format_duration(self.rtt))
    }
}

/// Cells that differ from the rest: those that match every list that is not empty.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Override {
    /// Names of programs.
    pub programs: Vec<String>,
    /// Policies.
    pub policies: Vec<Scheme>,
    /// Rates, bit/s.
    pub bandwidths: Vec<u64>,
    /// Round trips.
    pub rtts: Vec<Duration>,
    /// Instead of the scenario's mode.
    pub mode: Option<Mode>,
    /// Instead of the scenario's repeats.
    pub repeats: Option<u32>,
    /// Leave these cells out.
    pub skip: bool,
}

/// A checked scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// Its name, for people.
    pub name: String,
    /// What it is for, for people.
    pub description: String,
    /// Mode of the cells that no override names.
    pub mode: Mode,
    /// Runs of each cell that no override names.
    pub repeats: u32,
    /// Runs at the same time, of different cells.
    #[serde(skip)]
    pub parallel: u32,
    /// Of the order of the runs, and of losses and jitter.
    pub seed: u64,
    /// A run that takes longer has failed.
    pub time_limit: Duration,
    /// zstd level of the images.
    pub level: i32,
    /// The policies.
    pub policies: Vec<Scheme>,
    /// Rates, bit/s, ascending.
    pub bandwidths: Vec<u64>,
    /// Round trips, ascending.
    pub rtts: Vec<Duration>,
    /// What is the same on all links.
    pub conditions: Conditions,
    /// The programs.
    pub programs: Vec<Program>,
    /// Later ones win.
    pub overrides: Vec<Override>,
}

impl Scenario {
    /// Reads a scenario; `file` is what errors call it.
    pub fn parse(text: &str, file: &Path) -> Result<Self, ScenarioError> {
        let raw = raw::read(text).map_err(|error| ScenarioError::from_toml(&error, text, file))?;
        check::check(raw).map_err(|mistake| mistake.at(text, file))
    }

    /// Names everything that decides what is measured; not how many runs go on at the same time.
    pub fn digest(&self) -> String {
        let json = serde_json::to_vec(self).expect("a scenario is plain data");
        Digest::of(&json).to_string()
    }

    /// A link of the grid as the simulator takes it.
    pub fn link(&self, path: LinkPoint) -> Result<pagein_simnet::link::Link, String> {
        net_args(&self.conditions, path, self.seed).and_then(|args| {
            let config = args.into_config().map_err(|error| error.to_string())?;
            Ok(config.link)
        })
    }
}

/// The options of `pagein net` for a link.
fn net_args(conditions: &Conditions, path: LinkPoint, seed: u64) -> Result<NetArgs, String> {
    fn read<T: std::str::FromStr<Err = E>, E: std::fmt::Display>(
        text: Option<&String>,
    ) -> Result<Option<T>, String> {
        text.map(|text| text.parse::<T>().map_err(|error| error.to_string())).transpose()
    }
    Ok(NetArgs {
        bandwidth: Some(path.bandwidth),
        uplink: read(conditions.uplink.as_ref())?,
        rtt: path.rtt,
        jitter: read(conditions.jitter.as_ref())?,
        loss: read(conditions.loss.as_ref())?,
        queue: read(conditions.queue.as_ref())?,
        trace: None,
        uplink_trace: None,
        seed,
        congestion: conditions.congestion.clone().unwrap_or_else(|| "cubic".to_owned()),
        server: None,
        log: None,
        command: vec!["true".into()],
    })
}
