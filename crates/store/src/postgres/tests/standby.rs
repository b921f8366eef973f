//! Commits that hang, because a standby they wait for is away.

use super::{PATIENCE, ask, cluster, store};
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

/// A store whose server waits for a standby that there is not.
async fn waiting(settings: PostgresSettings) -> (Cluster, Arc<dyn Store>) {
    let cluster = cluster(false, &[]).await;
    execute(&cluster.url("postgres"), "CREATE DATABASE there").await;
    let store = store(&cluster.url("there"), settings).await;
    activate(&store, WORKFLOW).await;
    standbys(&cluster, "nobody").await;
    (cluster, store)
}

/// Whom commits wait for.
async fn standbys(cluster: &Cluster, names: &str) {
    let url = cluster.url("postgres");
    execute(&url, &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).await;
    ask(&url, "SELECT pg_reload_conf()").await;
    let known = async { while ask(&url, "SHOW synchronous_standby_names").await != names {} };
    timeout(PATIENCE, known)
        .await
        .expect("a server that knows its standbys");
}

/// Waits until a commit hangs.
async fn somebody_hangs(cluster: &Cluster) {
    let hanging = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let hanging = async { while ask(&cluster.url("postgres"), hanging).await == "0" {} };
    timeout(PATIENCE, hanging).await.expect("a commit that hangs");
}

/// Nobody looks dead because a standby is away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_wait_for_no_standby() {
    let (cluster, store) = waiting(PostgresSettings::default()).await;
    let url = cluster.url("there");
    let writing = tokio::spawn(async move { execute(&url, "CREATE TABLE other ()").await });
    somebody_hangs(&cluster).await;
    for (runner, time) in [(ME, 1), (runner(), 1_000_000_000_000), (runner(), 1_000_000_000_001)] {
        let runner = described(runner);
        let beat = timeout(PATIENCE, store.heartbeat(&runner, at(time)));
        beat.await.expect("a heartbeat that does not wait").unwrap();
    }
    let runners = store.runners(None, 9).await.unwrap().items;
    assert_eq!(runners.len(), 2, "who was silent for long is forgotten: {runners:?}");
    let ping = timeout(PATIENCE, store.ping());
    ping.await.expect("a ping that does not wait").unwrap();
    standbys(&cluster, "").await;
    writing.await.unwrap();
}

/// The server says nothing for as long as its standby is away, but whoever asked for a run hears that nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_told_in_time_that_nothing_was_confirmed() {
    let (cluster, store) = waiting(PostgresSettings {
        patience: Duration::from_millis(100),
        lock_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_secs(1),
        ..Default::default()
    })
    .await;
    let new = new_run("r1");
    let told = timeout(PATIENCE, store.enqueue(new.clone())).await;
    let told = told.expect("an answer, long before the database has one");
    assert!(matches!(told, Err(StoreError::Unknown(_))), "{told:?}");
    standbys(&cluster, "").await;
    let again = store.enqueue(new.clone()).await.unwrap();
    assert!(
        matches!(again, Enqueued::Existing { run, .. } if run == new.id),
        "{again:?}"
    );
}
