//! Reads and deletes dead letters. They are written by commits.

use super::{
    SqliteStore,
    columns::{Col, get, key, run_id, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterStore},
    reads::Page,
    statements::{DEAD_LETTER_COLUMNS, DELETE_DEAD_LETTER},
};
use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter, types::Value};
use uuid::Uuid;

#[async_trait]
impl DeadLetterStore for SqliteStore {
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        self.readers.read(move |connection| list(connection, &filter)).await
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        self.readers.read(move |connection| one(connection, id)).await
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        self.writer.write(move |tx| delete(tx, id)).await
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        self.writer.write(move |tx| purge(tx, &filter)).await
    }
}

const INSERT: &str = "INSERT INTO dead_letters
    (id, enqueued_at, reason, workflow_execution_id, workflow_id, workflow_version, tenant_id, attempts, last_error,
     workflow_uid, payload_json)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Writes a dead letter, as part of the commit that fails its run.
pub(super) fn insert(tx: &Tx<'_>, dead_letter: &DeadLetter) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(INSERT)?.execute(params![
        dead_letter.id.as_bytes().as_slice(),
        dead_letter.at.0,
        dead_letter.reason.as_str(),
        key(&dead_letter.run),
        dead_letter.workflow_id,
        dead_letter.workflow_version,
        dead_letter.tenant,
        dead_letter.attempts,
        dead_letter.last_error,
        uid_key(&dead_letter.workflow_uid),
        dead_letter.payload,
    ])?;
    Ok(())
}

fn dead_letter_row(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.get::<_, Col<Uuid>>(0)?.0,
        at: get(row, 1)?,
        reason: get(row, 2)?,
        run: run_id(row, 3)?,
        workflow_id: row.get(4)?,
        workflow_version: row.get(5)?,
        tenant: row.get(6)?,
        attempts: row.get(7)?,
        last_error: row.get(8)?,
        workflow_uid: get(row, 9)?,
        payload: row.get(10)?,
    })
}

/// One dead letter.
pub(super) fn one(connection: &Connection, id: Uuid) -> rusqlite::Result<Option<DeadLetter>> {
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, payload_json FROM dead_letters WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row([id.as_bytes().as_slice()], dead_letter_row)
        .optional()
}

/// Dead letters that match, without payloads.
pub(super) fn list(connection: &Connection, filter: &DeadLetterFilter) -> rusqlite::Result<Page<DeadLetter>> {
    let (fitting, mut values) = fitting(filter);
    values.push(Value::Integer(i64::from(filter.limit) + 1));
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, '' FROM {fitting}");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), dead_letter_row)?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, filter.limit))
}

/// The FROM and WHERE clauses for the dead letters that match. The last parameter is the limit; it is not among the
/// values. The index is named, because the planner has no statistics.
pub(super) fn fitting(filter: &DeadLetterFilter) -> (String, Vec<Value>) {
    let of_tenant = filter.tenant.as_ref().is_some_and(|tenant| !tenant.is_empty());
    let index = match (filter.workflow_uid, filter.reason) {
        _ if of_tenant => "INDEXED BY ix_dead_letters_tenant",
        (Some(_), _) => "INDEXED BY ix_dead_letters_workflow",
        (None, Some(_)) => "INDEXED BY ix_dead_letters_reason",
        (None, None) => "",
    };
    let tenant = filter.tenant.clone().map(Value::Text);
    let workflow = filter.workflow_uid.map(|uid| Value::Blob(uid.as_bytes().to_vec()));
    let reason = filter.reason.map(|reason| Value::Text(reason.as_str().to_owned()));
    let before = filter.before.map(|id| Value::Blob(id.as_bytes().to_vec()));
    let mut terms = vec![if of_tenant { "tenant_id <> ''" } else { "1" }.to_owned()];
    let mut values = Vec::new();
    for (column, value) in [
        ("tenant_id =", tenant),
        ("workflow_uid =", workflow),
        ("reason =", reason),
        ("id <", before),
    ] {
        if let Some(value) = value {
            values.push(value);
            terms.push(format!("{column} ?{}", values.len()));
        }
    }
    let (terms, last) = (terms.join(" AND "), values.len() + 1);
    let sql = format!("dead_letters {index} WHERE {terms} ORDER BY id DESC LIMIT ?{last}");
    (sql, values)
}

/// Deletes a dead letter; false if there is none.
pub(super) fn delete(tx: &Tx<'_>, id: Uuid) -> rusqlite::Result<bool> {
    let mut delete = tx.connection.prepare_cached(DELETE_DEAD_LETTER)?;
    Ok(delete.execute([id.as_bytes().as_slice()])? > 0)
}

/// Deletes the dead letters that match; returns their number.
pub(super) fn purge(tx: &Tx<'_>, filter: &DeadLetterFilter) -> rusqlite::Result<u64> {
    let (fitting, mut values) = fitting(filter);
    values.push(Value::Integer(i64::from(filter.limit)));
    let sql = format!("DELETE FROM dead_letters WHERE id IN (SELECT id FROM {fitting})");
    let removed = tx.connection.prepare_cached(&sql)?.execute(params_from_iter(values))?;
    Ok(removed as u64)
}
