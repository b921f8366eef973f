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
    let url = cluster.url("postgres");
    let known = async {
        loop {
            tokio::select! {
                _ = ask(&url, "SELECT pg_logical_emit_message(true, 'test', 'probe')") => {}
                () = somebody_hangs(&cluster) => return,
            }
        }
    };
    timeout(PATIENCE, known).await.expect("a server that waits for nobody");
    end_who_hangs(&cluster).await;
    (cluster, store)
}

/// Whom commits are to wait for, as soon as all of the server has heard it.
async fn standbys(cluster: &Cluster, names: &str) {
    let url = cluster.url("postgres");
    let change = format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'");
    execute(&url, &change).await;
    ask(&url, "SELECT pg_reload_conf()").await;
}

const HANGING: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Waits until a commit hangs.
async fn somebody_hangs(cluster: &Cluster) {
    let (url, count) = (cluster.url("postgres"), format!("SELECT count(*) {HANGING}"));
    let hanging = async { while ask(&url, &count).await == "0" {} };
    timeout(PATIENCE, hanging).await.expect("a commit that hangs");
}

/// Ends the sessions whose commits hang. What they wrote is there from then on.
async fn end_who_hangs(cluster: &Cluster) {
    let url = cluster.url("postgres");
    ask(&url, &format!("SELECT count(pg_terminate_backend(pid)) {HANGING}")).await;
    let count = format!("SELECT count(*) {HANGING}");
    let ended = async { while ask(&url, &count).await != "0" {} };
    timeout(PATIENCE, ended).await.expect("sessions that end");
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

fn impatient() -> PostgresSettings {
    PostgresSettings {
        patience: Duration::from_millis(100),
        lock_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_secs(1),
        ..Default::default()
    }
}

/// The server says nothing for as long as its standby is away, but whoever asked for a run hears that nobody knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_are_told_in_time_that_nothing_was_confirmed() {
    let (cluster, store) = waiting(impatient()).await;
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

/// A run that only the primary has is seen there once its session has ended. It could still be lost, so nobody hears that
/// it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_standby_has_is_not_confirmed_by_a_look() {
    let (cluster, store) = waiting(impatient()).await;
    let new = new_run("r1");
    let first = store.enqueue(new.clone());
    let ended = async {
        somebody_hangs(&cluster).await;
        end_who_hangs(&cluster).await;
    };
    let (first, ()) = tokio::join!(first, ended);
    assert!(matches!(first, Err(StoreError::Unknown(_))), "{first:?}");
    let there = ask(&cluster.url("there"), "SELECT count(*) FROM workflow_executions").await;
    assert_eq!(there, "1");
    let again = store.enqueue(new.clone()).await;
    assert!(matches!(again, Err(StoreError::Unknown(_))), "{again:?}");
    standbys(&cluster, "").await;
    let again = store.enqueue(new.clone()).await.unwrap();
    assert!(
        matches!(again, Enqueued::Existing { run, .. } if run == new.id),
        "{again:?}"
    );
}
