//! A PostgreSQL database as source or target of a transfer (see [`crate::transfer`]). Each table is read with one query
//! and written with `COPY`.
//!
//! What must stay true: the server computes the checksum of a table in SQL, independently of the code that copies rows,
//! so that an error in the copy cannot hide itself.

use super::{address::Address, error::PgError, first_session, migrations, settings::PostgresSettings};
use crate::{
    Result, StoreError,
    schema::Migrate,
    statements::dollars,
    transfer::{
        end::{Arrival, Chunk, End, Limit, Reading, Side, Writing},
        mark::{self, Mark},
        tables::{Column, TABLES, Table},
        value::{Kind, Sum, Value, check_postgres},
    },
};
use async_trait::async_trait;
use futures::TryStreamExt;
use std::{error::Error, time::Duration};
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Row,
    binary_copy::BinaryCopyInWriter,
    error::SqlState,
    types::{IsNull, ToSql, Type, private::BytesMut, to_sql_checked},
};

/// Whole tables are scanned here, so statements have no timeout.
const SET_UP: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET enable_seqscan = on;
    SET application_name = 'fermata transfer'";

/// The number of other connections of Fermata, and of runners with a heartbeat in the last 30 seconds.
const USERS: &str = "SELECT
    (SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND application_name LIKE 'fermata%'),
    (SELECT COUNT(*) FROM runners WHERE heartbeat_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
       - 30000000)";

/// How often the check is repeated: processes that were just stopped may still be connected.
const IN_USE_CHECKS: u32 = 30;
const IN_USE_INTERVAL: Duration = Duration::from_millis(100);

/// A database that no other process should use during the transfer.
pub(crate) struct PostgresEnd {
    place: String,
    client: Client,
    wire: JoinHandle<()>,
}

impl Drop for PostgresEnd {
    fn drop(&mut self) {
        self.wire.abort();
    }
}

impl PostgresEnd {
    /// Connects, and migrates the schema unless the database is opened `read_only`.
    pub(crate) async fn open(url: &str, settings: &PostgresSettings, read_only: bool) -> Result<PostgresEnd> {
        let address = Address::parse(url, settings)?;
        let (mut client, wire) = first_session(&address, settings).await?;
        if !read_only {
            migrations::migrate(&migrations::PROGRAM, &mut client, &address, Migrate::Auto).await?;
        }
        let end = PostgresEnd {
            place: address.place.clone(),
            client,
            wire,
        };
        end.execute(SET_UP).await?;
        Ok(end)
    }

    async fn execute(&self, sql: &str) -> Result<()> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| self.failed(error))
    }

    async fn one(&self, sql: &str) -> Result<Row> {
        let row = self.client.query_one(sql, &[]).await;
        row.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: tokio_postgres::Error) -> StoreError {
        self.explain(&PgError::Server(error))
    }

    fn explain(&self, error: &PgError) -> StoreError {
        match error.explain(&self.place) {
            StoreError::Failed(what) => StoreError::Failed(format!("{}: {what}", self.place)),
            other => other,
        }
    }

    async fn exists(&self, table: &str) -> Result<bool> {
        let sql = "SELECT to_regclass($1) IS NOT NULL";
        let row = self.client.query_one(sql, &[&table]).await;
        Ok(row.map_err(|error| self.failed(error))?.get(0))
    }

    /// Writes one transaction: this chunk and the following ones up to the limit.
    async fn write_transaction(&self, copy: &str, types: &[Type], first: Chunk, writing: &mut Writing) -> Result<()> {
        let table = writing.table;
        let failed = |error| self.failed(error);
        let was = writing.arrival.mark();
        self.execute("BEGIN").await?;
        let sink = self.client.copy_in(copy).await.map_err(failed)?;
        let mut sink = std::pin::pin!(BinaryCopyInWriter::new(sink, types));
        let mut written = Limit { rows: 0, bytes: 0 };
        let mut next = Some(first);
        while let Some(chunk) = next {
            for row in &chunk.rows {
                check_postgres(table, row)?;
                sink.as_mut().write_raw(row).await.map_err(failed)?;
            }
            written.rows += chunk.rows.len();
            written.bytes += chunk.bytes;
            if let Some(last) = chunk.rows.last() {
                writing.arrival.note(table, chunk.rows.len(), last);
            }
            let enough = written.rows >= writing.limit.rows || written.bytes >= writing.limit.bytes;
            next = if enough { None } else { writing.chunks.recv().await };
        }
        sink.finish().await.map_err(failed)?;
        if !change_mark(&self.client, Some(&was), Some(&writing.arrival.mark()))
            .await
            .map_err(failed)?
        {
            return Err(StoreError::Failed(format!(
                "{}: another transfer is writing to it at the same time",
                self.place
            )));
        }
        self.execute("COMMIT").await?;
        (writing.on_progress)(written.rows as u64);
        Ok(())
    }
}

/// The stored text of a transfer's mark.
pub(super) async fn mark_text(client: &Client) -> Result<Option<String>, PgError> {
    let exists = "SELECT to_regclass('fermata_meta') IS NOT NULL";
    if !client.query_one(exists, &[]).await?.get::<_, bool>(0) {
        return Ok(None);
    }
    let sql = "SELECT value FROM fermata_meta WHERE key = $1";
    Ok(client.query_opt(sql, &[&mark::KEY]).await?.map(|row| row.get(0)))
}

/// Refuses a database that is part of a transfer.
pub(super) fn refuse_marked(text: Option<&str>, place: &str) -> Result<()> {
    match text {
        Some(text) => Err(Mark::from_text(text, place)?.refuse(place)),
        None => Ok(()),
    }
}

/// Replaces the mark if it is `was`. False if it is not.
async fn change_mark(client: &Client, was: Option<&Mark>, now: Option<&Mark>) -> Result<bool, tokio_postgres::Error> {
    let (was, now) = (was.map(Mark::to_text), now.map(Mark::to_text));
    let changed = match (&was, &now) {
        (None, None) => return Ok(true),
        (None, Some(now)) => {
            let sql = "INSERT INTO fermata_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
            client.execute(sql, &[&mark::KEY, now]).await?
        }
        (Some(was), None) => {
            let sql = "DELETE FROM fermata_meta WHERE key = $1 AND value = $2";
            client.execute(sql, &[&mark::KEY, was]).await?
        }
        (Some(was), Some(now)) => {
            let sql = "UPDATE fermata_meta SET value = $3 WHERE key = $1 AND value = $2";
            client.execute(sql, &[&mark::KEY, was, now]).await?
        }
    };
    Ok(changed == 1)
}

#[async_trait]
impl End for PostgresEnd {
    fn place(&self) -> &str {
        &self.place
    }

    async fn missing_migrations(&self) -> Result<usize> {
        let version = migrations::version(&self.client).await;
        let version = version.map_err(|error| self.failed(error))?;
        Ok(version.map_or(0, |version| migrations::PROGRAM.missing(version).count()))
    }

    async fn mark(&self) -> Result<Option<Mark>> {
        let text = mark_text(&self.client).await.map_err(|error| self.explain(&error))?;
        text.map(|text| Mark::from_text(&text, &self.place)).transpose()
    }

    async fn set_mark(&mut self, was: Option<&Mark>, now: Option<&Mark>) -> Result<bool> {
        let changed = change_mark(&self.client, was, now).await;
        changed.map_err(|error| self.failed(error))
    }

    async fn used_by(&self) -> Result<Option<String>> {
        let mut users = None;
        for _ in 0..IN_USE_CHECKS {
            let row = self.one(USERS).await?;
            let (sessions, runners): (i64, i64) = (row.get(0), row.get(1));
            users = match (sessions, runners) {
                (0, 0) => return Ok(None),
                (0, runners) => Some(format!("{runners} runners with a heartbeat in the last 30 seconds")),
                (sessions, _) => Some(format!("{sessions} connections of other Fermata processes")),
            };
            tokio::time::sleep(IN_USE_INTERVAL).await;
        }
        Ok(users)
    }

    async fn hold(&mut self) -> Result<()> {
        let tables: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        let lock = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", tables.join(", "));
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
        self.client
            .batch_execute(&lock)
            .await
            .map_err(|error| match error.code() {
                Some(&SqlState::LOCK_NOT_AVAILABLE) => StoreError::Failed(format!(
                    "another session is writing to {}; stop everything that uses it first",
                    self.place
                )),
                _ => self.failed(error),
            })
    }

    async fn release(&mut self) -> Result<()> {
        self.execute("COMMIT").await
    }

    async fn count(&self, table: &'static Table) -> Result<u64> {
        if !self.exists(table.name).await? {
            return Ok(0);
        }
        let count = self.one(&format!("SELECT COUNT(*) FROM {}", table.name)).await?;
        Ok(count.get::<_, i64>(0).unsigned_abs())
    }

    async fn has_rows(&self, table: &'static Table) -> Result<bool> {
        if !self.exists(table.name).await? {
            return Ok(false);
        }
        let any = format!("SELECT EXISTS (SELECT 1 FROM {})", table.name);
        Ok(self.one(&any).await?.get(0))
    }

    async fn read(&mut self, reading: Reading) -> Result<()> {
        let failed = |error| self.failed(error);
        let select = dollars(&reading.table.select(reading.after.is_some(), Side::Source));
        let statement = self.client.prepare(&select).await.map_err(failed)?;
        let after = reading.after.unwrap_or_default();
        let rows = self.client.query_raw(&statement, &after).await.map_err(failed)?;
        let mut rows = std::pin::pin!(rows);
        let mut chunk = Chunk::default();
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            let values = reading.table.columns.iter().enumerate();
            let values = values.map(|(place, column)| value_of(&row, place, column));
            chunk.push(values.collect::<Result<_, _>>().map_err(failed)?);
            if chunk.is_full(reading.limit) && reading.into.send(std::mem::take(&mut chunk)).await.is_err() {
                return Ok(()); // the writer failed and returns the error
            }
        }
        if !chunk.rows.is_empty() {
            let _ = reading.into.send(chunk).await;
        }
        Ok(())
    }

    async fn write(&mut self, mut writing: Writing) -> Result<Arrival> {
        let table = writing.table;
        let (name, columns) = (table.name, Table::names(table.columns));
        let copy = format!("COPY {name} ({columns}) FROM STDIN (FORMAT binary)");
        let types: Vec<Type> = table.columns.iter().map(|column| type_of(column.kind)).collect();
        while let Some(first) = writing.chunks.recv().await {
            self.write_transaction(&copy, &types, first, &mut writing).await?;
        }
        Ok(writing.arrival)
    }

    async fn sum(&self, table: &'static Table, side: Side) -> Result<Sum> {
        let text: Vec<String> = table.columns.iter().map(|column| canonical(column, side)).collect();
        let sql = format!(
            "SELECT COUNT(*), COALESCE(SUM(('x' || left(encode(sha256(convert_to({}, 'UTF8')), 'hex'), 15))
               ::bit(60)::bigint), 0)::text FROM {}",
            text.join(" || "),
            table.name
        );
        let row = self.one(&sql).await?;
        let (rows, hashes): (i64, &str) = (row.get(0), row.get(1));
        Ok(Sum {
            rows: rows.unsigned_abs(),
            hashes: hashes
                .parse()
                .map_err(|_| StoreError::Failed(format!("{}: invalid checksum {hashes}", self.place)))?,
        })
    }

    async fn tidy(&mut self) -> Result<()> {
        let tables: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        self.execute(&format!("ANALYZE {}", tables.join(", "))).await
    }
}

/// SQL for the canonical text of a column, as defined in [`crate::transfer::value`].
fn canonical(column: &Column, side: Side) -> String {
    if !column.is_read(side) {
        return "'~'".to_owned();
    }
    let name = column.name;
    let text = match column.kind {
        Kind::Text => format!("octet_length({name})::text || ':' || {name}"),
        Kind::Bytes => format!("(2 * octet_length({name}))::text || ':' || encode({name}, 'hex')"),
        Kind::Number | Kind::Integer => format!("length({name}::text)::text || ':' || {name}::text"),
        Kind::Flag => format!("'1:' || {name}::integer::text"),
        Kind::Id => format!("'32:' || replace({name}::text, '-', '')"),
    };
    format!("COALESCE({text}, '~')")
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
        Kind::Number => Type::INT8,
        Kind::Integer => Type::INT4,
        Kind::Flag => Type::BOOL,
        Kind::Id => Type::UUID,
    }
}

fn value_of(row: &Row, place: usize, column: &Column) -> Result<Value, tokio_postgres::Error> {
    if !column.is_read(Side::Source) {
        return Ok(Value::Null);
    }
    let value = match column.kind {
        Kind::Text => row.try_get::<_, Option<String>>(place)?.map(Value::Text),
        Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(place)?.map(Value::Bytes),
        Kind::Number => row.try_get::<_, Option<i64>>(place)?.map(Value::Number),
        Kind::Integer => row
            .try_get::<_, Option<i32>>(place)?
            .map(|number| Value::Number(number.into())),
        Kind::Flag => row.try_get::<_, Option<bool>>(place)?.map(Value::Flag),
        Kind::Id => row.try_get::<_, Option<uuid::Uuid>>(place)?.map(Value::Id),
    };
    Ok(value.unwrap_or(Value::Null))
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Value::Null => Ok(IsNull::Yes),
            Value::Text(text) => text.to_sql(ty, out),
            Value::Bytes(bytes) => bytes.to_sql(ty, out),
            Value::Number(number) if *ty == Type::INT4 => i32::try_from(*number)?.to_sql(ty, out),
            Value::Number(number) => number.to_sql(ty, out),
            Value::Flag(flag) => flag.to_sql(ty, out),
            Value::Id(id) => id.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [Type::TEXT, Type::BYTEA, Type::INT8, Type::INT4, Type::BOOL, Type::UUID].contains(ty)
    }

    to_sql_checked!();
}
