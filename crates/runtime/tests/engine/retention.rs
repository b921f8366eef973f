//! The background task that removes finished runs, under a clock of the test.

use crate::support::workflow;
use fermata_core::{RunId, Timestamp};
use fermata_runtime::{
    Engine, EngineError, Refusal, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::TokioClock,
    retention::{Pace, Removed, prune},
};
use fermata_store::{
    Store,
    dead_letters::DeadLetterFilter,
    memory::MemoryStore,
    reads::RunFilter,
    retention::{Ages, Retention},
    runs::{NewRun, Principal},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use uuid::Uuid;

const MINUTE: Duration = Duration::from_secs(60);

fn settings() -> Settings {
    Settings {
        heartbeat_thread: false,
        retention: Retention {
            ages: Ages {
                succeeded: Some(MINUTE * 10),
                cancelled: Some(MINUTE * 10),
                ..Ages::default()
            },
            ..Retention::default()
        },
        retention_interval: MINUTE,
        ..Settings::default()
    }
}

async fn process(store: &Arc<dyn Store>, settings: Settings) -> Engine {
    let clock = TokioClock::starting_at(Timestamp(1_700_000_000_000_000));
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    let engine = Engine::new(store.clone(), registry, settings, Arc::new(clock));
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    engine.ready().await;
    engine
}

async fn engine(store: &Arc<dyn Store>, settings: Settings) -> Engine {
    let engine = process(store, settings).await;
    for (id, action, parameters) in [
        ("quick", "core.echo", json!({})),
        ("broken", "core.fail", json!({})),
        ("slow", "core.delay", json!({ "durationMs": 3_600_000 })),
    ] {
        let mut document = workflow(json!([{ "id": "a", "actionType": action, "parameters": parameters }]));
        document["id"] = json!(id);
        let text = document.to_string();
        engine.workflows().save(text.as_bytes(), "test.json").await.unwrap();
        engine.workflows().publish(id, true).await.unwrap();
    }
    engine
}

async fn start(engine: &Engine, workflow: &str) -> RunId {
    let request = Request {
        workflow_id: workflow.to_owned(),
        ..Request::default()
    };
    let (accepted, _) = engine.start_and_wait(request, Duration::from_secs(1)).await.unwrap();
    accepted.run
}

#[tokio::test(start_paused = true)]
async fn finished_runs_are_removed_when_their_time_is_over() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = engine(&store, settings()).await;
    let (quick, broken, slow) = (
        start(&engine, "quick").await,
        start(&engine, "broken").await,
        start(&engine, "slow").await,
    );
    tokio::time::sleep(MINUTE * 9).await;
    for run in [quick, broken, slow] {
        assert!(store.run(run).await.unwrap().is_some(), "{run} is kept for ten minutes");
    }
    tokio::time::sleep(MINUTE * 3).await;
    assert!(store.run(quick).await.unwrap().is_none());
    assert!(
        store.run(broken).await.unwrap().is_some(),
        "failed runs are kept for ever"
    );
    assert!(store.run(slow).await.unwrap().is_some(), "it has not ended");
}

#[tokio::test(start_paused = true)]
async fn process_with_retention_prunes_beside_an_older_one_without() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let keeps_all = Settings {
        retention: Retention::default(),
        ..settings()
    };
    let older = engine(&store, keeps_all).await;
    let quick = start(&older, "quick").await;
    let _younger = process(&store, settings()).await;
    tokio::time::sleep(MINUTE * 12).await;
    assert!(store.run(quick).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn runs_are_deleted_on_request_once_they_have_ended() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let engine = engine(
        &store,
        Settings {
            retention: Retention::default(),
            ..settings()
        },
    )
    .await;
    let (quick, slow) = (start(&engine, "quick").await, start(&engine, "slow").await);
    let refused = engine.delete_run(slow).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Refused(Refusal::RunNotFinished(run)) if run == slow),
        "{refused}"
    );
    engine.delete_run(quick).await.unwrap();
    let refused = engine.delete_run(quick).await.unwrap_err();
    assert!(
        matches!(refused, EngineError::Refused(Refusal::RunNotFound(run)) if run == quick),
        "{refused}"
    );
    engine.cancel(slow, "enough").await.unwrap();
    engine.wait(slow, MINUTE).await.unwrap().expect("it is cancelled");
    engine.delete_run(slow).await.unwrap();
}

/// Settings without the background task, and the rule that a test prunes by.
fn by_hand() -> (Settings, Arc<Retention>) {
    let mut rule = settings().retention;
    rule.ages.dead_letters = Some(MINUTE * 10);
    rule.workflows = [("kept".to_owned(), Ages::default())].into();
    let settings = Settings {
        retention: Retention::default(),
        ..settings()
    };
    (settings, Arc::new(rule))
}

/// A pass is several transactions. It ends when nothing is left, or after the transaction that reaches `most`.
#[tokio::test(start_paused = true)]
async fn pass_goes_on_until_nothing_is_left() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (settings, rule) = by_hand();
    let engine = engine(&store, settings).await;
    for _ in 0..450 {
        start(&engine, "quick").await;
    }
    tokio::time::sleep(MINUTE * 11).await;
    let pass = async |pace, most| prune(store.as_ref(), &rule, engine.now(), pace, most).await.unwrap();
    let removed = |runs| Removed {
        runs,
        ..Removed::default()
    };
    assert_eq!(pass(Pace::DryRun, u64::MAX).await, removed(450));
    assert_eq!(pass(Pace::Fast, 100).await, removed(200));
    assert_eq!(pass(Pace::Gentle, u64::MAX).await, removed(250));
    let all = RunFilter {
        limit: 1000,
        ..RunFilter::default()
    };
    assert_eq!(store.runs(all).await.unwrap().items, []);
}

/// Stores runs that the engine dead-letters, because their trigger does not match the schema of their workflow.
async fn dead_letters(engine: &Engine, store: &Arc<dyn Store>, workflow_id: &str, count: usize) {
    let mut document = workflow(json!([{ "id": "a", "actionType": "core.echo" }]));
    document["id"] = json!(workflow_id);
    document["triggerSchema"] = json!({ "type": "object", "required": ["n"] });
    let text = document.to_string();
    engine.workflows().save(text.as_bytes(), "test.json").await.unwrap();
    engine.workflows().publish(workflow_id, true).await.unwrap();
    let uid = store.workflow("", workflow_id).await.unwrap().unwrap().uid;
    for number in 0..count {
        let run = NewRun {
            id: RunId(Uuid::now_v7()),
            workflow_uid: uid,
            workflow_id: workflow_id.to_owned(),
            workflow_version: 1,
            pinned: false,
            tenant: String::new(),
            request_id: format!("{workflow_id}-{number}"),
            trigger: "{}".to_owned(),
            spec: None,
            priority: None,
            correlation_id: None,
            traceparent: None,
            request: None,
            delivery: None,
            principal: Principal::default(),
            parent: None,
            created_at: engine.now(),
            flow: None,
            rerun: None,
            fields: Vec::new(),
            local_start: None,
        };
        store.enqueue(run).await.unwrap();
    }
}

/// How many dead letters there are.
async fn letters(store: &Arc<dyn Store>) -> usize {
    let all = DeadLetterFilter {
        limit: 1000,
        ..DeadLetterFilter::default()
    };
    store.dead_letters(all).await.unwrap().items.len()
}

#[tokio::test(start_paused = true)]
async fn dead_letters_are_removed_when_their_time_is_over() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (settings, rule) = by_hand();
    let engine = engine(&store, settings).await;
    // More than one page.
    dead_letters(&engine, &store, "order", 230).await;
    dead_letters(&engine, &store, "kept", 3).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(letters(&store).await, 233);
    let pass = async |pace| {
        prune(store.as_ref(), &rule, engine.now(), pace, u64::MAX)
            .await
            .unwrap()
    };
    assert_eq!(pass(Pace::Fast).await.dead_letters, 0, "they are a minute old");
    tokio::time::sleep(MINUTE * 10).await;
    assert_eq!(pass(Pace::DryRun).await.dead_letters, 230);
    assert_eq!(letters(&store).await, 233);
    assert_eq!(pass(Pace::Fast).await.dead_letters, 230);
    assert_eq!(letters(&store).await, 3);
}
