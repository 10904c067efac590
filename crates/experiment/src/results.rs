//! `results.csv`: one row per run, written when the run ends.
//!
//! A row is one write to a file opened for appending, then synced; a machine that stops leaves at most one torn line, which
//! the next start drops. No field holds a line break, so a line is a row.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::scenario::Mode;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The program did what it does locally.
    Ok,
    /// It did not; `reason` says what happened.
    Failed,
}

/// One run. Fields are empty where there is nothing to say (a failed run, a simulated one).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Real or simulated.
    pub mode: Mode,
    /// The program's name in the scenario.
    pub program: String,
    /// The policy asked for.
    pub policy: String,
    /// Rate of the link, bit/s.
    pub bandwidth_bps: u64,
    /// Round trip of the link, ms.
    pub rtt_ms: f64,
    /// Which run of its cell, from 1.
    pub repeat: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub reason: String,
    /// When it started, seconds since 1970.
    pub started_unix: f64,
    /// Start of `pagein run` to the program's end, ms.
    pub total_ms: Option<f64>,
    /// Start of `pagein run` to the program's first instruction, ms.
    pub exec_ms: Option<f64>,
    /// Bytes of response bodies.
    pub wire_bytes: Option<u64>,
    /// Those of them that came without being asked for page by page: manifest and hot frames, or the whole file.
    pub hot_bytes: Option<u64>,
    /// Requests made.
    pub requests: Option<u64>,
    /// Pages of the program file.
    pub pages_total: Option<u64>,
    /// Pages that were there at the end.
    pub pages_installed: Option<u64>,
    /// Faults that reached the pager.
    pub faults: Option<u64>,
    /// Faults on pages that had to be requested.
    pub demand_faults: Option<u64>,
    /// Rate that the run itself saw, bytes/s.
    pub seen_bandwidth: Option<f64>,
    /// Round trip that the run itself saw, ms.
    pub seen_rtt_ms: Option<f64>,
    /// The program's exit status.
    pub exit_status: Option<i32>,
    /// The policy used: differs for `auto`.
    pub policy_used: String,
    /// All that `--stats` wrote, JSON.
    pub stats: String,
    /// Runs at the same time, this one included, at most.
    pub parallel: u32,
    /// The machine's load (1 minute) when the run ended.
    pub load: f64,
    /// The machine's name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor.
    pub processor: String,
    /// Version of pagein.
    pub pagein: String,
    /// BLAKE3 of the program file.
    pub program_digest: String,
    /// The command line.
    pub command: String,
}

impl Row {
    /// Whether this is run `repeat` of that cell.
    pub fn is_run_of(&self, cell: &crate::grid::Cell, repeat: u32) -> bool {
        self.repeat == repeat && self.is_of(cell)
    }

    /// Whether this is a run of that cell.
    pub fn is_of(&self, cell: &crate::grid::Cell) -> bool {
        self.program == cell.program
            && self.policy == cell.scheme.name()
            && self.bandwidth_bps == cell.point.bandwidth.bits_per_second()
            && (self.rtt_ms - cell.point.rtt.as_secs_f64() * 1e3).abs() < 1e-9
            && self.mode == cell.mode
    }
}

/// The file.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    file: File,
}

impl Results {
    /// Opens or creates the file and reads what is there; a last line without an end is cut off.
    pub fn open(path: &Path) -> Result<(Self, Vec<Row>), ExperimentError> {
        let at = |error| ExperimentError::file(path, error);
        let mut file = File::options().read(true).append(true).create(true).open(path).map_err(at)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(at)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(at)?;
            bytes.truncate(whole);
        }
        let rows = parse(&bytes).map_err(|why| ExperimentError::Results { path: path.to_owned(), why })?;
        if bytes.is_empty() {
            file.write_all(&header()).map_err(at)?;
        }
        file.sync_all().map_err(at)?;
        Ok((Self { path: path.to_owned(), file }, rows))
    }

    /// Adds a run.
    pub fn append(&mut self, row: &Row) -> Result<(), ExperimentError> {
        let line = line(row);
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .map_err(|error| ExperimentError::file(&self.path, error))
    }
}

/// Reads whole lines.
pub fn parse(bytes: &[u8]) -> Result<Vec<Row>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    if !bytes.starts_with(&header()) {
        return Err("its first line is not that of this version of pagein; use another directory".to_owned());
    }
    let mut reader = csv::Reader::from_reader(bytes);
    reader.deserialize().collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// One line of text: line breaks and other control characters would tear it.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn header() -> Vec<u8> {
    let sample = encode(&Row::blank(), true);
    let end = sample.iter().position(|&byte| byte == b'\n').expect("a header ends");
    sample[..=end].to_vec()
}

fn line(row: &Row) -> Vec<u8> {
    encode(row, false)
}

fn encode(row: &Row, headers: bool) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new().has_headers(headers).from_writer(Vec::new());
    writer.serialize(row).expect("a row is flat");
    writer.into_inner().expect("memory does not fail")
}

impl Row {
    /// A row in which only what every row must have is to be filled in.
    pub(crate) fn blank() -> Self {
        Self {
            mode: Mode::Real,
            program: String::new(),
            policy: String::new(),
            bandwidth_bps: 0,
            rtt_ms: 0.0,
            repeat: 0,
            outcome: Outcome::Failed,
            reason: String::new(),
            started_unix: 0.0,
            total_ms: None,
            exec_ms: None,
            wire_bytes: None,
            hot_bytes: None,
            requests: None,
            pages_total: None,
            pages_installed: None,
            faults: None,
            demand_faults: None,
            seen_bandwidth: None,
            seen_rtt_ms: None,
            exit_status: None,
            policy_used: String::new(),
            stats: String::new(),
            parallel: 1,
            load: 0.0,
            host: String::new(),
            kernel: String::new(),
            processor: String::new(),
            pagein: String::new(),
            program_digest: String::new(),
            command: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(repeat: u32) -> Row {
        Row { program: "a, \"b\"".into(), repeat, total_ms: Some(1.5), ..Row::blank() }
    }

    #[test]
    fn rows_come_back_and_a_torn_line_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.csv");
        let (mut results, rows) = Results::open(&path).unwrap();
        assert_eq!(rows, []);
        results.append(&row(1)).unwrap();
        results.append(&row(2)).unwrap();
        let all = std::fs::read(&path).unwrap();
        let first_end = header().len() + line(&row(1)).len();
        // Wherever the machine stops within the second row, the first is there, and the second can be written again.
        for cut in first_end..all.len() {
            std::fs::write(&path, &all[..cut]).unwrap();
            let (mut results, rows) = Results::open(&path).unwrap();
            assert_eq!(rows, [row(1)], "cut at byte {cut}");
            results.append(&row(2)).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), all);
        }
        // And within the header as well.
        std::fs::write(&path, &all[..10]).unwrap();
        assert_eq!(Results::open(&path).unwrap().1, []);
    }

    #[test]
    fn a_file_of_another_version_is_refused() {
        assert!(parse(b"mode,program\nreal,x\n").unwrap_err().contains("another directory"));
        let mut damaged = header();
        damaged.extend(b"real,x\n");
        assert!(parse(&damaged).unwrap_err().contains("line: 2"), "{:?}", parse(&damaged));
    }
}
