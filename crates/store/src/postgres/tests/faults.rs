//! Lost connections and server restarts.

use super::{
    TEST_TIMEOUT, process,
    proxy::{Cut, Proxy},
    query, store,
};
use crate::{
    Store, StoreError,
    conformance::{
        cluster::{Database, Stop, execute},
        *,
    },
    postgres::{
        PostgresSettings,
        address::Address,
        pipeline::{Query, send},
    },
    runs::{CommitAnswer, Delivery, Enqueued, LocalStart},
};
use fermata_core::Status;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;

/// One committer and no listener, so that it is known which connection is cut.
fn one_committer() -> PostgresSettings {
    PostgresSettings {
        committers: 1,
        hints: false,
        ..Default::default()
    }
}

async fn behind_a_proxy(database: &Database, settings: PostgresSettings) -> (Proxy, Arc<dyn Store>) {
    let address = database.url.split_once("127.0.0.1:").unwrap().1;
    let (port, rest) = address.split_once('/').unwrap();
    let proxy = Proxy::to(port.parse().unwrap()).await;
    let url = format!("postgres://fermata@127.0.0.1:{}/{rest}?sslmode=disable", proxy.port);
    let store = store(&url, settings).await;
    activate(&store, WORKFLOW).await;
    (proxy, store)
}

/// Nothing was written, so the batch is written on a new connection, and the caller gets a normal answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_lost_before_commit_is_retried() {
    let database = Database::new().await;
    let (proxy, store) = behind_a_proxy(&database, one_committer()).await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    proxy.cut(Cut::AtBegin);
    committed(&store, step(run, 1, 2)).await;
    assert!(proxy.done());
    proxy.cut(Cut::AtBegin);
    pending(&store, "r2").await;
    assert!(proxy.done());
    assert_eq!(store.load(run).await.unwrap().unwrap().journal.len(), 2);
}

/// If the server ends an idle transaction, nothing was written, so the batch is written on a new connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_transaction_timeout_is_retried() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        idle_in_transaction_timeout: Duration::from_secs(1),
        ..one_committer()
    };
    let (proxy, store) = behind_a_proxy(&database, settings).await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    proxy.cut(Cut::ByServer);
    committed(&store, step(run, 1, 2)).await;
    assert!(proxy.done());
    proxy.cut(Cut::ByServer);
    pending(&store, "r2").await;
    assert!(proxy.done());
}

/// If the response to `COMMIT` is lost, the outcome is unknown. A repeated enqueue finds the run if it was stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_lost_after_commit_is_unknown() {
    let database = Database::new().await;
    let (proxy, store) = behind_a_proxy(&database, one_committer()).await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    for (cut, seq, durable) in [(Cut::BeforeCommit, 2, false), (Cut::AfterCommit, 2, true)] {
        proxy.cut(cut);
        let answer = store.commit(step(run, 1, seq)).await;
        assert!(matches!(answer, CommitAnswer::Unknown(_)), "{cut:?}: {answer:?}");
        let rows = store.load(run).await.unwrap().unwrap().journal.len();
        assert_eq!(rows == seq as usize, durable, "{cut:?}");
    }
    for (cut, request) in [(Cut::BeforeCommit, "r2"), (Cut::AfterCommit, "r3")] {
        let new = new_run(request);
        proxy.cut(cut);
        let answer = store.enqueue(new.clone()).await;
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{cut:?}: {answer:?}");
        let again = store.enqueue(new.clone()).await.unwrap();
        let expected = match cut {
            Cut::AfterCommit => Enqueued::Existing {
                run: new.id,
                status: Status::Pending,
            },
            _ => Enqueued::Created,
        };
        assert_eq!(again, expected, "{cut:?}");
    }
    for cut in [Cut::BeforeCommit, Cut::AfterCommit] {
        proxy.cut(cut);
        let claimed = store.claim(claim(runner(), 5, 1000)).await;
        assert!(matches!(claimed, Err(StoreError::Unknown(_))), "{cut:?}: {claimed:?}");
        proxy.cut(cut);
        let published = store.publish(uid(WORKFLOW), "one", "{}", ACTIVATE, at(9)).await;
        assert!(
            matches!(published, Err(StoreError::Unknown(_))),
            "{cut:?}: {published:?}"
        );
    }
}

/// Connections that the server terminates are reopened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_connections_are_reopened() {
    let database = Database::new().await;
    let store = process(&database).await;
    activate(&store, WORKFLOW).await;
    let (run, _) = held_run(&store, "r1", Vec::new()).await;
    let owner = runner();
    store.heartbeat(&described(owner), at(1)).await.unwrap();
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for seq in 2..6 {
        assert_ne!(query(&database.url, terminate).await, "0");
        assert!(store.run(run).await.unwrap().is_some());
        committed(&store, step(run, 1, seq)).await;
        store.ping().await.unwrap();
    }
    // The listener reconnects as well.
    let other = process(&database).await;
    let held = run_held_by(&store, owner, "r2", Vec::new()).await;
    let mut changes = store.changes();
    let reason = "enough".to_owned();
    let message = crate::runs::RunMessage::Cancel { reason };
    let notified = async {
        loop {
            let delivered = other.deliver(held, message.clone(), at(200)).await.unwrap();
            assert!(matches!(delivered, Delivery::Delivered { .. }));
            let hint = async { while changes.recv().await.unwrap() != crate::ChangeHint::Messages(held) {} };
            if timeout(Duration::from_millis(200), hint).await.is_ok() {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, notified)
        .await
        .expect("notifications arrive after the reconnect");
}

/// A member that the server refuses does not fail the rest of its batch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_member_fails_alone() {
    let database = Database::new().await;
    let store = super::store(&database.url, one_committer()).await;
    activate(&store, WORKFLOW).await;
    let tasks: Vec<_> = (0..40)
        .map(|index| {
            let mut run = new_run(&format!("r{index}"));
            if index % 10 == 3 {
                run.request_id = "a NUL (\0) is not allowed in PostgreSQL texts".to_owned();
            }
            let store = store.clone();
            tokio::spawn(async move { store.enqueue(run).await })
        })
        .collect();
    for (index, task) in tasks.into_iter().enumerate() {
        match (task.await.unwrap(), index % 10 == 3) {
            (Ok(Enqueued::Created), false) => {}
            (Err(StoreError::Rejected(what)), true) => assert!(!what.contains("texts"), "data in an error: {what}"),
            other => panic!("{index}: {other:?}"),
        }
    }
}

/// A commit whose data the server refuses is rejected, and the other members of the batch are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_errors_are_rejected() {
    let database = Database::new().await;
    let store = super::store(&database.url, one_committer()).await;
    activate(&store, WORKFLOW).await;
    // Random, so that the server cannot compress it.
    let long: String = (0..100).map(|_| uuid::Uuid::new_v4().simple().to_string()).collect();
    let rule = "ALTER TABLE action_executions ADD CHECK (node_id <> 'forbidden')";
    query(&database.url, rule).await;
    let nodes = ["valid", "with\0nul", &long, "forbidden", "also valid"];
    let mut tasks = Vec::new();
    for (index, node) in nodes.into_iter().enumerate() {
        let (run, _) = held_run(&store, &format!("r{index}"), Vec::new()).await;
        let mut commit = step(run, 1, 2);
        commit.attempts = vec![attempt(node, 1, 10)];
        let store = store.clone();
        tasks.push(tokio::spawn(async move { store.commit(commit).await }));
    }
    for (index, task) in tasks.into_iter().enumerate() {
        let answer = task.await.unwrap();
        match (&answer, index) {
            (CommitAnswer::Committed { .. }, 0 | 4) => {}
            (CommitAnswer::Rejected(what), 1) => assert!(what.contains("SQLSTATE 22021"), "{what}"),
            (CommitAnswer::Rejected(what), 2) => assert!(what.contains("SQLSTATE 54000"), "{what}"),
            (CommitAnswer::Rejected(what), 3) => assert!(what.contains("SQLSTATE 23514"), "{what}"),
            _ => panic!("{index}: {answer:?}"),
        }
    }
}

/// A unique violation is a collision with another transaction, not a rejection of the data: the outcome is `Unknown`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unique_violation_is_not_a_rejection() {
    let database = Database::new().await;
    let store = super::store(&database.url, one_committer()).await;
    activate(&store, WORKFLOW).await;
    query(
        &database.url,
        "CREATE UNIQUE INDEX one ON execution_events (ts) WHERE seq = 2",
    )
    .await;
    let mut answers = Vec::new();
    for request in ["r1", "r2"] {
        let (run, _) = held_run(&store, request, Vec::new()).await;
        answers.push(store.commit(step(run, 1, 2)).await);
    }
    assert!(matches!(answers[0], CommitAnswer::Committed { .. }), "{answers:?}");
    assert!(matches!(answers[1], CommitAnswer::Unknown(_)), "{answers:?}");
}

/// A transaction that could not be sent completely is not written partially.
#[tokio::test]
async fn unsendable_query_rolls_back_the_transaction() {
    let database = Database::new().await;
    let address = Address::parse(&database.url, &PostgresSettings::default()).unwrap();
    let (client, _task) = address.session().await.unwrap();
    client.batch_execute("CREATE TABLE notes (note text)").await.unwrap();
    let insert = client.prepare("INSERT INTO notes VALUES ($1)").await.unwrap();
    let good = |note: &'static str| Query::new(&insert).bind(note);
    // The driver refuses to encode a number as a text parameter.
    let queries = [good("one"), Query::new(&insert).bind(2), good("three")];
    let sent = send(&client, Some("BEGIN"), &queries, Some("COMMIT")).await;
    assert!(sent.is_err_and(|error| error.as_db_error().is_none()));
    assert_eq!(query(&database.url, "SELECT count(*) FROM notes").await, "0");
    let sent = send(&client, Some("BEGIN"), &[good("one"), good("two")], Some("COMMIT")).await;
    assert_eq!(sent.unwrap().len(), 2);
    assert_eq!(query(&database.url, "SELECT count(*) FROM notes").await, "2");
}

/// While the server restarts several times, every answer is correct or `Unknown`, and no confirmed commit is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn confirmed_commits_survive_server_restarts() {
    let cluster = super::cluster(true, &[]).await;
    execute(&cluster.url("postgres"), "CREATE DATABASE app").await;
    let store = super::store(&cluster.url("app"), PostgresSettings::default()).await;
    activate(&store, WORKFLOW).await;
    let stop = Arc::new(AtomicBool::new(false));
    let confirmed = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|task| tokio::spawn(advance(store.clone(), task, stop.clone(), confirmed.clone())))
        .collect();
    let enough = |count: usize| {
        let confirmed = confirmed.clone();
        async move {
            let count = confirmed.load(Ordering::SeqCst) + count;
            let waiting = async {
                while confirmed.load(Ordering::SeqCst) < count {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            timeout(TEST_TIMEOUT, waiting).await.expect("commits continue");
        }
    };
    for how in [Stop::Fast, Stop::Immediate, Stop::Immediate] {
        enough(40).await;
        tokio::task::block_in_place(|| {
            cluster.stop(how);
            cluster.start_again();
        });
    }
    enough(40).await;
    stop.store(true, Ordering::SeqCst);
    for task in tasks {
        for (run, known) in task.await.unwrap() {
            let stored = store.load(run).await.unwrap().expect("a confirmed run");
            assert!(
                stored.journal.len() >= known,
                "{run} has {} rows, {known} were confirmed",
                stored.journal.len()
            );
        }
    }
    store.close().await.unwrap();
}

/// Stores runs and commits a few steps of each. Returns the number of confirmed journal rows of each run.
async fn advance(
    store: Arc<dyn Store>,
    task: usize,
    stop: Arc<AtomicBool>,
    confirmed: Arc<AtomicUsize>,
) -> Vec<(fermata_core::RunId, usize)> {
    let mut runs = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let mut new = new_run(&format!("{task}-{number}"));
        new.local_start = Some(LocalStart {
            runner: ME,
            events: started(),
            started_at: at(100),
            waits: Vec::new(),
        });
        let run = new.id;
        match store.enqueue(new.clone()).await {
            Ok(Enqueued::Created) => {}
            Err(StoreError::Unknown(_) | StoreError::Unavailable(_)) => match store.enqueue(new).await {
                Ok(Enqueued::Created) => {}
                Ok(Enqueued::Existing { run: existing, .. }) => assert_eq!(existing, run),
                Err(StoreError::Unknown(_) | StoreError::Unavailable(_)) => continue,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
        let mut known = 1;
        for seq in 2..6 {
            match store.commit(step(run, 1, seq)).await {
                CommitAnswer::Committed { .. } => {
                    known = seq as usize;
                    confirmed.fetch_add(1, Ordering::SeqCst);
                }
                CommitAnswer::Unknown(_) => break,
                other => panic!("{other:?}"),
            }
        }
        runs.push((run, known));
    }
    runs
}
