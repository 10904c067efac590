//! Reordered programs are run, and compared with the originals.

mod coincidence;
mod compiled;
mod generated;
mod hostile;
mod shipped;
mod support;
mod trace;
