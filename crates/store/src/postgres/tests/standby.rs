//! Commits that hang because the synchronous standby is down.

use super::{TEST_TIMEOUT, cluster, query, store};
use crate::{
    Store, StoreError,
    conformance::{
        cluster::{Cluster, execute},
        *,
    },
    postgres::PostgresSettings,
    runs::Enqueued,
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

/// A store whose server waits for a standby that does not exist.
async fn store_without_standby(settings: PostgresSettings) -> (Cluster, Arc<dyn Store>) {
    let cluster = cluster(false, &[]).await;
    execute(&cluster.url("postgres"), "CREATE DATABASE app").await;
    let store = store(&cluster.url("app"), settings).await;
    activate(&store, WORKFLOW).await;
    standbys(&cluster, "missing").await;
    let url = cluster.url("postgres");
    let reloaded = async {
        loop {
            tokio::select! {
                _ = query(&url, "SELECT pg_logical_emit_message(true, 'test', 'probe')") => {}
                () = until_a_commit_hangs(&cluster) => return,
            }
        }
    };
    timeout(TEST_TIMEOUT, reloaded)
        .await
        .expect("the server waits for the standby");
    terminate_hanging_commits(&cluster).await;
    (cluster, store)
}

/// Sets the standbys that commits wait for. The server applies it after a short delay.
async fn standbys(cluster: &Cluster, names: &str) {
    let url = cluster.url("postgres");
    let change = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    execute(&url, &change).await;
    query(&url, "SELECT pg_reload_conf()").await;
}

const HANGING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Waits until a commit hangs.
async fn until_a_commit_hangs(cluster: &Cluster) {
    let (url, count) = (cluster.url("postgres"), format!("SELECT count(*) {HANGING}"));
    let hanging = async { while query(&url, &count).await == "0" {} };
    timeout(TEST_TIMEOUT, hanging).await.expect("a commit that hangs");
}

/// Terminates the sessions whose commits hang. Their writes become visible.
async fn terminate_hanging_commits(cluster: &Cluster) {
    let url = cluster.url("postgres");
    query(&url, &format!("SELECT count(pg_terminate_backend(pid)) {HANGING}")).await;
    let count = format!("SELECT count(*) {HANGING}");
    let ended = async { while query(&url, &count).await != "0" {} };
    timeout(TEST_TIMEOUT, ended).await.expect("sessions that end");
}

/// A runner does not seem dead because a standby is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_do_not_wait_for_standbys() {
    let (cluster, store) = store_without_standby(PostgresSettings::default()).await;
    let url = cluster.url("app");
    let writing = tokio::spawn(async move { execute(&url, "CREATE TABLE other ()").await });
    until_a_commit_hangs(&cluster).await;
    for (runner, time) in [(ME, 1), (runner(), 1_000_000_000_000), (runner(), 1_000_000_000_001)] {
        let runner = described(runner);
        let beat = timeout(TEST_TIMEOUT, store.heartbeat(&runner, at(time)));
        beat.await.expect("a heartbeat that does not wait").unwrap();
    }
    let runners = store.runners(None, 9).await.unwrap().items;
    assert_eq!(
        runners.len(),
        2,
        "runners without a recent heartbeat are deleted: {runners:?}"
    );
    let ping = timeout(TEST_TIMEOUT, store.ping());
    ping.await.expect("a ping that does not wait").unwrap();
    standbys(&cluster, "").await;
    writing.await.unwrap();
}

fn short_timeouts() -> PostgresSettings {
    PostgresSettings {
        patience: Duration::from_millis(100),
        lock_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_secs(1),
        ..Default::default()
    }
}

/// The server does not respond while its standby is down, but an enqueue returns `Unknown` after a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unconfirmed_enqueue_returns_unknown_in_time() {
    let (cluster, store) = store_without_standby(short_timeouts()).await;
    let new = new_run("r1");
    let answer = timeout(TEST_TIMEOUT, store.enqueue(new.clone())).await;
    let answer = answer.expect("an answer while the commit hangs");
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    standbys(&cluster, "").await;
    let again = store.enqueue(new.clone()).await.unwrap();
    assert!(
        matches!(again, Enqueued::Existing { run, .. } if run == new.id),
        "{again:?}"
    );
}

/// A run that only the primary has becomes visible there when its session ends. It could still be lost in a failover, so a
/// repeated enqueue must not report it as existing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_standby_copy_is_not_confirmed() {
    let (cluster, store) = store_without_standby(short_timeouts()).await;
    let new = new_run("r1");
    let first = store.enqueue(new.clone());
    let ended = async {
        until_a_commit_hangs(&cluster).await;
        terminate_hanging_commits(&cluster).await;
    };
    let (first, ()) = tokio::join!(first, ended);
    assert!(matches!(first, Err(StoreError::Unknown(_))), "{first:?}");
    let runs = query(&cluster.url("app"), "SELECT count(*) FROM workflow_executions").await;
    assert_eq!(runs, "1");
    let again = store.enqueue(new.clone()).await;
    assert!(matches!(again, Err(StoreError::Unknown(_))), "{again:?}");
    standbys(&cluster, "").await;
    let again = store.enqueue(new.clone()).await.unwrap();
    assert!(
        matches!(again, Enqueued::Existing { run, .. } if run == new.id),
        "{again:?}"
    );
}
