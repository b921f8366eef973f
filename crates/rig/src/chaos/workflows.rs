//! The workflows of the load: chains, fan-outs with joins, retries, pauses, waits, conditions, child runs, tasks of workers, a
//! concurrency key and triggers, in all dialects.
//!
//! A trigger is `{ "order", "word", "fails", "slowMs", "pauseMs" }`. Every call of a step has the order in its body, so that the
//! service knows its run.

use super::rng::Rng;
use fermata_core::Status;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A run that sleeps this long ends only when it is cancelled.
const ENDLESS_MS: u64 = 3_600_000;

/// The text that slow conditions read.
const LONG_TEXT: usize = 512 * 1024;

/// A workflow of the load and its expected results.
#[derive(Debug, Clone)]
pub struct Workflow {
    pub name: &'static str,
    pub document: Value,
    pub dialect: Dialect,
    /// The statuses in which it may end without a cancel. Empty if it does not end by itself.
    pub ends: &'static [Status],
    /// How often it is started, relative to the others. 0 if only triggers start it.
    pub weight: u64,
}

/// The queue of the tasks that workers do.
pub const QUEUE: &str = "rig";

/// The workflow that webhooks and events start, the one that events start too, and the one of the schedule.
pub const HOOKED: &str = "hooked";
pub const HEARD: &str = "heard";
pub const TICKED: &str = "ticked";

/// The dialect of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    DataWorkflows,
    /// Such workflows are triggered instead of executed.
    Runlater,
    Jsondagapi,
}

/// What the checks need to know of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeShape {
    /// The nodes that must be settled before it opens.
    pub parents: Vec<String>,
    /// Whether it calls the service.
    pub calls: bool,
    /// Whether no run reaches it.
    pub wrong: bool,
    /// Whether it waits for a callback.
    pub waits: bool,
    /// Whether a worker does it.
    pub worked: bool,
    /// Whether it waits for a child run.
    pub child: bool,
}

/// The nodes of a workflow.
pub type Shape = BTreeMap<String, NodeShape>;

impl Workflow {
    /// Its nodes, read from the document without a dialect.
    pub fn shape(&self) -> Shape {
        let mut shape = Shape::new();
        match self.dialect {
            Dialect::Runlater => {
                for (name, task) in self.document["tasks"].as_object().into_iter().flatten() {
                    let needs = task["needs"].as_array().into_iter().flatten();
                    let node = NodeShape {
                        parents: needs.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
                        calls: task.get("url").is_some(),
                        wrong: is_wrong(&task["url"]),
                        waits: task.get("wait_for_webhook").is_some(),
                        ..NodeShape::default()
                    };
                    shape.insert(name.clone(), node);
                }
            }
            Dialect::Jsondagapi => {
                for node in self.document["nodes"].as_array().into_iter().flatten() {
                    let id = node["id"].as_str().unwrap_or_default();
                    shape.entry(id.to_owned()).or_default().worked = true;
                }
                for edge in self.document["edges"].as_array().into_iter().flatten() {
                    let end = |name: &str| edge[name].as_str().unwrap_or_default().to_owned();
                    shape.entry(end("to")).or_default().parents.push(end("from"));
                }
            }
            Dialect::DataWorkflows => {
                for node in self.document["nodes"].as_array().into_iter().flatten() {
                    let id = node["id"].as_str().unwrap_or_default();
                    let this = shape.entry(id.to_owned()).or_default();
                    this.calls = node["actionType"] == "http.request";
                    this.wrong = is_wrong(&node["parameters"]["url"]);
                    this.child = node["nodeType"] == "subworkflow";
                    let edges = node["edges"].as_array().into_iter().flatten();
                    let targets = edges.map(|edge| &edge["targetNode"]).chain([&node["onFailure"]]);
                    for target in targets.filter_map(Value::as_str) {
                        let parents = &mut shape.entry(target.to_owned()).or_default().parents;
                        parents.push(id.to_owned());
                    }
                }
            }
        }
        shape
    }
}

fn is_wrong(url: &Value) -> bool {
    url.as_str().is_some_and(|url| url.ends_with("/wrong"))
}

/// The trigger of a run.
pub fn trigger(order: u64, rng: &mut Rng) -> Value {
    let slow = match rng.chance(40) {
        true => rng.between(500, 4000),
        false => rng.between(0, 100),
    };
    json!({
        "order": order,
        "word": if order.is_multiple_of(2) { "even" } else { "odd" },
        "fails": rng.below(4),
        "slowMs": slow,
        "pauseMs": rng.between(50, 3000),
    })
}

/// All workflows. Their steps call the service at `service`.
pub fn all(service: &str) -> Vec<Workflow> {
    let dataworkflows = |name, weight, ends, nodes: Value| {
        let start = nodes[0]["id"].clone();
        Workflow {
            name,
            weight,
            ends,
            dialect: Dialect::DataWorkflows,
            document: json!({ "id": name, "displayName": name, "startNode": start, "nodes": nodes }),
        }
    };
    let runlater = |name, weight, ends, tasks: Value| Workflow {
        name,
        weight,
        ends,
        dialect: Dialect::Runlater,
        document: json!({ "name": name, "tasks": tasks }),
    };
    let well: &[Status] = &[Status::Succeeded];
    vec![
        dataworkflows("chain", 4, well, chain(service)),
        dataworkflows("fan", 5, well, fan(service)),
        dataworkflows("wide", 2, well, wide(service)),
        dataworkflows("sleepy", 3, well, sleepy(service)),
        dataworkflows("mended", 1, well, mended(service)),
        dataworkflows("refused", 1, &[Status::Failed], refused(service)),
        dataworkflows("endless", 1, &[], endless(service)),
        dataworkflows("slow-conditions", 1, well, slow_conditions(service)),
        runlater("ask", 4, well, ask(service)),
        runlater("limited", 3, &[Status::Succeeded, Status::Failed], limited(service)),
        Workflow {
            document: json!({
                "id": "keyed", "displayName": "keyed", "startNode": "one", "nodes": keyed(service),
                "concurrency": { "limit": 2, "key": "{{ trigger.word }}" },
            }),
            ..dataworkflows("keyed", 3, well, keyed(service))
        },
        // A child is published before its parents.
        dataworkflows("kid", 1, well, kid(service)),
        dataworkflows("family", 4, well, family(service)),
        dataworkflows("endless-family", 1, &[], endless_family()),
        Workflow {
            name: "worked",
            weight: 4,
            ends: well,
            dialect: Dialect::Jsondagapi,
            document: worked(),
        },
        dataworkflows(
            HOOKED,
            0,
            well,
            json!([call(service, "hook", "/effect", json!({}), &[])]),
        ),
        dataworkflows(
            HEARD,
            0,
            well,
            json!([call(service, "hear", "/flaky/1", json!({}), &[])]),
        ),
        dataworkflows(TICKED, 0, well, ticked(service)),
    ]
}

/// A node that calls the service at `path`, with edges to `next`.
fn call(service: &str, id: &str, path: &str, more: Value, next: &[&str]) -> Value {
    let mut body = json!({ "order": "{{ trigger.order }}", "from": id });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    json!({
        "id": id,
        "actionType": "http.request",
        "parameters": { "method": "POST", "url": format!("{service}{path}"), "body": body },
        "policies": { "retry": { "maxAttempts": 12, "baseDelayMs": 30, "backoffFactor": 1.5, "jitter": true } },
        "edges": next.iter().map(|target| json!({ "targetNode": target })).collect::<Vec<_>>(),
    })
}

fn pause(id: &str, millis: Value, next: &[&str]) -> Value {
    let edges: Vec<Value> = next.iter().map(|target| json!({ "targetNode": target })).collect();
    json!({ "id": id, "actionType": "core.delay", "parameters": { "durationMs": millis }, "edges": edges })
}

/// Two calls with a pause between them, so that a run that is active without a place would be seen.
fn keyed(service: &str) -> Value {
    json!([
        call(service, "one", "/effect", json!({}), &["rest"]),
        pause("rest", json!(150), &["two"]),
        call(service, "two", "/slow/100", json!({}), &[]),
    ])
}

/// A call that says for which instant of the schedule it is. Its trigger has no order.
fn ticked(service: &str) -> Value {
    let mut tick = call(service, "tick", "/effect", json!({}), &[]);
    tick["parameters"]["body"] = json!({ "scheduledAt": "{{ trigger.scheduledAt }}", "from": "tick" });
    json!([tick])
}

fn chain(service: &str) -> Value {
    let seen = json!({ "seen": "{{ context.data.one.body.call }}" });
    let mut two = call(service, "two", "/flaky/{{ trigger.fails }}", seen, &["three"]);
    // Its idempotency key contains the attempt.
    two["policies"]["rerenderOnRetry"] = true.into();
    json!([
        call(service, "one", "/effect", json!({}), &["two"]),
        two,
        call(
            service,
            "three",
            "/slow/{{ trigger.slowMs }}",
            json!({ "seen": "{{ context.data.two.body.call }}" }),
            &[]
        ),
    ])
}

fn fan(service: &str) -> Value {
    let mut join = call(
        service,
        "join",
        "/effect",
        json!({ "left": "{{ context.data.left.body.call }}" }),
        &[],
    );
    join["edges"] = json!([
        { "targetNode": "even", "condition": "trigger.order % 2 === 0" },
        // Beyond the native subset, so it is evaluated in the sandbox.
        { "targetNode": "odd", "condition": "/^odd$/.test(trigger.word)" },
    ]);
    json!([
        call(service, "first", "/effect", json!({}), &["left", "right", "nap"]),
        call(service, "left", "/flaky/{{ trigger.fails }}", json!({}), &["join"]),
        call(service, "right", "/slow/{{ trigger.slowMs }}", json!({}), &["join"]),
        pause("nap", json!("{{ trigger.pauseMs }}"), &["join"]),
        join,
        call(service, "even", "/effect", json!({}), &["last"]),
        call(service, "odd", "/effect", json!({}), &["last"]),
        call(
            service,
            "last",
            "/effect",
            json!({ "joined": "{{ context.data.join.body.call }}" }),
            &[]
        ),
    ])
}

/// More calls at once than a process has slots for.
fn wide(service: &str) -> Value {
    let names: Vec<String> = (1..=40).map(|number| format!("w{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut nodes = vec![call(service, "first", "/effect", json!({}), &names)];
    let calls = names
        .iter()
        .map(|name| call(service, name, "/slow/200", json!({}), &["join"]));
    nodes.extend(calls);
    nodes.push(call(service, "join", "/effect", json!({}), &[]));
    nodes.into()
}

fn sleepy(service: &str) -> Value {
    let mut between = call(service, "between", "/flaky/1", json!({}), &["again"]);
    // A run that waits this long for its next attempt is parked.
    between["policies"]["retry"] = json!({ "maxAttempts": 12, "baseDelayMs": 1500, "jitter": false });
    json!([
        call(service, "before", "/effect", json!({}), &["nap"]),
        pause("nap", json!("{{ trigger.pauseMs }}"), &["between"]),
        between,
        pause("again", json!(1500), &["after"]),
        call(service, "after", "/effect", json!({}), &[]),
    ])
}

fn mended(service: &str) -> Value {
    let mut broken = call(service, "broken", "/refuse", json!({}), &["never"]);
    broken["onFailure"] = "mend".into();
    json!([
        call(service, "first", "/effect", json!({}), &["broken"]),
        broken,
        call(service, "never", "/wrong", json!({}), &[]),
        call(service, "mend", "/effect", json!({}), &[]),
    ])
}

fn refused(service: &str) -> Value {
    json!([
        call(service, "first", "/effect", json!({}), &["beside", "broken"]),
        call(service, "beside", "/slow/{{ trigger.slowMs }}", json!({}), &[]),
        call(service, "broken", "/refuse", json!({}), &[]),
    ])
}

/// Its conditions read a long text again and again until their time limit. On an async worker they would delay heartbeats.
fn slow_conditions(service: &str) -> Value {
    let long = "x".repeat(LONG_TEXT);
    let look = |at: usize| format!("context.data.long.text.lastIndexOf('no{at}') < 0");
    let slow = (0..500).map(look).collect::<Vec<_>>().join(" && ");
    json!([
        call(service, "first", "/effect", json!({}), &["long"]),
        { "id": "long", "actionType": "core.echo", "parameters": { "text": long }, "edges": [
            // Whether it is true or exceeds its time limit depends on the machine. The run succeeds in both cases.
            { "targetNode": "maybe", "condition": slow },
            { "targetNode": "after" },
        ] },
        call(service, "maybe", "/effect", json!({}), &[]),
        call(service, "after", "/effect", json!({}), &[]),
    ])
}

fn endless(service: &str) -> Value {
    json!([
        call(service, "first", "/effect", json!({}), &["nap"]),
        pause("nap", json!(ENDLESS_MS), &["never"]),
        call(service, "never", "/wrong", json!({}), &[]),
    ])
}

fn kid(service: &str) -> Value {
    json!([
        call(service, "begin", "/effect", json!({}), &["nap"]),
        pause("nap", json!("{{ trigger.pauseMs }}"), &["end"]),
        call(service, "end", "/flaky/1", json!({}), &[]),
    ])
}

/// A node that starts a workflow and waits for its end.
fn child(id: &str, workflow: &str, next: &[&str]) -> Value {
    let edges: Vec<Value> = next.iter().map(|target| json!({ "targetNode": target })).collect();
    json!({
        "id": id, "nodeType": "subworkflow", "workflowId": workflow, "waitForCompletion": true, "edges": edges,
        "parameters": { "order": "{{ trigger.order }}", "pauseMs": "{{ trigger.pauseMs }}" },
    })
}

/// Two children at the same time, and a third one after them.
fn family(service: &str) -> Value {
    let seen = json!({ "seen": "{{ context.data.elder.outputs.body.call }}" });
    json!([
        call(service, "first", "/effect", json!({}), &["elder", "younger"]),
        child("elder", "kid", &["meet"]),
        child("younger", "kid", &["meet"]),
        call(service, "meet", "/effect", seen, &["late"]),
        child("late", "kid", &["last"]),
        call(service, "last", "/effect", json!({}), &[]),
    ])
}

/// Its child ends only when its parent is cancelled.
fn endless_family() -> Value {
    json!([child("for-ever", "endless", &[])])
}

/// Tasks and a decision that workers do.
fn worked() -> Value {
    let retry = json!({ "max_attempts": 10, "base_delay_ms": 30, "backoff_factor": 1.2, "jitter": true });
    let node = |id: &str, kind: &str| {
        json!({ "id": id, "type": kind,
                "executor": { "type": "callback", "config": { "queue": QUEUE, "retry_policy": retry } } })
    };
    let edge = |from: &str, to: &str| json!({ "from": from, "to": to });
    let chosen = |to: &str, outcome: &str| json!({ "from": "judge", "to": to, "metadata": { "outcome": outcome } });
    json!({
        "workflow_id": "worked", "name": "worked", "version": "1.0.0",
        "nodes": [node("left", "task"), node("right", "tool"), node("judge", "decision"), node("accept", "task"),
                  node("refuse", "task")],
        "edges": [edge("left", "judge"), edge("right", "judge"), chosen("accept", "yes"), chosen("refuse", "no")],
    })
}

/// A task that calls the service.
fn task(service: &str, name: &str, path: &str, needs: &[&str], more: Value) -> Value {
    let mut body = json!({ "order": "{{trigger.body.order}}", "from": name });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    json!({ "needs": needs, "url": format!("{service}{path}"), "retries": 12, "body": body })
}

fn ask(service: &str) -> Value {
    let urls = json!({ "callbacks": { "reply": "{{wait.reply.url}}", "early": "{{wait.early.url}}" } });
    let both = json!({ "reply": "{{tasks.reply.body}}", "early": "{{tasks.early.body}}" });
    let handle = json!({
        "needs": ["flaky"], "if": "tasks.flaky.status != 'success'", "url": format!("{service}/wrong"),
        "body": { "order": "{{trigger.body.order}}" },
    });
    json!({
        "first": task(service, "first", "/effect", &[], json!({})),
        // `early` opens after this node, and receives its callback as soon as its URL is known.
        "nap": { "needs": ["first"], "sleep": "1500ms" },
        "flaky": task(service, "flaky", "/flaky/2", &["first"], json!({})),
        "ask": task(service, "ask", "/ask", &["first"], urls),
        "reply": { "needs": ["ask"], "wait_for_webhook": {} },
        "early": { "needs": ["nap", "ask"], "wait_for_webhook": {} },
        "use": task(service, "use", "/effect", &["reply"], json!({ "reply": "{{tasks.reply.body}}" })),
        "handle": handle,
        "join": task(service, "join", "/effect", &["nap", "flaky", "use", "early"], both),
    })
}

fn limited(service: &str) -> Value {
    let urls = json!({ "callbacks": { "answer": "{{wait.answer.url}}" } });
    let got = json!({ "answer": "{{tasks.answer.body}}" });
    let mut late = task(service, "late", "/effect", &["answer"], json!({}));
    late["if"] = "tasks.answer.status == 'timeout'".into();
    json!({
        "ask": task(service, "ask", "/ask", &[], urls),
        "answer": { "needs": ["ask"], "wait_for_webhook": { "timeout": "2s" } },
        "use": task(service, "use", "/effect", &["answer"], got),
        "late": late,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_dialects::{AnyAction, Document, DocumentLimits, Settings, Stage, compile};

    #[test]
    fn shapes_are_those_of_the_plans() {
        for workflow in all("http://127.0.0.1:1") {
            let text = workflow.document.to_string();
            let document = Document::parse(text.as_bytes(), workflow.name, &DocumentLimits::default()).unwrap();
            let plan = compile(&document, &Settings::default(), &AnyAction, Stage::Publish)
                .unwrap_or_else(|problems| panic!("{}: {problems:?}", workflow.name))
                .plan;
            let mut shape = workflow.shape();
            assert_eq!(plan.nodes.len(), shape.len(), "{}", workflow.name);
            for node in &plan.nodes {
                let ours = shape.remove(node.id.as_str()).expect("a node of the plan");
                let ix = plan.find(node.id.as_str()).expect("its place");
                let leads_here = |parent: &&fermata_core::Node| parent.edges.iter().any(|edge| edge.target == ix);
                let parents = plan.nodes.iter().filter(leads_here);
                let mut parents: Vec<&str> = parents.map(|parent| parent.id.as_str()).collect();
                let mut expected: Vec<&str> = ours.parents.iter().map(String::as_str).collect();
                parents.sort_unstable();
                expected.sort_unstable();
                assert_eq!(parents, expected, "{}: {}", workflow.name, node.id);
                assert_eq!(ours.calls, node.kind.action_type() == "http.request");
                assert_eq!(ours.waits, node.kind.action_type() == "core.wait");
                assert_eq!(ours.worked, node.kind.action_type() == "callback");
                assert_eq!(ours.child, node.kind.action_type() == "core.subworkflow");
            }
        }
    }
}
