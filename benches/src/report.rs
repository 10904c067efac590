//! What the runs say: medians and ratios, as a table or as JSON with the machine and the command line.

use serde::Serialize;

use crate::measure::Run;
use crate::stage::Spread;

/// One way to run a program.
#[derive(Debug, Serialize)]
pub struct Row {
    /// `local` or a policy.
    pub policy: String,
    /// Milliseconds to the first instruction, median; none for a local run.
    pub exec_ms: Option<f64>,
    /// The same, the quickest run: what it takes when nobody else wants the processor.
    pub exec_ms_min: Option<f64>,
    /// Milliseconds from start to end, median.
    pub wall_ms: f64,
    /// The median of wall times divided by that of the local runs.
    pub ratio: f64,
    /// CPU milliseconds of all processes together, median.
    pub cpu_ms: f64,
    /// CPU milliseconds of the pager for each megabyte (10^6 bytes) that it received, median; none for a local run.
    pub pager_ms_per_mb: Option<f64>,
    /// Most memory that the pager had, bytes, median; none for a local run.
    pub pager_memory_bytes: Option<f64>,
    /// Bytes received, median.
    pub wire_bytes: u64,
    /// Requests, median.
    pub requests: u64,
    /// Faults that reached the pager, median.
    pub faults: u64,
    /// Faults that had to be requested: the largest number of any run.
    pub demand_faults_max: u64,
}

/// One program.
#[derive(Debug, Serialize)]
pub struct Program {
    /// The command line that was run.
    pub command: String,
    /// Size of the program file, bytes.
    pub file_bytes: u64,
    /// How two recordings differed.
    pub spread: Spread,
    /// The local run first.
    pub rows: Vec<Row>,
}

/// Where and how it was measured.
#[derive(Debug, Serialize)]
pub struct Conditions {
    /// The command line of this benchmark.
    pub command: Vec<String>,
    /// Processor model.
    pub processor: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Kernel release.
    pub kernel: String,
    /// Runnable tasks of the machine, mean of the last minute, before and after: more than `processors` means that others
    /// took part of the time.
    pub load: [f64; 2],
    /// Rounds.
    pub repeat: u32,
    /// zstd level of the images.
    pub level: i32,
}

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where and how.
    pub conditions: Conditions,
    /// Each program.
    pub programs: Vec<Program>,
}

impl Row {
    /// Sums runs of one kind up.
    ///
    /// # Panics
    /// If there are no runs.
    pub fn new(policy: &str, runs: &[Run], local_ms: f64) -> Self {
        let of = |key: &str| median(runs.iter().filter_map(|run| run.stats[key].as_f64()).collect());
        let count = |key: &str| of(key).unwrap_or_default() as u64;
        let wall_ms = median(runs.iter().map(|run| run.wall_ms).collect()).expect("at least one run");
        Self {
            policy: policy.to_owned(),
            exec_ms: of("exec_ms"),
            exec_ms_min: runs.iter().filter_map(|run| run.stats["exec_ms"].as_f64()).reduce(f64::min),
            wall_ms,
            ratio: wall_ms / local_ms,
            cpu_ms: median(runs.iter().map(|run| run.cpu_ms).collect()).expect("at least one run"),
            pager_ms_per_mb: median(runs.iter().filter_map(pager_ms_per_mb).collect()),
            pager_memory_bytes: of("pager_memory_bytes").filter(|&bytes| bytes > 0.0),
            wire_bytes: count("wire_bytes"),
            requests: count("requests"),
            faults: count("faults"),
            demand_faults_max: runs
                .iter()
                .filter_map(|run| run.stats["demand_faults"].as_u64())
                .max()
                .unwrap_or(0),
        }
    }
}

/// None where no pager was at work.
fn pager_ms_per_mb(run: &Run) -> Option<f64> {
    let ms = run.stats["pager_cpu_ms"].as_f64().filter(|&ms| ms > 0.0)?;
    Some(ms / (run.stats["wire_bytes"].as_f64()? / 1e6))
}

fn shown(ms: Option<f64>) -> String {
    ms.map_or_else(String::new, |ms| format!("{ms:.1}"))
}

/// The middle of the values (the lower one of two); none if there are none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

impl Conditions {
    /// Of this machine, now.
    pub fn here(repeat: u32, level: i32) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            command: std::env::args().collect(),
            processor: model.map_or("unknown", |(_, name)| name).to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            load: [load(); 2],
            repeat,
            level,
        }
    }
}

/// Field 1 of `/proc/loadavg` (`proc_loadavg(5)`).
pub fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default()
}

impl Report {
    /// As Markdown.
    pub fn table(&self) -> String {
        let here = &self.conditions;
        let mut lines = vec![
            format!("Command: `{}`", here.command.join(" ")),
            format!(
                "Conditions: {} x {}, Linux {}, load {:.1} before and {:.1} after; {} rounds, interleaved; zstd level {}",
                here.processors,
                here.processor,
                here.kernel,
                here.load[0],
                here.load[1],
                here.repeat,
                here.level
            ),
        ];
        for program in &self.programs {
            let spread = program.spread;
            lines.push(format!(
                "\n`{}`, {:.2} MB; touches {} pages, of which two recordings differ in {} (the second has {} that the first \
                 has not)\n",
                program.command,
                program.file_bytes as f64 / 1e6,
                spread.pages,
                spread.differ,
                spread.unforeseen
            ));
            lines.push("| policy | first instruction, ms | best | total, ms | x local | CPU, ms | pager, ms per MB | pager, MB | kB | requests | faults | demand, at most |".into());
            lines.push("|---|---|---|---|---|---|---|---|---|---|---|---|".into());
            lines.extend(program.rows.iter().map(|row| {
                format!(
                    "| {} | {} | {} | {:.1} | {:.2} | {:.1} | {} | {} | {} | {} | {} | {} |",
                    row.policy,
                    shown(row.exec_ms),
                    shown(row.exec_ms_min),
                    row.wall_ms,
                    row.ratio,
                    row.cpu_ms,
                    shown(row.pager_ms_per_mb),
                    shown(row.pager_memory_bytes.map(|bytes| bytes / 1e6)),
                    row.wire_bytes / 1000,
                    row.requests,
                    row.faults,
                    row.demand_faults_max
                )
            }));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0]), Some(1.0));
    }

    #[test]
    fn a_row_has_medians_but_the_worst_demand() {
        let run = |wall_ms, demand| Run {
            wall_ms,
            stats: json!({"demand_faults": demand, "wire_bytes": 2e6, "pager_cpu_ms": 8.0}),
            ..Run::default()
        };
        let row = Row::new("streamed", &[run(10.0, 0), run(30.0, 2), run(20.0, 0)], 10.0);
        assert_eq!((row.wall_ms, row.ratio, row.demand_faults_max), (20.0, 2.0, 2));
        assert_eq!((row.pager_ms_per_mb, row.pager_memory_bytes), (Some(4.0), None));
    }
}
