//! Tests that need PostgreSQL: several processes on one database, lost connections, server restarts, TLS and query plans.

mod cost;
mod faults;
mod limits;
mod many;
mod migrations;
mod plans;
mod pooler;
mod proxy;
mod sql_functions;
mod standby;
mod starting;
mod tls;

use super::{PostgresSettings, PostgresStore};
use crate::{
    Store,
    conformance::cluster::{Cluster, Database},
};
use std::{sync::Arc, time::Duration};

/// The longest wait in a test.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A separate server for one test.
async fn cluster(durable: bool, options: &'static [&str]) -> Cluster {
    let start = move || Cluster::start(durable, options);
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// A separate store on the same database, as another process has it.
async fn process(database: &Database) -> Arc<dyn Store> {
    Arc::new(database.store().await)
}

async fn store(url: &str, settings: PostgresSettings) -> Arc<dyn Store> {
    Arc::new(PostgresStore::connect(url, settings).await.unwrap())
}

/// Runs a query on a separate connection, and returns the first column of the first row as text.
async fn query(url: &str, sql: &str) -> String {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let answers = client.simple_query(sql).await.unwrap();
    let rows = answers.iter().filter_map(|answer| match answer {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    let first = rows.into_iter().next().unwrap_or_default();
    drop(client);
    let _ = connection.await;
    first
}
