//! `fermata executions get`: one run on one page.

use super::{
    super::{Client, LARGEST_PAGE, ago, instant, print_json, text, took},
    events, tree,
};
use crate::{
    cli::{self, Format},
    table, when,
};
use serde_json::Value;
use std::collections::HashMap;

/// Longer triggers and outputs are cut; `-o json` has all of them.
const LONGEST_PAYLOAD: usize = 4000;

pub(super) async fn get(client: &Client, id: &str, format: Format) -> anyhow::Result<()> {
    let query = [
        ("include", "actions,waits,children".to_owned()),
        ("limit", LARGEST_PAGE.to_string()),
    ];
    let mut run = client.get(&["executions", id], &query).await?;
    let tasks = tasks(client, &run).await;
    if format == Format::Json {
        run["tasks"] = Value::Object(tasks.into_iter().collect());
        print_json(&run);
        return Ok(());
    }
    let events = events::all(client, id).await?;
    let asked = asked(client, &run).await;
    let mut page = about(&run, &tasks);
    page.push_str(&payload("trigger", &run["trigger"]));
    page.push_str(&attempts(&run));
    page.push_str(&open_steps(&run, &tasks, &asked));
    page.push_str(&tree::section(client, &run, id).await?);
    page.push_str(&skipped(&tasks, &events));
    page.push_str(&failed_conditions(&events));
    page.push_str(&inputs_and_outputs(&run));
    page.push_str(&payload("outputs", &run["outputs"]));
    cli::print(page);
    Ok(())
}

/// The steps of a run, as its workflow's `runs` shows them; none if they cannot be read.
async fn tasks(client: &Client, run: &Value) -> Vec<(String, Value)> {
    // Unlike the name, the uid also leads to runs of a workflow that was deleted.
    let (workflow, id) = (text(run, "workflowUid"), text(run, "id"));
    let shown = client.get(&["workflows", &workflow, "runs", &id], &[]).await;
    match shown.map(|mut shown| shown["data"]["tasks"].take()) {
        Ok(Value::Object(tasks)) => tasks.into_iter().collect(),
        _ => Vec::new(),
    }
}

fn about(run: &Value, tasks: &[(String, Value)]) -> String {
    let error = &run["error"];
    let failed = match (error["message"].as_str(), error["node"].as_str()) {
        (Some(message), Some(node)) => format!("at {node}: {message}"),
        (Some(message), None) => message.to_owned(),
        (None, _) => String::new(),
    };
    let workflow = format!("{} (version {})", text(run, "workflowId"), text(run, "workflowVersion"));
    table::pairs(&[
        ("id", text(run, "id")),
        ("workflow", workflow),
        ("status", status(run, tasks)),
        ("reason", text(run, "reason")),
        ("error", failed),
        ("request id", text(run, "requestId")),
        ("repeats", text(run, "rerunOf")),
        ("created", instant(run, "createdAt")),
        ("started", instant(run, "startedAt")),
        ("ended", instant(run, "endedAt")),
        ("took", took(run)),
        ("wakes", instant(run, "wakeAt")),
        ("paused", instant(run, "pausedAt")),
        ("waits for", waiting_for(run)),
        ("runner", text(run, "runnerId")),
    ])
}

/// What a run waits for before its first step.
pub(super) fn waiting_for(run: &Value) -> String {
    let waiting = &run["waitingFor"];
    let Some(kind) = waiting["kind"].as_str() else {
        return String::new();
    };
    let key = match (waiting["key"].as_str(), waiting["scope"].as_str()) {
        (_, Some("tenant")) => " of the tenant".to_owned(),
        (Some(key), _) => format!(" of key {key}"),
        (None, _) => String::new(),
    };
    let limit = waiting["limit"]
        .as_u64()
        .map(|limit| format!(", limit {limit}"))
        .unwrap_or_default();
    let ahead = waiting["ahead"]
        .as_u64()
        .map(|ahead| format!(", {ahead} ahead"))
        .unwrap_or_default();
    let until = match waiting["until"].as_str() {
        Some(_) => format!(", until {}", instant(waiting, "until")),
        None => String::new(),
    };
    match kind {
        "paused" => format!("the resume of its workflow{ahead}"),
        "concurrency" => format!("a place{key}{limit}{ahead}"),
        "rate" => format!("its rate{key}{limit}{until}"),
        _ => format!("a quiet time{key}{until}"),
    }
}

/// The status; a run that succeeded although steps failed says so.
fn status(run: &Value, tasks: &[(String, Value)]) -> String {
    let failed = |task: &&(String, Value)| {
        matches!(
            text(&task.1, "status").as_str(),
            "failed" | "timeout" | "template_error"
        )
    };
    let status = text(run, "status");
    match tasks.iter().filter(failed).count() {
        1 if status == "Succeeded" => format!("{status}; 1 task failed"),
        count if count > 1 && status == "Succeeded" => format!("{status}; {count} tasks failed"),
        _ => status,
    }
}

fn attempts(run: &Value) -> String {
    let attempts = run["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if attempts.is_empty() {
        return String::new();
    }
    let row = |attempt: &Value| {
        vec![
            text(attempt, "nodeId"),
            text(attempt, "actionType"),
            text(attempt, "status"),
            text(attempt, "attempt"),
            match attempt["reusedFrom"].is_string() {
                true => "reused".to_owned(),
                false => took(attempt),
            },
            text(&attempt["error"], "message"),
        ]
    };
    let rows: Vec<_> = attempts.iter().map(row).collect();
    let head = ["NODE", "ACTION", "STATUS", "ATTEMPT", "TOOK", "ERROR"];
    let mut text = format!("\n{}", table::draw(&head, &rows));
    let hidden = run["actionsTotal"]
        .as_u64()
        .unwrap_or(0)
        .saturating_sub(attempts.len() as u64);
    if hidden > 0 {
        text.push_str(&format!("… and {hidden} more\n"));
    }
    text
}

/// The open requests of a run to people and workers, by node; none if the caller may not read them.
async fn asked(client: &Client, run: &Value) -> HashMap<String, Value> {
    let query = [("status", "pending".to_owned()), ("executionId", text(run, "id"))];
    let items = match run["waits"].as_array() {
        Some(waits) if !waits.is_empty() => client.list(&["inbox"], &query, LARGEST_PAGE).await,
        _ => return HashMap::new(),
    };
    let items = items.map(|(items, _)| items).unwrap_or_default();
    items.into_iter().map(|item| (text(&item, "nodeId"), item)).collect()
}

/// How a request is answered.
fn how_to_answer(item: &Value) -> String {
    let (id, outcomes) = (text(item, "id"), item["outcomes"].as_array());
    let outcomes: Vec<&str> = outcomes.into_iter().flatten().filter_map(Value::as_str).collect();
    let until = text(&item["lease"], "until");
    if !until.is_empty() && !when::is_past(&until) {
        return format!(
            "the worker {}, until {}",
            text(&item["lease"], "worker"),
            when::full(&until)
        );
    }
    match text(item, "kind").as_str() {
        "task" => format!("a worker: fermata approvals answer {id} --state JSON"),
        _ if outcomes.is_empty() => format!("an answer: fermata approvals answer {id} --field NAME=VALUE"),
        _ => format!(
            "an answer ({}): fermata approvals answer {id} --outcome OUTCOME",
            outcomes.join(", ")
        ),
    }
}

/// The steps that have begun and not ended, and what each of them waits for.
fn open_steps(run: &Value, tasks: &[(String, Value)], asked: &HashMap<String, Value>) -> String {
    let waits = run["waits"].as_array().into_iter().flatten();
    let addresses: HashMap<String, String> = waits
        .map(|wait| (text(wait, "nodeId"), text(wait, "callbackUrl")))
        .collect();
    let mut rows = Vec::new();
    for (name, task) in tasks {
        let now = text(task, "status");
        let until = ["wake_at", "timeout_at", "next_attempt_at"].map(|key| ago(task, key));
        let until = until.into_iter().find(|time| !time.is_empty()).unwrap_or_default();
        let items = &task["items"];
        let for_what = match (now.as_str(), addresses.get(name)) {
            ("waiting", _) if items.is_object() => {
                let count = |name: &str| items[name].as_u64().unwrap_or(0);
                let (ended, failed) = (count("succeeded") + count("failed"), count("failed"));
                format!(
                    "its children: {ended} of {} items ended, {failed} failed",
                    count("total")
                )
            }
            ("waiting", _) if asked.contains_key(name) => how_to_answer(&asked[name]),
            ("waiting", Some(url)) => format!("a callback: POST to {url}"),
            ("waiting", None) => match child_of(run, name) {
                Some(child) => format!("its child run {child}"),
                None => "a callback".to_owned(),
            },
            ("sleeping", _) => "the end of its sleep".to_owned(),
            ("running", _) if task["next_attempt_at"].is_string() => {
                format!("its next attempt; the last one failed: {}", text(task, "error_message"))
            }
            ("running", _) => "the end of its attempt".to_owned(),
            _ => continue,
        };
        rows.push(vec![name.clone(), now, until, for_what]);
    }
    section(&["NODE", "NOW", "UNTIL", "WAITS FOR"], &rows)
}

/// The child run that an open step waits for.
fn child_of(run: &Value, node: &str) -> Option<String> {
    let mut children = run["children"].as_array()?.iter().rev();
    let open = |child: &&Value| child["parentNodeId"] == node && child["endedAt"].is_null();
    children.find(open).map(|child| text(child, "id"))
}

/// The steps that were skipped, by the workflow or by a caller.
fn skipped(tasks: &[(String, Value)], events: &[Value]) -> String {
    let skipped = tasks.iter().filter(|(_, task)| task["status"] == "skipped");
    let skipped = skipped.map(|(name, task)| vec![name.clone(), text(task, "skip_reason")]);
    let by_callers = events.iter().map(|event| &event["data"]);
    let by_callers = by_callers.filter(|event| event["skipped"].is_object()).map(|event| {
        let (by, reason) = (text(&event["skipped"], "by"), text(&event["skipped"], "reason"));
        let by = if by.is_empty() { "a caller" } else { &by };
        vec![text(event, "node"), format!("by {by}: {reason}")]
    });
    let rows: Vec<_> = skipped.chain(by_callers).collect();
    section(&["SKIPPED", "WHY"], &rows)
}

/// The conditions on edges that could not be evaluated.
fn failed_conditions(events: &[Value]) -> String {
    let failed = events.iter().filter(|event| event["data"]["type"] == "conditionFailed");
    let rows: Vec<_> = failed
        .map(|event| vec![text(&event["data"], "node"), text(&event["data"]["verdict"], "error")])
        .collect();
    section(&["CONDITION AFTER", "ERROR"], &rows)
}

/// What the last attempt of each step was given and gave.
fn inputs_and_outputs(run: &Value) -> String {
    let mut order = Vec::new();
    let mut last = HashMap::new();
    for attempt in run["actions"].as_array().into_iter().flatten() {
        let node = text(attempt, "nodeId");
        if last.insert(node.clone(), attempt).is_none() {
            order.push(node);
        }
    }
    let compact = |value: &Value| match value {
        Value::Null => String::new(),
        Value::Object(members) if members.is_empty() => String::new(),
        value => value.to_string(),
    };
    let rows: Vec<_> = order
        .into_iter()
        .filter_map(|node| {
            let attempt = last.get(&node)?;
            let (input, output) = (compact(&attempt["parameters"]), compact(&attempt["outputs"]));
            (!input.is_empty() || !output.is_empty()).then(|| vec![node, input, output])
        })
        .collect();
    section(&["NODE", "INPUT", "OUTPUT"], &rows)
}

/// A table with an empty line before it; nothing if there are no rows.
fn section(head: &[&str], rows: &[Vec<String>]) -> String {
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", table::draw(head, rows)),
    }
}

/// A JSON value under its name, in lines.
fn payload(name: &str, value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    let text = format!("{value:#}");
    match text.char_indices().nth(LONGEST_PAYLOAD) {
        Some((end, _)) => format!("\n{name}\n{}\n… (`-o json` shows all)\n", &text[..end]),
        None => format!("\n{name}\n{text}\n"),
    }
}
