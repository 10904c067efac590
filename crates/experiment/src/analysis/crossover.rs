//! Equation 3 of the paper: the lazier of two schemes wins where
//! (Bytes of the eager one - Bytes of the lazy one) / (Requests of the lazy one - Requests of the eager one)
//! is larger than Bandwidth x Latency.

use pagein_model::Policy;

use super::times;
use crate::scenario::{LinkPoint, Scheme};
use crate::summary::{CellSummary, Quartiles};

/// An eager scheme and a lazier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Transfers more, asks less.
    pub eager: Scheme,
    /// Transfers less, asks more.
    pub lazy: Scheme,
}

/// The pairs that the paper compares.
pub const PAIRS: [Pair; 2] = [
    Pair { eager: Scheme(Some(Policy::Original)), lazy: Scheme(Some(Policy::Paged)) },
    Pair { eager: Scheme(Some(Policy::Reordered)), lazy: Scheme(Some(Policy::ReorderedPaged)) },
];

/// Where equation 3 sees the turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Turn {
    /// The lazy scheme wins below this product of bandwidth and latency, bytes.
    At(f64),
    /// The lazy scheme saves bytes and costs no request.
    LazyAlways,
    /// It saves no bytes.
    EagerAlways,
}

/// Who was faster on a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Winner {
    /// The link.
    pub point: LinkPoint,
    /// Whether the lazy scheme was faster.
    pub lazy: bool,
    /// Whether equation 3 says so.
    pub predicted_lazy: bool,
}

/// Equation 3 beside what was measured, for one program and pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossover {
    /// The program.
    pub program: String,
    /// The pair.
    pub pair: Pair,
    /// Bytes that the lazy scheme saves; median over the links.
    pub bytes_saved: f64,
    /// Requests that it costs; median over the links.
    pub requests_added: f64,
    /// What equation 3 makes of these.
    pub predicted: Turn,
    /// Each link by its product, ascending.
    pub winners: Vec<Winner>,
}

impl Crossover {
    /// The largest product at which the lazy scheme was faster, bytes.
    pub fn lazy_up_to(&self) -> Option<f64> {
        self.winners.iter().filter(|winner| winner.lazy).map(|winner| winner.point.product()).reduce(f64::max)
    }

    /// The smallest product at which the eager scheme was faster, bytes.
    pub fn eager_from(&self) -> Option<f64> {
        self.winners
            .iter()
            .filter(|winner| !winner.lazy)
            .map(|winner| winner.point.product())
            .reduce(f64::min)
    }

    /// The links between which the winner changes, if it changes once: the last that the lazy scheme wins, the first that
    /// the eager one wins.
    pub fn changes_between(&self) -> Option<(LinkPoint, LinkPoint)> {
        let first_eager = self.winners.iter().position(|winner| !winner.lazy)?;
        let last_lazy = first_eager.checked_sub(1)?;
        let once = self.winners[first_eager..].iter().all(|winner| !winner.lazy);
        once.then(|| (self.winners[last_lazy].point, self.winners[first_eager].point))
    }

    /// Links on which equation 3 names the faster one.
    pub fn agreeing(&self) -> usize {
        self.winners.iter().filter(|winner| winner.lazy == winner.predicted_lazy).count()
    }
}

/// `None` if a scheme of the pair has no cells.
pub fn crossover(summaries: &[CellSummary], program: &str, pair: Pair) -> Option<Crossover> {
    let of = |scheme: Scheme, value: fn(&CellSummary) -> Option<f64>| {
        let cells = summaries.iter().filter(|one| one.cell.program == program && one.cell.scheme == scheme);
        Quartiles::of(cells.filter_map(value).collect()).map(|quartiles| quartiles.median)
    };
    let bytes = |summary: &CellSummary| summary.wire_bytes;
    let requests = |summary: &CellSummary| summary.requests;
    let bytes_saved = of(pair.eager, bytes)? - of(pair.lazy, bytes)?;
    let requests_added = of(pair.lazy, requests)? - of(pair.eager, requests)?;
    let predicted = match (bytes_saved > 0.0, requests_added > 0.0) {
        (true, true) => Turn::At(bytes_saved / requests_added),
        (true, false) => Turn::LazyAlways,
        (false, _) => Turn::EagerAlways,
    };
    let mut winners: Vec<Winner> = super::places(summaries)
        .into_iter()
        .filter(|(name, _)| *name == program)
        .filter_map(|(_, point)| {
            let (eager, lazy) = times(summaries, program, point, (pair.eager, pair.lazy))?;
            let predicted_lazy = match predicted {
                Turn::At(product) => point.product() < product,
                Turn::LazyAlways => true,
                Turn::EagerAlways => false,
            };
            Some(Winner { point, lazy: lazy < eager, predicted_lazy })
        })
        .collect();
    if winners.is_empty() {
        return None;
    }
    winners.sort_by(|a, b| a.point.product().total_cmp(&b.point.product()));
    Some(Crossover { program: program.to_owned(), pair, bytes_saved, requests_added, predicted, winners })
}
