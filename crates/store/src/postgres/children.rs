//! Child runs, as their parents see them.

use super::{
    PostgresStore,
    columns::{get, maybe, plain},
    error::PgError,
    lists::LAST,
    sessions::patiently,
};
use crate::{
    Result,
    children::{AwaitedChild, ChildStore, ENDED_CHILDREN, EndedChild, NEXT_PARENT, NodeAttempt},
    statements::dollars,
};
use async_trait::async_trait;
use deadpool_postgres::GenericClient;
use fermata_core::RunId;
use tokio_postgres::Row;
use uuid::Uuid;

#[async_trait]
impl ChildStore for PostgresStore {
    async fn ended_children(&self, parent: RunId, limit: u32) -> Result<Vec<EndedChild>> {
        patiently!(self.sessions, |session| ended(&session, parent, limit))
    }

    async fn awaited_children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Vec<AwaitedChild>> {
        patiently!(self.sessions, |session| awaited(&session, parent, after, limit))
    }

    async fn item_results(&self, of: &NodeAttempt, after: Option<RunId>, limit: u32) -> Result<Vec<EndedChild>> {
        patiently!(self.sessions, |session| item_results(&session, of, after, limit))
    }

    async fn parents_of_ended_children(&self, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>> {
        patiently!(self.sessions, |session| parents(&session, after, limit))
    }
}

async fn ended(client: &impl GenericClient, parent: RunId, limit: u32) -> Result<Vec<EndedChild>, PgError> {
    let statement = client.prepare_cached(&dollars(ENDED_CHILDREN)).await?;
    let rows = client.query(&statement, &[&parent.0, &i64::from(limit)]).await?;
    rows.iter().map(ended_child).collect()
}

fn ended_child(row: &Row) -> Result<EndedChild, PgError> {
    Ok(EndedChild {
        run: get(row, 0)?,
        node: get(row, 1)?,
        attempt: get(row, 2)?,
        item: maybe(row, 3)?,
        status: get(row, 4)?,
        outputs: plain(row, 5)?,
        error: plain(row, 6)?,
    })
}

async fn awaited(
    client: &impl GenericClient,
    parent: RunId,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<AwaitedChild>, PgError> {
    let statement = client.prepare_cached(&awaited_query()).await?;
    let after = after.map_or(Uuid::nil(), |after| after.0);
    let rows = client
        .query(&statement, &[&parent.0, &after, &i64::from(limit)])
        .await?;
    rows.iter().map(awaited_child).collect()
}

fn awaited_child(row: &Row) -> Result<AwaitedChild, PgError> {
    Ok(AwaitedChild {
        run: get(row, 0)?,
        node: get(row, 1)?,
        attempt: get(row, 2)?,
        item: maybe(row, 3)?,
    })
}

async fn item_results(
    client: &impl GenericClient,
    of: &NodeAttempt,
    after: Option<RunId>,
    limit: u32,
) -> Result<Vec<EndedChild>, PgError> {
    let statement = client.prepare_cached(&item_results_query()).await?;
    let after = after.map_or(Uuid::nil(), |after| after.0);
    let (node, attempt) = (of.node.as_str(), i32::try_from(of.attempt).unwrap_or(i32::MAX));
    let rows = client
        .query(&statement, &[&of.run.0, &after, &node, &attempt, &i64::from(limit)])
        .await?;
    rows.iter().map(ended_child).collect()
}

pub(super) fn item_results_query() -> String {
    format!(
        "SELECT id, parent_node_id, parent_attempt, parent_item, status, outputs_json, error_json FROM workflow_executions
         WHERE parent_execution_id IS NOT NULL AND (parent_execution_id, id) > ($1, $2)
         AND (parent_execution_id, id) <= ($1, '{LAST}') AND parent_node_id = $3 AND parent_attempt = $4
         AND parent_item IS NOT NULL ORDER BY parent_execution_id, id LIMIT $5"
    )
}

pub(super) fn awaited_query() -> String {
    format!(
        "SELECT id, parent_node_id, parent_attempt, parent_item FROM workflow_executions
         WHERE parent_execution_id IS NOT NULL AND (parent_execution_id, id) > ($1, $2)
         AND (parent_execution_id, id) <= ($1, '{LAST}') AND parent_waits AND end_time IS NULL
         ORDER BY parent_execution_id, id LIMIT $3"
    )
}

async fn parents(client: &impl GenericClient, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>, PgError> {
    let statement = client.prepare_cached(&dollars(NEXT_PARENT)).await?;
    let mut after = after.map_or(Uuid::nil(), |after| after.0);
    let mut parents = Vec::new();
    while parents.len() < limit as usize {
        let Some(row) = client.query_opt(&statement, &[&after]).await? else {
            break;
        };
        after = plain(&row, 0)?;
        parents.push(RunId(after));
    }
    Ok(parents)
}
