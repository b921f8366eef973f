//! Lists of runs. `crate::lists` chooses the index and merges the walks into a page, the same for all databases.
//!
//! What must stay true: the plans of all walks are checked by a test.

use super::{
    columns::{key, run_id},
    reads::run_row,
};
use crate::{
    lists::{BY_REQUEST_OF_TENANT, Bound, Flavour, Found, Walk, budget, page, walks},
    reads::{Page, RunFilter, RunPage, RunRecord},
    statements::LIST_COLUMNS,
};
use fermata_core::RunId;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter, types::Value};

/// All runs with a request id: one index seek for each tenant.
pub(super) const BY_REQUEST: &str = "WITH RECURSIVE tenants (tenant) AS (
      SELECT MIN(tenant_id) FROM workflow_executions
      UNION ALL
      SELECT (SELECT MIN(tenant_id) FROM workflow_executions WHERE tenant_id > tenant) FROM tenants
      WHERE tenant IS NOT NULL)
    SELECT id FROM tenants CROSS JOIN workflow_executions INDEXED BY ux_executions_request
    ON tenant_id = tenant AND workflow_request_id = ?1 LIMIT 10000";

const CHILDREN: &str = "workflow_executions INDEXED BY ix_executions_parent
    WHERE parent_execution_id = ?1 AND parent_execution_id IS NOT NULL AND id > ?2 ORDER BY id LIMIT ?3";

/// Runs that match the filter.
pub(super) fn runs(connection: &Connection, filter: &RunFilter) -> rusqlite::Result<RunPage> {
    let walks = walks(filter, candidates(connection, filter)?, Flavour::Sqlite);
    let budget = budget(walks.len());
    let found = walks.iter().map(|walk| follow(connection, walk, filter.limit, budget));
    let (ids, next) = page(filter, found.collect::<rusqlite::Result<Vec<_>>>()?);
    let sql = format!("SELECT {LIST_COLUMNS} FROM workflow_executions WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = ids.iter().map(|id| statement.query_row([key(id)], run_row).optional());
    let items = rows.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?;
    Ok(RunPage { items, next })
}

/// The only runs that can match, if an index determines them.
fn candidates(connection: &Connection, filter: &RunFilter) -> rusqlite::Result<Option<Vec<RunId>>> {
    if !filter.ids.is_empty() {
        return Ok(Some(filter.ids.clone()));
    }
    let Some(request_id) = &filter.request_id else {
        return Ok(None);
    };
    let ids: rusqlite::Result<Vec<RunId>> = match &filter.tenant {
        None => {
            let mut statement = connection.prepare_cached(BY_REQUEST)?;
            statement.query_map([request_id], |row| run_id(row, 0))?.collect()
        }
        Some(tenant) => {
            let mut statement = connection.prepare_cached(BY_REQUEST_OF_TENANT)?;
            statement
                .query_map([tenant, request_id], |row| run_id(row, 0))?
                .collect()
        }
    };
    ids.map(Some)
}

fn value(bound: &Bound) -> Value {
    match bound {
        Bound::Text(text) => Value::Text(text.clone()),
        Bound::Run(Some(run)) => Value::Blob(key(run).to_vec()),
        Bound::Run(None) => Value::Null,
        Bound::Runner(runner) => Value::Blob(runner.0.as_bytes().to_vec()),
        Bound::Workflow(workflow) => Value::Blob(workflow.as_bytes().to_vec()),
    }
}

fn follow(connection: &Connection, walk: &Walk, limit: u32, budget: usize) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare_cached(&walk.sql)?;
    let mut rows = statement.query(params_from_iter(walk.values.iter().map(value)))?;
    let (mut ids, mut last) = (Vec::new(), None);
    for _ in 0..budget {
        let Some(row) = rows.next()? else {
            return Ok(Found { ids, stopped: None });
        };
        let id = run_id(row, 0)?;
        last = Some(id);
        if row.get::<_, Option<bool>>(1)?.unwrap_or(false) {
            ids.push(id);
            // One row more than the page shows whether there are more.
            if ids.len() > limit as usize {
                break;
            }
        }
    }
    Ok(Found { ids, stopped: last })
}

/// The runs that a run started, oldest first.
pub(super) fn children(
    connection: &Connection,
    parent: RunId,
    after: Option<RunId>,
    limit: u32,
) -> rusqlite::Result<Page<RunRecord>> {
    let mut statement = connection.prepare_cached(&children_query())?;
    let after = after.map_or(Vec::new(), |after| key(&after).to_vec());
    let rows = statement.query_map(params![key(&parent), after, i64::from(limit) + 1], run_row)?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, limit))
}

pub(super) fn children_query() -> String {
    format!("SELECT {LIST_COLUMNS} FROM {CHILDREN}")
}
