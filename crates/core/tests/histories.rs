//! Journals of every format can always be replayed.
//!
//! `histories/v1/*.json` are journals as the releases with that format wrote them, each with its plan and the resulting
//! state. Never edit them: if a test here fails, sleeping runs in existing databases could not be recovered. Give a new
//! field a default, or add a new event for a new meaning. Add a history for each new event or field; the last test names
//! the missing ones.

use fermata_core::plan::PlanBuilder;
use fermata_core::{
    AnswerRule, Each, Effect, Event, Join, Kind, OnFailure, OnItemFailure, Outcome, Phase, Plan, Retry, Route, Run,
    When, apply, decode, outstanding,
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

fn histories() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories/v1");
    let mut found: Vec<_> = fs::read_dir(folder)
        .expect("the folder of histories")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable history");
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, serde_json::from_str(&text).expect("a history in JSON"))
        })
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// The plan of a history.
fn plan(sketch: &Value) -> Arc<Plan> {
    let mut plan = PlanBuilder::new("history").plan(|plan| {
        plan.timeout_ms = sketch["timeoutMs"].as_u64();
        if sketch["onFailure"] == "continue" {
            plan.on_failure = OnFailure::Continue;
        }
    });
    for node in sketch["nodes"].as_array().expect("nodes") {
        let parameters = Value::Null;
        let kind = match node["kind"].as_str() {
            None => Kind::Action {
                action: "core.echo".to_owned(),
                parameters,
            },
            Some("sleep") => Kind::Sleep {
                action: "core.delay".to_owned(),
                parameters,
                timeout_ms: node["timeoutMs"].as_u64(),
            },
            Some("wait") => Kind::Wait {
                timeout_ms: node["timeoutMs"].as_u64(),
            },
            Some("request") => Kind::Request {
                action: "callback".to_owned(),
                parameters,
                answer: AnswerRule::Any,
                timeout_ms: node["timeoutMs"].as_u64(),
                retry_on_timeout: node["retryOnTimeout"] == true,
                timeout_code: "TIMEOUT".to_owned(),
            },
            Some("each") => Kind::Request {
                action: "core.subworkflow".to_owned(),
                parameters,
                answer: AnswerRule::Children(Each {
                    items: "{{ trigger.items }}".to_owned(),
                    max_concurrency: 3,
                    max_items: 100,
                    on_item_failure: OnItemFailure::Continue,
                }),
                timeout_ms: None,
                retry_on_timeout: false,
                timeout_code: "TIMEOUT".to_owned(),
            },
            Some("pass") => Kind::Pass,
            Some(other) => panic!("unknown kind {other}"),
        };
        plan = plan.node(node["id"].as_str().expect("an id"), kind).with(|made| {
            made.join = match node["join"].as_str() {
                None => Join::Any,
                Some("all") => Join::All,
                Some(guard) => Join::Guard(guard.to_owned()),
            };
            made.route = match node["route"].as_str() {
                None => Route::Parallel,
                Some("firstMatch") => Route::FirstMatch,
                Some("outcome") => Route::Outcome,
                Some("exactlyOne") => Route::ExactlyOne,
                Some(other) => panic!("unknown route {other}"),
            };
            made.policies.retry = Retry {
                max_attempts: node["attempts"].as_u64().unwrap_or(1) as u32,
                base_delay_ms: 2000,
                backoff_factor: 2.0,
                jitter: false,
            };
        });
        for edge in node["edges"].as_array().into_iter().flatten() {
            let when = match edge["when"].as_str() {
                None => When::Success,
                Some("failure") => When::Failure,
                Some("always") => When::Always,
                Some("unhandled") => When::Unhandled,
                Some(other) => panic!("unknown edge type {other}"),
            };
            let to = edge["to"].as_str().expect("a target");
            plan = match edge["outcome"].as_str() {
                Some(outcome) => plan.on(outcome, to),
                None => plan.edge(to, when, edge["if"].as_str()),
            };
        }
    }
    Arc::new(plan.build().expect("a valid plan"))
}

fn rows(history: &Value) -> impl Iterator<Item = Vec<Event>> {
    let rows = history["journal"].as_array().expect("a journal");
    rows.iter().map(|row| decode(&row.to_string()).expect("a readable row"))
}

/// The state of a run as text that does not depend on the types of the program.
fn describe(run: &Run) -> Value {
    let id = |ix| run.plan().node(ix).id.as_str();
    let nodes = run.plan().indices().map(|ix| {
        let state = run.node(ix);
        let phase = match &state.phase {
            Phase::Idle => "idle".to_owned(),
            Phase::Skipped => "skipped".to_owned(),
            Phase::Open(open) => format!(
                "attempt {} due {} until {} sees {} after {}",
                open.attempt,
                open.due.0,
                open.until.map_or("-".to_owned(), |until| until.0.to_string()),
                open.sees,
                open.last_failure.as_ref().map_or("-", |failure| &failure.code),
            ),
            Phase::Finished {
                outcome,
                attempt,
                routed,
                ..
            } => {
                let outcome = match outcome {
                    Outcome::Succeeded(output) => format!("succeeded with {} bytes", output.bytes),
                    Outcome::Failed(failure) => format!("failed with {}", failure.code),
                };
                format!(
                    "{outcome} in attempt {attempt}, {}",
                    if *routed { "routed" } else { "unrouted" }
                )
            }
        };
        let early = if state.answer.is_some() { ", answered early" } else { "" };
        (id(ix).to_owned(), json!(format!("{phase}{early}")))
    });
    let effects = outstanding(run).into_iter().map(|effect| match effect {
        Effect::Judge {
            node,
            edges,
            first_only,
        } => format!("judge {node} {edges:?}{}", if first_only { " first" } else { "" }),
        Effect::Guard { node } => format!("guard {node}"),
        Effect::Time { node } => format!("time {node}"),
        Effect::Execute { node, attempt, due } => format!("execute {node} {attempt} at {}", due.0),
        Effect::StartItems { node, attempt, items } => format!("start {items:?} of {node} {attempt}"),
        Effect::Collect { node, attempt } => format!("collect {node} {attempt}"),
        Effect::Abort { node, attempt } => format!("abort {node} {attempt}"),
        Effect::Wake { at } => format!("wake {}", at.0),
    });
    json!({
        "status": run.status().as_str(),
        "stop": run.stop().map(|stop| format!("{} {}", stop.status, stop.reason)),
        "end": run.end().map(|end| json!([end.at.0, end.reason])),
        "deadline": run.deadline().map(|at| at.0),
        "vars": **run.vars(),
        "nodes": nodes.collect::<Map<_, _>>(),
        "completed": run.completed().iter().map(|ix| id(*ix)).collect::<Vec<_>>(),
        "results": run.result_nodes().map(id).collect::<Vec<_>>(),
        "outstanding": effects.collect::<Vec<_>>(),
    })
}

#[test]
fn histories_replay_to_the_recorded_state() {
    for (name, history) in histories() {
        let mut run = Run::new(plan(&history["plan"]));
        for event in rows(&history).flatten() {
            apply(&mut run, &event).unwrap_or_else(|illegal| panic!("{name}: {illegal}"));
        }
        let found = describe(&run);
        assert_eq!(found, history["final"], "{name} results in\n{found:#}");
    }
}

#[test]
fn histories_cover_every_event_and_field() {
    let mut found = BTreeSet::new();
    for (_, history) in histories() {
        for event in history["journal"].as_array().into_iter().flatten().flat_map(|row| {
            let events = row["events"].as_array();
            events.into_iter().flatten()
        }) {
            let kind = event["type"].as_str().expect("a type");
            found.extend(
                event
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(field, _)| format!("{kind}.{field}")),
            );
        }
    }
    let fields: &[(&str, &[&str])] = &[
        ("started", &["at", "deadline", "vars"]),
        ("opened", &["node", "at", "until", "verdict"]),
        ("skipped", &["node", "reason", "verdict"]),
        ("slept", &["node", "until"]),
        ("requested", &["node", "attempt", "until", "items"]),
        ("itemsEnded", &["node", "attempt", "succeeded", "failed", "refused"]),
        ("answered", &["node", "output"]),
        ("retried", &["node", "attempt", "failure", "retryAt"]),
        ("finished", &["node", "attempt", "outcome", "chosen", "skipped"]),
        ("resending", &["node", "attempt", "at"]),
        ("resent", &["node", "attempt", "failure"]),
        ("paused", &["at"]),
        ("resumed", &["at"]),
        ("routed", &["node", "taken", "verdicts"]),
        ("stopping", &["status", "reason", "node", "failure"]),
        ("reused", &["of", "events", "failure"]),
        ("ended", &["at", "status", "reason", "missingOutputs"]),
    ];
    for (kind, fields) in fields {
        for field in *fields {
            assert!(
                found.contains(&format!("{kind}.{field}")),
                "no history contains {kind}.{field}"
            );
        }
    }
}
