//! Limits of connections, and timeouts.

use super::{TEST_TIMEOUT, query, store};
use crate::{
    Store, StoreError,
    conformance::{cluster::Database, *},
    postgres::{PostgresSettings, address::Address},
};
use futures::future::join_all;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// A session that locks the table of runs until its transaction ends.
async fn lock_runs(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute("BEGIN; LOCK TABLE workflow_executions")
        .await
        .unwrap();
    client
}

async fn with_workflow(database: &Database, settings: PostgresSettings) -> Arc<dyn Store> {
    let store = store(&database.url, settings).await;
    activate(&store, WORKFLOW).await;
    store
}

/// Every session has the configured timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_use_the_configured_timeouts() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        statement_timeout: Duration::from_millis(1234),
        lock_timeout: Duration::from_millis(2345),
        idle_in_transaction_timeout: Duration::from_millis(3456),
        ..Default::default()
    };
    let address = Address::parse(&database.url, &settings).unwrap();
    let (session, _) = address.session().await.unwrap();
    for (name, expected) in [
        ("statement_timeout", "1234ms"),
        ("lock_timeout", "2345ms"),
        ("idle_in_transaction_session_timeout", "3456ms"),
    ] {
        let row = session.query_one(&format!("SHOW {name}"), &[]).await.unwrap();
        assert_eq!(row.get::<_, &str>(0), expected, "{name}");
    }
}

/// A statement that exceeds the timeout fails, and its connection can be used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statement_timeout_ends_a_slow_statement() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        statement_timeout: Duration::from_millis(100),
        pool_size: 1,
        ..Default::default()
    };
    let store = with_workflow(&database, settings).await;
    let run = pending(&store, "r1").await;
    let other = lock_runs(&database).await;
    let read = timeout(TEST_TIMEOUT, store.run(run)).await.expect("an answer");
    let cancelled = |error: &StoreError| matches!(error, StoreError::Failed(what) if what.contains("57014"));
    assert!(read.as_ref().is_err_and(cancelled), "{read:?}");
    other.batch_execute("COMMIT").await.unwrap();
    assert!(store.run(run).await.unwrap().is_some());
}

/// The number of connections does not exceed the settings, however many calls are made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn number_of_connections_is_limited() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        pool_size: 3,
        committers: 2,
        ..Default::default()
    };
    let store = with_workflow(&database, settings).await;
    let requests: Vec<String> = (0..60).map(|index| format!("r{index}")).collect();
    let runs = join_all(requests.iter().map(|request| pending(&store, request))).await;
    for run in join_all(runs.iter().map(|run| store.run(*run))).await {
        assert!(run.unwrap().is_some());
    }
    let connections = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'fermata'";
    // The pool, the committers and the listener. The connection of the migration may still be closing.
    let settled = async { while query(&database.url, connections).await != "6" {} };
    timeout(TEST_TIMEOUT, settled).await.expect("six connections");
}

/// If all connections are busy, a call waits for one, and fails after a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_fails_after_waiting_for_a_connection() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        pool_size: 1,
        patience: Duration::from_millis(200),
        statement_timeout: TEST_TIMEOUT * 2,
        lock_timeout: TEST_TIMEOUT * 2,
        ..Default::default()
    };
    let store = with_workflow(&database, settings).await;
    let run = pending(&store, "r1").await;
    let other = lock_runs(&database).await;
    let reader = store.clone();
    let first = tokio::spawn(async move { reader.run(run).await });
    let blocked =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let waiting = async { while query(&database.url, blocked).await == "0" {} };
    timeout(TEST_TIMEOUT, waiting).await.expect("a reader that waits");
    let second = timeout(TEST_TIMEOUT, store.workflow("", WORKFLOW))
        .await
        .expect("an answer");
    let busy = |error: &StoreError| matches!(error, StoreError::Unavailable(what) if what.contains("busy"));
    assert!(second.as_ref().is_err_and(busy), "{second:?}");
    other.batch_execute("COMMIT").await.unwrap();
    assert!(first.await.unwrap().unwrap().is_some());
    assert!(store.workflow("", WORKFLOW).await.unwrap().is_some());
}

/// Heartbeats, claims and readiness checks do not wait for a connection that a slow read is using.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_does_not_wait_behind_reads() {
    let database = Database::new().await;
    let settings = PostgresSettings {
        pool_size: 1,
        patience: Duration::from_millis(200),
        ..Default::default()
    };
    let store = with_workflow(&database, settings).await;
    let run = pending(&store, "r1").await;
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE workflows").await.unwrap();
    let reader = store.clone();
    let reading = tokio::spawn(async move { reader.workflow("", WORKFLOW).await });
    let busy = async {
        while store.ping().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, busy).await.expect("the only connection is busy");
    let control = store.control().expect("connections for control");
    let calls = async {
        control.heartbeat(&described(ME), at(1)).await.unwrap();
        control.ping().await.unwrap();
        let claimed = control.claim(claim(ME, 1, 1000)).await.unwrap().runs;
        assert_eq!(claimed[0].id, run);
        let leases = control.held(ME, None, 10).await.unwrap();
        assert_eq!(leases.len(), 1);
        assert!(control.runs_with_messages(ME).await.unwrap().is_empty());
    };
    timeout(TEST_TIMEOUT, calls).await.expect("control calls do not wait");
    assert!(!reading.is_finished());
    client.batch_execute("ROLLBACK").await.unwrap();
    assert!(reading.await.unwrap().unwrap().is_some());
    store.close().await.unwrap();
    assert!(control.ping().await.is_err(), "closed together with the store");
}
