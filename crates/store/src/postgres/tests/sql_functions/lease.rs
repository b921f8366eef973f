//! `sp_try_acquire_execution` and `sp_complete_workflow`: leases of sessions, their expiry, and the rights of the owner.

use super::*;
use crate::{
    conformance::{ME, at, claim, described, held_run, take},
    reads::Window,
    runs::{Claim, RunMessage, StoredRun},
};
use fermata_core::{Event, Status, decode};
use std::collections::BTreeSet;

const LEASE: &str = "SELECT lease_owner, lease_epoch, takeovers FROM workflow_executions WHERE id = $1";

async fn lease(app: &App, run: RunId) -> (Option<Uuid>, i64, i32) {
    let row = app.one(LEASE, &[&run.0]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

/// Claims all runs that are due or whose owner has no heartbeat up to now.
async fn take_over(store: &Arc<dyn Store>) -> Vec<StoredRun> {
    let dead_before = Some(now());
    let takeover = Claim {
        dead_before,
        ..claim(ME, 10, now().0)
    };
    store.claim(takeover).await.unwrap().runs
}

/// Lets the leases of all sessions expire, as if their last call was a day ago.
async fn expire_leases(app: &App) {
    app.run("UPDATE runners SET heartbeat_at = heartbeat_at - 86400000000 WHERE role = 'sql'")
        .await;
}

async fn cancel(store: &Arc<dyn Store>, run: RunId) {
    let reason = "enough".to_owned();
    store.deliver(run, RunMessage::Cancel { reason }, now()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquired_run_is_not_claimed_by_runners() {
    let (database, store, app) = setup().await;
    let other = App::new(&database).await;
    let run = app.started("r1").await;
    assert!(app.acquire(run).await);
    let (owner, epoch, takeovers) = lease(&app, run).await;
    assert_eq!((epoch, takeovers), (1, 0), "an acquisition is not a takeover");
    let record = record(&store, run).await;
    assert_eq!((record.status, record.held()), (Status::Running, true));
    assert!(
        record
            .started_at
            .is_some_and(|at| record.created_at <= at && at <= now())
    );
    assert!(!other.acquire(run).await);
    assert_eq!(take_over(&store).await, []);
    let only = Claim {
        only: vec![run],
        ..claim(ME, 1, now().0)
    };
    assert_eq!(store.claim(only).await.unwrap().runs, []);
    // The session is listed as a runner.
    let runners = store.runners(None, 10).await.unwrap().items;
    assert_eq!(runners.len(), 1);
    assert_eq!((Some(runners[0].runner.id.0), runners[0].held), (owner, 1));
    assert_eq!(runners[0].runner.role, "sql");
    assert_eq!(i64::from(runners[0].runner.pid), i64::from(app.pid().await));
    // Acquiring it again renews the heartbeat; the lease stays the same.
    expire_leases(&app).await;
    assert!(app.acquire(run).await);
    assert_eq!(lease(&app, run).await, (owner, 1, 0));
    assert_eq!(take_over(&store).await, []);
    assert!(!app.acquire(RunId(Uuid::now_v7())).await, "there is no such run");
    let nothing = app.one(ACQUIRE, &[&None::<Uuid>]).await.unwrap();
    assert!(!nothing.get::<_, bool>(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_of_a_session_lasts_ten_minutes() {
    let (_database, store, app) = setup().await;
    app.held("r1").await;
    let row = app.one("SELECT heartbeat_at FROM runners", &[]).await.unwrap();
    let left = row.get::<_, i64>(0) - now().0;
    assert!((570_000_000..=600_000_000).contains(&left), "{left}");
    assert_eq!(take_over(&store).await, []);
}

/// The lease belongs to a session. Another session cannot use it, even if it knows the id of the owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owning_session_records_and_completes() {
    let (database, store, app) = setup().await;
    let other = App::new(&database).await;
    let run = app.held("r1").await;
    let (owner, ..) = lease(&app, run).await;
    store.heartbeat(&described(ME), now()).await.unwrap();
    let (engines, _) = held_run(&store, "r2", Vec::new()).await;
    let mine = other.held("r3").await;
    let own_runner: String = other
        .one("SELECT current_setting('fermata.runner')", &[])
        .await
        .unwrap()
        .get(0);
    for forged in [
        None,
        owner.map(|id| id.to_string()),
        Some(ME.to_string()),
        Some("' OR true --".to_owned()),
    ] {
        if let Some(forged) = &forged {
            let set = "SELECT set_config('fermata.runner', $1, false)";
            other.one(set, &[forged]).await.unwrap();
        }
        for run in [run, engines] {
            expect(
                other.complete(run, "Succeeded").await,
                "WF002",
                "WFENG002 ILLEGAL_STATE_TRANSITION",
            );
            expect(
                other.complete(run, "Failed").await,
                "WF002",
                "this session does not hold it",
            );
            expect(
                other.record(run, "n", "Succeeded", 1).await,
                "WF002",
                "this session does not hold it",
            );
            assert!(!other.acquire(run).await);
            assert_eq!(record(&store, run).await.status, Status::Running);
        }
    }
    assert_eq!(store.actions(run, Window { limit: 9, offset: 0 }).await.unwrap().1, 0);
    other
        .one("SELECT set_config('fermata.runner', $1, false)", &[&own_runner])
        .await
        .unwrap();
    other.complete(mine, "Succeeded").await.unwrap();
    // A session that was reset, as pools do it, has lost its lease as well.
    app.run("DISCARD ALL").await;
    expect(
        app.complete(run, "Succeeded").await,
        "WF002",
        "this session does not hold it",
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn completion_is_final_and_idempotent() {
    let (database, store, app) = setup().await;
    let other = App::new(&database).await;
    for (status, reason) in [
        ("Succeeded", None),
        ("Failed", Some("failed_by_caller")),
        ("Cancelled", Some("cancelled")),
    ] {
        let run = app.held(status).await;
        app.one(COMPLETE, &[&run.0, &status, &Some(r#"{"x":null}"#)])
            .await
            .unwrap();
        let ended = record(&store, run).await;
        assert_eq!(
            (ended.status.as_str(), ended.held(), ended.wake_at),
            (status, false, None)
        );
        assert_eq!(ended.reason.as_deref(), reason);
        assert_eq!(ended.error.is_some(), status == "Failed");
        assert_eq!(ended.context_snapshot.as_deref(), Some(r#"{"x": null}"#));
        assert!(ended.ended_at >= ended.started_at && ended.ended_at.is_some_and(|at| at <= now()));
        // The journal is the same as the engine would write it.
        let (rows, _) = store.events(run, Window { limit: 9, offset: 0 }).await.unwrap();
        let events: Vec<Event> = rows.iter().flat_map(|row| decode(&row.data).unwrap()).collect();
        let [
            Event::Started { at: began, .. },
            Event::Ended {
                at: ended_at,
                status: recorded,
                reason: why,
                ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!((Some(*began), Some(*ended_at)), (ended.started_at, ended.ended_at));
        assert_eq!((recorded.as_str(), why.as_deref()), (status, reason));
        // Completing again with the same status changes nothing, from any session; another status is refused.
        for session in [&app, &other] {
            session.complete(run, status).await.unwrap();
            for another in ["Succeeded", "Failed", "Cancelled"]
                .into_iter()
                .filter(|word| *word != status)
            {
                expect(
                    session.complete(run, another).await,
                    "WF002",
                    &format!("is {status} and cannot become {another}"),
                );
            }
            assert!(!session.acquire(run).await);
        }
        expect(app.record(run, "n", "Succeeded", 1).await, "WF002", "it is over");
        let again = "SELECT sp_record_action_attempt($1, 'n', 'core.echo', 'Succeeded', 1)";
        let error = app.client.query_one(again, &[&run.0]).await.unwrap_err();
        assert_eq!(error.as_db_error().unwrap().hint(), Some("An end is final."));
        assert_eq!(record(&store, run).await, ended);
    }
    assert_eq!(take_over(&store).await, []);
    assert_eq!(
        store.runners(None, 9).await.unwrap().items,
        [],
        "a session without runs is not listed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn illegal_completions_are_refused() {
    let (_database, store, app) = setup().await;
    let run = app.started("r1").await;
    expect(
        app.complete(run, "Succeeded").await,
        "WF002",
        "is Pending and cannot become Succeeded: nobody has acquired it",
    );
    expect(
        app.record(run, "n", "Succeeded", 1).await,
        "WF002",
        "nobody has acquired it",
    );
    assert!(app.acquire(run).await);
    for word in ["Running", "Pending", "succeeded", "", "%s"] {
        expect(
            app.complete(run, word).await,
            "WF005",
            &format!("Cancelled, not \"{word}\""),
        );
    }
    expect(
        app.one(COMPLETE, &[&run.0, &None::<&str>, &None::<&str>])
            .await
            .map(drop),
        "WF005",
        "not null",
    );
    expect(
        app.complete(RunId(Uuid::now_v7()), "Failed").await,
        "P0002",
        "EXECUTION_NOT_FOUND",
    );
    expect(
        app.record(RunId(Uuid::now_v7()), "n", "Failed", 1).await,
        "P0002",
        "EXECUTION_NOT_FOUND",
    );
    assert_eq!(record(&store, run).await.status, Status::Running);
}

/// A session that completes one of its runs still holds the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_may_hold_several_runs() {
    let (_database, store, app) = setup().await;
    let (first, second) = (app.held("r1").await, app.held("r2").await);
    assert_eq!(lease(&app, first).await.0, lease(&app, second).await.0);
    app.complete(first, "Succeeded").await.unwrap();
    assert_eq!(take_over(&store).await, []);
    app.complete(second, "Failed").await.unwrap();
    assert_eq!(store.runners(None, 9).await.unwrap().items, []);
    // Another acquisition makes it a runner again.
    let third = app.held("r3").await;
    assert_eq!(store.runners(None, 9).await.unwrap().items[0].held, 1);
    app.complete(third, "Succeeded").await.unwrap();
}

/// When the lease of a session has expired, a runner claims the run and starts it from the beginning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_lease_of_a_session_is_claimed_by_a_runner() {
    let (_database, store, app) = setup().await;
    let (run, kept) = (app.held("r1").await, app.held("r2").await);
    app.record(run, "n", "Failed", 1).await.unwrap();
    app.complete(kept, "Succeeded").await.unwrap();
    expire_leases(&app).await;
    let taken = take_over(&store).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].id, taken[0].epoch, taken[0].journal.len()), (run, 2, 0));
    let (attempts, _) = store.actions(run, Window { limit: 9, offset: 0 }).await.unwrap();
    assert_eq!(attempts, [], "old attempts would conflict with those of the runner");
    assert!(!app.acquire(run).await);
    expect(
        app.record(run, "n", "Succeeded", 2).await,
        "WF002",
        "this session does not hold it",
    );
    expect(
        app.complete(run, "Succeeded").await,
        "WF002",
        "this session does not hold it",
    );
    assert_eq!(lease(&app, run).await, (Some(ME.0), 2, 1));
}

/// The end of a session is detected at once, without waiting for its lease to expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_ended_sessions_are_claimed_by_a_runner() {
    let (database, store, app) = setup().await;
    let (ended, followed) = (App::new(&database).await, App::new(&database).await);
    let (left, lost, kept) = (ended.held("r1").await, followed.held("r2").await, app.held("r3").await);
    assert_eq!(take_over(&store).await, []);
    let pid = ended.pid().await;
    drop(ended);
    let closed = async {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
        while app.number(&count).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, closed)
        .await
        .expect("the session ends");
    // As if a new session had the process id of an ended session.
    let (owner, ..) = lease(&app, lost).await;
    let successor = App::new(&database).await;
    let follow = "UPDATE runners SET pid = $1 WHERE id = $2 RETURNING 1";
    app.one(follow, &[&i64::from(successor.pid().await), &owner])
        .await
        .unwrap();
    let taken = take_over(&store).await;
    let taken: BTreeSet<_> = taken.iter().map(|run| (run.id, run.epoch)).collect();
    assert_eq!(taken, BTreeSet::from([(left, 2), (lost, 2)]));
    let runners = store.runners(None, 9).await.unwrap().items;
    assert_eq!(runners.len(), 1, "a session without runs is not listed: {runners:?}");
    app.complete(kept, "Succeeded").await.unwrap();
}

/// A transaction whose calls changed nothing holds no row locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_change_nothing_lock_nothing() {
    let (database, store, app) = setup().await;
    let other = App::new(&database).await;
    let (claimed, _) = held_run(&store, "r1", Vec::new()).await;
    let ended = app.held("r2").await;
    app.complete(ended, "Failed").await.unwrap();
    let (cancelled, held) = (app.held("r3").await, app.held("r4").await);
    cancel(&store, cancelled).await;
    let archived = app.started("r5").await;
    set(&store, WORKFLOW, Some(Lifecycle::Archived), false).await;
    app.run("BEGIN").await;
    for run in [claimed, ended, cancelled, archived] {
        assert!(!app.acquire(run).await);
    }
    assert!(app.acquire(held).await, "the lease is renewed");
    app.complete(ended, "Failed").await.unwrap();
    let free = "SELECT count(*) FROM (SELECT 1 FROM workflow_executions FOR NO KEY UPDATE SKIP LOCKED) free";
    assert_eq!(other.number(free).await, 5);
    app.run("COMMIT").await;
}

/// An expired session still holds its run until a runner claims it: epochs fence, not clocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_session_may_continue_until_its_run_is_claimed() {
    let (_database, store, app) = setup().await;
    let run = app.held("r1").await;
    expire_leases(&app).await;
    app.record(run, "n", "Succeeded", 1).await.unwrap();
    assert_eq!(take_over(&store).await, [], "the call renewed the lease");
    expire_leases(&app).await;
    app.complete(run, "Succeeded").await.unwrap();
    assert_eq!(take_over(&store).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolled_back_acquisition_has_no_effect() {
    let (database, store, app) = setup().await;
    let run = app.started("r1").await;
    app.run("BEGIN").await;
    assert!(app.acquire(run).await);
    app.complete(run, "Failed").await.unwrap();
    app.run("ROLLBACK").await;
    assert_eq!(record(&store, run).await.status, Status::Pending);
    assert_eq!(store.runners(None, 9).await.unwrap().items, []);
    // Two concurrent acquisitions: the second does not wait, and succeeds after the first was rolled back.
    let second = App::new(&database).await;
    for (end, second_gets) in [("ROLLBACK", true), ("COMMIT", false)] {
        let run = app.started(end).await;
        app.run("BEGIN").await;
        assert!(app.acquire(run).await);
        let answer = tokio::time::timeout(TEST_TIMEOUT, second.acquire(run)).await;
        assert!(!answer.expect("the call does not wait"));
        app.run(end).await;
        assert_eq!(second.acquire(run).await, second_gets);
    }
    // Started, acquired and completed in one transaction: runners never see it as pending.
    app.run("BEGIN").await;
    let run = app.held("at once").await;
    app.complete(run, "Succeeded").await.unwrap();
    app.run("COMMIT").await;
    assert_eq!(record(&store, run).await.status, Status::Succeeded);
}

/// Only runners read messages. A run with pending messages cannot be acquired, and a runner takes it from the session that
/// holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_messages_is_claimed_by_a_runner() {
    let (_database, store, app) = setup().await;
    let run = app.started("r1").await;
    cancel(&store, run).await;
    assert!(!app.acquire(run).await);
    assert_eq!(take(&store, run).await.message_seq, 1);

    // By a runner that was notified, or by one that claims orphaned runs. Other runs stay with the session.
    let (notified, found, kept) = (app.held("r2").await, app.held("r3").await, app.held("r4").await);
    cancel(&store, notified).await;
    cancel(&store, found).await;
    assert!(!app.acquire(notified).await);
    let taken = take(&store, notified).await;
    assert_eq!((taken.epoch, taken.message_seq, taken.messages_seen), (2, 1, 0));
    let taken = take_over(&store).await;
    assert_eq!(taken.iter().map(|run| run.id).collect::<Vec<_>>(), [found]);
    for run in [notified, found] {
        expect(
            app.complete(run, "Succeeded").await,
            "WF002",
            "this session does not hold it",
        );
    }
    assert!(app.acquire(kept).await);

    // A run that ends has no pending messages.
    let run = app.held("r5").await;
    cancel(&store, run).await;
    app.complete(run, "Succeeded").await.unwrap();
    assert_eq!(store.messages(run, 0).await.unwrap(), []);
    let stored = store.load(run).await.unwrap().unwrap();
    assert_eq!((stored.message_seq, stored.messages_seen), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_runners_and_archived_workflows_are_not_acquired() {
    let (_database, store, app) = setup().await;
    let claimed = app.started("r1").await;
    store.heartbeat(&described(ME), now()).await.unwrap();
    take(&store, claimed).await;
    assert_eq!(record(&store, claimed).await.status, Status::Pending);
    assert!(!app.acquire(claimed).await, "a runner is about to begin it");
    let (running, _) = held_run(&store, "r2", Vec::new()).await;
    assert!(!app.acquire(running).await);
    let pending = app.started("r3").await;
    set(&store, WORKFLOW, Some(Lifecycle::Archived), false).await;
    assert!(!app.acquire(pending).await, "a runner cancels it");
    let runners = store.runners(None, 9).await.unwrap().items;
    assert_eq!(runners.len(), 1, "a session without runs is not listed: {runners:?}");
    assert_eq!(runners[0].runner.id, ME);
    assert_eq!(at(7), runners[0].runner.started_at);
}
