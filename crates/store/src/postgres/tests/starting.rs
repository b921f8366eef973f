//! Connecting and migrating.

use super::{ask, cluster};
use crate::{
    Store, StoreError,
    conformance::{
        cluster::{Database, execute},
        *,
    },
    postgres::{PostgresSettings, PostgresStore},
};
use std::time::Duration;

fn impatient() -> PostgresSettings {
    PostgresSettings {
        patience: Duration::from_millis(200),
        connect_timeout: Duration::from_secs(2),
        ..Default::default()
    }
}

async fn refused(url: &str) -> StoreError {
    match PostgresStore::connect(url, impatient()).await {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

/// A database that nobody has migrated yet.
async fn emptied(database: &Database) {
    execute(&database.url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
}

/// However many processes start at once, each migration is applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_migrate_once() {
    let database = Database::new().await;
    emptied(&database).await;
    let starting = (0..6).map(|_| database.store());
    let stores = futures::future::join_all(starting).await;
    for store in &stores {
        store.ping().await.unwrap();
    }
    let versions = "SELECT string_agg(version::text, ',' ORDER BY version) FROM fermata_schema_version";
    let before = ask(&database.url, versions).await;
    database.store().await.ping().await.unwrap();
    assert_eq!(ask(&database.url, versions).await, before);
    let numbers: Vec<&str> = before.split(',').collect();
    let expected: Vec<String> = (1..=numbers.len()).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
}

/// The tables of an application stay as they are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_may_share_the_database() {
    let database = Database::new().await;
    emptied(&database).await;
    let theirs = "CREATE TABLE meta (a integer); CREATE TABLE schema_version (b integer);
        INSERT INTO schema_version VALUES (77)";
    execute(&database.url, theirs).await;
    database.store().await.ping().await.unwrap();
    assert_eq!(ask(&database.url, "SELECT b FROM schema_version").await, "77");
}

/// A database that needs a newer program is refused, and nothing is written to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_databases_are_refused() {
    let database = Database::new().await;
    let newer = "UPDATE fermata_meta SET value = '99.1.0' WHERE key = 'oldest_program';
        DELETE FROM fermata_schema_version";
    execute(&database.url, newer).await;
    let error = refused(&database.url).await;
    assert!(
        matches!(&error, StoreError::TooNew { needs, .. } if needs == "99.1.0"),
        "{error}"
    );
    assert_eq!(
        ask(&database.url, "SELECT count(*) FROM fermata_schema_version").await,
        "0"
    );
}

/// What the server says reaches the reader, the password does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_tell_why() {
    let database = Database::new().await;
    let missing = database.url.replace("fermata_", "nobody_").replacen("@", ":hush@", 1);
    let error = refused(&missing).await;
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("does not exist") && error.contains("nobody_"), "{error}");
    assert!(!error.contains("hush"), "{error}");
    let nowhere = "postgres://u:hush@127.0.0.1:1/d";
    let error = refused(nowhere).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("127.0.0.1:1/d") && error.contains("refused"), "{error}");
    assert!(!error.contains("hush"), "{error}");
}

/// Of several hosts the one that takes writes is used, wherever it stands in the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_that_takes_writes_is_found() {
    let primary = cluster(false, &[]).await;
    let standby = cluster(false, &["default_transaction_read_only=on"]).await;
    for cluster in [&primary, &standby] {
        let admin = cluster.url("postgres?options=-c%20default_transaction_read_only%3Doff");
        execute(&admin, "CREATE DATABASE there").await;
    }
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), primary.port());
    let url = format!("postgres://fermata@{hosts}/there");
    let store = super::store(&url, PostgresSettings::default()).await;
    activate(&store, WORKFLOW).await;
    pending(&store, "r1").await;
    store.close().await.unwrap();
    assert_eq!(
        ask(&primary.url("there"), "SELECT count(*) FROM workflow_executions").await,
        "1"
    );
}

/// When another host takes over, the store follows, also if its connections to the old one are still open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_follows_the_host_that_takes_writes() {
    let hosts = [cluster(false, &[]).await, cluster(false, &[]).await];
    for host in &hosts {
        execute(&host.url("postgres"), "CREATE DATABASE there").await;
        let store = super::store(&host.url("there"), PostgresSettings::default()).await;
        activate(&store, WORKFLOW).await;
        store.close().await.unwrap();
    }
    let turn = async |host: usize, read_only: &str| {
        let url = hosts[host].url("postgres?options=-c%20default_transaction_read_only%3Doff");
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {read_only}");
        execute(&url, &set).await;
        ask(&url, "SELECT pg_reload_conf()").await;
        // The server has taken it in when a new session has it.
        let shown = async {
            while ask(&hosts[host].url("there"), "SHOW default_transaction_read_only").await != read_only {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::PATIENCE, shown)
            .await
            .expect("a new setting");
    };
    turn(1, "on").await;
    let ports = hosts.each_ref().map(|host| format!("127.0.0.1:{}", host.port()));
    let url = format!("postgres://fermata@{}/there", ports.join(","));
    let store = super::store(&url, PostgresSettings::default()).await;
    for (host, request) in [(0, "r1"), (1, "r2")] {
        store.ping().await.unwrap();
        let run = pending(&store, request).await;
        assert_eq!(take(&store, run).await.id, run);
        let there = format!("SELECT count(*) FROM workflow_executions WHERE id = '{run}'");
        assert_eq!(ask(&hosts[host].url("there"), &there).await, "1", "{request}");
        turn(1, "off").await;
        turn(0, "on").await;
    }
    store.close().await.unwrap();
}
