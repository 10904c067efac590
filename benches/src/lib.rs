//! Benchmarks. Parts: `cargo bench -p pagein-benches`; whole runs: the binary `overhead`.
//!
//! | job | file |
//! |---|---|
//! | which programs of this machine | `jobs.rs` |
//! | record, cut and serve them with the `pagein` command | `stage.rs` |
//! | one run, timed | `measure.rs` |
//! | medians, tables | `report.rs` |

pub mod jobs;
pub mod measure;
pub mod report;
pub mod stage;
