//! The keys of a scenario file and the values that each may have; places are kept for what is checked later.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::{Compare, Mode};

/// A value that is written as text, and its place; [`check`](super::check) reads it, since the place that the library gives an
/// error inside a list is that of the list.
pub(super) type Written = Spanned<String>;

pub(super) fn read(text: &str) -> Result<File, toml::de::Error> {
    toml::from_str(text)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default = "real")]
    pub(super) mode: Mode,
    pub(super) repeats: Option<Spanned<u32>>,
    pub(super) parallel: Option<Spanned<u32>>,
    #[serde(default = "one")]
    pub(super) seed: u64,
    pub(super) time_limit: Option<Written>,
    pub(super) level: Option<Spanned<i32>>,
    pub(super) policies: Option<Spanned<Vec<Written>>>,
    pub(super) links: Links,
    #[serde(rename = "program")]
    pub(super) programs: Spanned<Vec<Program>>,
    #[serde(rename = "override", default)]
    pub(super) overrides: Vec<Spanned<Override>>,
}

fn real() -> Mode {
    Mode::Real
}

fn one() -> u64 {
    1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Links {
    pub(super) bandwidths: Spanned<Vec<Written>>,
    pub(super) rtts: Spanned<Vec<Written>>,
    pub(super) loss: Option<Written>,
    pub(super) queue: Option<Written>,
    pub(super) jitter: Option<Written>,
    pub(super) uplink: Option<Written>,
    pub(super) congestion: Option<Spanned<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) name: Spanned<String>,
    pub(super) path: Option<Spanned<PathBuf>>,
    pub(super) fetch: Option<Spanned<String>>,
    pub(super) recorded: Spanned<Vec<Vec<String>>>,
    pub(super) measured: Spanned<Vec<String>>,
    #[serde(default)]
    pub(super) same_job: bool,
    pub(super) setup: Option<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) compare: Compare,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Override {
    #[serde(default)]
    pub(super) programs: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) policies: Vec<Written>,
    #[serde(default)]
    pub(super) bandwidths: Vec<Written>,
    #[serde(default)]
    pub(super) rtts: Vec<Written>,
    pub(super) mode: Option<Mode>,
    pub(super) repeats: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) skip: bool,
}
