//! One end of a transfer: a database that rows are read from or written to. Both kinds of database can be either.
//!
//! What must stay true: memory does not grow with the database. Rows come in chunks of a bounded size, a few chunks wait
//! at most, and a single row is the least that is held.

use super::{
    mark::{Done, Mark},
    tables::Table,
    value::{Row, Sum, Value},
};
use crate::Result;
use async_trait::async_trait;
use tokio::sync::mpsc::{Receiver, Sender};
use uuid::Uuid;

/// How much is done at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// What is read before it is handed on.
    pub(crate) chunk: Limit,
    /// What is written in one transaction; after it a transfer can be resumed.
    pub(crate) transaction: Limit,
}

/// As many rows, or as many bytes, whichever is reached first.
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

/// How many chunks wait between a reader and a writer.
pub(crate) const WAITING: usize = 4;

/// Rows that travel together.
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

/// What a reader needs.
pub(crate) struct Reading {
    pub(crate) table: &'static Table,
    /// Only rows after this key.
    pub(crate) after: Option<Vec<Value>>,
    pub(crate) limit: Limit,
    /// Nobody listens when the writer has failed; there is no use in reading on then.
    pub(crate) into: Sender<Chunk>,
}

/// What a writer needs, and how far it came.
pub(crate) struct Writing {
    pub(crate) table: &'static Table,
    pub(crate) chunks: Receiver<Chunk>,
    pub(crate) limit: Limit,
    pub(crate) arrival: Arrival,
    /// Is told how many rows more have become durable.
    pub(crate) told: Box<dyn Fn(u64) + Send + Sync>,
}

/// The mark of a target, kept together with what was written.
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

    /// Notes rows of a table, the last of them `last`.
    pub(crate) fn note(&mut self, table: &Table, rows: usize, last: &[Value]) {
        let before = self.done.as_ref().filter(|done| done.table == table.name);
        self.done = Some(Done {
            table: table.name.to_owned(),
            after: last[..table.key].iter().map(Value::to_key).collect(),
            rows: before.map_or(0, |done| done.rows) + rows as u64,
        });
    }
}

/// As what rows are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// As they leave: nobody holds them any more.
    Source,
    /// As they are.
    Target,
}

/// One of the two databases.
#[async_trait]
pub(crate) trait End: Send {
    /// The database in words, without its password.
    fn place(&self) -> &str;

    /// What an earlier transfer says about it.
    async fn mark(&self) -> Result<Option<Mark>>;

    /// Replaces the mark. False if it is not what it `was` any more.
    async fn set_mark(&mut self, was: Option<&Mark>, now: Option<&Mark>) -> Result<bool>;

    /// Who else uses it, in words. Asked after it was marked, so that nobody new comes.
    async fn used_by(&self) -> Result<Option<String>>;

    /// Makes it stand still until [`End::release`], and everything that is read show the same moment.
    async fn hold(&mut self) -> Result<()>;

    /// Ends [`End::hold`], and makes durable what was marked meanwhile.
    async fn release(&mut self) -> Result<()>;

    /// How many rows a table has; none if there is no such table yet.
    async fn count(&self, table: &'static Table) -> Result<u64>;

    /// Whether a table has any rows.
    async fn has_rows(&self, table: &'static Table) -> Result<bool>;

    /// Reads a table in the order of its key.
    async fn read(&mut self, reading: Reading) -> Result<()>;

    /// Writes rows until there are no more. The mark is part of each transaction.
    async fn write(&mut self, writing: Writing) -> Result<Arrival>;

    /// Counts and sums up a table, in the database's own way.
    async fn sum(&self, table: &'static Table, side: Side) -> Result<Sum>;

    /// After everything was written: what makes it ready for use.
    async fn tidy(&mut self) -> Result<()>;
}
