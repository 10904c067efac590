//! By compilation unit, after Basso et al., "Improving Native-Image Startup Performance" (CGO 2025), whose "cu" order is the
//! order in which units are entered first. Linkers keep what comes from one object file together, so that neighbours in the file as
//! shipped stand in for a unit: no debug information is needed. Good where a run that was not profiled needs more of the same units.

use super::{Graph, Order, PAGE, grouped};

/// Units in order of first touch; inside a unit as shipped.
#[derive(Debug, Clone, Copy)]
pub struct CompilationUnit;

impl Order for CompilationUnit {
    fn name(&self) -> &'static str {
        "compilation-unit"
    }

    fn arrange(&self, graph: &Graph) -> Vec<usize> {
        let mut by_address: Vec<usize> = (0..graph.nodes.len()).collect();
        by_address.sort_by_key(|n| graph.nodes[*n].address);
        let mut unit = vec![0; graph.nodes.len()];
        for pair in by_address.windows(2) {
            let (a, b) = (&graph.nodes[pair[0]], &graph.nodes[pair[1]]);
            // Farther apart than a page, two touched functions are taken for parts of different units.
            let apart = b.address.saturating_sub(a.address.saturating_add(a.size)) > PAGE;
            unit[pair[1]] = unit[pair[0]] + usize::from(apart);
        }
        let mut groups = grouped(graph.nodes.len(), |n| unit[n]);
        for group in &mut groups {
            group.sort_by_key(|n| graph.nodes[*n].address);
        }
        groups.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_stay_together() {
        let graph = crate::order::tests::graph(&[0x9000, 0x1000, 0x9400, 0x1400], &[]);
        assert_eq!(CompilationUnit.arrange(&graph), [0, 2, 1, 3]);
    }
}
