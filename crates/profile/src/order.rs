//! Orders of functions. One trait, one file each.

mod c3;
mod compilation_unit;
mod first_touch;
mod method;
mod pettis_hansen;

use std::collections::HashSet;

pub use c3::C3;
pub use compilation_unit::CompilationUnit;
pub use first_touch::FirstTouch;
pub use method::Method;
pub use pettis_hansen::PettisHansen;

use crate::{Call, Matched, Profile, Program};

/// Bytes in a page.
const PAGE: u64 = 4096;

/// A touched function, as an order sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Link-time address.
    pub address: u64,
    /// Bytes of code.
    pub size: u64,
    /// The symbol, where there is one.
    pub name: Option<String>,
}

/// Touched functions in order of first touch, and the calls between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    /// The functions.
    pub nodes: Vec<Node>,
    /// Calls, numbered as in `nodes`.
    pub calls: Vec<Call>,
}

impl Graph {
    /// The functions of a profile.
    pub fn of_profile(profile: &Profile) -> Self {
        let node = |f: &crate::Entry| Node { address: f.address, size: f.size, name: f.name.clone() };
        Self { nodes: profile.functions.iter().map(node).collect(), calls: profile.calls.clone() }
    }

    /// The functions of a profile as they are in a program.
    pub fn of_matched(matched: &Matched, program: &Program) -> Self {
        let node = |index: &usize| {
            let f = &program.functions.as_slice()[*index];
            Node { address: f.start, size: f.len, name: f.name.clone() }
        };
        Self { nodes: matched.functions.iter().map(node).collect(), calls: matched.calls.clone() }
    }

    /// The addresses in an order: what `pagein_relayout::relayout` takes.
    pub fn addresses(&self, order: &[usize]) -> Vec<u64> {
        order.iter().map(|n| self.nodes[*n].address).collect()
    }

    /// Pages that a run touches which enters the functions at `touched`, if the graph's functions lie in `order` from the
    /// start of a page on, 16-byte aligned. (A run that enters all of them touches the same number in any order: what counts is a
    /// run that was not profiled.)
    pub fn pages(&self, order: &[usize], touched: &HashSet<u64>) -> usize {
        let mut at = 0u64;
        let mut pages = HashSet::new();
        for node in order.iter().map(|n| &self.nodes[*n]) {
            if touched.contains(&node.address) && node.size > 0 {
                pages.extend(at / PAGE..=(at + node.size - 1) / PAGE);
            }
            at = (at + node.size).next_multiple_of(16);
        }
        pages.len()
    }
}

/// A way to arrange functions.
pub trait Order {
    /// What the command line calls it.
    fn name(&self) -> &'static str;

    /// A permutation of the graph's nodes.
    fn arrange(&self, graph: &Graph) -> Vec<usize>;
}

/// All orders, the default first.
pub fn all() -> [&'static dyn Order; 5] {
    [&FirstTouch, &PettisHansen, &C3, &CompilationUnit, &Method]
}

/// The order of that name.
pub fn by_name(name: &str) -> Option<&'static dyn Order> {
    all().into_iter().find(|order| order.name() == name)
}

/// Groups in order of their first member's first touch; the members keep their order.
fn grouped<K: std::hash::Hash + Eq>(count: usize, mut key: impl FnMut(usize) -> K) -> Vec<Vec<usize>> {
    let mut place = std::collections::HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for n in 0..count {
        let group = *place.entry(key(n)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(n);
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Nodes of 1000 bytes at the addresses, calls (caller, callee, weight).
    pub(crate) fn graph(addresses: &[u64], calls: &[(usize, usize, u64)]) -> Graph {
        let node = |&address: &u64| Node { address, size: 1000, name: None };
        let call = |&(caller, callee, weight): &(usize, usize, u64)| Call { caller, callee, weight };
        Graph { nodes: addresses.iter().map(node).collect(), calls: calls.iter().map(call).collect() }
    }

    #[test]
    fn every_order_is_a_permutation() {
        let calls: Vec<_> = (0..40).map(|n| (n * 7 % 20, n * 11 % 20, n as u64 % 5)).collect();
        let addresses: Vec<u64> = (0..20).map(|n| n * 3571 % 20 * 4096).collect();
        let graph = graph(&addresses, &calls);
        for order in all() {
            let mut arranged = order.arrange(&graph);
            arranged.sort_unstable();
            assert_eq!(arranged, (0..20).collect::<Vec<_>>(), "{}", order.name());
            assert!(order.arrange(&Graph::default()).is_empty(), "{}", order.name());
            assert_eq!(by_name(order.name()).map(Order::name), Some(order.name()));
        }
    }

    #[test]
    fn pages_count_what_another_run_touches() {
        let graph = graph(&[0x10000, 0x20000, 0x30000, 0x40000, 0x50000], &[]);
        let touched = HashSet::from([0x10000, 0x50000]);
        // 1008 bytes apart: the fifth starts at 4032 and reaches into the second page.
        assert_eq!(graph.pages(&[0, 1, 2, 3, 4], &touched), 2);
        assert_eq!(graph.pages(&[0, 4, 1, 2, 3], &touched), 1);
    }
}
