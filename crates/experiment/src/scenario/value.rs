//! Values that are written as text: rates, times, policies. Each reads itself and says, if it cannot, what may be written.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pagein_model::Policy;
use pagein_simnet::units::{UnitError, parse_duration};
use serde::{Serialize, Serializer};

/// A policy, or `auto`: what `pagein run --policy` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme(pub Option<Policy>);

/// A word that names neither a policy nor `auto`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy; write one of original, paged, reordered-paged, reordered, streamed, auto")]
pub struct UnknownScheme(String);

impl Scheme {
    /// `original`, that everything is compared with.
    pub const ORIGINAL: Self = Self(Some(Policy::Original));

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        self.0.map_or("auto", Policy::name)
    }

    /// All, in the order of tables and legends.
    pub fn all() -> impl Iterator<Item = Self> {
        Policy::ALL.into_iter().map(|policy| Self(Some(policy))).chain([Self(None)])
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::all().find(|scheme| scheme.name() == text).ok_or_else(|| UnknownScheme(text.to_owned()))
    }
}

impl Serialize for Scheme {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A length of time as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) Duration);

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_duration(text).map(Self)
    }
}
