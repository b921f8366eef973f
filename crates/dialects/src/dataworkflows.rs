//! The DataWorkflows dialect: nodes that carry their edges.

mod actions;
mod expressions;
mod graph;
mod pauses;
mod plan;
mod schema;
mod time;
mod view;

use crate::check::{Check, text};
use crate::compile::{Catalog, Compiled, Settings, Stage};
use crate::diagnostics::Diagnostics;
use crate::document::Document;
use crate::flow::{self, Keys};
use crate::trigger_schema;
use crate::triggers;
use fermata_expr::template::Syntax;
pub use plan::scope;
use serde_json::Value;
use view::View;

/// The JSON Schema of the dialect, for editors and the API.
pub const SCHEMA: &str = include_str!("../../../schemas/dataworkflows.json");

/// Compiles a DataWorkflows document, or reports everything that is wrong with it.
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
    let nodes = view.nodes.iter();
    let nodes = nodes.map(|node| ("the node id", node.id, format!("{}/id", node.pointer)));
    let workflow = text(document.value(), "id").map(|id| ("the id", id, "/id".to_owned()));
    check.ids(workflow.into_iter().chain(nodes));
    check.workflow_name("id");
    schema::check(&mut check, &view);
    let trigger = document.value().get("triggerSchema");
    if let Some(schema) = trigger.filter(|schema| schema.is_object()) {
        trigger_schema::check(&mut check, schema, |pointer| format!("/triggerSchema{pointer}"));
    }
    triggers::check(&mut check);
    let graph = graph::check(&mut check, &view);
    actions::check(&mut check, &view);
    pauses::check(&mut check, &view);
    time::check(&mut check, &view);
    expressions::check(&mut check, &view, &graph);
    let keys = Keys {
        syntax: Syntax::Scriban,
        roots: Some(&["trigger", "spec"]),
    };
    flow::check(&mut check, &keys);
    check.finish("nodes", || plan::build(&view, document.value(), settings))
}
