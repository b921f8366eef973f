//! Concurrent starts: by several sessions, by sessions and the engine, and of a workflow that is being removed.

use super::*;
use crate::{conformance::new_run, definitions::Deleted, reads::RunFilter, runs::Enqueued};
use fermata_core::Status;

/// The second session waits for the first and gets its run, or creates a new run if the first rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_start_waits_for_the_first() {
    let (database, store, watcher) = setup().await;
    for (request, end) in [("r1", "COMMIT"), ("r2", "ROLLBACK")] {
        let (first, second) = (App::new(&database).await, App::new(&database).await);
        first.run("BEGIN").await;
        let run = first.started(request).await;
        let pid = second.pid().await;
        let waiting = tokio::spawn(async move { second.start(request).await });
        until_blocked(&watcher, pid).await;
        first.run(end).await;
        let (other, was_existing) = waiting.await.unwrap().unwrap();
        assert_eq!((other == run, was_existing), (end == "COMMIT", end == "COMMIT"));
        assert_eq!(record(&store, other).await.request_id, request);
    }
}

/// The second session uses the same requestId for another workflow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_start_of_another_workflow_is_refused() {
    let (database, store, watcher) = setup().await;
    publish(&store, "other", "one").await;
    let (first, second) = (App::new(&database).await, App::new(&database).await);
    first.run("BEGIN").await;
    first.started("r1").await;
    let pid = second.pid().await;
    let waiting = tokio::spawn(async move { second.start_of("other", "r1").await });
    until_blocked(&watcher, pid).await;
    first.run("COMMIT").await;
    expect(waiting.await.unwrap(), "WF001", "WFENG001");
}

/// A transaction with REPEATABLE READ cannot see the other run: PostgreSQL asks the caller to retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeatable_read_gets_a_serialization_failure() {
    let (database, _store, app) = setup().await;
    let strict = App::new(&database).await;
    strict
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class")
        .await;
    let run = app.started("r1").await;
    expect(strict.start("r1").await, "40001", "could not serialize");
    strict.run("ROLLBACK").await;
    assert_eq!(strict.start("r1").await.unwrap(), (run, true));
}

/// Concurrent starts of the same request create one run, and exactly one caller gets `was_existing = false`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_engine_create_one_run() {
    let (database, store, _app) = setup().await;
    let apps = futures::future::join_all((0..6).map(|_| App::new(&database))).await;
    for round in 0..10 {
        let request = format!("r{round}");
        let by_session = apps.iter().map(|app| app.start(&request));
        let by_engine = (0..3).map(|_| {
            let run = new_run(&request);
            async { (run.id, store.enqueue(run).await.unwrap()) }
        });
        let (sessions, engine) = tokio::join!(
            futures::future::join_all(by_session),
            futures::future::join_all(by_engine)
        );
        let sessions = sessions.into_iter().map(Result::unwrap);
        let engine = engine.into_iter().map(|(id, answer)| match answer {
            Enqueued::Created => (id, false),
            Enqueued::Existing { run, .. } => (run, true),
            other => panic!("{other:?}"),
        });
        let answers: Vec<(RunId, bool)> = sessions.chain(engine).collect();
        assert!(answers.iter().all(|(run, _)| *run == answers[0].0), "{answers:?}");
        assert_eq!(answers.iter().filter(|(_, was_existing)| !was_existing).count(), 1);
    }
    let filter = RunFilter {
        limit: 100,
        ..Default::default()
    };
    assert_eq!(store.runs(filter).await.unwrap().items.len(), 10);
}

/// An uncommitted start blocks the removal of its workflow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncommitted_start_blocks_removal_of_its_workflow() {
    let (database, store, watcher) = setup().await;
    let app = App::new(&database).await;
    app.run("BEGIN").await;
    let run = app.started("r1").await;
    // Changes of the workflow do not wait, its removal does.
    publish(&store, WORKFLOW, "two").await;
    set(&store, WORKFLOW, Some(Lifecycle::Archived), false).await;
    let deleting = {
        let store = store.clone();
        tokio::spawn(async move { store.delete_workflow(uid(WORKFLOW)).await })
    };
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waits = async {
        while watcher.number(blocked).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waits)
        .await
        .expect("the removal waits");
    app.run("COMMIT").await;
    let deleted = deleting.await.unwrap().unwrap();
    assert_eq!(deleted, Deleted::HasRuns(Lifecycle::Archived));
    assert_eq!(record(&store, run).await.status, Status::Pending);
}
