//! userfaultfd, ptrace, memfd.
pub mod breakpoint;
