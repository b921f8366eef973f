//! The source or target of a transfer. SQLite and PostgreSQL can be either.
//!
//! What must stay true: memory use does not grow with the database. Rows are passed in chunks of bounded size, and only a
//! few chunks are queued. A chunk contains at least one row, however large that row is.

use super::{
    mark::{Done, Mark},
    tables::Table,
    value::{Row, Sum, Value},
};
use crate::Result;
use async_trait::async_trait;
use tokio::sync::mpsc::{Receiver, Sender};
use uuid::Uuid;

/// The sizes of chunks and transactions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// The size of a chunk that the reader passes to the writer.
    pub(crate) chunk: Limit,
    /// The size of a transaction. An interrupted transfer resumes after the last transaction.
    pub(crate) transaction: Limit,
}

/// A number of rows or bytes, whichever is reached first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            chunk: Limit {
                rows: 500,
                bytes: 256 << 10,
            },
            transaction: Limit {
                rows: 50_000,
                bytes: 16 << 20,
            },
        }
    }
}

/// How many chunks are queued between the reader and the writer.
pub(crate) const WAITING: usize = 4;

/// Rows that the reader passes to the writer together.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) rows: Vec<Row>,
    pub(crate) bytes: usize,
}

impl Chunk {
    pub(crate) fn push(&mut self, row: Row) {
        self.bytes += row.iter().map(Value::size).sum::<usize>();
        self.rows.push(row);
    }

    pub(crate) fn is_full(&self, limit: Limit) -> bool {
        self.rows.len() >= limit.rows || self.bytes >= limit.bytes
    }
}

/// The arguments of a reader.
pub(crate) struct Reading {
    pub(crate) table: &'static Table,
    /// Only rows after this key.
    pub(crate) after: Option<Vec<Value>>,
    pub(crate) limit: Limit,
    /// Closed when the writer has failed; then the reader stops.
    pub(crate) into: Sender<Chunk>,
}

/// The arguments of a writer, and its progress.
pub(crate) struct Writing {
    pub(crate) table: &'static Table,
    pub(crate) chunks: Receiver<Chunk>,
    pub(crate) limit: Limit,
    pub(crate) arrival: Arrival,
    /// Called after each transaction with the number of rows that it made durable.
    pub(crate) on_progress: Box<dyn Fn(u64) + Send + Sync>,
}

/// The mark of the target. It is updated in the same transaction as the rows.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) transfer: Uuid,
    pub(crate) from: String,
    pub(crate) done: Option<Done>,
}

impl Arrival {
    pub(crate) fn mark(&self) -> Mark {
        Mark::Arriving {
            transfer: self.transfer,
            from: self.from.clone(),
            done: self.done.clone(),
        }
    }

    /// Records that `rows` more rows of a table were written; `last` is the last of them.
    pub(crate) fn note(&mut self, table: &Table, rows: usize, last: &[Value]) {
        let before = self.done.as_ref().filter(|done| done.table == table.name);
        self.done = Some(Done {
            table: table.name.to_owned(),
            after: last[..table.key].iter().map(Value::to_key).collect(),
            rows: before.map_or(0, |done| done.rows) + rows as u64,
        });
    }
}

/// Which side of the transfer a database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Rows are read without their leases, because leases are not moved.
    Source,
    /// Rows are read unchanged.
    Target,
}

/// One of the two databases.
#[async_trait]
pub(crate) trait End: Send {
    /// The address of the database for messages, without its password.
    fn place(&self) -> &str;

    /// How many migrations of this program its schema lacks; 0 if it has no schema.
    async fn missing_migrations(&self) -> Result<usize>;

    /// The mark of an earlier transfer.
    async fn mark(&self) -> Result<Option<Mark>>;

    /// Replaces the mark if it is `was`. False if it is not.
    async fn set_mark(&mut self, was: Option<&Mark>, now: Option<&Mark>) -> Result<bool>;

    /// Describes the other users of the database, if there are any. Called after the mark was set, so that no new user can
    /// appear.
    async fn used_by(&self) -> Result<Option<String>>;

    /// Blocks writes until [`End::release`], and makes all reads use the same snapshot.
    async fn hold(&mut self) -> Result<()>;

    /// Ends [`End::hold`], and commits marks that were set meanwhile.
    async fn release(&mut self) -> Result<()>;

    /// The number of rows of a table; 0 if the table does not exist yet.
    async fn count(&self, table: &'static Table) -> Result<u64>;

    /// Whether a table has any rows.
    async fn has_rows(&self, table: &'static Table) -> Result<bool>;

    /// Reads a table in the order of its key.
    async fn read(&mut self, reading: Reading) -> Result<()>;

    /// Writes rows until the channel is closed. Each transaction also updates the mark.
    async fn write(&mut self, writing: Writing) -> Result<Arrival>;

    /// Computes the number of rows and the checksum of a table inside the database.
    async fn sum(&self, table: &'static Table, side: Side) -> Result<Sum>;

    /// Called after all rows were written, for maintenance such as `ANALYZE`.
    async fn tidy(&mut self) -> Result<()>;
}
