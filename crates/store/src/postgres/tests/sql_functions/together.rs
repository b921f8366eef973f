//! Starts at the same time: of several sessions, of a session and the engine, and of a workflow that is being removed.

use super::*;
use crate::{conformance::new_run, definitions::Deleted, reads::RunFilter, runs::Enqueued};
use fermata_core::Status;

/// The second session waits for the first, and has its run; or a run of its own, if the first took everything back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_session_waits_for_the_first() {
    let (database, store, watcher) = bed().await;
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

/// A request that another workflow is about to take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_session_is_refused_if_the_first_is_of_another_workflow() {
    let (database, store, watcher) = bed().await;
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

/// A stricter isolation level cannot see the other's run: PostgreSQL tells the caller to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stricter_isolation_level_is_told_to_try_again() {
    let (database, _store, app) = bed().await;
    let strict = App::new(&database).await;
    strict
        .run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM pg_class")
        .await;
    let run = app.started("r1").await;
    expect(strict.start("r1").await, "40001", "could not serialize");
    strict.run("ROLLBACK").await;
    assert_eq!(strict.start("r1").await.unwrap(), (run, true));
}

/// However many ask, and wherever, there is one run, and one of them was first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_the_engine_make_one_run() {
    let (database, store, _app) = bed().await;
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

/// A run whose transaction is not over keeps its workflow from being removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_is_not_removed_under_a_start() {
    let (database, store, watcher) = bed().await;
    let app = App::new(&database).await;
    app.run("BEGIN").await;
    let run = app.started("r1").await;
    // Changes pass, removal waits.
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
    tokio::time::timeout(PATIENCE, waits).await.expect("the removal waits");
    app.run("COMMIT").await;
    let deleted = deleting.await.unwrap().unwrap();
    assert_eq!(deleted, Deleted::HasRuns(Lifecycle::Archived));
    assert_eq!(record(&store, run).await.status, Status::Pending);
}
