//! userfaultfd, ptrace and memory files: the only crate with raw system calls and unsafe code.
//!
//! Each module wraps one kernel interface with a safe function for each thing that pagein does with it. Nothing here
//! knows of images, sources or policies.

mod arch;
pub mod breakpoint;
pub mod inherited;
mod memory_file;
mod private_map;
pub mod process;
mod tracee;
mod userfault;

pub use memory_file::{MemoryFile, map_file};
pub use private_map::PrivateMap;
pub use tracee::{Bootstrap, Mapping, TraceError, Tracee};
pub use userfault::{Event, Userfault, UserfaultError};
