//! Checks the graph: it has no cycle and at least one start node, and every node can be reached from a start node.

use super::view::View;
use crate::check::Check;
use crate::diagnostics::{Severity, quote};
use crate::graph::{CycleWords, report_cycles};
use fermata_core::plan::reachable;

const WORDS: CycleWords = CycleWords {
    nodes: "nodes",
    help: "remove one of these edges: workflows cannot loop; to repeat a step that fails, use its `retry_policy`",
};

pub(super) fn check(check: &mut Check, view: &View) {
    let mut targets = vec![Vec::new(); view.nodes.len()];
    let mut incoming = vec![0_usize; view.nodes.len()];
    for edge in view.edges.iter().filter(|edge| edge.from != edge.to) {
        if let (Some(from), Some(to)) = (view.by_id.get(edge.from), view.by_id.get(edge.to)) {
            targets[*from].push(*to);
            incoming[*to] += 1;
        }
    }
    let names: Vec<&str> = view.ids().collect();
    let closing = |last: usize, first: usize| {
        let mut edges = view.edges.iter();
        let edge = edges.find(|edge| edge.from == names[last] && edge.to == names[first]);
        edge.map_or_else(|| "/edges".to_owned(), |edge| edge.pointer.clone())
    };
    if report_cycles(check, &WORDS, &names, &targets, closing) {
        return;
    }
    // Without a cycle every node can be reached from a start node.
    let starts: Vec<usize> = (0..names.len()).filter(|at| incoming[*at] == 0).collect();
    if starts.is_empty() {
        let message = "the workflow has no start node: every node has an incoming edge";
        let mut problem = check.error("NO_START_NODE", "/nodes", message);
        problem.span = check.document.locate_key("/nodes");
        return check.add(problem.help("a run starts at the nodes that no edge leads to; remove an edge"));
    }
    let seen = reachable(&targets, starts);
    for (at, node) in view.nodes.iter().enumerate() {
        if !seen[at] && check.room(Severity::Error) {
            let message = format!(
                "node {} is unreachable: no path leads to it from a start node",
                quote(node.id)
            );
            let problem = check.error("UNREACHABLE_NODE", &format!("{}/id", node.pointer), message);
            check.add(problem.help("it is on a cycle or after one; remove an edge of the cycle"));
        }
    }
}
