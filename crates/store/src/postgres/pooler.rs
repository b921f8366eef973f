//! Connection poolers that give a client another session of the server for each transaction.
//!
//! Fermata needs its sessions: for prepared statements, settings and LISTEN. Behind such a pooler most calls fail, and the
//! settings of Fermata would reach other users of the pool. So this is asked before anything is set.

use super::address::Address;
use tokio_postgres::{Client, SimpleQueryMessage};

/// What to say about it.
pub(super) const ADVICE: &str = "a connection pooler in front of it gives every transaction another session, but Fermata \
    needs sessions of its own. Connect to the server itself, or let the pooler use session mode (PgBouncer: pool_mode = session)";

/// Whether transactions of one connection come to different sessions, or sessions are shared.
///
/// A second connection keeps a transaction open. If it is in the session of the first one, that one was given away; if the
/// first one is in another session now, likewise.
pub(super) async fn is_in_front(address: &Address, client: &Client) -> Result<bool, tokio_postgres::Error> {
    let (other, wire) = address.open().await?;
    let wire = tokio::spawn(wire);
    let shared = async {
        let first = session(client, "SELECT pg_backend_pid()").await?;
        let theirs = session(&other, "BEGIN; SELECT pg_backend_pid()").await?;
        // With one session for all, the first connection would wait for the second one now.
        if theirs == first {
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

/// The number of the server's process, by a query that needs no prepared statement.
async fn session(client: &Client, sql: &str) -> Result<String, tokio_postgres::Error> {
    let answers = client.simple_query(sql).await?;
    let pid = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    Ok(pid.unwrap_or_default())
}
