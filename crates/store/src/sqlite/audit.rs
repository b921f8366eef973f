//! The audit trail. Rows of changes are added by the writer, in the transaction of the change.

use super::{
    SqliteStore,
    columns::{get, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    audit::{ADD, AuditFilter, AuditPage, AuditRow, AuditStore, PRUNE, ROWS, ROWS_OF_TENANT},
};
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

#[async_trait]
impl AuditStore for SqliteStore {
    async fn add_audit(&self, row: AuditRow) -> Result<()> {
        self.writer.write(move |tx| add(tx, &row)).await
    }

    async fn audit(&self, filter: AuditFilter) -> Result<AuditPage> {
        self.readers.read(move |connection| list(connection, &filter)).await
    }

    async fn prune_audit(&self, before: Uuid, limit: u32) -> Result<u64> {
        let prune = move |tx: &mut Tx<'_>| {
            let removed = tx
                .connection
                .prepare_cached(PRUNE)?
                .execute(params![uid_key(&before), limit])?;
            Ok(removed as u64)
        };
        self.writer.write(prune).await
    }
}

/// Adds a row, unless it is there.
pub(super) fn add(tx: &Tx<'_>, row: &AuditRow) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(ADD)?.execute(params![
        uid_key(&row.id),
        row.at.0,
        row.tenant,
        row.who,
        row.credential,
        row.address,
        row.action,
        row.target,
        row.outcome.as_str(),
        row.detail,
        row.before,
        row.after,
    ])?;
    Ok(())
}

fn list(connection: &Connection, filter: &AuditFilter) -> rusqlite::Result<AuditPage> {
    let before = uid_key(&filter.before.unwrap_or(Uuid::max())).to_vec();
    let from = uid_key(&filter.from.unwrap_or(Uuid::nil())).to_vec();
    let rows: rusqlite::Result<Vec<AuditRow>> = match filter.of_tenant() {
        None => {
            let mut statement = connection.prepare_cached(ROWS)?;
            statement
                .query_map(params![before, from, filter.examined()], audit_row)?
                .collect()
        }
        Some(tenant) => {
            let mut statement = connection.prepare_cached(ROWS_OF_TENANT)?;
            statement
                .query_map(params![before, from, filter.examined(), tenant], audit_row)?
                .collect()
        }
    };
    Ok(filter.page(rows?))
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        id: get(row, 0)?,
        at: get(row, 1)?,
        tenant: row.get(2)?,
        who: row.get(3)?,
        credential: row.get(4)?,
        address: row.get(5)?,
        action: row.get(6)?,
        target: row.get(7)?,
        outcome: get(row, 8)?,
        detail: row.get(9)?,
        before: row.get(10)?,
        after: row.get(11)?,
    })
}
