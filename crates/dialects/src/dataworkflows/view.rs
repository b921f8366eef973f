//! The nodes and edges of a document. Values of the wrong shape are left out: the structure check
//! reports them.

use super::plan::WAIT;
use super::text;
use serde_json::Value;
use std::collections::HashMap;

/// The nodes that have at least an id.
pub(super) struct View<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    /// The first node of each id.
    pub(super) by_id: HashMap<&'a str, usize>,
}

pub(super) struct Node<'a> {
    pub(super) id: &'a str,
    pub(super) pointer: String,
    pub(super) value: &'a Value,
    pub(super) edges: Vec<Edge<'a>>,
}

pub(super) struct Edge<'a> {
    pub(super) pointer: String,
    pub(super) value: &'a Value,
    pub(super) target: Option<&'a str>,
}

impl<'a> View<'a> {
    pub(super) fn new(document: &'a Value) -> View<'a> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut by_id = HashMap::new();
        for (at, value) in items(document, "nodes") {
            let Some(id) = text(value, "id") else { continue };
            let pointer = format!("/nodes/{at}");
            by_id.entry(id).or_insert(nodes.len());
            let edge = |(at, value): (usize, &'a Value)| Edge {
                pointer: format!("{pointer}/edges/{at}"),
                value,
                target: text(value, "targetNode"),
            };
            let edges = items(value, "edges").map(edge).collect();
            nodes.push(Node {
                id,
                pointer,
                value,
                edges,
            });
        }
        View { nodes, by_id }
    }

    /// All ids, in document order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &'a str> {
        self.nodes.iter().map(|node| node.id)
    }
}

impl<'a> Node<'a> {
    pub(super) fn is_subworkflow(&self) -> bool {
        text(self.value, "nodeType") == Some("subworkflow")
    }

    pub(super) fn is_wait(&self) -> bool {
        text(self.value, "actionType") == Some(WAIT) && !self.is_subworkflow()
    }

    pub(super) fn on_failure(&self) -> Option<&'a str> {
        text(self.value, "onFailure")
    }
}

/// The items of the list at `key`, with their positions.
fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
}
