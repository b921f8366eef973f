//! The calls that the service received, compared with the recorded attempts.

use super::{Found, Rule, RunEvidence, Tenure};
use crate::chaos::evidence::{AttemptRow, Effect, Evidence, Micros};
use fermata_core::Event;
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A process that was stopped, perhaps several times, may continue a call long after its runs were taken over.
const ZOMBIE: Micros = 60_000_000;

/// The calls of each run. A call of an unknown run is the effect of something that was never durable.
pub(super) fn by_run<'a>(evidence: &'a Evidence, found: &mut Found) -> BTreeMap<Uuid, Vec<&'a Effect>> {
    let mut runs: BTreeMap<Uuid, Vec<&Effect>> = BTreeMap::new();
    for effect in &evidence.effects {
        match effect.run.parse() {
            Ok(run) if evidence.runs.contains_key(&run) => runs.entry(run).or_default().push(effect),
            _ => {
                let what = format!("call {} with the key `{}` is of no run", effect.call, effect.key);
                found.add(Rule::Effect, None, what);
            }
        }
    }
    runs
}

/// The number of the call whose response was recorded with an attempt.
pub(super) fn recorded_call(row: &AttemptRow) -> Option<u64> {
    row.outputs.as_ref()?.pointer("/body/call").and_then(Value::as_u64)
}

pub(super) fn check(subject: &RunEvidence<'_>, effects: &[&Effect], found: &mut Found) {
    same_bodies(subject, effects, found);
    for (node, shape) in subject.shape {
        let calls: Vec<&Effect> = effects.iter().copied().filter(|effect| effect.node == *node).collect();
        if shape.calls {
            answers(subject, node, &calls, found);
        }
        found.ensure(
            (shape.calls && !shape.wrong) || calls.is_empty(),
            Rule::Effect,
            subject.id,
            || format!("{node} must not call, and yet did"),
        );
    }
}

/// Calls with the same key have the same body, and belong to the run that the key names.
fn same_bodies(subject: &RunEvidence<'_>, effects: &[&Effect], found: &mut Found) {
    let mut first: BTreeMap<&str, &Effect> = BTreeMap::new();
    for effect in effects {
        let before = first.entry(&effect.key).or_insert(effect);
        found.ensure(before.body == effect.body, Rule::Effect, subject.id, || {
            format!(
                "{} was called with {} and then with {}",
                effect.key, before.body, effect.body
            )
        });
        let own = effect.body.get("order") == subject.rows.trigger.get("order");
        found.ensure(
            own && subject.shape.contains_key(&effect.node),
            Rule::Effect,
            subject.id,
            || {
                format!(
                    "{} was called for {}, not for {}",
                    effect.key, effect.body, subject.rows.trigger
                )
            },
        );
    }
}

/// Recorded attempts have the responses of their calls. A call whose response was lost lies in a crash window.
fn answers(subject: &RunEvidence<'_>, node: &str, calls: &[&Effect], found: &mut Found) {
    let id = subject.id;
    let rows: Vec<&AttemptRow> = subject.rows.attempts.iter().filter(|row| row.node == node).collect();
    let mut lost: BTreeMap<u64, &Effect> = calls.iter().map(|call| (call.call, *call)).collect();
    let mut silent = 0;
    for row in &rows {
        let Some(number) = recorded_call(row) else {
            let code = row.error.as_ref().and_then(|error| error["code"].as_str());
            let given_up = matches!(code, Some("TIMEOUT" | "CONNECTION_FAILED" | "CANCELLED"));
            let without = row.status == "Skipped" || !row.began || given_up;
            found.ensure(without, Rule::Effect, id, || {
                format!(
                    "attempt {} of {node} is {} without an effect: {code:?}",
                    row.attempt, row.status
                )
            });
            silent += usize::from(row.status != "Skipped" && row.began);
            continue;
        };
        let Some(call) = lost.remove(&number) else {
            let what = format!(
                "attempt {} of {node} has the answer to call {number}, which is not its own",
                row.attempt
            );
            found.add(Rule::Effect, Some(id), what);
            continue;
        };
        found.ensure(call.attempt == row.attempt, Rule::Effect, id, || {
            format!(
                "attempt {} of {node} has the answer to attempt {}",
                row.attempt, call.attempt
            )
        });
        let status = match call.answered {
            200 => &["Succeeded"][..],
            // The last attempt of a run that is stopping is not repeated.
            503 => &["RetriableFailure", "Failed"],
            _ => &["Failed"],
        };
        found.ensure(status.contains(&row.status.as_str()), Rule::Effect, id, || {
            format!(
                "attempt {} of {node} was answered {} and is {}",
                row.attempt, call.answered, row.status
            )
        });
    }
    let (outside, late) = outside(lost.values().map(|call| call.at).collect(), windows(subject, node));
    found.late += late;
    // An attempt whose outcome was dropped may have made its call.
    found.ensure(outside.len() <= silent, Rule::Effect, id, || {
        format!(
            "{node} was called again outside of a crash window, at {outside:?}: {lost:?}, {:?}",
            subject.taken_over
        )
    });
    let called = rows
        .iter()
        .any(|row| row.status == "RetriableFailure" || row.status == "Succeeded");
    found.ensure(!called || !calls.is_empty(), Rule::Effect, id, || {
        format!("{node} was never called")
    });
}

/// The periods of owners that may have called a node and lost the run before they recorded the outcome: the node was open
/// under their epoch, and another owner recorded its end.
fn windows(subject: &RunEvidence<'_>, node: &str) -> Vec<Tenure> {
    let mut events = subject
        .events
        .iter()
        .filter(|(_, event)| event.node().is_some_and(|it| it.as_str() == node));
    let opened = events.find(|(_, event)| matches!(event, Event::Opened { .. }));
    let ended = events.find(|(_, event)| matches!(event, Event::Skipped { .. } | Event::Finished { .. }));
    let Some((opened, _)) = opened else {
        return Vec::new();
    };
    let ended = ended.map_or(i64::MAX, |(ended, _)| *ended);
    let taken_over = subject.taken_over.iter().copied();
    taken_over
        .filter(|tenure| (*opened..ended).contains(&tenure.epoch))
        .collect()
}

/// Calls that no crash window explains, and how many are explained by a window that had closed. A window explains one call: an
/// owner calls a node again only after the commit of the call before.
fn outside(mut calls: Vec<Micros>, mut windows: Vec<Tenure>) -> (Vec<Micros>, usize) {
    calls.sort_unstable();
    let mut explain = |slack: Micros| {
        let before = calls.len();
        calls.retain(|at| {
            // Use the window that closes first: later calls can use it least.
            let fits = |window: &Tenure| window.from <= *at && *at <= window.to + slack;
            let window = windows.iter().position(fits);
            window.map(|place| windows.remove(place)).is_none()
        });
        before - calls.len()
    };
    explain(0);
    let late = explain(ZOMBIE);
    (calls, late)
}
