//! Checks of the graph with all edges, ignoring conditions.
//!
//! All traversals are iterative, so that a chain of a hundred thousand nodes cannot overflow the stack.

use super::{Node, NodeIx};
use crate::NodeId;
use std::collections::BTreeMap;

/// Why nodes are not a valid plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There are no nodes.
    #[error("a workflow needs at least one node")]
    Empty,
    /// Two nodes have the same id.
    #[error("two nodes have the id `{0}`")]
    DoubledId(NodeId),
    /// The target of an edge does not exist.
    #[error("an edge of `{0}` leads to a node that does not exist")]
    DanglingEdge(NodeId),
    /// The nodes of a cycle; the first is repeated at the end.
    #[error("the nodes form a cycle: {}", .0.iter().map(NodeId::as_str).collect::<Vec<_>>().join(" → "))]
    Cycle(Vec<NodeId>),
}

pub(super) fn index(nodes: &[Node]) -> Result<BTreeMap<NodeId, NodeIx>, GraphError> {
    let mut by_id = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate() {
        if by_id.insert(node.id.clone(), NodeIx(at as u32)).is_some() {
            return Err(GraphError::DoubledId(node.id.clone()));
        }
    }
    Ok(by_id)
}

pub(super) fn check(nodes: &[Node]) -> Result<(), GraphError> {
    if nodes.is_empty() {
        return Err(GraphError::Empty);
    }
    for node in nodes {
        if node.edges.iter().any(|edge| edge.target.at() >= nodes.len()) {
            return Err(GraphError::DanglingEdge(node.id.clone()));
        }
    }
    let targets: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| node.edges.iter().map(|edge| edge.target.at()).collect())
        .collect();
    match find_cycle(&targets) {
        None => Ok(()),
        Some(cycle) => Err(GraphError::Cycle(
            cycle.into_iter().map(|at| nodes[at].id.clone()).collect(),
        )),
    }
}

/// A cycle of the graph with these adjacency lists, if there is one. Its first node is repeated at the end.
pub fn find_cycle(targets: &[Vec<usize>]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; targets.len()];
    for root in 0..targets.len() {
        if marks[root] != Mark::New {
            continue;
        }
        marks[root] = Mark::OnPath;
        let mut path = vec![(root, 0)];
        while let Some((at, next)) = path.last_mut() {
            match targets[*at].get(*next) {
                None => {
                    marks[*at] = Mark::Done;
                    path.pop();
                }
                Some(&target) => {
                    *next += 1;
                    match marks[target] {
                        Mark::Done => {}
                        Mark::New => {
                            marks[target] = Mark::OnPath;
                            path.push((target, 0));
                        }
                        Mark::OnPath => {
                            let mut cycle: Vec<usize> =
                                path.iter().map(|(at, _)| *at).skip_while(|at| *at != target).collect();
                            cycle.push(target);
                            return Some(cycle);
                        }
                    }
                }
            }
        }
    }
    None
}

/// For each node, whether it can be reached from `roots`.
pub fn reachable(targets: &[Vec<usize>], roots: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let mut seen = vec![false; targets.len()];
    let mut queue: Vec<usize> = roots.into_iter().collect();
    while let Some(at) = queue.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            queue.extend(&targets[at]);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycle_begins_and_ends_with_the_same_node() {
        let targets = [vec![1], vec![2], vec![3, 1], vec![]];
        assert_eq!(find_cycle(&targets), Some(vec![1, 2, 1]));
    }

    #[test]
    fn diamond_is_not_a_cycle() {
        let targets = [vec![1, 2], vec![3], vec![3], vec![]];
        assert_eq!(find_cycle(&targets), None);
    }

    #[test]
    fn self_edge_is_a_cycle() {
        assert_eq!(find_cycle(&[vec![0]]), Some(vec![0, 0]));
    }

    #[test]
    fn long_chains_do_not_overflow_the_stack() {
        let mut targets: Vec<Vec<usize>> = (1..=200_000).map(|at| vec![at]).collect();
        targets.push(vec![]);
        assert_eq!(find_cycle(&targets), None);
        assert!(reachable(&targets, [0]).into_iter().all(|seen| seen));
    }

    #[test]
    fn node_without_incoming_edge_is_not_reachable() {
        assert_eq!(reachable(&[vec![1], vec![], vec![1]], [0]), [true, true, false]);
    }
}
