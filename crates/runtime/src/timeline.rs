//! The journal for people: one entry for each event, with a level and a category.

use crate::mask::Mask;
use fermata_core::{Event, NodeId, Outcome, Plan, Ranges, Route, RunId, SkipReason, Status, Timestamp, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

/// The severity of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[allow(missing_docs)]
pub enum Level {
    Info,
    Warn,
    Error,
}

/// An event, described for people.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The journal row of the event.
    pub seq: u32,
    /// When it was decided.
    #[serde(skip)]
    pub at: Timestamp,
    /// The severity.
    pub level: Level,
    /// `Orchestrator`, or `Action:` and the node's action.
    pub category: String,
    /// A description.
    pub message: String,
    /// The event itself.
    pub data: Value,
}

/// How many entries [`entries`] returns for these events.
pub fn count(events: &[Event]) -> usize {
    let warnings = |event| broken_conditions(event).len() + missing_outputs(event).len();
    let own = |event: &Event| match event {
        Event::Reused(reused) => reused.ends().count(),
        _ => 1,
    };
    events.iter().map(|event| own(event) + warnings(event)).sum()
}

/// The entries of one journal row. Each condition that could not be evaluated and each output that is missing has its own. The journal holds the
/// configured `vars` because replay needs them; they may be secrets and are not shown. Values that conditions read are masked.
pub fn entries(seq: u32, at: Timestamp, events: &[Event], plan: Option<&Plan>, mask: &Mask) -> Vec<Entry> {
    let entry = |level, category, message, data| Entry {
        seq,
        at,
        level,
        category,
        message,
        data,
    };
    let mut entries = Vec::with_capacity(events.len());
    for event in events {
        if let Event::Reused(reused) = event {
            let kept = reused.ends().map(|end| kept(reused.of, end));
            entries.extend(kept.map(|(level, message, data)| entry(level, "Orchestrator".to_owned(), message, data)));
            continue;
        }
        for (node, verdict, error) in broken_conditions(event) {
            let result = if fails_the_run(node, plan) { "" } else { " and is false" };
            let message = format!("a condition of {node} could not be evaluated{result}: {error}");
            let verdict = serde_json::to_value(verdict).map_or(Value::Null, |verdict| masked(verdict, mask));
            let data = json!({ "type": "conditionFailed", "node": node, "verdict": verdict });
            entries.push(entry(Level::Warn, "Orchestrator".to_owned(), message, data));
        }
        for name in missing_outputs(event) {
            let message = format!("the declared output `{name}` is missing from the state; it is null");
            let data = json!({ "type": "outputMissing", "output": name });
            entries.push(entry(Level::Warn, "Orchestrator".to_owned(), message, data));
        }
        let (level, message) = describe(event, plan);
        let data = serde_json::to_value(event).map_or(Value::Null, |event| masked(event, mask));
        entries.push(entry(level, category(event, plan), message, data));
    }
    entries
}

/// An event or verdict without the configured variables, and without secrets among the values that conditions read.
fn masked(mut data: Value, mask: &Mask) -> Value {
    let Value::Object(members) = &mut data else {
        return data;
    };
    members.remove("vars");
    if let Some(Value::Object(saw)) = members.get_mut("saw") {
        *saw = mask.of_reads(saw);
    }
    if let Some(verdict) = members.get_mut("verdict") {
        *verdict = masked(verdict.take(), mask);
    }
    if let Some(Value::Array(verdicts)) = members.get_mut("verdicts") {
        verdicts
            .iter_mut()
            .for_each(|verdict| *verdict = masked(verdict.take(), mask));
    }
    data
}

fn missing_outputs(event: &Event) -> &[String] {
    match event {
        Event::Ended { missing_outputs, .. } => missing_outputs,
        _ => &[],
    }
}

fn broken_conditions(event: &Event) -> Vec<(&NodeId, &Verdict, &str)> {
    let (node, verdicts) = match event {
        Event::Routed { node, verdicts, .. } => (node, verdicts.as_slice()),
        Event::Opened { node, verdict, .. } | Event::Skipped { node, verdict, .. } => (node, verdict.as_slice()),
        _ => return Vec::new(),
    };
    let broken = verdicts
        .iter()
        .filter_map(|verdict| Some((node, verdict, verdict.error.as_deref()?)));
    broken.collect()
}

/// Whether the run fails if a condition of this node cannot be evaluated. Otherwise the condition counts as false.
fn fails_the_run(node: &NodeId, plan: Option<&Plan>) -> bool {
    let planned = plan.and_then(|plan| Some(plan.node(plan.find(node.as_str())?)));
    planned.is_some_and(|node| node.route == Route::ExactlyOne)
}

fn category(event: &Event, plan: Option<&Plan>) -> String {
    let of_action = matches!(
        event,
        Event::Retried { .. }
            | Event::Finished { .. }
            | Event::Slept { .. }
            | Event::Began { .. }
            | Event::Requested { .. }
            | Event::Resending { .. }
            | Event::Resent { .. }
            | Event::ItemsEnded { .. }
            | Event::Answered { .. }
    );
    let action = event.node().filter(|_| of_action).and_then(|node| {
        let plan = plan?;
        let ix = plan.find(node.as_str())?;
        Some(plan.node(ix).kind.action_type())
    });
    action.map_or_else(|| "Orchestrator".to_owned(), |action| format!("Action:{action}"))
}

/// Items as `0-9, 12`.
fn shown(items: &Ranges) -> String {
    let range = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    items.ranges().iter().map(range).collect::<Vec<_>>().join(", ")
}

/// A node that keeps what an earlier run recorded.
fn kept(of: RunId, end: &Event) -> (Level, String, Value) {
    let node = end.node().map_or("", NodeId::as_str);
    let (level, what, attempt) = match end {
        Event::Finished { outcome, attempt, .. } => match outcome {
            Outcome::Succeeded(_) => (Level::Info, "succeeded".to_owned(), Some(*attempt)),
            Outcome::Failed(failure) => (Level::Warn, format!("failed: {}", failure.message), Some(*attempt)),
        },
        _ => (Level::Info, "was skipped".to_owned(), None),
    };
    let data = json!({ "type": "reused", "node": node, "of": of, "attempt": attempt });
    (
        level,
        format!("{node} is not repeated; in execution {of} it {what}"),
        data,
    )
}

fn describe(event: &Event, plan: Option<&Plan>) -> (Level, String) {
    match event {
        Event::Started { .. } => (Level::Info, "the run started".to_owned()),
        Event::Reused(reused) => (
            Level::Info,
            format!("nodes of execution {} are not repeated", reused.of),
        ),
        Event::Opened { node, .. } => (Level::Info, format!("{node} is due")),
        Event::Skipped { node, reason, .. } => {
            let why = match reason {
                SkipReason::DeadPath => "no edge to it was taken",
                SkipReason::Guard => "its condition is false",
                SkipReason::Stopped => "the run is stopping",
            };
            (Level::Info, format!("{node} is skipped: {why}"))
        }
        Event::Slept { node, .. } => (Level::Info, format!("{node} sleeps")),
        Event::Began { node, attempt, .. } => (Level::Info, format!("attempt {attempt} of {node} starts")),
        Event::Requested {
            node,
            items: Some(count),
            ..
        } => (Level::Info, format!("{node} runs one child for each of {count} items")),
        Event::Requested { node, .. } => (Level::Info, format!("{node} waits for its answer")),
        Event::ItemsEnded {
            node,
            succeeded,
            failed,
            ..
        } => match (succeeded.is_empty(), failed.is_empty()) {
            (_, true) => (Level::Info, format!("{node}: items {} succeeded", shown(succeeded))),
            (true, false) => (Level::Warn, format!("{node}: items {} failed", shown(failed))),
            (false, false) => {
                let (succeeded, failed) = (shown(succeeded), shown(failed));
                (
                    Level::Warn,
                    format!("{node}: items {succeeded} succeeded, {failed} failed"),
                )
            }
        },
        Event::Answered { node, .. } => (
            Level::Info,
            format!("a callback for {node} arrived before the node opened and is kept"),
        ),
        Event::Retried {
            node, attempt, failure, ..
        } => (
            Level::Warn,
            format!(
                "attempt {attempt} of {node} failed and will be repeated: {}",
                failure.message
            ),
        ),
        Event::Paused { .. } => (Level::Info, "the run is paused: nothing new starts".to_owned()),
        Event::Resumed { .. } => (Level::Info, "the run is resumed".to_owned()),
        Event::Resending { node, .. } => (Level::Info, format!("the request of {node} is sent again")),
        Event::Resent { node, failure, .. } => match failure {
            None => (Level::Info, format!("the request of {node} was sent again")),
            Some(failure) => (
                Level::Warn,
                format!("the request of {node} could not be sent again: {}", failure.message),
            ),
        },
        Event::Finished {
            node,
            skipped: Some(skipped),
            ..
        } => {
            let by = skipped.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
            (Level::Warn, format!("{node} was skipped{by}: {}", skipped.reason))
        }
        Event::Finished { node, outcome, .. } => match outcome {
            Outcome::Succeeded(_) => (Level::Info, format!("{node} succeeded")),
            Outcome::Failed(failure) => (Level::Error, format!("{node} failed: {}", failure.message)),
        },
        Event::Routed { node, taken, .. } => {
            let targets = taken.iter().filter_map(|edge| {
                let plan = plan?;
                let from = plan.node(plan.find(node.as_str())?);
                Some(plan.node(from.edges.get(*edge as usize)?.target).id.as_str())
            });
            let targets: Vec<_> = targets.collect();
            match taken.is_empty() {
                true => (Level::Info, format!("no edge of {node} is taken")),
                false => (Level::Info, format!("{node} continues with {}", targets.join(", "))),
            }
        }
        Event::Stopping {
            status,
            reason,
            failure,
            ..
        } => {
            let level = if *status == Status::Failed {
                Level::Error
            } else {
                Level::Warn
            };
            let detail = failure
                .as_ref()
                .map_or(String::new(), |failure| format!(": {}", failure.message));
            (level, format!("the run is stopping ({reason}){detail}"))
        }
        Event::Ended { status, .. } => {
            let level = if *status == Status::Failed {
                Level::Error
            } else {
                Level::Info
            };
            (level, format!("the run ended: {status}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vars_and_secrets_are_not_shown() {
        let row = r#"{"v":1,"events":[
            {"type":"started","at":1,"vars":{"key":"s3cret"}},
            {"type":"opened","node":"a","at":1,"verdict":{"value":true,"saw":{"vars.key":"s3cret","varsity":1,"trigger.password":"s3cret"}}},
            {"type":"routed","node":"a","taken":[],"verdicts":[
                {"edge":0,"value":false,"error":"no","saw":{"vars['key']":"s3cret","trigger.a":2,"context.data.login.access_token":"s3cret"}}]}]}"#;
        let events = fermata_core::decode(row).unwrap();
        let shown = entries(1, Timestamp(1), &events, None, &Mask::default());
        assert_eq!((shown.len(), count(&events)), (4, 4));
        let text = serde_json::to_string(&shown).unwrap();
        assert!(!text.contains("s3cret"), "{text}");
        assert!(text.contains("varsity") && text.contains("trigger.a"), "{text}");
    }
}
