//! Lists of runs. Which index is scanned, and how scans become a page, is the same for all databases: `crate::lists`.
//!
//! What must stay true: a test checks the query plans of all scans. The limit of a scan is a literal in the SQL text,
//! because the planner assumes that a parameter in `LIMIT` means a tenth of all rows.

use super::{
    columns::{get, plain, storable},
    error::PgError,
    reads::run_row,
};
use crate::{
    lists::{BY_REQUEST_OF_TENANT, Bound, Flavour, Found, Walk, budget, page, walks},
    reads::{Page, RunFilter, RunPage, RunRecord},
    statements::{LIST_COLUMNS, dollars},
};
use deadpool_postgres::{GenericClient, Object};
use fermata_core::RunId;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// All runs with a request id: one index lookup for each tenant.
pub(super) const BY_REQUEST: &str = "WITH RECURSIVE tenants (tenant) AS (
      SELECT (SELECT tenant_id FROM workflow_executions ORDER BY tenant_id LIMIT 1)
      UNION ALL
      SELECT (SELECT e.tenant_id FROM workflow_executions e WHERE e.tenant_id > t.tenant ORDER BY e.tenant_id LIMIT 1)
      FROM tenants t WHERE t.tenant IS NOT NULL)
    SELECT e.id FROM tenants t CROSS JOIN LATERAL (SELECT id FROM workflow_executions
      WHERE tenant_id = t.tenant AND workflow_request_id = $1 LIMIT 1) e LIMIT 10000";

/// The largest possible id.
pub(super) const LAST: Uuid = Uuid::max();

/// The runs that match a filter.
pub(super) async fn runs(client: &Object, filter: &RunFilter) -> Result<RunPage, PgError> {
    if !is_storable(filter) {
        let (items, next) = (Vec::new(), None);
        return Ok(RunPage { items, next });
    }
    let walks = walks(filter, candidates(client, filter).await?, Flavour::Postgres);
    let budget = budget(walks.len());
    let found = walks.iter().map(|walk| follow(client, walk, filter.limit, budget));
    let (ids, next) = page(filter, futures::future::try_join_all(found).await?);
    let statement = client.prepare_cached(&rows_query()).await?;
    let keys: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = client.query(&statement, &[&keys]).await?;
    let items = rows.iter().map(run_row).collect::<Result<_, _>>()?;
    Ok(RunPage { items, next })
}

/// Whether the texts of a filter can be in the database at all.
fn is_storable(filter: &RunFilter) -> bool {
    let texts = [
        &filter.tenant,
        &filter.correlation_id,
        &filter.request_id,
        &filter.search,
        &filter.request_prefix,
    ];
    let mut texts = texts.into_iter().flatten().chain(&filter.tags);
    let mut fields = filter.fields.iter();
    texts.all(|text| storable(text))
        && fields.all(|(field, values)| storable(field) && values.iter().all(|value| storable(value)))
}

/// Reads the rows of a page in the order of the given ids.
pub(super) fn rows_query() -> String {
    format!(
        "SELECT {LIST_COLUMNS} FROM unnest($1::uuid[]) WITH ORDINALITY AS u (run, place)
         CROSS JOIN LATERAL (SELECT * FROM workflow_executions WHERE id = u.run LIMIT 1) e ORDER BY u.place"
    )
}

/// The only runs that can match, if the filter has a request id.
async fn candidates(client: &impl GenericClient, filter: &RunFilter) -> Result<Option<Vec<RunId>>, PgError> {
    if !filter.ids.is_empty() {
        return Ok(Some(filter.ids.clone()));
    }
    let Some(request_id) = &filter.request_id else {
        return Ok(None);
    };
    let rows = match &filter.tenant {
        None => {
            let statement = client.prepare_cached(BY_REQUEST).await?;
            client.query(&statement, &[request_id]).await?
        }
        Some(tenant) => {
            let statement = client.prepare_cached(&dollars(BY_REQUEST_OF_TENANT)).await?;
            client.query(&statement, &[tenant, request_id]).await?
        }
    };
    rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>().map(Some)
}

/// Scans until there is one run more than the page holds, which shows that there is another page, or until the budget is
/// used up. In that case the last row is the last run that was examined.
pub(super) fn walk_query(walk: &Walk, limit: u32, budget: usize) -> String {
    let (sql, wanted, last) = (dollars(&walk.sql), u64::from(limit) + 1, budget.saturating_sub(1));
    format!(
        "WITH walked AS MATERIALIZED ({sql} LIMIT {budget}),
         found AS MATERIALIZED (SELECT id FROM walked WHERE fits LIMIT {wanted})
         SELECT id, true FROM found
         UNION ALL
         SELECT id, false FROM (SELECT id FROM walked OFFSET {last} LIMIT 1) last
         WHERE (SELECT count(*) FROM found) < {wanted}"
    )
}

async fn follow(client: &Object, walk: &Walk, limit: u32, budget: usize) -> Result<Found, PgError> {
    let values = walk.values.iter().map(|value| -> (Box<dyn ToSql + Sync + Send>, Type) {
        match value {
            Bound::Text(text) => (Box::new(text.clone()), Type::TEXT),
            Bound::Run(run) => (Box::new(run.map(|run| run.0)), Type::UUID),
            Bound::Runner(runner) => (Box::new(runner.0), Type::UUID),
            Bound::Workflow(workflow) => (Box::new(*workflow), Type::UUID),
        }
    });
    let values: Vec<_> = values.collect();
    let params: Vec<(&(dyn ToSql + Sync), Type)> = values
        .iter()
        .map(|(value, kind)| (&**value as _, kind.clone()))
        .collect();
    // There are too many different statements to cache them prepared.
    let rows = client.query_typed(&walk_query(walk, limit, budget), &params).await?;
    let mut found = Found {
        ids: Vec::new(),
        stopped: None,
    };
    for row in &rows {
        let id = get(row, 0)?;
        match plain(row, 1)? {
            true => found.ids.push(id),
            false => found.stopped = Some(id),
        }
    }
    if found.ids.len() > limit as usize {
        found.stopped = found.ids.last().copied();
    }
    Ok(found)
}

/// The child runs of a run, oldest first.
pub(super) async fn children(
    client: &impl GenericClient,
    parent: RunId,
    after: Option<RunId>,
    limit: u32,
) -> Result<Page<RunRecord>, PgError> {
    let statement = client.prepare_cached(&children_query()).await?;
    let after = after.map_or(Uuid::nil(), |after| after.0);
    let rows = client
        .query(&statement, &[&parent.0, &after, &(i64::from(limit) + 1)])
        .await?;
    Ok(Page::cut(rows.iter().map(run_row).collect::<Result<_, _>>()?, limit))
}

pub(super) fn children_query() -> String {
    format!(
        "SELECT {LIST_COLUMNS} FROM workflow_executions
         WHERE parent_execution_id IS NOT NULL AND (parent_execution_id, id) > ($1, $2)
         AND (parent_execution_id, id) <= ($1, '{LAST}') ORDER BY parent_execution_id, id LIMIT $3"
    )
}
