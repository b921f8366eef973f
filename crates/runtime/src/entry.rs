//! What later expressions see of a node: its entry in the scope of its plan.

use fermata_core::{Failure, Kind, NodeIx, Outcome, Phase, Plan, Scope, code};
use serde_json::{Value, json};
use std::sync::Arc;

/// How a node went, with what it gave.
pub(crate) enum Went<'a> {
    /// It succeeded.
    Well(Arc<Value>),
    /// It failed, and may have learned something all the same.
    Badly(&'a Failure, Option<&'a Value>),
}

/// The entry of a node that ended.
pub(crate) fn entry(plan: &Plan, ix: NodeIx, went: Went<'_>) -> Arc<Value> {
    let node = plan.node(ix);
    match (plan.scope, went) {
        (Scope::Context, Went::Well(outputs)) => outputs,
        (Scope::Context, Went::Badly(failure, _)) => Arc::new(json!({
            "error": { "code": failure.code, "message": failure.message },
            "errorNode": node.id,
            "status": "failed",
        })),
        (Scope::Tasks, Went::Well(outputs)) if matches!(node.kind, Kind::Wait { .. }) => {
            Arc::new(task(success(&node.kind), None, Some(&outputs)))
        }
        (Scope::Tasks, Went::Well(outputs)) => Arc::new(task(success(&node.kind), Some(&outputs), None)),
        (Scope::Tasks, Went::Badly(failure, outputs)) => Arc::new(task(failed(failure), outputs, None)),
    }
}

/// A task as others see it: what a service answered, or what was brought by a callback.
fn task(status: &str, answer: Option<&Value>, brought: Option<&Value>) -> Value {
    let of = |key: &str| answer.and_then(|answer| answer.get(key)).cloned().unwrap_or_default();
    let mut task = json!({
        "status": status,
        "status_code": of("status"),
        "body": brought.cloned().unwrap_or_else(|| of("body")),
        "headers": of("headers"),
    });
    for mark in [TRUNCATED, BODY_ERROR] {
        if let Some(marked) = answer
            .and_then(|answer| answer.get(mark))
            .filter(|marked| **marked != false)
        {
            task[mark] = marked.clone();
        }
    }
    task
}

/// The entry of a task that was skipped.
pub(crate) fn skipped_task() -> Value {
    task("skipped", None, None)
}

/// The member of an entry that says its body was cut.
pub(crate) const TRUNCATED: &str = "isTruncated";
/// The member of an entry that says why its body is text although it was said to be JSON.
pub(crate) const BODY_ERROR: &str = "bodyError";

/// How a task stands, in one word. Skipped tasks and those that ended are seen so by expressions too.
pub fn task_status(kind: &Kind, phase: &Phase) -> &'static str {
    match phase {
        Phase::Idle => "pending",
        Phase::Open(_) => match kind {
            Kind::Action { .. } => "running",
            Kind::Sleep { .. } => "sleeping",
            Kind::Wait { .. } => "waiting",
        },
        Phase::Finished { outcome, .. } => match outcome {
            Outcome::Succeeded(_) => success(kind),
            Outcome::Failed(failure) => failed(failure),
        },
        Phase::Skipped => "skipped",
    }
}

fn success(kind: &Kind) -> &'static str {
    match kind {
        Kind::Wait { .. } => "received",
        Kind::Action { .. } | Kind::Sleep { .. } => "success",
    }
}

fn failed(failure: &Failure) -> &'static str {
    match failure.code.as_str() {
        code::TEMPLATE_ERROR => "template_error",
        code::TIMEOUT | code::WAIT_TIMEOUT => "timeout",
        _ => "failed",
    }
}
