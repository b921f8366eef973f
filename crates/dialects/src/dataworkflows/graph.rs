//! Checks the graph: every target exists, there is no cycle, and every node is reachable.

use super::view::{Node, View};
use super::{Check, text};
use crate::diagnostics::{Severity, quote};
use crate::graph::{CycleWords, Upstream, report_cycles};
use fermata_core::plan::reachable;
use fermata_expr::nearest;
use serde_json::Value;

const WORDS: CycleWords = CycleWords {
    nodes: "nodes",
    help: "remove one of these edges: workflows cannot loop; to repeat a step that fails, use its `policies.retry`",
};

/// The superset graph: all edges, `onFailure` included, conditions ignored.
pub(super) struct Graph {
    /// For each node of the view, the nodes it leads to.
    targets: Vec<Vec<usize>>,
    acyclic: bool,
}

pub(super) fn check(check: &mut Check, view: &View) -> Graph {
    duplicates(check, view);
    let mut guessed = Vec::new();
    let mut targets = Vec::new();
    for node in &view.nodes {
        let (known, guesses) = node_targets(check, view, node);
        targets.push(known);
        guessed.push(guesses);
    }
    let names: Vec<&str> = view.ids().collect();
    let closing = |last: usize, first: usize| closing_edge(&view.nodes[last], view.nodes[first].id);
    let acyclic = report_cycles(check, &WORDS, &names, &targets, closing);
    unreachable(check, view, &targets, &guessed);
    snapshot_keys(check, view);
    Graph { targets, acyclic }
}

fn duplicates(check: &mut Check, view: &View) {
    for (at, node) in view.nodes.iter().enumerate() {
        let first = view.by_id.get(node.id).copied().unwrap_or(at);
        if first != at && check.room(Severity::Error) {
            let place = check.document.locate(&format!("{}/id", view.nodes[first].pointer));
            let message = format!("the node id {} is used twice", quote(node.id));
            let problem = check.error("DUPLICATE_NODE_ID", &format!("{}/id", node.pointer), message);
            check.add(
                problem
                    .related("it is first used here", place)
                    .help("rename one of the nodes"),
            );
        }
    }
}

/// The targets of `node`, and for targets that do not exist the nodes that were probably meant.
fn node_targets(check: &mut Check, view: &View, node: &Node) -> (Vec<usize>, Vec<usize>) {
    let (mut known, mut guessed) = (Vec::new(), Vec::new());
    let edges = node.edges.iter().filter_map(|edge| {
        let pointer = format!("{}/targetNode", edge.pointer);
        Some((edge.target?, pointer, "an edge"))
    });
    let on_failure = node
        .on_failure()
        .map(|target| (target, format!("{}/onFailure", node.pointer), "`onFailure`"));
    for (target, pointer, what) in edges.chain(on_failure) {
        match view.by_id.get(target) {
            Some(at) => known.push(*at),
            None if !check.room(Severity::Error) => {}
            None => {
                let message = format!(
                    "{what} of node {} leads to {}, which does not exist in this workflow",
                    quote(node.id),
                    quote(target)
                );
                let problem = check.error("UNKNOWN_NODE", &pointer, message);
                let near = nearest(target, view.ids());
                guessed.extend(near.and_then(|near| view.by_id.get(near)));
                check.add(problem.did_you_mean(near));
            }
        }
    }
    known.sort_unstable();
    known.dedup();
    (known, guessed)
}

/// The pointer to the edge, or the `onFailure`, that leads from `node` to `target`.
fn closing_edge(node: &Node, target: &str) -> String {
    match node.edges.iter().find(|edge| edge.target == Some(target)) {
        Some(edge) => format!("{}/targetNode", edge.pointer),
        None => format!("{}/onFailure", node.pointer),
    }
}

/// Reports unreachable nodes. A misspelled target counts as the node that was probably meant, so that
/// one typo is not reported as a hundred unreachable nodes.
fn unreachable(check: &mut Check, view: &View, targets: &[Vec<usize>], guessed: &[Vec<usize>]) {
    let Some(start) = text(check.document.value(), "startNode") else {
        return;
    };
    let Some(first) = view.by_id.get(start) else {
        let message = match view.nodes.is_empty() {
            true => "`startNode` cannot be resolved: the workflow has no nodes".to_owned(),
            false => format!("`startNode` is {}, which does not exist in this workflow", quote(start)),
        };
        let problem = check.error("UNKNOWN_NODE", "/startNode", message);
        return check.add(problem.did_you_mean(nearest(start, view.ids())));
    };
    let all: Vec<Vec<usize>> = targets
        .iter()
        .zip(guessed)
        .map(|(known, more)| [&known[..], &more[..]].concat())
        .collect();
    let seen = reachable(&all, [*first]);
    for (at, node) in view.nodes.iter().enumerate() {
        if !seen[at] && view.by_id.get(node.id) == Some(&at) && check.room(Severity::Error) {
            let message = format!(
                "node {} is unreachable: no path leads to it from the start node {}",
                quote(node.id),
                quote(start)
            );
            let problem = check.error("UNREACHABLE_NODE", &format!("{}/id", node.pointer), message);
            check.add(problem.help("add an edge to it, or remove it"));
        }
    }
}

fn snapshot_keys(check: &mut Check, view: &View) {
    let keys = check
        .document
        .value()
        .pointer("/contextSnapshot/keysToInclude")
        .and_then(Value::as_array);
    for (at, key) in keys.into_iter().flatten().enumerate() {
        if let Some(key) = key.as_str().filter(|key| !view.by_id.contains_key(key))
            && check.room(Severity::Warning)
        {
            let pointer = format!("/contextSnapshot/keysToInclude/{at}");
            let message = format!("node {} does not exist in this workflow", quote(key));
            let problem = check.warning("UNKNOWN_NODE", &pointer, message);
            check.add(problem.did_you_mean(nearest(key, view.ids())));
        }
    }
}

impl Graph {
    /// Which nodes precede which; `None` if the graph has a cycle.
    pub(super) fn upstream(&self) -> Option<Upstream> {
        self.acyclic.then(|| Upstream::new(&self.targets))
    }
}
