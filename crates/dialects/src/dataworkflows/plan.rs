//! Builds the plan of a document without errors.
//!
//! Nodes and edges have the order of the document; `onFailure` is the last edge of its node.

use super::view::{Node, View};
use super::{text, time};
use crate::child::{CHILD, Child};
use crate::compile::{Settings, whole};
use crate::triggers::declared;
use crate::{flow, for_each, labels};
use fermata_core::plan::{ContextPolicy, Entries, Form, GraphError, Name, Scope, Source, StoredPlan, Words};
use fermata_core::{
    AnswerRule, Edge, Join, Kind, Language, NodeIx, OnFailure, Plan, Policies, Route, RunOutputs, When, code,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The action that compiles to a durable sleep, not to a call.
pub(super) const DELAY: &str = "core.delay";
/// The action that compiles to a wait for a callback.
pub(super) const WAIT: &str = "core.wait";
/// The action that asks a person.
pub(super) const APPROVAL: &str = "core.approval";

pub(super) fn build(view: &View, document: &Value, settings: &Settings) -> Result<Plan, GraphError> {
    let owned = |key: &str| text(document, key).unwrap_or_default().to_owned();
    let nodes: Vec<fermata_core::Node> = view.nodes.iter().map(|node| build_node(view, node, settings)).collect();
    let pauses = nodes
        .iter()
        .any(|node| !matches!(node.kind, Kind::Action { .. } | Kind::Pass));
    Plan::new(StoredPlan {
        workflow: owned("id"),
        display_name: owned("displayName"),
        dialect: "dataworkflows".to_owned(),
        nodes,
        on_failure: OnFailure::FailFast,
        timeout_ms: time::allowed_ms(document, settings, pauses),
        trigger_schema: document.get("triggerSchema").cloned(),
        trigger_defaults: None,
        context: context(document.get("contextSnapshot"), &settings.context),
        scope: scope(),
        language: Language::Script,
        templates: settings.template_rules(),
        outputs: RunOutputs::Leaves,
        triggers: declared(document),
        empty_schedule_payload: false,
        flow: flow::control(document),
        tags: labels::list(document, "tags"),
        searchable: labels::list(document, "searchable"),
    })
}

/// What the expressions of this dialect see: `trigger`, `context.data.<node>`, `vars`, `spec` and `wait.<node>.url`. The entry of a node is its
/// output or its error.
pub fn scope() -> Scope {
    let error = Form::object([("code", Form::ErrorCode), ("message", Form::ErrorMessage)]);
    Scope {
        names: vec![
            Name::new("trigger", Source::Trigger),
            Name::new("context.data", Source::Entries),
            Name::new("vars", Source::Vars),
            Name::new("spec", Source::Spec),
            Name::new("request", Source::Request),
            Name::new("wait", Source::Waits),
        ],
        entries: Entries {
            succeeded: Form::WHOLE,
            answered: Form::WHOLE,
            failed: Form::object([("error", error), ("errorNode", Form::Node), ("status", Form::Status)]),
            skipped: None,
        },
        words: Words::default(),
    }
}

fn build_node(view: &View, node: &Node, settings: &Settings) -> fermata_core::Node {
    let kind = kind(node, settings);
    let target = |name: &str| NodeIx(view.by_id.get(name).map_or(u32::MAX, |at| *at as u32));
    let mut edges: Vec<Edge> = Vec::new();
    for edge in &node.edges {
        edges.push(Edge {
            target: target(edge.target.unwrap_or_default()),
            when: match text(edge.value, "when") {
                Some("failure") => When::Failure,
                Some("always") => When::Always,
                _ => When::Success,
            },
            condition: text(edge.value, "condition").map(str::to_owned),
            outcome: None,
        });
    }
    if let Some(name) = node.on_failure() {
        edges.push(Edge {
            target: target(name),
            when: When::Unhandled,
            condition: None,
            outcome: None,
        });
    }
    fermata_core::Node {
        id: node.id.into(),
        join: Join::Any,
        route: match text(node.value, "routePolicy") {
            Some("firstMatch") => Route::FirstMatch,
            _ => Route::Parallel,
        },
        policies: policies(node.value.get("policies"), defaults(&kind, settings)),
        edges,
        merges_into_state: false,
        title: None,
        kind,
    }
}

fn kind(node: &Node, settings: &Settings) -> Kind {
    let parameters = node.value.get("parameters").cloned();
    let parameters = parameters.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let timeout_ms = node.value.pointer("/policies/timeoutMs").and_then(whole);
    if node.is_subworkflow() {
        let child = Child {
            workflow: text(node.value, "workflowId").unwrap_or_default(),
            version: node.value.get("workflowVersion").cloned(),
            trigger: Some(parameters),
            each: for_each::each(node.value, settings),
        };
        return match node.value.get("waitForCompletion") {
            Some(Value::Bool(false)) => child.started(),
            _ => child.awaited(timeout_ms),
        };
    }
    let action = text(node.value, "actionType").unwrap_or_default().to_owned();
    match action.as_str() {
        DELAY => Kind::Sleep {
            action,
            parameters,
            timeout_ms,
        },
        WAIT => Kind::Wait {
            timeout_ms: parameters.get("timeoutMs").and_then(whole).or(timeout_ms),
        },
        APPROVAL => {
            let outcomes = parameters.get("outcomes").and_then(Value::as_array);
            let outcomes = outcomes.into_iter().flatten().filter_map(Value::as_str);
            Kind::Request {
                answer: AnswerRule::Approval {
                    outcomes: outcomes.map(str::to_owned).collect(),
                },
                timeout_ms: parameters.get("deadlineMs").and_then(whole).or(timeout_ms),
                retry_on_timeout: false,
                timeout_code: code::WAIT_TIMEOUT.to_owned(),
                action,
                parameters,
            }
        }
        _ => Kind::Action { action, parameters },
    }
}

/// The policies of a node that sets none. A child run is started again only if its node says so.
fn defaults(kind: &Kind, settings: &Settings) -> Policies {
    let mut policies = settings.policies;
    if kind.action_type() == CHILD {
        policies.retry.max_attempts = 1;
    }
    policies
}

/// The policies of a node; fields that it does not set have the configured defaults.
fn policies(given: Option<&Value>, mut policies: Policies) -> Policies {
    let Some(given) = given else { return policies };
    if let Some(timeout) = given.get("timeoutMs").and_then(whole) {
        policies.timeout_ms = timeout;
    }
    if let Some(again) = given.get("rerenderOnRetry").and_then(Value::as_bool) {
        policies.rerender_on_retry = again;
    }
    let Some(given) = given.get("retry") else {
        return policies;
    };
    let retry = &mut policies.retry;
    if let Some(attempts) = given.get("maxAttempts").and_then(whole) {
        retry.max_attempts = u32::try_from(attempts).unwrap_or(u32::MAX).max(1);
    }
    if let Some(delay) = given.get("baseDelayMs").and_then(whole) {
        retry.base_delay_ms = delay;
    }
    if let Some(factor) = given.get("backoffFactor").and_then(Value::as_f64) {
        retry.backoff_factor = factor;
    }
    if let Some(jitter) = given.get("jitter").and_then(Value::as_bool) {
        retry.jitter = jitter;
    }
    policies
}

fn context(given: Option<&Value>, settings: &ContextPolicy) -> ContextPolicy {
    fn read<T: DeserializeOwned>(given: &Value, key: &str, otherwise: T) -> T {
        let value = given.get(key).cloned();
        value
            .and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or(otherwise)
    }
    let mut policy = settings.clone();
    if let Some(given) = given {
        policy.mode = read(given, "mode", policy.mode);
        policy.keys_to_include = read(given, "keysToInclude", policy.keys_to_include);
        policy.overflow_behavior = read(given, "overflowBehavior", policy.overflow_behavior);
        let size = given.get("maxContextSizeBytes").and_then(whole);
        policy.max_context_size_bytes = size.unwrap_or(policy.max_context_size_bytes);
    }
    policy
}
