//! Retry and timeout policies. A field that is missing in one place is inherited from the next outer one: the condition, the
//! executor, the node, the workflow, the configured default.

use super::view::{Node, NodeType};
use crate::compile::whole;
use fermata_core::Retry;
use serde_json::Value;

/// The default time limit of a run: 30 days.
const MAX_DURATION_SECONDS: u64 = 30 * 24 * 60 * 60;

/// The policies of a node.
pub(super) struct NodePolicies {
    pub(super) retry: Retry,
    /// The time limit of an attempt, if the document sets one.
    pub(super) timeout_ms: Option<u64>,
}

/// The policies of `node`. `callback` is the config of its callback conditions.
pub(super) fn of_node(document: &Value, node: &Node, callback: Option<&Value>, default: Retry) -> NodePolicies {
    let workflow = document.get("policies");
    let retry_of = |owner: Option<&'_ Value>| owner.and_then(|owner| owner.get("retry_policy")).cloned();
    let retries = [
        retry_of(workflow),
        retry_of(Some(node.value)),
        retry_of(node.config()),
        retry_of(callback),
    ];
    let mut retry = Retry {
        // A child run is started again only if a policy says so.
        max_attempts: match node.kind {
            Some(NodeType::Subgraph) => 1,
            _ => default.max_attempts,
        },
        ..default
    };
    for given in retries.iter().flatten() {
        overlay(&mut retry, given);
    }
    let timeouts = [
        callback.and_then(|callback| callback.get("timeout_seconds")),
        node.config().and_then(|config| config.get("timeout_seconds")),
        node.value.pointer("/timeout_policy/timeout_seconds"),
        document.pointer("/policies/timeout_policy/timeout_seconds"),
    ];
    let seconds = timeouts.into_iter().flatten().find_map(whole);
    NodePolicies {
        retry,
        timeout_ms: seconds.map(|seconds| seconds.saturating_mul(1000)),
    }
}

/// Replaces the fields that `given` has.
fn overlay(retry: &mut Retry, given: &Value) {
    if let Some(attempts) = given.get("max_attempts").and_then(whole) {
        retry.max_attempts = u32::try_from(attempts).unwrap_or(u32::MAX).max(1);
    }
    if let Some(delay) = given.get("base_delay_ms").and_then(whole) {
        retry.base_delay_ms = delay;
    }
    if let Some(factor) = given.get("backoff_factor").and_then(Value::as_f64) {
        retry.backoff_factor = factor;
    }
    if let Some(jitter) = given.get("jitter").and_then(Value::as_bool) {
        retry.jitter = jitter;
    }
}

/// The time limit of a run.
pub(super) fn run_timeout_ms(document: &Value) -> u64 {
    let seconds = document.pointer("/policies/max_duration_seconds").and_then(whole);
    seconds.unwrap_or(MAX_DURATION_SECONDS).saturating_mul(1000)
}
