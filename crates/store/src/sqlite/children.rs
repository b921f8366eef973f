//! Child runs, as their parents see them.

use super::{
    SqliteStore,
    columns::{get, key, run_id},
    writer::Tx,
};
use crate::{
    Result,
    children::{AwaitedChild, ChildStore, ENDED_CHILDREN, EndedChild, NEXT_PARENT, NodeAttempt},
};
use async_trait::async_trait;
use fermata_core::RunId;
use rusqlite::{Connection, OptionalExtension, Row, params};

pub(super) const AWAITED: &str = "SELECT id, parent_node_id, parent_attempt, parent_item FROM workflow_executions WHERE parent_execution_id = ?1 AND id > ?2
    AND parent_waits AND end_time IS NULL ORDER BY id LIMIT ?3";

/// The index on (parent, id) is used; the other columns of the key are compared.
pub(super) const ITEM_RESULTS: &str =
    "SELECT id, parent_node_id, parent_attempt, parent_item, status, outputs_json, error_json
    FROM workflow_executions WHERE parent_execution_id = ?1 AND id > ?2 AND parent_node_id = ?3 AND parent_attempt = ?4
    AND parent_item IS NOT NULL ORDER BY id LIMIT ?5";

const SEE: &str = "UPDATE workflow_executions SET parent_waits = 0 WHERE id = ?1 AND parent_waits";

pub(super) const FORGET: &str = "UPDATE workflow_executions SET parent_waits = 0
    WHERE parent_execution_id = ?1 AND parent_waits AND end_time IS NOT NULL";

#[async_trait]
impl ChildStore for SqliteStore {
    async fn ended_children(&self, parent: RunId, limit: u32) -> Result<Vec<EndedChild>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(ENDED_CHILDREN)?;
            let rows = statement.query_map(params![key(&parent), limit], ended_child)?;
            rows.collect()
        };
        self.readers.read(read).await
    }

    async fn awaited_children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Vec<AwaitedChild>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(AWAITED)?;
            let after = after.map_or(Vec::new(), |after| key(&after).to_vec());
            let rows = statement.query_map(params![key(&parent), after, limit], awaited_child)?;
            rows.collect()
        };
        self.readers.read(read).await
    }

    async fn item_results(&self, of: &NodeAttempt, after: Option<RunId>, limit: u32) -> Result<Vec<EndedChild>> {
        let of = of.clone();
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(ITEM_RESULTS)?;
            let after = after.map_or(Vec::new(), |after| key(&after).to_vec());
            let rows = statement.query_map(
                params![key(&of.run), after, of.node.as_str(), of.attempt, limit],
                ended_child,
            )?;
            rows.collect()
        };
        self.readers.read(read).await
    }

    async fn parents_of_ended_children(&self, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>> {
        let read = move |connection: &Connection| {
            let mut statement = connection.prepare_cached(NEXT_PARENT)?;
            let mut parents: Vec<RunId> = Vec::new();
            let mut after = after.map_or(Vec::new(), |after| key(&after).to_vec());
            while parents.len() < limit as usize {
                let next = statement.query_row([&after], |row| run_id(row, 0)).optional()?;
                let Some(parent) = next else { break };
                after = key(&parent).to_vec();
                parents.push(parent);
            }
            Ok(parents)
        };
        self.readers.read(read).await
    }
}

fn awaited_child(row: &Row<'_>) -> rusqlite::Result<AwaitedChild> {
    Ok(AwaitedChild {
        run: run_id(row, 0)?,
        node: get(row, 1)?,
        attempt: row.get(2)?,
        item: row.get(3)?,
    })
}

fn ended_child(row: &Row<'_>) -> rusqlite::Result<EndedChild> {
    Ok(EndedChild {
        run: run_id(row, 0)?,
        node: get(row, 1)?,
        attempt: row.get(2)?,
        item: row.get(3)?,
        status: get(row, 4)?,
        outputs: row.get(5)?,
        error: row.get(6)?,
    })
}

/// Removes the marks of children whose ends their parent has seen.
pub(super) fn see(tx: &Tx<'_>, children: &[RunId]) -> rusqlite::Result<()> {
    for child in children {
        tx.connection.prepare_cached(SEE)?.execute([key(child)])?;
    }
    Ok(())
}

/// Removes the marks of all ended children of a run that is over.
pub(super) fn forget_ended(tx: &Tx<'_>, parent: RunId) -> rusqlite::Result<()> {
    tx.connection.prepare_cached(FORGET)?.execute([key(&parent)])?;
    Ok(())
}
