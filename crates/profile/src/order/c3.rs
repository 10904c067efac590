//! C3, call-chain clustering: Ottoni and Maher, "Optimizing Function Placement for Large-Scale Data-Center Applications" (CGO 2017),
//! section 4; known as hfsort. Functions from the hottest on: each one's cluster goes behind the cluster of its likeliest caller, unless
//! the two would be larger than a page. Clusters are then sorted by density.

use super::{Graph, Order, PAGE};

/// Callees right behind their likeliest callers.
#[derive(Debug, Clone, Copy)]
pub struct C3;

#[derive(Default)]
struct Cluster {
    functions: Vec<usize>,
    size: u64,
    calls: u64,
}

impl Order for C3 {
    fn name(&self) -> &'static str {
        "c3"
    }

    fn arrange(&self, graph: &Graph) -> Vec<usize> {
        let count = graph.nodes.len();
        let mut incoming = vec![0u64; count];
        let mut likeliest: Vec<Option<(u64, usize)>> = vec![None; count];
        for c in graph.calls.iter().filter(|c| c.caller != c.callee) {
            incoming[c.callee] = incoming[c.callee].saturating_add(c.weight);
            let best = &mut likeliest[c.callee];
            // Of equal callers the one that was touched first.
            if best.is_none_or(|(weight, caller)| (c.weight, caller) > (weight, c.caller)) {
                *best = Some((c.weight, c.caller));
            }
        }
        let cluster =
            |n: usize| Cluster { functions: vec![n], size: graph.nodes[n].size, calls: incoming[n].max(1) };
        let mut clusters: Vec<Cluster> = (0..count).map(cluster).collect();
        let mut cluster_of: Vec<usize> = (0..count).collect();
        let mut hottest: Vec<usize> = (0..count).collect();
        hottest.sort_by_key(|n| std::cmp::Reverse(incoming[*n]));
        for n in hottest {
            let Some((_, caller)) = likeliest[n] else { continue };
            let (into, from) = (cluster_of[caller], cluster_of[n]);
            if into == from || clusters[into].size.saturating_add(clusters[from].size) > PAGE {
                continue;
            }
            let moved = std::mem::take(&mut clusters[from]);
            for m in &moved.functions {
                cluster_of[*m] = into;
            }
            let target = &mut clusters[into];
            target.functions.extend(moved.functions);
            target.size += moved.size;
            target.calls = target.calls.saturating_add(moved.calls);
        }
        clusters.retain(|c| !c.functions.is_empty());
        // Calls per byte; equal ones in order of first touch (the sort is stable).
        let density = |c: &Cluster| c.calls as f64 / c.size.max(1) as f64;
        clusters.sort_by(|a, b| density(b).total_cmp(&density(a)));
        clusters.into_iter().flat_map(|c| c.functions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callee_follows_its_likeliest_caller() {
        let graph = crate::order::tests::graph(&[0, 1, 2], &[(0, 2, 10), (1, 2, 1)]);
        let order = C3.arrange(&graph);
        let at = |n| order.iter().position(|m| *m == n);
        assert_eq!(at(2), at(0).map(|n| n + 1), "{order:?}");
    }

    #[test]
    fn clusters_end_at_a_page() {
        // 1000 bytes each: four fit.
        let graph = crate::order::tests::graph(
            &[0, 1, 2, 3, 4, 5],
            &[(0, 1, 50), (1, 2, 40), (2, 3, 30), (3, 4, 20), (4, 5, 900)],
        );
        let order = C3.arrange(&graph);
        assert_eq!(order, [4, 5, 0, 1, 2, 3], "4 and 5 are a cluster of their own, and the densest");
    }
}
