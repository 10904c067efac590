//! userfaultfd, ptrace, memfd.
