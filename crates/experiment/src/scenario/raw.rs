//! The keys of a scenario file and the values that each may have; places are kept for what is checked later.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pagein_simnet::queue::{Jitter, LossModel, QueueLimit};
use pagein_simnet::units::Bandwidth;
use serde::Deserialize;
use toml::Spanned;

use super::value::{Scheme, Text, Time};
use super::{Compare, Mode};

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
    pub(super) time_limit: Option<Spanned<Text<Time>>>,
    pub(super) level: Option<Spanned<i32>>,
    pub(super) policies: Option<Spanned<Vec<Spanned<Text<Scheme>>>>>,
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
    pub(super) bandwidths: Spanned<Vec<Spanned<Text<Bandwidth>>>>,
    pub(super) rtts: Spanned<Vec<Spanned<Text<Time>>>>,
    pub(super) loss: Option<Spanned<Text<LossModel>>>,
    pub(super) queue: Option<Spanned<Text<QueueLimit>>>,
    pub(super) jitter: Option<Spanned<Text<Jitter>>>,
    pub(super) uplink: Option<Spanned<Text<Bandwidth>>>,
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
    pub(super) policies: Vec<Spanned<Text<Scheme>>>,
    #[serde(default)]
    pub(super) bandwidths: Vec<Spanned<Text<Bandwidth>>>,
    #[serde(default)]
    pub(super) rtts: Vec<Spanned<Text<Time>>>,
    pub(super) mode: Option<Mode>,
    pub(super) repeats: Option<Spanned<u32>>,
    #[serde(default)]
    pub(super) skip: bool,
}
