//! Dead letters: written by a commit, read and removed by people.

use super::{
    columns::{get, plain},
    sessions::commit,
    trouble::Trouble,
};
use crate::{
    dead_letters::{DeadLetter, DeadLetterFilter},
    reads::Page,
    statements::{DEAD_LETTER_COLUMNS, DELETE_DEAD_LETTER, dollars},
};
use deadpool_postgres::{GenericClient, Object};
use tokio_postgres::{Row, types::ToSql};
use uuid::Uuid;

fn letter_row(row: &Row) -> Result<DeadLetter, Trouble> {
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
        payload: plain(row, 9)?,
    })
}

/// One letter.
pub(super) async fn one(client: &impl GenericClient, id: Uuid) -> Result<Option<DeadLetter>, Trouble> {
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, payload_json FROM dead_letters WHERE id = $1");
    let statement = client.prepare_cached(&sql).await?;
    let row = client.query_opt(&statement, &[&id]).await?;
    row.as_ref().map(letter_row).transpose()
}

/// Letters that fit, without payloads.
pub(super) async fn list(client: &impl GenericClient, filter: &DeadLetterFilter) -> Result<Page<DeadLetter>, Trouble> {
    let (fitting, params) = fitting(filter, i64::from(filter.limit) + 1);
    let sql = format!("SELECT {DEAD_LETTER_COLUMNS}, '' FROM {fitting}");
    let statement = client.prepare_cached(&sql).await?;
    let rows = client.query(&statement, &borrowed(&params)).await?;
    let letters = rows.iter().map(letter_row).collect::<Result<_, _>>()?;
    Ok(Page::cut(letters, filter.limit))
}

/// Where the letters that fit are found.
pub(super) fn fitting(filter: &DeadLetterFilter, limit: i64) -> (String, Vec<Box<dyn ToSql + Sync + Send>>) {
    let mut terms = vec!["true".to_owned()];
    let mut params: Vec<Box<dyn ToSql + Sync + Send>> = Vec::new();
    if let Some(workflow) = &filter.workflow_id {
        params.push(Box::new(workflow.clone()));
        terms.push(format!("workflow_id = ${}", params.len()));
    }
    if let Some(reason) = filter.reason {
        params.push(Box::new(reason.as_str()));
        terms.push(format!("reason = ${}", params.len()));
    }
    if let Some(before) = filter.before {
        params.push(Box::new(before));
        terms.push(format!("id < ${}", params.len()));
    }
    params.push(Box::new(limit));
    let (terms, last) = (terms.join(" AND "), params.len());
    (
        format!("dead_letters WHERE {terms} ORDER BY id DESC LIMIT ${last}"),
        params,
    )
}

fn borrowed(params: &[Box<dyn ToSql + Sync + Send>]) -> Vec<&(dyn ToSql + Sync)> {
    params.iter().map(|param| &**param as _).collect()
}

/// Removes a letter; whether there was one.
pub(super) async fn delete(session: &mut Object, id: Uuid) -> Result<bool, Trouble> {
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&dollars(DELETE_DEAD_LETTER)).await?;
    let removed = tx.execute(&statement, &[&id]).await?;
    commit(tx).await?;
    Ok(removed > 0)
}

/// Removes letters that fit; how many.
pub(super) async fn purge(session: &mut Object, filter: &DeadLetterFilter) -> Result<u64, Trouble> {
    let (fitting, params) = fitting(filter, i64::from(filter.limit));
    let sql = format!("DELETE FROM dead_letters WHERE id IN (SELECT id FROM {fitting})");
    let tx = session.transaction().await?;
    let statement = tx.prepare_cached(&sql).await?;
    let removed = tx.execute(&statement, &borrowed(&params)).await?;
    commit(tx).await?;
    Ok(removed)
}
