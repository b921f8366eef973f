//! A SQLite file as one end of a transfer (see [`crate::transfer`]).
//!
//! What must stay true: the lock file is held as long as this exists, so no other process uses the file; only the mark
//! of a source is written.

use super::{
    columns::Col,
    migrations,
    open::{self, Opened, Purpose},
};
use crate::{
    Result, StoreError,
    transfer::{
        end::{Arrival, Chunk, End, Limit, Reading, Side, Writing},
        mark::{self, Mark},
        tables::Table,
        value::{Kind, Row, Sum, Value},
    },
};
use async_trait::async_trait;
use rusqlite::{
    Connection, OptionalExtension, ToSql, params_from_iter,
    types::{FromSqlError, ToSqlOutput, Value as Owned, ValueRef},
};
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};
use uuid::Uuid;

const MARK: &str = "SELECT value FROM meta WHERE key = ?1";

/// A database file that no other process uses.
pub(crate) struct SqliteEnd {
    place: String,
    opened: Arc<Mutex<Opened>>,
}

impl SqliteEnd {
    /// Opens a file. A source is never created; a target is created, unless it is only inspected.
    pub(crate) fn open(path: &Path, side: Side, look: bool) -> Result<SqliteEnd> {
        let purpose = if look { Purpose::Look } else { Purpose::Transfer };
        if (side == Side::Source || look) && !path.exists() {
            return Err(StoreError::Unopenable {
                path: path.display().to_string(),
                what: "there is no such file".to_owned(),
            });
        }
        let opened = open::open(path, purpose)?;
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(SqliteEnd {
            place: format!("sqlite:{}", place.display()),
            opened: Arc::new(Mutex::new(opened)),
        })
    }

    /// Runs blocking work with the connection on a blocking thread.
    async fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R> {
        let (opened, place) = (self.opened.clone(), self.place.clone());
        let worked = tokio::task::spawn_blocking(move || {
            let opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
            work(&opened.connection).map_err(|error| failed(&place, &error))
        });
        worked.await.map_err(|error| StoreError::Failed(error.to_string()))?
    }
}

fn failed(place: &str, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => StoreError::Full { path: place.to_owned() },
        _ => StoreError::Failed(format!("{place}: {error}")),
    }
}

/// The transfer mark of a database.
pub(super) fn read_mark(connection: &Connection, place: &str) -> Result<Option<Mark>> {
    let text = match there(connection, "meta") {
        Ok(true) => connection
            .query_row(MARK, [mark::KEY], |row| row.get::<_, String>(0))
            .optional(),
        other => other.map(|_| None),
    };
    let text = text.map_err(|error| failed(place, &error))?;
    text.map(|text| Mark::from_text(&text, place)).transpose()
}

/// Replaces the mark; false if it was not the expected one.
fn change_mark(connection: &Connection, was: Option<&str>, now: Option<&str>) -> rusqlite::Result<bool> {
    let changed = match (was, now) {
        (None, None) => return Ok(true),
        (None, Some(now)) => connection.execute(
            "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING",
            (mark::KEY, now),
        )?,
        (Some(was), None) => connection.execute("DELETE FROM meta WHERE key = ?1 AND value = ?2", (mark::KEY, was))?,
        (Some(was), Some(now)) => connection.execute(
            "UPDATE meta SET value = ?3 WHERE key = ?1 AND value = ?2",
            (mark::KEY, was, now),
        )?,
    };
    Ok(changed == 1)
}

#[async_trait]
impl End for SqliteEnd {
    fn place(&self) -> &str {
        &self.place
    }

    async fn missing_migrations(&self) -> Result<usize> {
        self.with(|connection| match there(connection, "schema_version")? {
            true => Ok(migrations::PROGRAM.missing(migrations::number(connection)?).count()),
            false => Ok(0),
        })
        .await
    }

    async fn mark(&self) -> Result<Option<Mark>> {
        let place = self.place.clone();
        self.with(move |connection| Ok(read_mark(connection, &place))).await?
    }

    async fn set_mark(&mut self, was: Option<&Mark>, now: Option<&Mark>) -> Result<bool> {
        let (was, now) = (was.map(Mark::to_text), now.map(Mark::to_text));
        self.with(move |connection| change_mark(connection, was.as_deref(), now.as_deref()))
            .await
    }

    async fn used_by(&self) -> Result<Option<String>> {
        Ok(None) // the lock file is ours
    }

    async fn hold(&mut self) -> Result<()> {
        Ok(()) // the same
    }

    async fn release(&mut self) -> Result<()> {
        Ok(())
    }

    async fn count(&self, table: &'static Table) -> Result<u64> {
        self.with(move |connection| {
            if !there(connection, table.name)? {
                return Ok(0);
            }
            let count = format!("SELECT COUNT(*) FROM {}", table.name);
            connection.query_row(&count, [], |row| super::columns::count(row, 0))
        })
        .await
    }

    async fn has_rows(&self, table: &'static Table) -> Result<bool> {
        self.with(move |connection| {
            let any = format!("SELECT 1 FROM {} LIMIT 1", table.name);
            Ok(there(connection, table.name)? && connection.prepare(&any)?.exists([])?)
        })
        .await
    }

    async fn read(&mut self, reading: Reading) -> Result<()> {
        self.with(move |connection| {
            let mut chunk = Chunk::default();
            let complete = each_row(
                connection,
                reading.table,
                reading.after.as_deref(),
                Side::Source,
                |row| {
                    chunk.push(row);
                    if !chunk.is_full(reading.limit) {
                        return true;
                    }
                    reading.into.blocking_send(std::mem::take(&mut chunk)).is_ok()
                },
            )?;
            if complete && !chunk.rows.is_empty() {
                // An error means that the writer ended; it reports why.
                let _ = reading.into.blocking_send(chunk);
            }
            Ok(())
        })
        .await
    }

    async fn write(&mut self, mut writing: Writing) -> Result<Arrival> {
        self.with(move |connection| {
            while let Some(first) = writing.chunks.blocking_recv() {
                write_some(connection, first, &mut writing)?;
            }
            Ok(writing.arrival)
        })
        .await
    }

    async fn sum(&self, table: &'static Table, side: Side) -> Result<Sum> {
        self.with(move |connection| {
            let mut sum = Sum::default();
            each_row(connection, table, None, side, |row| {
                sum.add(&row);
                true
            })?;
            Ok(sum)
        })
        .await
    }

    async fn tidy(&mut self) -> Result<()> {
        self.with(|connection| connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
            .await
    }
}

fn there(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    connection
        .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")?
        .exists([table])
}

/// Walks a table in the order of its key while `take` returns true; returns whether it reached the end.
fn each_row(
    connection: &Connection,
    table: &'static Table,
    after: Option<&[Value]>,
    side: Side,
    mut take: impl FnMut(Row) -> bool,
) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare(&table.select(after.is_some(), side))?;
    let mut rows = statement.query(params_from_iter(after.unwrap_or_default()))?;
    while let Some(row) = rows.next()? {
        let mut values = Row::with_capacity(table.columns.len());
        for (place, column) in table.columns.iter().enumerate() {
            let value = row.get_ref(place)?;
            let strange = |error: FromSqlError| {
                rusqlite::Error::FromSqlConversionFailure(place, value.data_type(), Box::new(error))
            };
            values.push(value_of(value, column.kind).map_err(strange)?);
        }
        if !take(values) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks that a value has the type that this program writes into such a column.
fn value_of(value: ValueRef<'_>, kind: Kind) -> Result<Value, FromSqlError> {
    if value == ValueRef::Null {
        return Ok(Value::Null);
    }
    Ok(match kind {
        Kind::Text => Value::Text(value.as_str()?.to_owned()),
        Kind::Bytes => Value::Bytes(value.as_blob()?.to_vec()),
        Kind::Number | Kind::Integer => Value::Number(value.as_i64()?),
        Kind::Flag => match value.as_i64()? {
            flag @ (0 | 1) => Value::Flag(flag == 1),
            other => return Err(FromSqlError::OutOfRange(other)),
        },
        Kind::Id => Value::Id(<Col<Uuid> as rusqlite::types::FromSql>::column_result(value)?.0),
    })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Owned(Owned::Null),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
            Value::Number(number) => ToSqlOutput::Owned(Owned::Integer(*number)),
            Value::Flag(flag) => ToSqlOutput::Owned(Owned::Integer(i64::from(*flag))),
            Value::Id(id) => ToSqlOutput::Borrowed(ValueRef::Blob(id.as_bytes())),
        })
    }
}

/// One transaction: this chunk and the following ones until it is large enough.
fn write_some(connection: &Connection, first: Chunk, writing: &mut Writing) -> rusqlite::Result<()> {
    let table = writing.table;
    let places: Vec<String> = (1..=table.columns.len()).map(|place| format!("?{place}")).collect();
    let (names, places) = (Table::names(table.columns), places.join(", "));
    let insert = format!("INSERT INTO {} ({names}) VALUES ({places})", table.name);
    let was = writing.arrival.mark().to_text();
    let tx = rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)?;
    let mut insert = tx.prepare_cached(&insert)?;
    let mut written = Limit { rows: 0, bytes: 0 };
    let mut next = Some(first);
    while let Some(chunk) = next {
        for row in &chunk.rows {
            insert.execute(params_from_iter(row))?;
        }
        written.rows += chunk.rows.len();
        written.bytes += chunk.bytes;
        if let Some(last) = chunk.rows.last() {
            writing.arrival.note(table, chunk.rows.len(), last);
        }
        let enough = written.rows >= writing.limit.rows || written.bytes >= writing.limit.bytes;
        next = if enough { None } else { writing.chunks.blocking_recv() };
    }
    drop(insert);
    if !change_mark(&tx, Some(&was), Some(&writing.arrival.mark().to_text()))? {
        return Err(rusqlite::Error::StatementChangedRows(0));
    }
    tx.commit()?;
    // Otherwise the log would grow to the size of all written data.
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    (writing.on_progress)(written.rows as u64);
    Ok(())
}
