//! `forEach`: one child for each item of a list.

use crate::{
    children::{beds, parks},
    support::{Bed, Left, Place, workflow},
};
use fermata_core::{RunId, Status, code};
use fermata_runtime::{
    Settings,
    actions::{HttpSettings, Registry},
    timeline,
};
use fermata_store::reads::RunRecord;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A parent that loads its list from the trigger.
fn parent(more: Value) -> Value {
    let mut node = json!({
        "id": "each", "nodeType": "subworkflow", "workflowId": "child", "forEach": "{{ trigger.items }}",
        "parameters": { "owner": "{{ trigger.owner ?? 'ann' }}" },
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        node[name] = value.clone();
    }
    let mut document = workflow(json!([node]));
    document["id"] = json!("parent");
    document
}

fn child(nodes: Value) -> Value {
    let mut document = workflow(nodes);
    document["id"] = json!("child");
    document
}

fn echoes() -> Value {
    child(json!([{ "id": "say", "actionType": "core.echo", "parameters": {
        "got": "{{ trigger.item }}", "at": "{{ trigger.index }}", "owner": "{{ trigger.owner }}" } }]))
}

/// The item `bad` fails.
fn some_fail() -> Value {
    child(json!([
        { "id": "look", "actionType": "core.echo", "parameters": { "got": "{{ trigger.item }}" }, "edges": [
            { "targetNode": "break", "condition": "context.data['look'].got === 'bad'" },
            { "targetNode": "say", "condition": "context.data['look'].got !== 'bad'" } ] },
        { "id": "break", "actionType": "core.echo", "parameters": { "x": "{{ trigger.nothing }}" } },
        { "id": "say", "actionType": "core.echo", "parameters": { "got": "{{ trigger.item }}" } },
    ]))
}

fn waits() -> Value {
    child(json!([{ "id": "wait", "actionType": "core.wait", "parameters": {} }]))
}

impl Bed {
    async fn children_of(&self, run: RunId) -> Vec<RunRecord> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = self.store.children(run, after, 500).await.unwrap();
            after = page.items.last().map(|child| child.id);
            all.extend(page.items);
            if !page.more {
                return all;
            }
        }
    }

    async fn run_each(&self, documents: [Value; 2], trigger: Value) -> Left {
        for document in &documents {
            self.publish(document).await;
        }
        let run = self.start_run("parent", trigger).await;
        self.end_of(run).await
    }

    /// Answers the waits of these children.
    async fn answer_children(&self, children: &[RunRecord]) {
        for child in children {
            let token = self.store.waits(child.id).await.unwrap().remove(0).token;
            self.engine.answer(&token, r#"{"done":true}"#).await.unwrap();
        }
    }

    async fn until_ended(&self, children: &[RunRecord]) {
        for child in children {
            self.end_of(child.id).await;
        }
    }

    /// Waits until a run has this many children that have not ended.
    async fn until_open(&self, run: RunId, count: usize) -> Vec<RunRecord> {
        for _ in 0..4000 {
            let mut children = self.children_of(run).await;
            children.retain(|child| !child.status.is_terminal());
            if children.len() == count {
                return children;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{run} never had {count} open children");
    }
}

/// Each item has exactly one child, and its requestId names the item.
fn check_children(run: RunId, children: &[RunRecord], items: u32) {
    let ids: BTreeSet<&str> = children.iter().map(|child| child.request_id.as_str()).collect();
    let expected: BTreeSet<String> = (0..items)
        .map(|index| format!("fermata:child:{run}:each:1:{index}"))
        .collect();
    assert_eq!(ids, expected.iter().map(String::as_str).collect());
    let indexes: BTreeSet<u32> = children.iter().filter_map(|child| child.parent_item).collect();
    assert_eq!(indexes, (0..items).collect());
    assert_eq!(children.len(), items as usize);
}

/// The items that the events of a run name as ended.
fn ended_items(left: &Left) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for entry in &left.timeline {
        for word in ["succeeded", "failed"] {
            for range in entry.data[word].as_array().into_iter().flatten() {
                let [first, last] = [0, 1].map(|at| range[at].as_u64().unwrap() as u32);
                (first..=last).for_each(|item| *counts.entry(item).or_default() += 1);
            }
        }
    }
    counts
}

#[tokio::test]
async fn outputs_are_in_the_order_of_the_items() {
    for bed in beds().await {
        let items = json!(["a", { "b": [1.50] }, null, 3, "e", "f", "g"]);
        let trigger = json!({ "items": items, "owner": "eve" });
        let left = bed
            .run_each([echoes(), parent(json!({ "maxConcurrency": 2 }))], trigger)
            .await;
        let outputs = left.outputs();
        assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
        assert_eq!((&outputs["count"], &outputs["failed"]), (&json!(7), &json!(0)));
        for (at, output) in outputs["outputs"].as_array().unwrap().iter().enumerate() {
            let expected = json!({ "got": items[at], "at": at, "owner": "eve" });
            assert_eq!(output.to_string(), expected.to_string());
        }
        check_children(left.run, &bed.children_of(left.run).await, 7);
        let each_once: BTreeMap<u32, u32> = (0..7).map(|item| (item, 1)).collect();
        assert_eq!(ended_items(&left), each_once, "each end is recorded once");
        assert_eq!(left.attempts("each"), [(1, "Succeeded")]);
        let parameters = left.actions[0].parameters.as_deref().unwrap();
        assert!(!parameters.contains("1.50"), "the list is not stored: {parameters}");
    }
}

#[tokio::test]
async fn list_of_a_subgraph_is_one_member_of_the_state() {
    for bed in beds().await {
        let task = |name: &str| json!({ "id": name, "type": "task", "executor": { "type": "callback", "config": { "queue": name } } });
        let inner = json!({ "workflow_id": "child", "name": "Child", "version": "1.0.0", "nodes": [task("work")], "edges": [] });
        let outer = json!({ "workflow_id": "parent", "name": "Parent", "version": "1.0.0", "nodes": [
            { "id": "each", "type": "subgraph", "subgraph_ref": "child", "forEach": "{{ batch.orders }}" } ], "edges": [],
            "outputs": { "each": {}, "kept": {}, "total": {} } });
        bed.publish(&inner).await;
        bed.publish(&outer).await;
        let trigger = json!({ "batch": { "orders": ["x", "y"], "id": 7 }, "kept": true });
        let run = bed.start_run("parent", trigger).await;
        let children = bed.until_open(run, 2).await;
        for child in &children {
            let stored = bed.store.run(child.id).await.unwrap().unwrap();
            let state: Value = serde_json::from_str(&stored.trigger).unwrap();
            let index = child.parent_item.unwrap();
            let item = ["x", "y"][index as usize];
            let expected = json!({ "batch": { "id": 7 }, "kept": true, "item": item, "index": index });
            assert_eq!(state, expected, "the state without the list");
        }
        for child in &children {
            bed.until(child.id, "work", "waiting").await;
            let token = bed.store.waits(child.id).await.unwrap().remove(0).token;
            let answer = json!({ "state": { "kept": false, "made": child.parent_item } });
            bed.engine.answer(&token, &answer.to_string()).await.unwrap();
        }
        let left = bed.end_of(run).await;
        assert_eq!(
            left.outputs(),
            json!({ "each": [{ "kept": false, "made": 0 }, { "kept": false, "made": 1 }], "kept": true, "total": null }),
            "only the list is merged: {:?}",
            left.ended
        );
        let warnings = left
            .timeline
            .iter()
            .filter(|entry| entry.level == timeline::Level::Warn);
        let warnings: Vec<&str> = warnings.map(|entry| entry.message.as_str()).collect();
        assert_eq!(
            warnings,
            ["the declared output `total` is missing from the state; it is null"]
        );
    }
}

#[tokio::test]
async fn failed_item_fails_the_node_and_cancels_the_others() {
    for bed in beds().await {
        let slow = child(json!([
            { "id": "look", "actionType": "core.echo", "parameters": { "got": "{{ trigger.item }}" }, "edges": [
                { "targetNode": "break", "condition": "context.data['look'].got === 'bad'" },
                { "targetNode": "wait", "condition": "context.data['look'].got !== 'bad'" } ] },
            { "id": "break", "actionType": "core.echo", "parameters": { "x": "{{ trigger.nothing }}" } },
            { "id": "wait", "actionType": "core.wait", "parameters": {} },
        ]));
        let trigger = json!({ "items": ["a", "b", "bad", "d"] });
        let left = bed
            .run_each([slow, parent(json!({ "maxConcurrency": 3 }))], trigger)
            .await;
        assert_eq!(left.status(), Status::Failed);
        assert_eq!(left.error()["node"], "each");
        let message = left.error()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("item 2: "), "{message}");
        let children = bed.children_of(left.run).await;
        assert_eq!(children.len(), 3, "the last item never started");
        for child in children {
            let ended = bed.end_of(child.id).await;
            let expected = match child.parent_item {
                Some(2) => (Status::Failed, Some("action_failed")),
                _ => (Status::Cancelled, Some("parent_ended")),
            };
            assert_eq!((ended.status(), ended.ended.reason.as_deref()), expected);
        }
    }
}

#[tokio::test]
async fn items_continue_after_failures_and_refusals() {
    for bed in beds().await {
        let mut strict = some_fail();
        strict["triggerSchema"] = json!({ "properties": { "item": { "type": "string" } } });
        let trigger = json!({ "items": ["a", "bad", 7, "d"] });
        let left = bed
            .run_each(
                [
                    strict,
                    parent(json!({ "onItemFailure": "continue", "maxConcurrency": 2 })),
                ],
                trigger,
            )
            .await;
        assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
        let outputs = left.outputs();
        let entry = |at: usize| outputs["outputs"][at].clone();
        assert_eq!((entry(0), entry(3)), (json!({ "got": "a" }), json!({ "got": "d" })));
        let (failed, refused) = (entry(1), entry(2));
        assert_eq!(
            (&failed["status"], &refused["status"]),
            (&json!("failed"), &json!("failed"))
        );
        assert_eq!(refused["error"]["code"], code::CHILD_REFUSED, "{refused}");
        assert!(failed["executionId"].is_string() && refused["executionId"].is_null());
        assert_eq!((&outputs["count"], &outputs["failed"]), (&json!(4), &json!(2)));
        assert_eq!(bed.children_of(left.run).await.len(), 3, "one could not start");
    }
}

#[tokio::test]
async fn wrong_lists_fail_the_node() {
    let mut settings = Settings::default();
    settings.dialects.max_items = 3;
    let bed = Bed::with(settings, |registry| registry).await;
    bed.publish(&echoes()).await;
    bed.publish(&parent(json!({}))).await;
    for (items, says) in [
        (json!([1, 2, 3, 4]), "`forEach` has 4 items; at most 3 are allowed"),
        (json!({ "a": 1 }), "`forEach` must be a list, but it is an object"),
        (json!("abc"), "`forEach` must be a list, but it is a text"),
        (json!(null), "`forEach` must be a list, but it is null"),
    ] {
        let run = bed.start_run("parent", json!({ "items": items })).await;
        let left = bed.end_of(run).await;
        assert_eq!(left.error()["code"], code::INVALID_PARAMETERS, "{:?}", left.ended);
        let message = left.error()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with(says), "{message}");
        assert_eq!(left.attempts("each"), [(1, "Failed")]);
        assert!(left.actions[0].started_at.is_some());
    }
    let run = bed.start_run("parent", json!({})).await;
    assert_eq!(bed.end_of(run).await.error()["code"], code::TEMPLATE_ERROR);
    let run = bed.start_run("parent", json!({ "items": [] })).await;
    let outputs = bed.end_of(run).await.outputs();
    assert_eq!(outputs, json!({ "outputs": [], "count": 0, "failed": 0 }));
}

#[tokio::test]
async fn missing_workflow_refuses_all_items() {
    let bed = Bed::new().await;
    let document = parent(json!({ "workflowId": "nowhere", "onItemFailure": "continue" }));
    bed.publish(&document).await;
    let run = bed.start_run("parent", json!({ "items": [1, 2, 3] })).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.outputs()["failed"], 3, "{:?}", left.ended);
    assert_eq!(left.outputs()["outputs"][2]["error"]["code"], code::CHILD_REFUSED);
}

#[tokio::test]
async fn cancelled_parent_and_timed_out_node_cancel_all_children() {
    for bed in beds().await {
        bed.publish(&waits()).await;
        bed.publish(&parent(json!({ "maxConcurrency": 4 }))).await;
        let run = bed.start_run("parent", json!({ "items": [1, 2, 3, 4, 5, 6] })).await;
        let children = bed.until_open(run, 4).await;
        bed.engine.cancel(run, "enough").await.unwrap();
        assert_eq!(bed.end_of(run).await.status(), Status::Cancelled);
        for child in children {
            let ended = bed.end_of(child.id).await;
            assert_eq!(ended.ended.reason.as_deref(), Some("parent_ended"));
        }
        assert_eq!(bed.children_of(run).await.len(), 4, "nothing starts after a cancel");

        let bed = Bed::with(parks(), |registry| registry).await;
        bed.publish(&waits()).await;
        let limited = json!({ "policies": { "timeoutMs": 100 }, "maxConcurrency": 2 });
        bed.publish(&parent(limited)).await;
        let run = bed.start_run("parent", json!({ "items": [1, 2, 3] })).await;
        let left = bed.end_of(run).await;
        assert_eq!(left.error()["code"], code::TIMEOUT, "{:?}", left.ended);
        for child in bed.children_of(run).await {
            assert_eq!(bed.end_of(child.id).await.status(), Status::Cancelled);
        }
    }
}

#[tokio::test]
async fn no_more_children_run_than_allowed() {
    for bed in beds().await {
        bed.publish(&waits()).await;
        bed.publish(&parent(json!({ "maxConcurrency": 3 }))).await;
        let run = bed.start_run("parent", json!({ "items": [0, 1, 2, 3, 4, 5, 6] })).await;
        for (answered, open) in [(0, 3), (2, 3), (2, 3), (1, 2)] {
            let children = bed.until_open(run, 3).await;
            bed.answer_children(&children[..answered]).await;
            bed.until_ended(&children[..answered]).await;
            bed.until_open(run, open).await;
        }
        let children = bed.until_open(run, 2).await;
        bed.answer_children(&children).await;
        assert_eq!(bed.end_of(run).await.status(), Status::Succeeded);
        let progress = bed.engine.reads().items(run).await.unwrap();
        assert_eq!((progress[0].1.total, progress[0].1.succeeded), (7, 7));
        check_children(run, &bed.children_of(run).await, 7);
    }
}

/// The process of a parent and its children crashes again and again: each item has one child, and each end is recorded once.
#[tokio::test]
async fn items_survive_crashes() {
    let registry = || {
        Registry::builtin(&HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        })
        .unwrap()
    };
    let place = Place::new().await;
    let mut bed = Bed::on(place.clone(), parks(), registry());
    bed.publish(&waits()).await;
    bed.publish(&parent(json!({ "maxConcurrency": 3 }))).await;
    let run = bed
        .start_run("parent", json!({ "items": (0..8).collect::<Vec<_>>() }))
        .await;
    for answered in [1, 2, 3] {
        let children = bed.until_open(run, 3).await;
        bed.answer_children(&children[..answered]).await;
        bed.engine.crash();
        bed = Bed::on(place.clone(), parks(), registry());
        bed.until_ended(&children[..answered]).await;
    }
    let children = bed.until_open(run, 2).await;
    bed.answer_children(&children).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    check_children(run, &bed.children_of(run).await, 8);
    assert!(ended_items(&left).values().all(|count| *count == 1));
    assert_eq!(left.outputs()["count"], 8);
}

/// Other runs start and end while a list of 10,000 items is worked on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_list_does_not_stall_other_runs() {
    let bed = Bed::new().await;
    bed.publish(&echoes()).await;
    bed.publish(&parent(json!({ "maxConcurrency": 100 }))).await;
    let mut other = workflow(json!([{ "id": "say", "actionType": "core.echo", "parameters": { "ok": true } }]));
    other["id"] = json!("other");
    bed.publish(&other).await;
    let items: Vec<u32> = (0..10_000).collect();
    let run = bed.start_run("parent", json!({ "items": items })).await;
    let mut meanwhile = 0;
    while !bed.store.run(run).await.unwrap().unwrap().status.is_terminal() {
        let plain = bed.start_run("other", json!({})).await;
        assert_eq!(bed.end_of(plain).await.status(), Status::Succeeded);
        meanwhile += 1;
    }
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    assert!(meanwhile > 20, "only {meanwhile} other runs ended meanwhile");
    let outputs = left.outputs();
    let outputs = outputs["outputs"].as_array().unwrap();
    assert!(outputs.iter().enumerate().all(|(at, output)| output["got"] == at));
    check_children(run, &bed.children_of(run).await, 10_000);
}
