//! The Runlater dialect: named tasks with `needs` and `if`.
//!
//! A task is an HTTP request, a sleep or a wait for a webhook. A task without `if` runs when all it
//! needs has succeeded; a task with `if` runs when all it needs has ended and the condition is true.

mod cron;
mod duration;
mod expressions;
mod graph;
mod plan;
mod steps;
mod view;

use crate::check::{Check, text};
use crate::compile::{Catalog, Compiled, Settings, Stage};
use crate::diagnostics::{Diagnostics, quote};
use crate::document::Document;
use crate::flow::{self, Keys};
use crate::structure::Structure;
use crate::tree::unescape;
use fermata_core::plan::DeclaredTrigger;
use fermata_expr::template::Syntax;
use fermata_triggers::TriggerType;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use view::View;

/// The JSON Schema of the dialect, for editors and the API.
pub const SCHEMA: &str = include_str!("../../../schemas/runlater.json");

static STRUCTURE: LazyLock<Structure> = LazyLock::new(|| Structure::new(SCHEMA));

/// The default time limit of a run: 30 days.
const MAX_DURATION_SECONDS: u64 = 30 * 24 * 60 * 60;

/// Compiles a Runlater document, or reports everything that is wrong with it.
pub fn compile(
    document: &Document,
    settings: &Settings,
    catalog: &dyn Catalog,
    stage: Stage,
) -> Result<Compiled, Diagnostics> {
    let mut check = Check::new(document, settings, catalog, stage);
    let tasks = document.value().get("tasks").and_then(Value::as_object);
    check.limit_nodes(tasks.map_or(0, Map::len), "tasks")?;
    let view = View::new(document.value());
    let meant = STRUCTURE.check(&mut check, subject, reported_by_steps);
    check.workflow_name("name");
    cron::check(&mut check, &meant);
    steps::check(&mut check, &view, &meant);
    let graph = graph::check(&mut check, &view);
    expressions::check(&mut check, &view, &graph);
    let keys = Keys {
        syntax: Syntax::Paths,
        roots: Some(&["trigger"]),
    };
    flow::check(&mut check, &keys);
    check.finish("tasks", || plan::build(&view, document.value(), settings, stage))
}

/// Describes what a pointer leads to.
fn subject(pointer: &str) -> String {
    let steps: Vec<String> = pointer.split('/').skip(1).map(unescape).collect();
    match steps.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => "the workflow".to_owned(),
        ["tasks", name] => format!("task {}", quote(name)),
        ["tasks", name, .., last] => format!("{} of task {}", quote(last), quote(name)),
        [.., last] => quote(last),
    }
}

/// Whether [`steps`] reports this error with a better message: step types and durations.
fn reported_by_steps(error: &ValidationError) -> bool {
    let about_type = matches!(
        error.kind(),
        ValidationErrorKind::OneOfMultipleValid { .. } | ValidationErrorKind::OneOfNotValid { .. }
    );
    let steps: Vec<&str> = error.instance_path().as_str().split('/').skip(1).collect();
    let about_value = matches!(
        steps.as_slice(),
        ["tasks", _, "sleep" | "timeout" | "wait_for_webhook"] | ["tasks", _, "wait_for_webhook", "timeout"]
    );
    let unknown = matches!(error.kind(), ValidationErrorKind::AdditionalProperties { .. });
    about_type || (about_value && !unknown) || error.schema_path().as_str().contains("/dependencies")
}

/// The time limit of a run.
fn max_duration_seconds(document: &Value) -> u64 {
    document
        .get("max_duration_seconds")
        .and_then(duration::whole)
        .unwrap_or(MAX_DURATION_SECONDS)
}

/// The trigger of a document without errors, except `api`: runs can always be started over the API.
fn declared(document: &Value) -> Vec<DeclaredTrigger> {
    let (kind, config) = match trigger(document) {
        "cron" => {
            let cron = text(document, "cron_expression").unwrap_or_default();
            (TriggerType::Schedule, json!({ "cron": cron }))
        }
        "webhook" => (TriggerType::Webhook, json!({})),
        _ => return Vec::new(),
    };
    vec![DeclaredTrigger {
        name: trigger(document).to_owned(),
        kind: kind.name().to_owned(),
        enabled: true,
        config,
        condition: None,
    }]
}

/// What starts runs; `api` by default.
fn trigger(document: &Value) -> &str {
    text(document, "trigger").unwrap_or("api")
}
