//! Runs a program whose pages arrive while it runs.
