//! By method, after the "method" order of Basso et al. (CGO 2025), which orders by first touch what belongs to one type: the functions of a
//! class, module or `impl` (the path before the last part of the name) stay together, groups in order of first touch. A function
//! without a name is a group of its own, so that this is the order of first touch in a stripped program.

use super::{Graph, Order, grouped};

/// Types in order of first touch; inside a type in order of first touch.
#[derive(Debug, Clone, Copy)]
pub struct Method;

impl Order for Method {
    fn name(&self) -> &'static str {
        "method"
    }

    fn arrange(&self, graph: &Graph) -> Vec<usize> {
        grouped(graph.nodes.len(), |n| match &graph.nodes[n].name {
            Some(name) => owner(&crate::demangled(name)).ok_or(n),
            None => Err(n),
        })
        .concat()
    }
}

/// What stands before the last `::` outside of brackets.
fn owner(name: &str) -> Option<String> {
    let name = name.split('(').next().unwrap_or(name);
    let mut depth = 0usize;
    let mut end = None;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && name[at..].starts_with("::") => end = Some(at),
            _ => {}
        }
    }
    end.map(|end| name[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_of_a_class_stay_together() {
        let mut graph = crate::order::tests::graph(&[0, 1, 2, 3], &[]);
        for (node, name) in graph.nodes.iter_mut().zip(["_ZN1A1fEv", "_ZN1B1gEv", "_ZN1A1hEv", "main"]) {
            node.name = Some(name.to_owned());
        }
        assert_eq!(Method.arrange(&graph), [0, 2, 1, 3]);
    }

    #[test]
    fn the_owner_is_the_path_outside_of_brackets() {
        assert_eq!(owner("a::b<c::d>::e(f::g)").as_deref(), Some("a::b<c::d>"));
        assert_eq!(owner("main"), None);
    }
}
