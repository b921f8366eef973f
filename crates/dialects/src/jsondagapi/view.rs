//! The nodes and edges of a document. Values of the wrong shape are left out: the structure check reports them.

use crate::check::text;
use crate::diagnostics::quote;
use serde_json::Value;
use std::collections::HashMap;

/// The nodes that have at least an id, and the edges between known nodes and others.
pub(super) struct View<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) edges: Vec<Edge<'a>>,
    /// The first node of each id.
    pub(super) by_id: HashMap<&'a str, usize>,
}

pub(super) struct Node<'a> {
    pub(super) id: &'a str,
    pub(super) pointer: String,
    pub(super) value: &'a Value,
    /// `None` if it has no known type.
    pub(super) kind: Option<NodeType>,
    /// The positions of its outgoing edges, in document order.
    pub(super) edges: Vec<usize>,
}

pub(super) struct Edge<'a> {
    pub(super) pointer: String,
    pub(super) value: &'a Value,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
}

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeType {
    Task,
    Decision,
    Subgraph,
    Tool,
}

impl NodeType {
    fn parse(name: &str) -> Option<NodeType> {
        Some(match name {
            "task" => NodeType::Task,
            "decision" => NodeType::Decision,
            "subgraph" => NodeType::Subgraph,
            "tool" => NodeType::Tool,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            NodeType::Task => "task",
            NodeType::Decision => "decision",
            NodeType::Subgraph => "subgraph",
            NodeType::Tool => "tool",
        }
    }

    /// The executors that nodes of this type may have.
    pub(super) fn executors(self) -> &'static [&'static str] {
        match self {
            NodeType::Task => &["callback", "http", "event"],
            NodeType::Decision => &["callback"],
            NodeType::Tool => &["callback", "event"],
            NodeType::Subgraph => &[],
        }
    }
}

/// The kind of the condition of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionKind {
    None,
    Expression,
    Callback,
}

impl<'a> View<'a> {
    pub(super) fn new(document: &'a Value) -> View<'a> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut by_id = HashMap::new();
        for (at, value) in items(document, "nodes") {
            let Some(id) = text(value, "id") else { continue };
            by_id.entry(id).or_insert(nodes.len());
            nodes.push(Node {
                id,
                pointer: format!("/nodes/{at}"),
                value,
                kind: text(value, "type").and_then(NodeType::parse),
                edges: Vec::new(),
            });
        }
        let edge = |(at, value): (usize, &'a Value)| {
            let (from, to) = (text(value, "from")?, text(value, "to")?);
            let pointer = format!("/edges/{at}");
            Some(Edge {
                pointer,
                value,
                from,
                to,
            })
        };
        let edges: Vec<Edge> = items(document, "edges").filter_map(edge).collect();
        for (at, edge) in edges.iter().enumerate() {
            if let Some(from) = by_id.get(edge.from) {
                nodes[*from].edges.push(at);
            }
        }
        View { nodes, edges, by_id }
    }

    /// All ids, in document order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &'a str> {
        self.nodes.iter().map(|node| node.id)
    }

    /// The node with this id.
    pub(super) fn node(&self, id: &str) -> Option<&Node<'a>> {
        self.by_id.get(id).map(|at| &self.nodes[*at])
    }

    /// The decisions, each with its outgoing edges.
    pub(super) fn decisions(&self) -> impl Iterator<Item = (&Node<'a>, Vec<&Edge<'a>>)> {
        let decisions = self.nodes.iter().filter(|node| node.kind == Some(NodeType::Decision));
        decisions.map(|node| (node, node.edges.iter().map(|at| &self.edges[*at]).collect()))
    }
}

impl<'a> Node<'a> {
    pub(super) fn executor(&self) -> Option<&'a str> {
        self.value.get("executor").and_then(|executor| text(executor, "type"))
    }

    pub(super) fn config(&self) -> Option<&'a Value> {
        self.value.pointer("/executor/config")
    }
}

impl<'a> Edge<'a> {
    pub(super) fn condition(&self) -> Option<&'a Value> {
        self.value.get("condition")
    }

    pub(super) fn condition_kind(&self) -> ConditionKind {
        match self.condition().and_then(|condition| text(condition, "type")) {
            Some("expression") => ConditionKind::Expression,
            Some("callback") => ConditionKind::Callback,
            _ => ConditionKind::None,
        }
    }

    pub(super) fn decision_key(&self) -> Option<&'a str> {
        self.condition().and_then(|condition| text(condition, "decision_key"))
    }

    /// The outcome that the document names.
    pub(super) fn named_outcome(&self) -> Option<&'a str> {
        self.value.pointer("/metadata/outcome").and_then(Value::as_str)
    }

    /// The outcome for which the edge is taken: the id of its target, if none is named.
    pub(super) fn outcome(&self) -> &'a str {
        self.named_outcome().unwrap_or(self.to)
    }

    pub(super) fn name(&self) -> String {
        edge_name(self.value)
    }
}

/// `the edge a->b`, for messages.
pub(super) fn edge_name(edge: &Value) -> String {
    match (text(edge, "from"), text(edge, "to")) {
        (Some(from), Some(to)) => format!("the edge {}", quote(&format!("{from}->{to}"))),
        _ => "an edge".to_owned(),
    }
}

/// The items of the list at `key`, with their positions.
fn items<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    let list = value.get(key).and_then(Value::as_array);
    list.into_iter().flatten().enumerate()
}
