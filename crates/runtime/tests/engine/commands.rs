//! Commands of operators: pause and resume, skip a node that waits.

use crate::support::{Bed, Gated, PATIENCE, Place, Scripted, workflow};
use fermata_core::{Event, RunId, Status, decode};
use fermata_runtime::{
    Caller, EngineError, Identity, Refusal, Request, Scopes, Session, Settings,
    actions::{HttpSettings, Registry},
};
use fermata_store::{reads::Window, runs::RunMessage};
use serde_json::{Map, Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Semaphore;

type Calls = Arc<Mutex<Vec<(Value, String)>>>;

/// An engine with the action `test.gate`, which waits for a permit.
struct Yard {
    bed: Bed,
    gate: Arc<Semaphore>,
    calls: Calls,
}

async fn yard_on(store: Place, settings: Settings) -> Yard {
    let gate = Arc::new(Semaphore::new(0));
    let scripted = Scripted::new("test.gate", |_, _| Ok(json!({ "gated": true }).into()));
    let calls = scripted.calls.clone();
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let registry = registry.with_action(Arc::new(Gated(scripted, gate.clone())));
    let bed = Bed::on(store, settings, registry);
    Yard { bed, gate, calls }
}

async fn yard(settings: Settings) -> Yard {
    yard_on(Place::new().await, settings).await
}

fn chain() -> Value {
    workflow(json!([
        { "id": "a", "actionType": "test.gate", "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "test.gate" },
    ]))
}

impl Yard {
    async fn begin(&self) -> RunId {
        let request = Request {
            workflow_id: "under-test".to_owned(),
            ..Request::default()
        };
        self.bed.engine.start(request).await.expect("it starts").run
    }

    async fn events(&self, run: RunId) -> Vec<Event> {
        let all = Window { limit: 1000, offset: 0 };
        let (rows, _) = self.bed.store.events(run, all).await.unwrap();
        rows.iter().flat_map(|row| decode(&row.data).unwrap()).collect()
    }

    async fn until_event(&self, run: RunId, wanted: impl Fn(&Event) -> bool) {
        until(async || self.events(run).await.iter().any(&wanted)).await;
    }

    /// Waits until the run has left memory.
    async fn until_parked(&self, run: RunId) {
        until(async || !self.bed.store.run(run).await.unwrap().unwrap().held()).await;
    }

    async fn end(&self, run: RunId) -> Status {
        let ended = self.bed.engine.wait(run, PATIENCE).await.unwrap();
        ended.expect("the run ends").status
    }

    fn called(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("in time");
}

fn operator(bed: &Bed) -> Session {
    let identity = Identity::new("test".to_owned(), None, None, Scopes::all()).unwrap();
    bed.engine.as_caller(Caller::new(Arc::new(identity), None))
}

fn is_paused(event: &Event) -> bool {
    matches!(event, Event::Paused { .. })
}

fn is_end_of(node: &str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::Finished { node: of, .. } if of.as_str() == node)
}

#[tokio::test]
async fn paused_run_finishes_its_action_and_starts_nothing_also_in_another_process() {
    let first = yard(Settings::default()).await;
    first.bed.publish(&chain()).await;
    let run = first.begin().await;
    until(async || first.events(run).await.len() >= 2).await;
    first.bed.engine.pause(run).await.unwrap();
    first.until_event(run, is_paused).await;
    first.gate.add_permits(1);
    first.until_event(run, is_end_of("a")).await;
    first.until_parked(run).await;
    let row = first.bed.store.run(run).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.wake_at.is_some()),
        (Status::Running, true),
        "its deadline"
    );
    assert!(row.paused_at.is_some());
    assert!(
        !first
            .events(run)
            .await
            .iter()
            .any(|event| matches!(event, Event::Routed { .. }))
    );
    let recorded = first.events(run).await;
    first.bed.engine.stop();

    let second = yard_on(first.bed.store.clone(), Settings::default()).await;
    second.gate.add_permits(10);
    let now = second.bed.engine.now();
    second
        .bed
        .store
        .deliver(run, RunMessage::ChildrenEnded, now)
        .await
        .unwrap();
    let is_read = async || {
        let stored = second.bed.store.load(run).await.unwrap().unwrap();
        stored.messages_seen == stored.message_seq && stored.owner.is_none()
    };
    until(is_read).await;
    assert_eq!(
        (second.called(), second.events(run).await),
        (0, recorded),
        "it was claimed and parked again"
    );
    second.bed.engine.resume(run).await.unwrap();
    assert_eq!(second.end(run).await, Status::Succeeded);
    assert_eq!((first.called(), second.called()), (1, 1), "each action ran once");
    assert_eq!(second.bed.store.run(run).await.unwrap().unwrap().paused_at, None);
}

#[tokio::test]
async fn attempt_that_waits_for_a_slot_does_not_start_while_its_run_is_paused() {
    let settings = Settings {
        max_parallel_actions: 1,
        ..Settings::default()
    };
    let yard = yard(settings).await;
    let single = workflow(json!([{ "id": "a", "actionType": "test.gate" }]));
    yard.bed.publish(&single).await;
    let first = yard.begin().await;
    let second = yard.begin().await;
    yard.bed.engine.pause(second).await.unwrap();
    yard.until_event(second, is_paused).await;
    yard.until_parked(second).await;
    yard.gate.add_permits(2);
    assert_eq!(yard.end(first).await, Status::Succeeded);
    assert_eq!(yard.called(), 1);
    yard.bed.engine.resume(second).await.unwrap();
    assert_eq!(yard.end(second).await, Status::Succeeded);
    assert_eq!(yard.called(), 2);
}

#[tokio::test]
async fn timer_of_a_paused_run_fires_when_it_is_resumed_and_a_cancel_ends_it() {
    let yard = yard(Settings::default()).await;
    let nap = workflow(json!([
        { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 300 }, "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo" },
    ]));
    yard.bed.publish(&nap).await;
    let (resumed, cancelled) = (yard.begin().await, yard.begin().await);
    for run in [resumed, cancelled] {
        yard.bed.engine.pause(run).await.unwrap();
        yard.until_parked(run).await;
    }
    let due = |event: &Event| matches!(event, Event::Slept { until, .. } if *until > yard.bed.engine.now());
    until(async || !yard.events(resumed).await.iter().any(due)).await;
    assert!(!yard.events(resumed).await.iter().any(is_end_of("nap")));
    yard.bed.engine.resume(resumed).await.unwrap();
    assert_eq!(yard.end(resumed).await, Status::Succeeded);
    yard.bed.engine.cancel(cancelled, "enough").await.unwrap();
    assert_eq!(yard.end(cancelled).await, Status::Cancelled);
}

#[tokio::test]
async fn run_that_is_paused_before_its_start_waits() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let yard = yard(settings).await;
    yard.bed
        .publish(&workflow(json!([{ "id": "a", "actionType": "test.gate" }])))
        .await;
    let first = yard.begin().await;
    let second = yard.begin().await;
    yard.bed.engine.pause(second).await.unwrap();
    let row = yard.bed.store.run(second).await.unwrap().unwrap();
    assert_eq!((row.status, row.paused_at.is_some()), (Status::Pending, true));
    yard.gate.add_permits(2);
    yard.end(first).await;
    yard.until_event(second, is_paused).await;
    yard.until_parked(second).await;
    let row = yard.bed.store.run(second).await.unwrap().unwrap();
    assert_eq!((row.status, row.wake_at, yard.called()), (Status::Pending, None, 1));
    yard.bed.engine.resume(second).await.unwrap();
    assert_eq!(yard.end(second).await, Status::Succeeded);
}

#[tokio::test]
async fn pause_and_resume_that_are_read_together_lose_nothing() {
    let yard = yard(Settings::default()).await;
    yard.bed.publish(&chain()).await;
    yard.gate.add_permits(100);
    let mut runs = Vec::new();
    for _ in 0..20 {
        let run = yard.begin().await;
        yard.bed.engine.pause(run).await.ok();
        yard.bed.engine.resume(run).await.ok();
        runs.push(run);
    }
    for run in runs {
        assert_eq!(yard.end(run).await, Status::Succeeded);
    }
}

#[tokio::test]
async fn nodes_that_wait_are_skipped_with_the_given_outputs() {
    let bed = Bed::with(Settings::default(), |registry| {
        let flaky = Scripted::new("test.flaky", |_, _| {
            Err(fermata_core::Failure::retriable("DOWN", "down"))
        });
        registry.with_action(Arc::new(flaky))
    })
    .await;
    let retry = json!({ "retry": { "maxAttempts": 3, "baseDelayMs": 3_600_000, "jitter": false }, "timeoutMs": 1000 });
    let document = workflow(json!([
        { "id": "w", "actionType": "core.wait", "edges": [{ "targetNode": "nap" }] },
        { "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 86_400_000u64 }, "edges": [{ "targetNode": "call" }] },
        { "id": "call", "actionType": "test.flaky", "policies": retry, "edges": [{ "targetNode": "ask" }] },
        { "id": "ask", "actionType": "core.approval", "parameters": { "title": "Well?", "outcomes": ["yes", "no"] },
          "edges": [{ "targetNode": "last" }] },
        { "id": "last", "actionType": "core.echo", "parameters": { "of": "{{ context.data.call.price }}", "said": "{{ context.data.ask.outcome }}" } },
    ]));
    bed.publish(&document).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        ..Request::default()
    };
    let run = bed.engine.start(request).await.unwrap().run;
    let session = operator(&bed);
    let refused = session.skip(run, "last", Map::new(), "early").await.unwrap_err();
    assert!(
        matches!(&refused, EngineError::Refused(Refusal::NodeCommand { .. })),
        "{refused}"
    );
    let refused = session.skip(run, "none", Map::new(), "x").await.unwrap_err();
    assert!(
        matches!(&refused, EngineError::Refused(Refusal::NodeNotFound { .. })),
        "{refused}"
    );
    for (node, outputs) in [
        ("w", json!({})),
        ("nap", json!({})),
        ("call", json!({ "price": 7 })),
        ("ask", json!({ "outcome": "yes" })),
    ] {
        let outputs = outputs.as_object().unwrap().clone();
        until(async || match session.skip(run, node, outputs.clone(), "known").await {
            Ok(()) => true,
            Err(EngineError::Refused(Refusal::NodeCommand { .. })) => false,
            Err(other) => panic!("{other}"),
        })
        .await;
        if node == "call" {
            until(async || {
                let refused = session.skip(run, "ask", Map::new(), "no outcome").await;
                matches!(refused, Err(EngineError::Refused(Refusal::InvalidSkip(_))))
            })
            .await;
        }
    }
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
    let left = bed.left(run, ended).await;
    assert_eq!(left.status(), Status::Succeeded, "{:?}", left.error());
    assert_eq!(left.outputs(), json!({ "of": 7, "said": "yes" }));
    assert_eq!(left.attempts("call"), [(1, "RetriableFailure"), (2, "Succeeded")]);
    let said = left
        .timeline
        .iter()
        .filter(|entry| entry.message.contains("was skipped"));
    assert_eq!(said.count(), 4);
    let overview = bed.engine.reads().overview(run).await.unwrap();
    let why = overview.nodes[1].skip_reason.as_deref();
    assert_eq!(why, Some("a caller skipped it: known"));
}

#[tokio::test]
async fn skipped_parent_node_cancels_its_child() {
    let bed = Bed::new().await;
    let mut child =
        workflow(json!([{ "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 86_400_000u64 } }]));
    child["id"] = json!("child");
    bed.publish(&child).await;
    let parent = workflow(json!([
        { "id": "sub", "nodeType": "subworkflow", "workflowId": "child", "waitForCompletion": true },
    ]));
    bed.publish(&parent).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        ..Request::default()
    };
    let run = bed.engine.start(request).await.unwrap().run;
    let children = async || bed.store.children(run, None, 10).await.unwrap().items;
    until(async || children().await.len() == 1).await;
    let session = operator(&bed);
    let outputs = json!({ "outputs": { "n": 1 } }).as_object().unwrap().clone();
    until(async || session.skip(run, "sub", outputs.clone(), "not needed").await.is_ok()).await;
    let ended = bed.engine.wait(run, PATIENCE).await.unwrap().expect("the run ends");
    assert_eq!(ended.status, Status::Succeeded);
    let child = children().await.remove(0).id;
    let ended = bed.engine.wait(child, PATIENCE).await.unwrap().expect("the child ends");
    assert_eq!(ended.status, Status::Cancelled);
}

#[tokio::test]
async fn runs_of_a_paused_workflow_wait_until_it_is_resumed() {
    let yard = yard(Settings::default()).await;
    yard.bed
        .publish(&workflow(json!([{ "id": "a", "actionType": "test.gate" }])))
        .await;
    let in_flight = yard.begin().await;
    let workflows = yard.bed.engine.workflows();
    let paused = workflows.set_paused("under-test", true).await.unwrap();
    assert!(paused.paused_at.is_some());
    assert_eq!(
        workflows.set_paused("under-test", true).await.unwrap().paused_at,
        paused.paused_at
    );
    yard.gate.add_permits(100);
    assert_eq!(yard.end(in_flight).await, Status::Succeeded, "runs in flight continue");
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let run = yard.begin().await;
        let row = yard.bed.store.run(run).await.unwrap().unwrap();
        assert!(row.flow.is_some_and(|flow| flow.is_paused()));
        assert_eq!((row.status, row.wake_at), (Status::Pending, None));
        waiting.push(run);
    }
    yard.bed.engine.cancel(waiting[0], "enough").await.unwrap();
    assert_eq!(
        yard.end(waiting[0]).await,
        Status::Cancelled,
        "a cancel ends a run that waits"
    );
    assert_eq!(yard.called(), 1);
    workflows.set_paused("under-test", false).await.unwrap();
    for run in &waiting[1..] {
        assert_eq!(yard.end(*run).await, Status::Succeeded);
    }
}
