//! One error for all quantities: what was written, what is wrong with it, what may be written.

/// A quantity that cannot be understood, or that lies outside its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {quantity}: {why}; write {allowed}")]
pub struct UnitError {
    /// What was expected, such as "bandwidth".
    pub quantity: &'static str,
    /// The text as it was written.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
    /// The allowed form, with an example.
    pub allowed: &'static str,
}
