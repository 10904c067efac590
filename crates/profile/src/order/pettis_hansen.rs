//! Pettis and Hansen, "Profile Guided Code Positioning" (PLDI 1990), section 3: the heaviest call first, its two chains are joined
//! where the two functions come closest; a chain may be turned round for it.

use std::collections::BTreeMap;

use super::{Graph, Order};

/// Functions that call each other often, close together.
#[derive(Debug, Clone, Copy)]
pub struct PettisHansen;

impl Order for PettisHansen {
    fn name(&self) -> &'static str {
        "pettis-hansen"
    }

    fn arrange(&self, graph: &Graph) -> Vec<usize> {
        // The graph is undirected: how often control goes from one to the other or back.
        let mut weights: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for c in graph.calls.iter().filter(|c| c.caller != c.callee) {
            let weight = weights.entry((c.caller.min(c.callee), c.caller.max(c.callee))).or_default();
            *weight = weight.saturating_add(c.weight);
        }
        let mut edges: Vec<_> = weights.into_iter().collect();
        // Equal weights in order of first touch: sort_by_key is stable.
        edges.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        let mut chains: Vec<Vec<usize>> = (0..graph.nodes.len()).map(|n| vec![n]).collect();
        let mut chain_of: Vec<usize> = (0..graph.nodes.len()).collect();
        for ((a, b), _) in edges {
            let (x, y) = (chain_of[a], chain_of[b]);
            if x == y {
                continue;
            }
            let (mut left, mut right) = (std::mem::take(&mut chains[x]), std::mem::take(&mut chains[y]));
            // a towards the end of its chain, b towards the start of the other.
            if position(&left, a) * 2 + 1 < left.len() {
                left.reverse();
            }
            if position(&right, b) * 2 + 1 > right.len() {
                right.reverse();
            }
            for n in &right {
                chain_of[*n] = x;
            }
            left.extend(right);
            chains[x] = left;
        }
        // Chains in order of the earliest first touch in them.
        chains.retain(|chain| !chain.is_empty());
        chains.sort_by_key(|chain| chain.iter().min().copied());
        chains.concat()
    }
}

fn position(chain: &[usize], n: usize) -> usize {
    chain.iter().position(|m| *m == n).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_calls_become_neighbours() {
        // 0 calls 3 most, 3 calls 1 next; 2 is called by nobody in particular.
        let graph = crate::order::tests::graph(&[0, 1, 2, 3], &[(0, 3, 10), (3, 1, 5), (0, 2, 1)]);
        let order = PettisHansen.arrange(&graph);
        let distance = |a, b| position(&order, a).abs_diff(position(&order, b));
        assert_eq!((distance(0, 3), distance(3, 1)), (1, 1), "{order:?}");
    }
}
