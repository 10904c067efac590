//! The order of Lee, Baer, Bershad and Anderson: as the functions are touched first.

use super::{Graph, Order};

/// Functions in order of first touch.
#[derive(Debug, Clone, Copy)]
pub struct FirstTouch;

impl Order for FirstTouch {
    fn name(&self) -> &'static str {
        "first-touch"
    }

    fn arrange(&self, graph: &Graph) -> Vec<usize> {
        (0..graph.nodes.len()).collect()
    }
}
