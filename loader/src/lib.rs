//! Runs a program whose pages arrive while it runs, and records which pages and functions a local one touches.
//!
//! | phase | file |
//! |---|---|
//! | the command becomes the program, a pager is split off | `start.rs` (`waiter.rs` when something is reported) |
//! | manifest and first frames | `run.rs`, `prepare.rs`, `remote.rs`, `stream.rs`, `flow.rs` |
//! | what is remembered of the way to a host | `links.rs` |
//! | the file that is exec'ed | `exec_file.rs`, `relaunch.rs`, `publish.rs` |
//! | several instances, one pager | `instances.rs` |
//! | what is kept between runs | `cache/` |
//! | exec, mappings, registration | `launch.rs` |
//! | faults, forks, remaps | `faults.rs`, `watch.rs`, `processes.rs`, `address_map.rs` |
//! | what is where, who waits | `table.rs` |
//! | pages in | `lazy.rs`; relocated: `linked.rs`; all at once: `eager.rs`; the rest in the background: `fill.rs`, `worker.rs`, into the cache: `keeper.rs` |
//! | something dies or is lost | `guard.rs`, `tell.rs` |
//! | recording | `record.rs`, `self_reads.rs` |
//! | profiling | `profile.rs` |

mod address_map;
mod cache;
mod cached;
mod eager;
mod exec_file;
mod failure;
mod faults;
mod fill;
mod flow;
mod guard;
mod instances;
mod keeper;
mod launch;
mod lazy;
mod linked;
mod links;
mod prepare;
mod processes;
mod profile;
mod publish;
mod ranged;
mod record;
mod relaunch;
mod remote;
mod run;
mod self_reads;
mod start;
mod stats;
mod stream;
mod table;
mod tell;
mod trouble;
mod unpack;
mod waiter;
mod watch;
mod worker;

pub use cache::{Cache, Contents, Count, DEFAULT_LIMIT, Trimmed, default_cache};
pub use failure::Failure;
pub use profile::{ProfileConfig, profile};
pub use record::{RecordConfig, find_named, find_program, record};
pub use run::{RunConfig, run};
pub use stats::Stats;
pub use trouble::Trouble;
