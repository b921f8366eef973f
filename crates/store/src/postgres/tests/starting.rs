//! Connecting and migrating.

use super::{cluster, query};
use crate::{
    Store, StoreError,
    conformance::{
        cluster::{Database, execute},
        *,
    },
    postgres::{PostgresSettings, PostgresStore},
};
use std::time::Duration;

fn short_timeouts() -> PostgresSettings {
    PostgresSettings {
        patience: Duration::from_millis(200),
        connect_timeout: Duration::from_secs(2),
        ..Default::default()
    }
}

async fn refused(url: &str) -> StoreError {
    match PostgresStore::connect(url, short_timeouts()).await {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => error,
    }
}

/// Removes the schema, as in a new database.
async fn remove_schema(database: &Database) {
    execute(&database.url, "DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
}

/// However many processes start at once, each migration is applied once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_starting_together_migrate_once() {
    let database = Database::new().await;
    remove_schema(&database).await;
    let starting = (0..6).map(|_| database.store());
    let stores = futures::future::join_all(starting).await;
    for store in &stores {
        store.ping().await.unwrap();
    }
    let versions = "SELECT string_agg(version::text, ',' ORDER BY version) FROM fermata_schema_version";
    let before = query(&database.url, versions).await;
    database.store().await.ping().await.unwrap();
    assert_eq!(query(&database.url, versions).await, before);
    let numbers: Vec<&str> = before.split(',').collect();
    let expected: Vec<String> = (1..=numbers.len()).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
}

/// The tables of an application are not changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_may_share_the_database() {
    let database = Database::new().await;
    remove_schema(&database).await;
    let tables = "CREATE TABLE meta (a integer); CREATE TABLE schema_version (b integer);
        INSERT INTO schema_version VALUES (77)";
    execute(&database.url, tables).await;
    database.store().await.ping().await.unwrap();
    assert_eq!(query(&database.url, "SELECT b FROM schema_version").await, "77");
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
        query(&database.url, "SELECT count(*) FROM fermata_schema_version").await,
        "0"
    );
}

/// Errors contain the message of the server, but not the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_errors_name_the_cause_but_not_the_password() {
    let database = Database::new().await;
    let missing = database.url.replace("fermata_", "missing_").replacen("@", ":hush@", 1);
    let error = refused(&missing).await;
    assert!(matches!(error, StoreError::Unopenable { .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("does not exist") && error.contains("missing_"),
        "{error}"
    );
    assert!(!error.contains("hush"), "{error}");
    let unreachable = "postgres://u:hush@127.0.0.1:1/d";
    let error = refused(unreachable).await;
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let error = error.to_string();
    assert!(error.contains("127.0.0.1:1/d") && error.contains("refused"), "{error}");
    assert!(!error.contains("hush"), "{error}");
}

/// Of several hosts the writable one is used, wherever it is in the list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writable_host_is_chosen() {
    let primary = cluster(false, &[]).await;
    let standby = cluster(false, &["default_transaction_read_only=on"]).await;
    for cluster in [&primary, &standby] {
        let admin = cluster.url("postgres?options=-c%20default_transaction_read_only%3Doff");
        execute(&admin, "CREATE DATABASE app").await;
    }
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), primary.port());
    let url = format!("postgres://fermata@{hosts}/app");
    let store = super::store(&url, PostgresSettings::default()).await;
    activate(&store, WORKFLOW).await;
    pending(&store, "r1").await;
    store.close().await.unwrap();
    assert_eq!(
        query(&primary.url("app"), "SELECT count(*) FROM workflow_executions").await,
        "1"
    );
}

/// After a failover the store uses the new primary, even if its connections to the old one are still open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_follows_the_writable_host() {
    let hosts = [cluster(false, &[]).await, cluster(false, &[]).await];
    for host in &hosts {
        execute(&host.url("postgres"), "CREATE DATABASE app").await;
        let store = super::store(&host.url("app"), PostgresSettings::default()).await;
        activate(&store, WORKFLOW).await;
        store.close().await.unwrap();
    }
    let set_read_only = async |host: usize, read_only: &str| {
        let url = hosts[host].url("postgres?options=-c%20default_transaction_read_only%3Doff");
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {read_only}");
        execute(&url, &set).await;
        query(&url, "SELECT pg_reload_conf()").await;
        // The setting is active when a new session has it.
        let shown = async {
            while query(&hosts[host].url("app"), "SHOW default_transaction_read_only").await != read_only {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::TEST_TIMEOUT, shown)
            .await
            .expect("a new setting");
    };
    set_read_only(1, "on").await;
    let ports = hosts.each_ref().map(|host| format!("127.0.0.1:{}", host.port()));
    let url = format!("postgres://fermata@{}/app", ports.join(","));
    let store = super::store(&url, PostgresSettings::default()).await;
    for (host, request) in [(0, "r1"), (1, "r2")] {
        store.ping().await.unwrap();
        let run = pending(&store, request).await;
        assert_eq!(take(&store, run).await.id, run);
        let count = format!("SELECT count(*) FROM workflow_executions WHERE id = '{run}'");
        assert_eq!(query(&hosts[host].url("app"), &count).await, "1", "{request}");
        set_read_only(1, "off").await;
        set_read_only(0, "on").await;
    }
    store.close().await.unwrap();
}
