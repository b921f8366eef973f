//! Repeating a run: its buttons, and the form that changes version, trigger and parameters of the new run.
//!
//! What must stay true: without a change the request has none of these members, so the new run is like the old one.

use super::{json, parts::encoded};
use crate::error::ApiError;
use fermata_core::{Kind, Plan, Status};
use fermata_runtime::{Progress, Scope, Session};
use fermata_store::{definitions::Workflow, reads::RunRecord};
use maud::{Markup, html};
use serde_json::{Value, json};

/// The id of the form; buttons name it.
const FORM: &str = "rerun-form";

/// What a button for a rerun says.
struct Text {
    name: &'static str,
    title: &'static str,
    text: &'static str,
    yes: &'static str,
}

fn button(run: &RunRecord, body: &Value, text: &Text) -> Markup {
    html! {
        button.button.js data-post=(format!("/api/v1/executions/{}/rerun", run.id)) data-body=(body) data-new-run data-form=(FORM)
            data-title=(text.title) data-yes=(text.yes) data-text=(text.text) { (text.name) }
    }
}

/// *Rerun*, and *Retry failed* if the run failed. They are for a run that has ended.
pub(super) fn buttons(run: &RunRecord) -> Markup {
    let failed = Text {
        name: "Retry failed",
        title: "Retry the failed nodes?",
        text: "A new run keeps the results of all other nodes and repeats those that failed, and what follows them.",
        yes: "Retry",
    };
    let all = Text {
        name: "Rerun",
        title: "Run it again?",
        text: "A new run repeats every node.",
        yes: "Run again",
    };
    html! {
        @if run.status == Status::Failed { (button(run, &json!({ "failedOnly": true }), &failed)) }
        (button(run, &json!({}), &all))
    }
}

/// *Retry from here*.
pub(super) fn from_node(run: &RunRecord, node: &str) -> Markup {
    let from = Text {
        name: "Retry from here",
        title: "Retry from this node?",
        text: "A new run keeps the results of the nodes before this one, and repeats this node and all that it reaches.",
        yes: "Retry from here",
    };
    button(run, &json!({ "fromNode": node }), &from)
}

/// The form for what the new run has instead. It is part of the page while the run can be repeated.
pub(super) async fn form(
    session: &Session,
    run: &RunRecord,
    progress: Option<&Progress>,
) -> Result<Option<Markup>, ApiError> {
    if !run.status.is_terminal() || !session.caller().has(Scope::Execute) {
        return Ok(None);
    }
    let workflow = session.reads().find_workflow(&run.workflow_uid.to_string()).await?;
    let nodes = match (&workflow, progress) {
        (Some(workflow), Some(progress)) if may_edit(session, workflow) => editable_nodes(&progress.plan),
        _ => Vec::new(),
    };
    let newest = workflow.and_then(|workflow| workflow.current_version);
    Ok(Some(html! { template #(FORM) { (fields(run, newest, &nodes)) } }))
}

/// Parameters decide where secrets are sent, so changing them needs the right to change the workflow.
fn may_edit(session: &Session, workflow: &Workflow) -> bool {
    let caller = session.caller();
    caller.has(Scope::Manage) && caller.tenant().is_none_or(|tenant| tenant == workflow.tenant)
}

fn editable_nodes(plan: &Plan) -> Vec<&str> {
    let nodes = plan.nodes.iter().filter(|node| parameters(&node.kind).is_some());
    nodes.map(|node| node.id.as_str()).collect()
}

/// The parameters of a node, as the document has them.
pub(super) fn parameters(kind: &Kind) -> Option<&Value> {
    match kind {
        Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } | Kind::Request { parameters, .. } => {
            Some(parameters).filter(|parameters| parameters.is_object())
        }
        Kind::Wait { .. } | Kind::Pass => None,
    }
}

fn fields(run: &RunRecord, newest: Option<u32>, nodes: &[&str]) -> Markup {
    let version = run.workflow_version;
    html! {
        details.edit {
            summary { "Change version, trigger or parameters" }
            @match newest.filter(|newest| *newest != version && version > 0) {
                Some(newest) => {
                    fieldset.choice {
                        legend { "Version" }
                        label { input type="radio" name="version" value="" checked; " the same, v" (version) }
                        label { input type="radio" name="version" value="\"latest\""; " the newest, v" (newest) }
                    }
                },
                None => { p.muted { "Version " (version) @if newest.is_some() { " is also the newest." } } },
            }
            @match json::editable(&run.trigger) {
                Some(text) => {
                    label.stacked { span { "Trigger" } textarea name="trigger" data-json rows="7" spellcheck="false" autocapitalize="off" { (text) } }
                },
                None => { p.muted { "The trigger is too large to be changed here." } },
            }
            @if !nodes.is_empty() {
                label.stacked {
                    span { "Parameters of a node" }
                    select data-edit-node data-source=(format!("/runs/{}/nodes", run.id)) {
                        option value="" { "as in the document" }
                        @for node in nodes { option value=(node) data-part=(encoded(node)) { (node) } }
                    }
                    small.muted { "Only nodes that are repeated can be changed. Strings are templates, as in the document." }
                }
                div data-edits {}
            }
        }
    }
}
