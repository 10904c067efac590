//! Integration tests on real programs; see `tests/tests`.

pub mod real;
