//! The `pagein` command.
fn main() {}
