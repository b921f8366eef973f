//! Reads and deletes dead letters. They are written by commits (`batch.rs`).

use super::{
    PostgresStore,
    columns::{get, plain, text},
    error::PgError,
    sessions::{commit, patiently},
};
use crate::{
    Result,
    dead_letters::{DeadLetter, DeadLetterFilter, DeadLetterStore},
    reads::Page,
    statements::{DEAD_LETTER_COLUMNS, DELETE_DEAD_LETTER, dollars},
};
use async_trait::async_trait;
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

#[async_trait]
impl DeadLetterStore for PostgresStore {
    async fn dead_letters(&self, filter: DeadLetterFilter) -> Result<Page<DeadLetter>> {
        patiently!(self.sessions, |session| list(&session, &filter))
    }

    async fn dead_letter(&self, id: Uuid) -> Result<Option<DeadLetter>> {
        patiently!(self.sessions, |session| one(&session, id))
    }

    async fn delete_dead_letter(&self, id: Uuid) -> Result<bool> {
        patiently!(self.sessions, |session| delete(&mut session, id))
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64> {
        patiently!(self.sessions, |session| purge(&mut session, &filter))
    }
}

fn dead_letter_row(row: &Row) -> Result<DeadLetter, PgError> {
    Ok(DeadLetter {
        id: plain(row, 0)?,
        at: get(row, 1)?,
        reason: get(row, 2)?,
        run: get(row, 3)?,
        workflow_id: plain(row, 4)?,
        workflow_version: get(row, 5)?,
        tenant: plain(row, 6)?,
        attempts: get(row, 7)?,
        last_error: plain(row, 8)?,
        workflow_uid: plain(row, 9)?,
        payload: plain(row, 10)?,
    })
}

/// One dead letter with its payload.
pub(super) async fn one(client: &impl GenericClient, id: Uuid) -> Result<Option<DeadLetter>, PgError> {
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, payload_json FROM dead_letters WHERE id = $1");
    let statement = client.prepare_cached(&sql).await?;
    let row = client.query_opt(&statement, &[&id]).await?;
    row.as_ref().map(dead_letter_row).transpose()
}

/// The dead letters that match a filter, without payloads.
pub(super) async fn list(client: &impl GenericClient, filter: &DeadLetterFilter) -> Result<Page<DeadLetter>, PgError> {
    let (fitting, params) = fitting(filter, i64::from(filter.limit) + 1);
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, '' FROM {fitting}");
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &borrowed(&params)).await?;
    let items = rows.iter().map(dead_letter_row).collect::<Result<_, _>>()?;
    Ok(Page::cut(items, filter.limit))
}

/// The `FROM` clause for the dead letters that match a filter, and its parameters. A tenant, workflow or reason is compared as
/// a range together with the id: only the index on (tenant, workflow or reason, id) has that order, so the planner must use it.
pub(super) fn fitting(filter: &DeadLetterFilter, limit: i64) -> (String, Vec<Box<dyn ToSql + Sync + Send>>) {
    let before = filter.before.unwrap_or(Uuid::max());
    let mut params: Vec<Box<dyn ToSql + Sync + Send>> = vec![Box::new(limit), Box::new(before)];
    let mut conditions: Vec<(&str, Box<dyn ToSql + Sync + Send>)> = Vec::new();
    let tenant = filter.tenant.as_ref().filter(|tenant| !tenant.is_empty());
    conditions.extend(tenant.map(|tenant| ("tenant_id", Box::new(text(tenant).into_owned()) as _)));
    conditions.extend(filter.workflow_uid.map(|uid| ("workflow_uid", Box::new(uid) as _)));
    conditions.extend(filter.reason.map(|reason| ("reason", Box::new(reason.as_str()) as _)));
    let mut conditions = conditions.into_iter();
    let (places, order) = match conditions.next() {
        None => ("id < $2".to_owned(), "id DESC".to_owned()),
        Some((column, value)) => {
            params.push(value);
            let from = format!("({column}, id) >= ($3, '{}')", Uuid::nil());
            let is_tenant = if column == "tenant_id" {
                "tenant_id <> '' AND "
            } else {
                ""
            };
            (
                format!("{is_tenant}{from} AND ({column}, id) < ($3, $2)"),
                format!("{column} DESC, id DESC"),
            )
        }
    };
    let mut rest = String::new();
    for (column, value) in conditions {
        params.push(value);
        rest += &format!(" AND {column} = ${}", params.len());
    }
    if filter.tenant.as_deref() == Some("") {
        rest += " AND tenant_id = ''";
    }
    (
        format!("dead_letters WHERE {places}{rest} ORDER BY {order} LIMIT $1"),
        params,
    )
}

fn borrowed(params: &[Box<dyn ToSql + Sync + Send>]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as _).collect()
}

/// Deletes a dead letter. False if it does not exist.
pub(super) async fn delete(session: &mut Object, id: Uuid) -> Result<bool, PgError> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(DELETE_DEAD_LETTER)).await?;
    let removed = tx.execute(&statement, &[&id]).await?;
    if removed > 0 {
        commit(tx).await?;
    }
    Ok(removed > 0)
}

/// Deletes the dead letters that match a filter, and returns their number.
pub(super) async fn purge(session: &mut Object, filter: &DeadLetterFilter) -> Result<u64, PgError> {
    let (fitting, params) = fitting(filter, i64::from(filter.limit));
    let sql = format!("DELETE FROM dead_letters WHERE id IN (SELECT id FROM {fitting})");
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&sql).await?;
    let removed = tx.execute(&statement, &borrowed(&params)).await?;
    if removed > 0 {
        commit(tx).await?;
    }
    Ok(removed)
}
