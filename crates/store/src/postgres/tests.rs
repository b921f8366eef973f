//! What only PostgreSQL can show: several processes on one database, lost connections, servers that end, encryption,
//! and query plans.

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

/// No wait in a test is longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of a test's own.
async fn cluster(durable: bool, options: &'static [&str]) -> Cluster {
    let start = move || Cluster::start(durable, options);
    tokio::task::spawn_blocking(start).await.unwrap()
}

/// What another process has: a store of its own on the same database.
async fn process(database: &Database) -> Arc<dyn Store> {
    Arc::new(database.store().await)
}

async fn store(url: &str, settings: PostgresSettings) -> Arc<dyn Store> {
    Arc::new(PostgresStore::connect(url, settings).await.unwrap())
}

/// The first row of a query on a connection of its own, as text.
async fn ask(url: &str, sql: &str) -> String {
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
