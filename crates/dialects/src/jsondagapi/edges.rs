//! Checks each edge by itself: its ends exist and differ, and only decisions have conditions and outcomes.

use super::nodes::near;
use super::view::{Edge, NodeType, View};
use crate::check::Check;
use crate::diagnostics::{Severity, quote};
use std::collections::HashMap;

pub(super) fn check(check: &mut Check, view: &View) {
    let mut seen: HashMap<(&str, &str, Option<&str>), usize> = HashMap::new();
    for (at, edge) in view.edges.iter().enumerate() {
        ends(check, view, edge);
        if edge.from == edge.to {
            self_loop(check, edge);
        }
        let from = view.node(edge.from).and_then(|node| node.kind);
        if let Some(kind) = from.filter(|kind| *kind != NodeType::Decision) {
            conditional(check, edge, kind);
        }
        // Several outcomes of a decision may lead to the same node.
        let outcome = edge.named_outcome().filter(|_| from == Some(NodeType::Decision));
        let by_condition = from == Some(NodeType::Decision) && edge.condition().is_some();
        match seen.get(&(edge.from, edge.to, outcome)) {
            Some(first) if !by_condition => doubled(check, edge, &view.edges[*first]),
            Some(_) => {}
            None => drop(seen.insert((edge.from, edge.to, outcome), at)),
        }
    }
}

fn ends(check: &mut Check, view: &View, edge: &Edge) {
    for (field, id) in [("from", edge.from), ("to", edge.to)] {
        if !view.by_id.contains_key(id) && check.room(Severity::Error) {
            let pointer = format!("{}/{field}", edge.pointer);
            let what = match field {
                "from" => "starts from",
                _ => "leads to",
            };
            let message = format!("an edge {what} {}, which does not exist in this workflow", quote(id));
            let problem = check.error("UNKNOWN_NODE", &pointer, message);
            check.add(problem.did_you_mean(near(view, id)));
        }
    }
}

fn self_loop(check: &mut Check, edge: &Edge) {
    if check.room(Severity::Error) {
        let message = format!("an edge leads from {} to itself", quote(edge.from));
        let problem = check.error("SELF_LOOP", &format!("{}/to", edge.pointer), message);
        check.add(problem.help("workflows cannot loop; to repeat a step that fails, use its `retry_policy`"));
    }
}

/// Conditions and outcomes of edges that do not start from a decision.
fn conditional(check: &mut Check, edge: &Edge, kind: NodeType) {
    let kind = kind.name();
    if edge.condition().is_some() && check.room(Severity::Error) {
        let pointer = format!("{}/condition", edge.pointer);
        let message = format!("{} has a condition, but starts from a {kind} node", edge.name());
        let mut problem = check.error("CONDITION_NOT_ALLOWED", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        check.add(problem.help("only edges from decision nodes have conditions; put a decision node between the two"));
    }
    if edge.named_outcome().is_some() && check.room(Severity::Error) {
        let pointer = format!("{}/metadata/outcome", edge.pointer);
        let message = format!("{} has an outcome, but starts from a {kind} node", edge.name());
        let mut problem = check.error("OUTCOME_NOT_ALLOWED", &pointer, message);
        problem.span = check.document.locate_key(&pointer);
        check.add(problem.help("only decision nodes have outcomes; remove it, or put a decision node between the two"));
    }
}

fn doubled(check: &mut Check, edge: &Edge, first: &Edge) {
    if check.room(Severity::Error) {
        let place = check.document.locate(&first.pointer);
        let problem = check.error("DUPLICATE_EDGE", &edge.pointer, format!("{} occurs twice", edge.name()));
        check.add(
            problem
                .related("it first occurs here", place)
                .help("remove one of them"),
        );
    }
}
