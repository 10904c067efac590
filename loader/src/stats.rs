//! What a run reports: `--stats`.

use serde::{Deserialize, Serialize};

/// The pager's part of a run's stats; the waiting process adds the end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// The policy that was used.
    pub policy: String,
    /// The program's name.
    pub program: String,
    /// Where it came from.
    pub source: String,
    /// Bytes of response bodies received until the program ended.
    pub wire_bytes: u64,
    /// Those of them that came without being asked for page by page: the hot object, or the whole file.
    #[serde(default)]
    pub hot_bytes: u64,
    /// Requests made.
    pub requests: u64,
    /// Pages of the program file.
    pub pages_total: u32,
    /// Pages in the memory file at the end.
    pub pages_installed: u32,
    /// Of these, pages that were relocated as they were installed (page-in linking).
    pub linked_pages: u32,
    /// Faults that reached the pager.
    pub faults: u64,
    /// Faults on pages that had to be requested.
    pub demand_faults: u64,
    /// Milliseconds from the start of the command to the program's first instruction.
    pub exec_ms: f64,
    /// Milliseconds from the start of the command to the program's end.
    pub total_ms: f64,
    /// Bytes per second while something was under way, from its first bytes on.
    pub bandwidth_bps: Option<f64>,
    /// Shortest time that a connection took to be made, or that an answer took to begin, milliseconds.
    pub rtt_ms: Option<f64>,
    /// The policy was chosen by the model.
    #[serde(default)]
    pub chosen: bool,
    /// Connections over which the hot object came.
    #[serde(default)]
    pub connections: u32,
    /// Bytes that came in the background, beside what was hot or demanded.
    #[serde(default)]
    pub fill_bytes: u64,
    /// Processor time that the pager took until the program ended, milliseconds.
    #[serde(default)]
    pub pager_cpu_ms: f64,
    /// Most memory that the pager had, bytes: pages of the program that it holds for a moment or for the complete file, and itself.
    #[serde(default)]
    pub pager_memory_bytes: u64,
    /// The program's exit status, 128+N if signal N ended it.
    pub exit_status: i32,
}
