//! How long a run may take from its start, parked time included: the document's `timeoutMs`, else what the engine is set
//! to, or 30 days if the graph sleeps or waits.

use super::plan::{DELAY, whole};
use super::view::View;
use super::{Check, text};
use crate::compile::Settings;
use crate::diagnostics::{Severity, quote};
use serde_json::Value;

/// The time of a run whose graph sleeps or waits, unless the document or the engine's settings allow more.
const PATIENT_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The time a run may take; `None` if it has no end.
pub(super) fn allowed_ms(document: &Value, settings: &Settings, pauses: bool) -> Option<u64> {
    let otherwise = settings.workflow_timeout_ms;
    let otherwise = otherwise.map(|set| if pauses { set.max(PATIENT_MS) } else { set });
    document.get("timeoutMs").and_then(whole).or(otherwise)
}

/// Warns of sleeps that no run survives.
pub(super) fn check(check: &mut Check, view: &View) {
    let Some(most) = allowed_ms(check.document.value(), check.settings, true) else {
        return;
    };
    let sleeps = view
        .nodes
        .iter()
        .filter(|node| text(node.value, "actionType") == Some(DELAY));
    for node in sleeps {
        let duration = node.value.pointer("/parameters/durationMs");
        let written = |value: &Value| value.as_str().and_then(|text| text.trim().parse().ok());
        let duration = duration.and_then(|value| whole(value).or_else(|| written(value)));
        if duration.is_some_and(|duration| duration > most) && check.room(Severity::Warning) {
            let pointer = format!("{}/parameters/durationMs", node.pointer);
            let subject = format!("`durationMs` of node {}", quote(node.id));
            let message = format!("{subject} is longer than a run may take: {} s", most / 1000);
            let problem = check.warning("LONGER_THAN_RUN", &pointer, message);
            check.add(problem.help("raise `timeoutMs` of the workflow"));
        }
    }
}
