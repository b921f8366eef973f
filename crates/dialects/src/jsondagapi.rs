//! The jsondagapi dialect: a list of nodes and a list of edges.
//!
//! Tasks and tools ask external services, workers or people to do the work, and merge the answers into the state of the run.
//! Decisions choose one of their outgoing edges: by expressions over the state, or by asking. Subgraphs run other workflows.
//!
//! [`intents`] has the partial updates of documents, [`version`] the rules for their version numbers.

mod conditions;
mod decisions;
mod edges;
mod graph;
mod inputs;
pub mod intents;
mod nodes;
mod plan;
mod policies;
pub mod version;
mod view;

use crate::check::{Check, text};
use crate::compile::{Catalog, Compiled, Settings, Stage};
use crate::diagnostics::{Diagnostics, quote};
use crate::document::Document;
use crate::flow::{self, Keys};
use crate::structure::Structure;
use crate::triggers;
use fermata_expr::template::Syntax;
use jsonschema::ValidationError;
use serde_json::Value;
use std::sync::LazyLock;
use view::View;

/// The JSON Schema of the dialect, for editors and the API.
pub const SCHEMA: &str = include_str!("../../../schemas/jsondagapi.json");

static STRUCTURE: LazyLock<Structure> = LazyLock::new(|| Structure::new(SCHEMA));

/// Compiles a jsondagapi document, or reports everything that is wrong with it.
pub fn compile(
    document: &Document,
    settings: &Settings,
    catalog: &dyn Catalog,
    stage: Stage,
) -> Result<Compiled, Diagnostics> {
    let mut check = Check::new(document, settings, catalog, stage);
    let nodes = document.value().get("nodes").and_then(Value::as_array);
    check.limit_nodes(nodes.map_or(0, Vec::len), "nodes")?;
    let view = View::new(document.value());
    let value = document.value();
    // Rules that depend on the type of a node, an executor or a condition are in the schema for editors. Here they have their
    // own messages.
    let by_type = |error: &ValidationError| error.schema_path().as_str().contains("/allOf/");
    let meant = STRUCTURE.check(&mut check, |pointer| subject(value, pointer), by_type);
    check.workflow_name("workflow_id");
    inputs::check(&mut check);
    triggers::check(&mut check);
    nodes::check(&mut check, &view, &meant);
    edges::check(&mut check, &view);
    decisions::check(&mut check, &view);
    conditions::check(&mut check, &view, &meant);
    graph::check(&mut check, &view);
    let keys = Keys {
        syntax: Syntax::Scriban,
        roots: None,
    };
    flow::check(&mut check, &keys);
    check.finish("nodes", || plan::build(&view, document.value(), settings))
}

/// Describes what a pointer leads to.
fn subject(document: &Value, pointer: &str) -> String {
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    let at = |list: &str, at: &str| document.pointer(&format!("/{list}/{at}"));
    let node = |place: &str| match at("nodes", place).and_then(|node| text(node, "id")) {
        Some(id) => format!("node {}", quote(id)),
        None => "a node".to_owned(),
    };
    let edge = |place: &str| at("edges", place).map_or_else(|| "an edge".to_owned(), view::edge_name);
    match steps.as_slice() {
        [] => "the workflow".to_owned(),
        ["nodes", at] => node(at),
        ["nodes", at, .., last] => format!("`{last}` of {}", node(at)),
        ["edges", at] => edge(at),
        ["edges", at, .., last] => format!("`{last}` of {}", edge(at)),
        ["triggers", at] => triggers::subject(document, at),
        ["triggers", at, .., last] => format!("`{last}` of {}", triggers::subject(document, at)),
        [.., last] => format!("`{last}`"),
    }
}
