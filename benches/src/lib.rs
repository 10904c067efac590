//! Benchmarks. Parts: `cargo bench -p pagein-benches`; whole runs: the binary `overhead`;
//! reordered functions: the binary `relayout`; bytes on the wire against the targets: the binary `totals`.
//!
//! | job | file |
//! |---|---|
//! | which programs of this machine | `jobs.rs` |
//! | record, cut and serve them with the `pagein` command | `stage.rs` |
//! | one run, timed | `measure.rs` |
//! | one run over a link without packets | `fluid.rs` |
//! | medians, tables | `report.rs` |
//! | startup with reordered functions | `relaid.rs` |

pub mod fluid;
pub mod jobs;
pub mod measure;
pub mod relaid;
pub mod report;
pub mod stage;
