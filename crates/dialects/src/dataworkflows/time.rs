//! How long a run may take from its start, parked time included: the `timeoutMs` of the document, else the configured
//! default, and then at least 30 days if the graph sleeps or waits.

use super::plan::DELAY;
use super::view::View;
use super::{Check, text};
use crate::compile::{Settings, whole};
use crate::diagnostics::{Severity, quote};
use serde_json::Value;

/// The time limit of a run whose graph sleeps or waits, unless the document or the configuration sets a higher one.
const PAUSING_MS: u64 = 30 * 24 * 60 * 60 * 1000;

/// The time limit of a run; `None` for no limit.
pub(super) fn allowed_ms(document: &Value, settings: &Settings, pauses: bool) -> Option<u64> {
    let otherwise = settings.workflow_timeout_ms;
    let otherwise = otherwise.map(|set| if pauses { set.max(PAUSING_MS) } else { set });
    document.get("timeoutMs").and_then(whole).or(otherwise)
}

/// Warns about sleeps that are longer than the time limit of the run.
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
            let message = format!("{subject} is longer than the time limit of a run, {} s", most / 1000);
            let problem = check.warning("LONGER_THAN_RUN", &pointer, message);
            check.add(problem.help("shorten the sleep, or raise `timeoutMs` of the workflow"));
        }
    }
}
