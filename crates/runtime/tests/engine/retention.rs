//! The background task that removes finished runs, under a clock of the test.

use crate::support::workflow;
use fermata_core::{RunId, Timestamp};
use fermata_runtime::{
    Engine, EngineError, Refusal, Request, Settings,
    actions::{HttpSettings, Registry},
    clock::TokioClock,
};
use fermata_store::{
    Store,
    memory::MemoryStore,
    retention::{Ages, Retention},
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

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
