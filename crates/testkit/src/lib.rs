//! What the tests of the other crates share: sources that fail on cue, a web server that does, and a harness
//! for commands.
//!
//! | file | for |
//! |---|---|
//! | `memory.rs` | a source without I/O, for unit tests |
//! | `faulty.rs` | a wrapper around any source, failing by script; works under tokio's paused clock |
//! | `origin.rs`, `origin/` | a real HTTP server that misbehaves, for end-to-end tests of the command |
//! | `child.rs` | running a command with a deadline |
//! | `skip.rs` | tests that cannot run here, and say so |
//! | `fault.rs`, `glob.rs` | the faults that the two can be told to inject, and the paths they apply to |

mod child;
mod fault;
mod faulty;
mod glob;
mod memory;
mod origin;
mod skip;

pub use child::{Finished, run, run_with_input};
pub use fault::Fault;
pub use faulty::FaultySource;
pub use glob::glob;
pub use memory::MemorySource;
pub use origin::{Origin, Request, Rule};
pub use skip::{have, skip};
