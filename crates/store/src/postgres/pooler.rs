//! Detects connection poolers in transaction mode, which assign a server session to each transaction.
//!
//! Fermata needs its own sessions for prepared statements, settings and LISTEN. Behind such a pooler most calls fail, and
//! Fermata's settings would affect other users of the pool. So this is checked before any setting is changed.

use super::address::Address;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The error message.
pub(super) const ADVICE: &str = "a connection pooler in front of it runs in transaction mode, but Fermata needs its own \
    sessions. Connect to the server directly, or set the pooler to session mode (PgBouncer: pool_mode = session)";

/// Whether the pooler shares server sessions between connections, or changes the session of a connection.
///
/// A second connection opens a transaction. If it gets the server session of the first connection, or the first
/// connection then gets another session, the pooler does not keep sessions.
pub(super) async fn is_in_front(address: &Address, client: &Client) -> Result<bool, tokio_postgres::Error> {
    let (other, wire) = address.open().await?;
    let wire = tokio::spawn(wire);
    let shared = async {
        let first = session(client, "SELECT pg_backend_pid()").await?;
        let second = session(&other, "BEGIN; SELECT pg_backend_pid()").await?;
        // Another query on the first connection would now wait for the transaction of the second one.
        if second == first {
            return Ok(true);
        }
        let again = session(client, "SELECT pg_backend_pid()").await?;
        Ok(again != first)
    };
    let shared = shared.await;
    drop(other);
    // The transaction ends with the connection.
    let _ = wire.await;
    shared
}

/// The process id of the server session, by a simple query that needs no prepared statement.
async fn session(client: &Client, sql: &str) -> Result<String, tokio_postgres::Error> {
    let answers = client.simple_query(sql).await?;
    let pid = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(pid.unwrap_or_default())
}
