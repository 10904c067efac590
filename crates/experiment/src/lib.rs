//! `pagein experiment`: the experiment of Lee, Baer, Bershad and Anderson ("Reducing Startup Latency in Web and Desktop
//! Applications", USENIX Windows NT Symposium 1999, section 5) for any programs, links and policies.
//!
//! | phase | file |
//! |---|---|
//! | the scenario file: keys, values, mistakes | `scenario/` |
//! | the output directory: whose it is, one at a time | `directory.rs` |
//! | traces, image and local run of each program | `prepare.rs` |
//! | cells, and the order of the runs | `grid.rs` |
//! | several runs at a time; progress | `work.rs`, `progress.rs` |
//! | one real run; its processes | `real.rs`, `command.rs`, `child.rs` |
//! | one simulated run, predictions, the floor | `predict.rs` |
//! | results.csv: rows that survive kill -9 | `results.rs` |
//! | summary.csv: medians and quartiles | `summary.rs` |
//! | equation 3, the paper's findings, prediction errors | `analysis/` |
//! | figures, report.html | `figures/`, `report/` |
//!
//! A run is the `pagein` command itself, started as a user would start it: nothing here knows the loader.

pub mod analysis;
mod child;
mod command;
mod directory;
mod error;
mod figures;
mod grid;
mod host;
mod predict;
mod prepare;
mod progress;
mod real;
mod report;
pub mod results;
pub mod scenario;
mod session;
pub mod summary;
mod work;

pub use child::run_if_child;
pub use error::ExperimentError;
pub use grid::Cell;
pub use session::{Config, Finished, run};
