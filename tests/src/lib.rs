//! Integration tests on real programs; see `tests/tests`.

pub mod binary;
pub mod broken;
pub mod image;
pub mod real;
