//! What `split` and `inspect` say of page-in linking.

use std::fmt;

use pagein_image::Linking;
use serde::Serialize;

/// For machines; shown, for people.
#[derive(Serialize)]
pub(crate) struct Json {
    on: bool,
    /// Pages of the program that have relative relocations.
    pages: u32,
    /// Relative relocations that the dynamic linker need not apply.
    relocations: u64,
    /// Why it is off.
    reason: Option<String>,
}

impl Json {
    pub(crate) fn of(linking: &Linking) -> Self {
        match linking {
            Linking::On { pages, relocations } => {
                Self { on: true, pages: pages.count(), relocations: *relocations, reason: None }
            }
            Linking::Off(reason) => {
                Self { on: false, pages: 0, relocations: 0, reason: Some(reason.to_string()) }
            }
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            None => write!(f, "{} relocations on {} pages", self.relocations, self.pages),
            Some(reason) => write!(f, "off: {reason}"),
        }
    }
}
