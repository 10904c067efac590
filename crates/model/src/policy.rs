//! The schemes of Lee, Baer, Bershad and Anderson, "Reducing Startup Latency in Web and Desktop Applications" (USENIX
//! Windows NT Symposium 1999), section 3, and pagein's own.

use std::fmt;
use std::str::FromStr;

/// How a program's pages come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The whole file in one request, then exec.
    Original,
    /// A group of neighbouring pages when one of them is touched.
    Paged,
    /// A group of pages that are touched one after the other, when one of them is touched.
    ReorderedPaged,
    /// The likely-used part first, then exec; the rest on demand.
    Reordered,
    /// Exec as soon as the kernel's own pages are there; the likely-used part flows in while the program runs.
    Streamed,
}

impl Policy {
    /// All policies, the paper's first, in its order.
    pub const ALL: [Self; 5] =
        [Self::Original, Self::Paged, Self::ReorderedPaged, Self::Reordered, Self::Streamed];

    /// The name used on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Paged => "paged",
            Self::ReorderedPaged => "reordered-paged",
            Self::Reordered => "reordered",
            Self::Streamed => "streamed",
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy; use one of auto, original, paged, reordered-paged, reordered, streamed")]
pub struct UnknownPolicy(String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}
