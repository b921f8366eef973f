//! The settings of a PostgreSQL store, apart from its address.

use crate::schema::Migrate;
use std::time::Duration;

/// Pool sizes, timeouts and modes of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    /// The number of connections for reads and definitions. They are opened on demand. Heartbeats, claims and readiness
    /// checks have a separate pool.
    pub pool_size: usize,
    /// The number of connections that write runs. Each writes all queued work in one transaction. More of them help if
    /// the network latency to the database is high.
    pub committers: usize,
    /// How long connecting to one host may take.
    pub connect_timeout: Duration,
    /// How long a call is retried while the database cannot be reached, for instance during a failover.
    pub patience: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a write waits for rows that another transaction has locked. Other writes do not wait. After this time
    /// nothing was written, and the caller may retry.
    pub lock_timeout: Duration,
    /// How long the server keeps an idle transaction open.
    pub idle_in_transaction_timeout: Duration,
    /// Whether processes notify each other of run messages and due runs with NOTIFY. Without it they find them by
    /// polling.
    pub hints: bool,
    /// Whether an older schema is migrated when the store is opened.
    pub migrate: Migrate,
}

impl Default for PostgresSettings {
    fn default() -> Self {
        PostgresSettings {
            pool_size: 8,
            committers: 2,
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(10),
            idle_in_transaction_timeout: Duration::from_secs(30),
            hints: true,
            migrate: Migrate::default(),
        }
    }
}
