//! Reordered programs are run, and compared with the originals.

mod compiled;
mod hostile;
mod shipped;
mod support;
mod trace;
