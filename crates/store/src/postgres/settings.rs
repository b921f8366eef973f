//! What can be set about a PostgreSQL store beyond its address.

use crate::schema::Migrate;
use std::time::Duration;

/// How a store uses its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    /// Connections for reads and definitions. They are opened when they are needed. Heartbeats, claims and readiness have
    /// others.
    pub pool_size: usize,
    /// Connections that write runs, each taking whatever waits in one transaction. More of them help when the way to
    /// the database is long.
    pub committers: usize,
    /// How long connecting to one host may take.
    pub connect_timeout: Duration,
    /// How long a call waits for a database that cannot be reached, for instance while another server takes over.
    pub patience: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a write waits for what others have locked. Only what needs it waits; then nothing was written, and it
    /// may be tried again.
    pub lock_timeout: Duration,
    /// How long the server keeps a transaction whose client says nothing.
    pub idle_in_transaction_timeout: Duration,
    /// Whether processes tell each other of mail and due runs with NOTIFY. Without it they find them by looking.
    pub hints: bool,
    /// What becomes of a schema that is older than this program.
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
