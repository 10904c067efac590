//! Reordered programs are run, and compared with the originals.

mod compiled;
mod shipped;
mod support;
mod trace;
