//! Reruns: what is kept has no effects, whatever its kind; a rerun that waits keeps the same as one that starts at once.

use crate::{
    children::parks,
    support::{Bed, Left, PATIENCE, Scripted, link, workflow},
};
use fermata_core::{Failure, NodeId, RunId, Status, rerun::Edits};
use fermata_runtime::{
    EngineError, NodeOverview, Refusal, Request, RerunRequest, RerunVersion, Settings,
    actions::{Registry, Success},
};
use fermata_store::{reads::RunFilter, retention::RunDeletion};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

type Calls = Arc<Mutex<Vec<(Value, String)>>>;

/// `test.count` counts its calls, and fails if its parameters say so.
fn counting() -> (Calls, impl FnOnce(Registry) -> Registry) {
    let action = Scripted::new("test.count", |parameters, _| match parameters["fail"] == json!(true) {
        true => Err(Failure::permanent("NO", "no")),
        false => Ok(Success {
            outputs: parameters.clone(),
            ..Scripted::nothing()
        }),
    });
    let calls = action.calls.clone();
    (calls, |registry: Registry| registry.with_action(Arc::new(action)))
}

fn count(id: &str, parameters: Value, next: &[&str]) -> Value {
    let edges: Vec<Value> = next.iter().map(|target| json!({ "targetNode": target })).collect();
    json!({ "id": id, "actionType": "test.count", "parameters": parameters, "edges": edges })
}

/// `a` → `b` → `c`; `b` fails if the trigger says so.
fn chain() -> Value {
    workflow(json!([
        count("a", json!({ "n": "{{ trigger.n }}" }), &["b"]),
        count("b", json!({ "fail": "{{ trigger.fail ?? false }}" }), &["c"]),
        count(
            "c",
            json!({ "got": "{{ context.data['a'].n }}", "now": "{{ trigger.n }}" }),
            &[]
        ),
    ]))
}

fn from(node: &str) -> RerunRequest {
    RerunRequest {
        from_node: Some(node.to_owned()),
        ..RerunRequest::default()
    }
}

fn failed_only() -> RerunRequest {
    RerunRequest {
        failed_only: true,
        ..RerunRequest::default()
    }
}

fn edits(node: &str, parameters: Value) -> Edits {
    [(NodeId::from(node), parameters.as_object().cloned().unwrap())].into()
}

impl Bed {
    async fn repeat(&self, run: RunId, request: RerunRequest) -> Left {
        let accepted = self.engine.rerun(run, request).await.unwrap();
        assert!(accepted.created);
        self.end_of(accepted.run).await
    }

    async fn refused(&self, run: RunId, request: RerunRequest) -> Refusal {
        match self.engine.rerun(run, request).await {
            Err(EngineError::Refused(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until an attempt of a node is recorded.
    async fn until_ended_node(&self, run: RunId, node: &str) {
        for _ in 0..4000 {
            if !self.store.last_attempts(run, &[node.into()]).await.unwrap().is_empty() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{node} of {run} never ended");
    }

    /// Waits until a node takes an answer; its token.
    async fn until_waiting(&self, run: RunId, node: &str) -> String {
        for _ in 0..4000 {
            // The token of a wait exists from the start of its run.
            let overview = self.engine.reads().overview(run).await.unwrap();
            let is_waiting = |of: &NodeOverview| of.is_waiting && of.node.as_str() == node;
            if overview.nodes.iter().any(is_waiting) {
                let waits = self.store.waits(run).await.unwrap();
                let wait = waits.into_iter().find(|wait| wait.node.as_str() == node);
                return wait.unwrap().token;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{node} of {run} never waited");
    }
}

fn parameters(calls: &Calls) -> Vec<Value> {
    calls
        .lock()
        .unwrap()
        .iter()
        .map(|(parameters, _)| parameters.clone())
        .collect()
}

#[tokio::test]
async fn nothing_before_the_node_is_executed_and_edits_apply_to_this_run_only() {
    for settings in [Settings::default(), parks()] {
        let (calls, more) = counting();
        let bed = Bed::with(settings, more).await;
        let old = bed.carry(chain(), json!({ "n": 5, "fail": true })).await;
        assert_eq!(old.status(), Status::Failed);
        calls.lock().unwrap().clear();
        let request = RerunRequest {
            trigger: Some(json!({ "n": 6 })),
            parameters: edits("b", json!({ "extra": "{{ trigger.n }}" })),
            ..from("b")
        };
        let new = bed.repeat(old.run, request).await;
        assert_eq!(new.status(), Status::Succeeded, "{:?}", new.ended);
        assert_eq!(
            parameters(&calls),
            [json!({ "fail": false, "extra": 6 }), json!({ "got": 5, "now": 6 })]
        );
        let keys: Vec<String> = calls.lock().unwrap().iter().map(|call| call.1.clone()).collect();
        assert_eq!(keys, [format!("{}:b", new.run), format!("{}:c", new.run)]);
        let row = bed.store.run(new.run).await.unwrap().unwrap();
        assert_eq!(row.rerun_of.map(|of| of.run), Some(old.run));
        let kept: Vec<_> = new.actions.iter().filter(|row| row.reused_from.is_some()).collect();
        assert_eq!(
            (kept.len(), kept[0].node.as_str(), kept[0].reused_from),
            (1, "a", Some(old.run))
        );
        // The same again, without edits: those were of that run only.
        calls.lock().unwrap().clear();
        bed.repeat(new.run, from("b")).await;
        assert_eq!(parameters(&calls)[0], json!({ "fail": false }));
    }
}

/// A rerun that has to wait for its place, or is claimed later, keeps the same, also if the old run is deleted meanwhile.
#[tokio::test]
async fn rerun_that_waits_keeps_the_same_after_its_source_is_deleted() {
    let (calls, more) = counting();
    let bed = Bed::with(parks(), more).await;
    let mut document = chain();
    document["nodes"][1]["edges"] = json!([{ "targetNode": "w" }]);
    let wait = json!({ "id": "w", "actionType": "core.wait", "edges": [{ "targetNode": "c" }] });
    document["nodes"].as_array_mut().unwrap().push(wait);
    document["concurrency"] = json!({ "limit": 1 });
    let failed = bed.carry(document, json!({ "n": 5, "fail": true })).await;
    let first = bed.engine.start(Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({ "n": 1 }),
        ..Request::default()
    });
    let first = first.await.unwrap().run;
    bed.until_ended_node(first, "b").await;
    let token = bed.until_waiting(first, "w").await;
    calls.lock().unwrap().clear();
    let request = RerunRequest {
        trigger: Some(json!({ "n": 6 })),
        parameters: edits("b", json!({ "extra": 1 })),
        ..failed_only()
    };
    let waiting = bed.engine.rerun(failed.run, request).await.unwrap();
    assert_eq!(waiting.status, Status::Pending);
    assert_eq!(bed.store.delete_run(failed.run).await.unwrap(), RunDeletion::Deleted);
    assert!(calls.lock().unwrap().is_empty());
    bed.engine.answer(&token, "{}").await.unwrap();
    let token = bed.until_waiting(waiting.run, "w").await;
    bed.engine.answer(&token, "{}").await.unwrap();
    let left = bed.end_of(waiting.run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    let of_rerun: Vec<Value> = parameters(&calls)
        .into_iter()
        .filter(|value| *value != json!({ "got": 1, "now": 1 }))
        .collect();
    assert_eq!(
        of_rerun,
        [json!({ "fail": false, "extra": 1 }), json!({ "got": 5, "now": 6 })]
    );
    let row = bed.store.run(waiting.run).await.unwrap().unwrap();
    assert_eq!(row.rerun_of.map(|of| of.run), Some(failed.run));
    let reasons: Vec<_> = left
        .timeline
        .iter()
        .filter(|entry| entry.data["type"] == "reused")
        .collect();
    assert_eq!((reasons.len(), &reasons[0].data["node"]), (1, &json!("a")));
}

/// Waits, approvals and child runs that are kept get no token, no inbox item and no child.
#[tokio::test]
async fn kept_waits_requests_and_children_have_no_effects() {
    for settings in [Settings::default(), parks()] {
        let (calls, more) = counting();
        let bed = Bed::with(settings, more).await;
        let mut child = workflow(json!([count("say", json!({ "x": "{{ trigger.item }}" }), &[])]));
        child["id"] = json!("child");
        bed.publish(&child).await;
        let document = workflow(json!([
            { "id": "each", "nodeType": "subworkflow", "workflowId": "child", "forEach": "{{ [1, 2] }}",
              "edges": [{ "targetNode": "w" }] },
            { "id": "w", "actionType": "core.wait", "edges": [{ "targetNode": "ok" }] },
            { "id": "ok", "actionType": "core.approval", "parameters": { "title": "Ok?", "outcomes": ["approved", "rejected"] }, "edges": [{ "targetNode": "last" }] },
            count("last", json!({ "fail": "{{ trigger.fail ?? false }}", "said": "{{ context.data['w'].said }}",
                "by": "{{ context.data['ok'].outcome }}", "url": "{{ wait['w'].url }}" }), &[]),
        ]));
        let mut document = document;
        document["nodes"][0]["forEach"] = json!("{{ trigger.items }}");
        bed.publish(&document).await;
        let request = Request {
            workflow_id: "under-test".to_owned(),
            trigger: json!({ "items": [1, 2], "fail": true }),
            ..Request::default()
        };
        let run = bed.engine.start(request).await.unwrap().run;
        bed.until_ended_node(run, "each").await;
        let token = bed.until_waiting(run, "w").await;
        bed.engine.answer(&token, r#"{"said":"yes"}"#).await.unwrap();
        let token = bed.until_waiting(run, "ok").await;
        bed.engine.answer(&token, r#"{"outcome":"approved"}"#).await.unwrap();
        let old = bed.end_of(run).await;
        assert_eq!(
            (old.status(), old.error()["node"].as_str()),
            (Status::Failed, Some("last")),
            "{:?}",
            old.ended
        );
        calls.lock().unwrap().clear();
        let request = RerunRequest {
            trigger: Some(json!({ "items": [9] })),
            ..from("last")
        };
        let new = bed.repeat(run, request).await;
        assert_eq!(new.status(), Status::Succeeded, "{:?}", new.ended);
        assert_eq!(
            parameters(&calls),
            [json!({ "fail": false, "said": "yes", "by": "approved", "url": null })]
        );
        assert_eq!(bed.store.waits(new.run).await.unwrap(), vec![]);
        assert_eq!(bed.store.children(new.run, None, 9).await.unwrap().items, vec![]);
        assert_eq!(bed.store.children(run, None, 9).await.unwrap().items.len(), 2);
    }
}

/// The state of a jsondagapi run: the trigger of the new run, and what kept tasks wrote, in their order.
#[tokio::test]
async fn state_is_that_of_the_kept_tasks() {
    for settings in [Settings::default(), parks()] {
        let bed = Bed::with(settings, |registry| registry).await;
        let task = |id: &str| json!({ "id": id, "type": "task", "executor": { "type": "callback", "config": {} } });
        let edge = |from: &str, to: &str| json!({ "from": from, "to": to });
        bed.create(&json!({ "workflow_id": "dag", "name": "dag", "version": "1.0.0",
            "policies": { "retry_policy": { "max_attempts": 1 } },
            "nodes": [task("one"), task("two"), task("three")], "edges": [edge("one", "two"), edge("two", "three")] }))
            .await;
        let request = Request {
            workflow_id: "dag".to_owned(),
            trigger: json!({ "user": "ann" }),
            ..Request::default()
        };
        let run = bed.engine.start(request).await.unwrap().run;
        for (node, answer) in [
            ("one", r#"{"state":{"a":1,"b":1}}"#),
            ("two", r#"{"state":{"b":2}}"#),
            ("three", r#"{"error":{"code":"NO","message":"no"}}"#),
        ] {
            let token = bed.until_waiting(run, node).await;
            bed.engine.answer(&token, answer).await.unwrap();
        }
        assert_eq!(bed.end_of(run).await.status(), Status::Failed);
        let request = RerunRequest {
            trigger: Some(json!({ "user": "bob", "a": 0 })),
            ..failed_only()
        };
        let new = bed.engine.rerun(run, request).await.unwrap().run;
        let token = bed.until_waiting(new, "three").await;
        let items = bed.store.waits(new).await.unwrap();
        assert_eq!(items.len(), 1, "only the repeated task waits");
        bed.engine.answer(&token, r#"{"state":{"c":3}}"#).await.unwrap();
        let left = bed.end_of(new).await;
        assert_eq!(left.outputs(), json!({ "a": 1, "b": 2, "c": 3 }));
    }
}

/// The same resource may be linked by the runs of one chain.
#[tokio::test]
async fn resources_of_the_chain_do_not_conflict() {
    let bed = Bed::with(Settings::default(), |registry| {
        let action = Scripted::new("test.link", |_, _| {
            Ok(Success {
                links: vec![link("order-1")],
                ..Scripted::nothing()
            })
        });
        registry.with_action(Arc::new(action))
    })
    .await;
    let document = workflow(json!([{ "id": "make", "actionType": "test.link" }]));
    let old = bed.carry(document, json!({})).await;
    assert_eq!(old.status(), Status::Succeeded);
    for node in [None, Some("make".to_owned())] {
        let request = RerunRequest {
            from_node: node,
            ..RerunRequest::default()
        };
        assert_eq!(bed.repeat(old.run, request).await.status(), Status::Succeeded);
    }
    let stranger = bed.start_run("under-test", json!({})).await;
    let stranger = bed.end_of(stranger).await;
    assert_eq!(stranger.error()["code"], "WFENG003", "{:?}", stranger.ended);
}

/// On another version, a node is kept only if it and everything before it are unchanged.
#[tokio::test]
async fn newest_version_reuses_unchanged_nodes_only() {
    let (calls, more) = counting();
    let bed = Bed::with(Settings::default(), more).await;
    let old = bed.carry(chain(), json!({ "n": 5, "fail": true })).await;
    let publish = async |document: Value| {
        let text = document.to_string();
        let workflows = bed.engine.workflows();
        workflows
            .save_draft("under-test", text.as_bytes(), "test.json", None)
            .await
            .unwrap();
        workflows.publish("under-test", true).await.unwrap();
    };
    let mut fixed = chain();
    fixed["nodes"][1]["parameters"]["fail"] = json!(false);
    publish(fixed.clone()).await;
    calls.lock().unwrap().clear();
    let latest = |request: RerunRequest| RerunRequest {
        version: RerunVersion::Latest,
        ..request
    };
    assert_eq!(bed.repeat(old.run, from("b")).await.status(), Status::Failed);
    let new = bed.repeat(old.run, latest(failed_only())).await;
    assert_eq!(new.status(), Status::Succeeded);
    assert_eq!(calls.lock().unwrap().len(), 3, "b, then b and c");
    fixed["nodes"][0]["parameters"]["more"] = json!(1);
    publish(fixed).await;
    for request in [latest(failed_only()), latest(from("b"))] {
        let refusal = bed.refused(old.run, request).await;
        assert!(
            refusal
                .to_string()
                .contains("node `a`, which is before `b`, is not the same"),
            "{refusal}"
        );
    }
    let again = RerunRequest {
        version: RerunVersion::Number(2),
        ..from("b")
    };
    assert_eq!(bed.repeat(old.run, again).await.status(), Status::Succeeded);
    assert_eq!(calls.lock().unwrap().len(), 5, "b and c of version 2");
    let unknown = RerunRequest {
        version: RerunVersion::Number(9),
        ..from("b")
    };
    assert!(matches!(
        bed.refused(old.run, unknown).await,
        Refusal::VersionNotFound { version: 9, .. }
    ));
}

#[tokio::test]
async fn reruns_that_cannot_be_are_refused_and_store_nothing() {
    let (calls, more) = counting();
    let bed = Bed::with(Settings::default(), more).await;
    let mut document = chain();
    document["triggerSchema"] = json!({ "type": "object", "required": ["n"] });
    let old = bed.carry(document, json!({ "n": 5, "fail": true })).await;
    let mut waiting = workflow(json!([{ "id": "w", "actionType": "core.wait" }]));
    waiting["id"] = json!("waiting");
    bed.publish(&waiting).await;
    let request = Request {
        workflow_id: "waiting".to_owned(),
        ..Request::default()
    };
    let active = bed.engine.start(request).await.unwrap().run;
    calls.lock().unwrap().clear();
    let refusal = bed.refused(active, RerunRequest::default()).await;
    assert!(matches!(refusal, Refusal::WrongStatus { .. }), "{refusal}");
    let missing = RunId(uuid::Uuid::now_v7());
    assert!(matches!(bed.refused(missing, from("a")).await, Refusal::RunNotFound(id) if id == missing));
    let both = RerunRequest {
        failed_only: true,
        ..from("b")
    };
    let with = |node: &str, parameters: Value| RerunRequest {
        parameters: edits(node, parameters),
        ..from("b")
    };
    for (request, pointer, what) in [
        (from("x"), "/fromNode", "has no node `x`"),
        (from("c"), "/fromNode", "`c` was not reached"),
        (both, "/failedOnly", "exclude each other"),
        (with("a", json!({})), "/parameters/a", "`a` is not repeated"),
        (with("x", json!({})), "/parameters/x", "has no node `x`"),
        (
            with("b", json!({ "fail": "{{ trigger. }}" })),
            "/parameters",
            "node `b`",
        ),
    ] {
        match bed.refused(old.run, request).await {
            Refusal::InvalidRerun { pointer: at, what: why } => {
                assert_eq!(at, pointer, "{why}");
                assert!(why.contains(what), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    let invalid = RerunRequest {
        trigger: Some(json!({})),
        ..from("b")
    };
    assert!(matches!(
        bed.refused(old.run, invalid).await,
        Refusal::InvalidTrigger { .. }
    ));
    let taken = RerunRequest {
        request_id: Some(bed.store.run(old.run).await.unwrap().unwrap().request_id),
        ..from("b")
    };
    assert!(matches!(
        bed.refused(old.run, taken).await,
        Refusal::RequestIdTaken { .. }
    ));
    assert!(calls.lock().unwrap().is_empty());
    bed.engine.workflows().archive("under-test").await.unwrap();
    assert!(matches!(
        bed.refused(old.run, from("b")).await,
        Refusal::NotActive { .. }
    ));
    let all = bed
        .store
        .runs(RunFilter {
            limit: 9,
            ..RunFilter::default()
        })
        .await
        .unwrap();
    assert_eq!(all.items.len(), 2);
}

/// Concurrent requests with one requestId make one run.
#[tokio::test]
async fn one_request_makes_one_run() {
    let (calls, more) = counting();
    let bed = Bed::with(Settings::default(), more).await;
    let old = bed.carry(chain(), json!({ "n": 5, "fail": true })).await;
    calls.lock().unwrap().clear();
    let request = || RerunRequest {
        trigger: Some(json!({ "n": 5 })),
        request_id: Some("click".to_owned()),
        ..from("b")
    };
    let clicks = (0..8).map(|_| {
        let (engine, run, request) = (bed.engine.clone(), old.run, request());
        tokio::spawn(async move { engine.rerun(run, request).await.unwrap() })
    });
    let mut made = Vec::new();
    for click in clicks.collect::<Vec<_>>() {
        made.push(click.await.unwrap());
    }
    assert_eq!(made.iter().filter(|accepted| accepted.created).count(), 1);
    assert!(made.iter().all(|accepted| accepted.run == made[0].run));
    bed.engine.wait(made[0].run, PATIENCE).await.unwrap().unwrap();
    assert_eq!(calls.lock().unwrap().len(), 2, "b and c, once");
}

/// A rerun is not merged with other starts: debounce does not apply to it, and a taken unique key refuses it.
#[tokio::test]
async fn rerun_is_not_merged_with_other_starts() {
    let (calls, more) = counting();
    let bed = Bed::with(Settings::default(), more).await;
    let mut document = chain();
    document["unique"] = json!({ "key": "{{ trigger.key ?? 'none' }}" });
    let wait = json!({ "id": "w", "actionType": "core.wait", "edges": [] });
    document["nodes"].as_array_mut().unwrap().push(wait);
    document["nodes"][2]["edges"] = json!([{ "targetNode": "w" }]);
    let old = bed.carry(document, json!({ "n": 5, "fail": true })).await;
    let start = Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({ "n": 1, "key": "k" }),
        ..Request::default()
    };
    let holder = bed.engine.start(start).await.unwrap().run;
    bed.until_waiting(holder, "w").await;
    calls.lock().unwrap().clear();
    let taken = |id: Option<&str>| RerunRequest {
        trigger: Some(json!({ "n": 2, "key": "k" })),
        request_id: id.map(str::to_owned),
        ..from("b")
    };
    for id in [None, Some("x")] {
        let refusal = bed.refused(old.run, taken(id)).await;
        assert!(
            matches!(&refusal, Refusal::UniqueKeyTaken { run, .. } if *run == holder),
            "{refusal:?}"
        );
    }
    assert!(calls.lock().unwrap().is_empty());
    bed.engine.cancel(holder, "enough").await.unwrap();
    bed.engine.wait(holder, PATIENCE).await.unwrap().unwrap();
    let rerun = bed.engine.rerun(old.run, taken(None)).await.unwrap();
    assert!(rerun.created);
    bed.until_waiting(rerun.run, "w").await;
}
