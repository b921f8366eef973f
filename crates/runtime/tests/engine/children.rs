//! Child runs: their outputs, failures and cancels reach the right run, once.

use crate::support::{Bed, PATIENCE, Place, Scripted, link, workflow};
use fermata_core::{
    AnswerRule, Kind, RunId, RunOutputs, Status, Timestamp, code,
    plan::{Name, PlanBuilder, Source},
};
use fermata_runtime::{
    Engine, Request, Settings,
    actions::{HttpSettings, Registry, Success},
    clock::TokioClock,
};
use fermata_store::reads::RunFilter;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

pub fn parks() -> Settings {
    Settings {
        park_after: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        lease_ttl: Duration::from_millis(600),
        ..Settings::default()
    }
}

fn child(builder: PlanBuilder, id: &str, workflow: &str) -> PlanBuilder {
    let parameters = json!({ "workflowId": workflow, "trigger": { "x": "{{ trigger.x }}" } });
    builder
        .request(id, "core.subworkflow", parameters, AnswerRule::Child)
        .with(|node| node.policies.retry.max_attempts = 1)
}

fn plan(id: &str) -> PlanBuilder {
    PlanBuilder::new(id).plan(|plan| plan.scope = fermata_dialects::dataworkflows::scope())
}

impl Bed {
    /// Stores a workflow under this name that follows this plan.
    pub async fn add(&self, name: &str, plan: PlanBuilder) {
        let nodes = json!([{ "id": "a", "actionType": "core.echo", "parameters": {} }]);
        let mut document = workflow(nodes);
        document["id"] = json!(name);
        self.publish(&document).await;
        self.install(name, plan).await;
    }

    pub async fn install(&self, name: &str, plan: PlanBuilder) {
        let uid = self.engine.reads().workflow(name).await.unwrap().uid;
        self.engine.workflows().install(uid, plan.build().unwrap(), 1).unwrap();
    }

    pub async fn start_run(&self, name: &str, trigger: Value) -> RunId {
        let request = Request {
            workflow_id: name.to_owned(),
            trigger,
            correlation_id: Some("c1".to_owned()),
            tenant: "t1".to_owned(),
            ..Request::default()
        };
        self.engine.start(request).await.unwrap().run
    }

    pub async fn runs_of(&self, name: &str) -> Vec<fermata_store::reads::RunRecord> {
        let uid = self.engine.reads().workflow(name).await.unwrap().uid;
        let filter = RunFilter {
            workflows: vec![uid],
            limit: 100,
            ..RunFilter::default()
        };
        self.store.runs(filter).await.unwrap().items
    }

    /// Waits for the first run of a workflow.
    pub async fn first_run_of(&self, name: &str) -> RunId {
        for _ in 0..2000 {
            if let Some(run) = self.runs_of(name).await.first() {
                return run.id;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("no run of {name} was started");
    }

    pub async fn end_of(&self, run: RunId) -> crate::support::Left {
        let ended = self.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
        self.left(run, ended).await
    }
}

pub async fn beds() -> [Bed; 2] {
    [Bed::new().await, Bed::with(parks(), |registry| registry).await]
}

fn doubled() -> PlanBuilder {
    plan("child").action_with("say", "core.echo", json!({ "got": "{{ trigger.x }}" }))
}

#[tokio::test]
async fn outputs_of_a_child_are_the_output_of_its_node() {
    for bed in beds().await {
        bed.add("child", doubled()).await;
        let parent = child(plan("parent"), "call", "child").then("after").action_with(
            "after",
            "core.echo",
            json!({ "seen": "{{ context.data['call'].outputs.got }}" }),
        );
        bed.add("parent", parent).await;
        let run = bed.start_run("parent", json!({ "x": 7 })).await;
        let left = bed.end_of(run).await;
        assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
        assert_eq!(left.outputs(), json!({ "seen": 7 }));
        let children = bed.runs_of("child").await;
        assert_eq!(children.len(), 1);
        let child = &children[0];
        assert_eq!(child.parent, Some(run));
        assert_eq!(
            (child.tenant.as_str(), child.correlation_id.as_deref()),
            ("t1", Some("c1"))
        );
        assert_eq!(child.request_id, format!("fermata:child:{run}:call:1"));
        let call = left.actions.iter().find(|row| row.node.as_str() == "call").unwrap();
        let outputs: Value = serde_json::from_str(call.outputs.as_deref().unwrap()).unwrap();
        assert_eq!(outputs["executionId"], child.id.to_string());
    }
}

#[tokio::test]
async fn failed_child_fails_its_node_with_its_error() {
    for bed in beds().await {
        let broken =
            plan("child").action_with("break", "core.fail", json!({ "code": "BROKEN", "message": "it broke" }));
        bed.add("child", broken).await;
        bed.add("parent", child(plan("parent"), "call", "child")).await;
        let run = bed.start_run("parent", json!({ "x": 1 })).await;
        let left = bed.end_of(run).await;
        assert_eq!(left.status(), Status::Failed);
        assert_eq!(left.error()["node"], "call");
        let child = bed.runs_of("child").await.remove(0);
        let error: Value = serde_json::from_str(child.error.as_deref().unwrap()).unwrap();
        assert_eq!(left.error()["code"], error["code"]);
        assert_eq!(left.attempts("call"), [(1, "Failed")]);
    }
}

fn waits_for_ever() -> PlanBuilder {
    plan("child").node("wait", Kind::Wait { timeout_ms: None })
}

#[tokio::test]
async fn cancelling_a_parent_cancels_its_child() {
    for bed in beds().await {
        bed.add("child", waits_for_ever()).await;
        bed.add("parent", child(plan("parent"), "call", "child")).await;
        let run = bed.start_run("parent", json!({ "x": 1 })).await;
        bed.until(run, "call", "waiting").await;
        let child = bed.first_run_of("child").await;
        bed.engine.cancel(run, "enough").await.unwrap();
        assert_eq!(bed.end_of(run).await.status(), Status::Cancelled);
        let left = bed.end_of(child).await;
        assert_eq!(
            (left.status(), left.ended.reason.as_deref()),
            (Status::Cancelled, Some("parent_ended"))
        );
    }
}

#[tokio::test]
async fn child_that_takes_too_long_is_cancelled() {
    for bed in beds().await {
        bed.add("child", waits_for_ever()).await;
        let parent = child(plan("parent"), "call", "child").with(|node| {
            if let Kind::Request { timeout_ms, .. } = &mut node.kind {
                *timeout_ms = Some(50);
            }
        });
        bed.add("parent", parent).await;
        let run = bed.start_run("parent", json!({ "x": 1 })).await;
        let left = bed.end_of(run).await;
        assert_eq!(left.error()["code"], code::TIMEOUT);
        let child = bed.first_run_of("child").await;
        assert_eq!(bed.end_of(child).await.status(), Status::Cancelled);
    }
}

#[tokio::test]
async fn node_that_does_not_wait_ends_at_once() {
    let bed = Bed::new().await;
    bed.add("child", waits_for_ever()).await;
    let parameters = json!({ "workflowId": "child", "trigger": {} });
    bed.add(
        "parent",
        plan("parent").action_with("call", "core.subworkflow", parameters),
    )
    .await;
    let run = bed.start_run("parent", json!({})).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded);
    let child = bed.runs_of("child").await.remove(0);
    assert_eq!(left.outputs(), json!({ "executionId": child.id.to_string() }));
    assert_eq!(child.status, Status::Running, "it is independent of its parent");
}

#[tokio::test]
async fn depth_and_recursion_are_limited() {
    let bed = Bed::new().await;
    // a → b → c → a
    for (name, next) in [("a", "b"), ("b", "c"), ("c", "a")] {
        bed.add(name, child(plan(name), "call", next)).await;
    }
    let run = bed.start_run("a", json!({ "x": 1 })).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.error()["code"], code::CHILD_REFUSED, "{:?}", left.ended);
    assert!(left.error()["message"].as_str().unwrap().contains("start itself"));
    assert_eq!(bed.runs_of("a").await.len(), 1);

    let mut deep = Settings {
        max_nesting_depth: 3,
        ..Settings::default()
    };
    deep.dialects.allow_recursion = true;
    let bed = Bed::with(deep, |registry| registry).await;
    bed.add("a", child(plan("a"), "call", "a")).await;
    let run = bed.start_run("a", json!({ "x": 1 })).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.error()["code"], code::CHILD_REFUSED);
    assert_eq!(bed.runs_of("a").await.len(), 4, "depth 0 to 3");
}

#[tokio::test]
async fn failed_child_is_repeated_if_its_node_says_so() {
    let bed = Bed::new().await;
    let broken = plan("child").action_with("break", "core.fail", json!({ "code": "BROKEN", "message": "it broke" }));
    bed.add("child", broken).await;
    let parent = child(plan("parent"), "call", "child").with(|node| {
        node.policies.retry.max_attempts = 2;
        node.policies.retry.base_delay_ms = 1;
    });
    bed.add("parent", parent).await;
    let run = bed.start_run("parent", json!({ "x": 1 })).await;
    let left = bed.end_of(run).await;
    assert_eq!(left.attempts("call"), [(1, "RetriableFailure"), (2, "Failed")]);
    assert_eq!(bed.runs_of("child").await.len(), 2, "each attempt has its own child");
}

#[tokio::test]
async fn unknown_child_fails_its_node() {
    let bed = Bed::new().await;
    bed.add("parent", child(plan("parent"), "call", "missing")).await;
    let run = bed.start_run("parent", json!({ "x": 1 })).await;
    assert_eq!(bed.end_of(run).await.error()["code"], code::CHILD_REFUSED);
}

#[tokio::test]
async fn subgraph_starts_with_the_state_and_merges_what_it_changed() {
    for bed in beds().await {
        let with_state = |plan: &mut fermata_core::StoredPlan| {
            plan.scope.names = vec![Name::new("state", Source::State)];
            plan.outputs = RunOutputs::Changed;
        };
        let merges = |node: &mut fermata_core::Node| node.merges_into_state = true;
        let inner = PlanBuilder::new("child")
            .plan(with_state)
            .action_with("add", "core.echo", json!({ "sum": "{{ state.a }}", "note": "inner" }))
            .with(merges);
        bed.add("child", inner).await;
        let outer = PlanBuilder::new("parent")
            .plan(with_state)
            .action_with("first", "core.echo", json!({ "a": 5 }))
            .with(merges)
            .then("call")
            .request(
                "call",
                "core.subworkflow",
                json!({ "workflowId": "child" }),
                AnswerRule::Child,
            )
            .with(merges)
            .then("last")
            .action_with("last", "core.echo", json!({ "total": "{{ state.sum }}" }))
            .with(merges);
        bed.add("parent", outer).await;
        let run = bed.start_run("parent", json!({ "given": true })).await;
        let left = bed.end_of(run).await;
        assert_eq!(
            left.outputs(),
            json!({ "a": 5, "sum": 5, "note": "inner", "total": 5 }),
            "{:?}",
            left.ended
        );
        let child = bed.runs_of("child").await.remove(0);
        let trigger: Value = serde_json::from_str(&bed.store.run(child.id).await.unwrap().unwrap().trigger).unwrap();
        assert_eq!(trigger, json!({ "given": true, "a": 5 }));
    }
}

/// The parent's process crashes while its child runs, and again after the child has ended.
#[tokio::test]
async fn end_of_a_child_survives_crashes_of_its_parent() {
    let registry = || {
        Registry::builtin(&HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        })
        .unwrap()
    };
    let place = Place::new().await;
    let bed = Bed::on(place.clone(), parks(), registry());
    bed.add("child", waits_for_ever()).await;
    bed.add("parent", child(plan("parent"), "call", "child")).await;
    let run = bed.start_run("parent", json!({ "x": 1 })).await;
    bed.until(run, "call", "waiting").await;
    let child_run = bed.first_run_of("child").await;
    bed.until(child_run, "wait", "waiting").await;
    bed.engine.crash();

    let bed = Bed::on(place.clone(), parks(), registry());
    bed.install("child", waits_for_ever()).await;
    bed.install("parent", child(plan("parent"), "call", "child")).await;
    let token = bed.store.waits(child_run).await.unwrap().remove(0).token;
    bed.engine.answer(&token, r#"{"done":true}"#).await.unwrap();
    let left = bed.end_of(run).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.ended);
    assert_eq!(left.attempts("call"), [(1, "Succeeded")]);
    assert_eq!(bed.runs_of("child").await.len(), 1, "one attempt has one child");
}

/// A child that is dead-lettered sends its parent the same message as any other. Time is simulated: the sweep that repairs lost
/// messages comes only after ten seconds.
#[tokio::test(start_paused = true)]
async fn end_of_a_dead_lettered_child_reaches_its_parent_at_once() {
    let breaks = Scripted::new("test.link", |_, _| {
        Ok(Success {
            outputs: json!({}),
            links: vec![link(&"x".repeat(5000))],
            offer: None,
        })
    });
    let store: Arc<dyn fermata_store::Store> = Arc::new(fermata_store::memory::MemoryStore::new());
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let clock = Arc::new(TokioClock::starting_at(Timestamp(1_700_000_000_000_000)));
    let settings = Settings {
        heartbeat_thread: false,
        ..parks()
    };
    let engine = Engine::new(store.clone(), registry.with_action(Arc::new(breaks)), settings, clock);
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    engine.ready().await;
    let documents = [
        json!({ "id": "child", "displayName": "c", "startNode": "a", "nodes": [{ "id": "a", "actionType": "test.link" }] }),
        json!({ "id": "parent", "displayName": "p", "startNode": "call", "nodes": [
            { "id": "call", "nodeType": "subworkflow", "workflowId": "child", "waitForCompletion": true,
              "policies": { "retry": { "maxAttempts": 1 } } }] }),
    ];
    for document in documents {
        let saved = engine.workflows().save(document.to_string().as_bytes(), "t.json").await;
        let id = saved.unwrap().workflow.id;
        engine.workflows().publish(&id, true).await.unwrap();
    }
    let request = Request {
        workflow_id: "parent".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let (accepted, ended) = engine.start_and_wait(request, PATIENCE).await.unwrap();
    let ended = ended.expect("it ends");
    assert_eq!(ended.status, Status::Failed);
    assert!(
        ended.error.as_deref().unwrap_or_default().contains("COMMIT_REJECTED"),
        "{ended:?}"
    );
    let parent = store.run(accepted.run).await.unwrap().unwrap();
    let runs = store
        .runs(RunFilter {
            limit: 9,
            ..RunFilter::default()
        })
        .await
        .unwrap()
        .items;
    let child = runs.iter().find(|run| run.workflow_id == "child").expect("a child");
    assert_eq!(child.reason.as_deref(), Some("dead_letter"));
    let waited = parent.ended_at.unwrap().0 - child.ended_at.unwrap().0;
    assert!(waited < 5_000_000, "the parent ended {waited} µs after its child");
}
