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
use crate::diagnostics::{Diagnostics, Severity, quote};
use crate::document::Document;
use crate::structure::Structure;
use crate::tree::unescape;
use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};
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
    warn_of_unsupported_trigger(&mut check);
    steps::check(&mut check, &view, &meant);
    let graph = graph::check(&mut check, &view);
    expressions::check(&mut check, &view, &graph);
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

/// Warns about triggers that do not start runs yet.
fn warn_of_unsupported_trigger(check: &mut Check) {
    let kind = trigger(check.document.value());
    if matches!(kind, "cron" | "webhook") && check.room(Severity::Warning) {
        let message = format!(
            "the trigger {} is stored, but this version of Fermata does not start runs by it",
            quote(kind)
        );
        let problem = check.warning("TRIGGER_NOT_BUILT", "/trigger", message);
        check.add(problem.help("start runs with `POST /api/v1/workflows/{id}/trigger`"));
    }
}

/// What starts runs; `api` by default.
fn trigger(document: &Value) -> &str {
    text(document, "trigger").unwrap_or("api")
}
