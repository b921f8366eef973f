//! Lists of runs: by age, filtered, in pages.
//!
//! A list walks one index in the order of ids (or one for each status, merged) and looks at each run's first columns
//! only; the rows of the page are read at the end, without payloads.
//!
//! What must stay true: the plans of all walks are checked by a test; no list looks at more than [`MAX_EXAMINED`] runs,
//! and one that stopped there says where to go on, so that nothing is passed over.

use super::{
    columns::{key, run_id},
    reads::{LIST_COLUMNS, run_row},
};
use crate::reads::{MAX_EXAMINED, Order, Page, RunFilter, RunPage, RunRecord};
use fermata_core::{RunId, Status};
use rusqlite::{Connection, OptionalExtension, params, params_from_iter, types::Value};

/// All runs with a request id, one seek for each tenant there is.
pub(super) const BY_REQUEST: &str = "WITH RECURSIVE tenants (tenant) AS (
      SELECT MIN(tenant_id) FROM workflow_executions
      UNION ALL
      SELECT (SELECT MIN(tenant_id) FROM workflow_executions WHERE tenant_id > tenant) FROM tenants
      WHERE tenant IS NOT NULL)
    SELECT id FROM tenants CROSS JOIN workflow_executions INDEXED BY ux_executions_request
    ON tenant_id = tenant AND workflow_request_id = ?1 LIMIT 10000";

const CHILDREN: &str = "workflow_executions INDEXED BY ix_executions_parent
    WHERE parent_execution_id = ?1 AND parent_execution_id IS NOT NULL AND id > ?2 ORDER BY id LIMIT ?3";

/// A statement with its parameters.
pub(super) struct Walk {
    pub(super) sql: String,
    values: Vec<Value>,
}

/// The runs that a walk found, and the last it looked at if it did not come to the end.
struct Found {
    ids: Vec<RunId>,
    stopped: Option<RunId>,
}

/// Runs that fit.
pub(super) fn runs(connection: &Connection, filter: &RunFilter) -> rusqlite::Result<RunPage> {
    let walks = walks(filter, candidates(connection, filter)?);
    let budget = MAX_EXAMINED as usize / walks.len().max(1);
    let mut ids = Vec::new();
    let mut stopped: Option<RunId> = None;
    for walk in &walks {
        let found = follow(connection, walk, filter.limit, budget)?;
        ids.extend(found.ids);
        stopped = match (stopped, found.stopped) {
            (Some(a), Some(b)) => Some(nearer(filter.order, a, b)),
            (a, b) => a.or(b),
        };
    }
    match filter.order {
        Order::NewestFirst => ids.sort_unstable_by(|a, b| b.cmp(a)),
        Order::OldestFirst => ids.sort_unstable(),
    }
    ids.dedup();
    // What lies beyond the place where one walk stopped is not known of all of them.
    if let Some(stopped) = stopped {
        ids.retain(|id| nearer(filter.order, *id, stopped) == *id);
    }
    let limit = filter.limit as usize;
    let next = match ids.get(limit) {
        Some(_) => limit.checked_sub(1).and_then(|last| ids.get(last)).copied(),
        None => stopped,
    };
    ids.truncate(limit);
    let sql = format!("SELECT {LIST_COLUMNS} FROM workflow_executions WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = ids.iter().map(|id| statement.query_row([key(id)], run_row).optional());
    let items = rows.filter_map(Result::transpose).collect::<rusqlite::Result<_>>()?;
    Ok(RunPage { items, next })
}

/// Which of two runs comes first.
fn nearer(order: Order, a: RunId, b: RunId) -> RunId {
    match order {
        Order::NewestFirst => a.max(b),
        Order::OldestFirst => a.min(b),
    }
}

/// The only runs that can fit, if an index names them.
fn candidates(connection: &Connection, filter: &RunFilter) -> rusqlite::Result<Option<Vec<RunId>>> {
    let Some(request_id) = &filter.request_id else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached(BY_REQUEST)?;
    let ids = statement.query_map([request_id], |row| run_id(row, 0))?;
    ids.collect::<rusqlite::Result<_>>().map(Some)
}

/// The statements to walk.
pub(super) fn walks(filter: &RunFilter, candidates: Option<Vec<RunId>>) -> Vec<Walk> {
    if let Some(candidates) = candidates {
        return candidates.into_iter().map(|id| one(filter, id)).collect();
    }
    if let Some(correlation_id) = &filter.correlation_id {
        let own = correlation_id.parse().ok().map(|id| one(filter, id));
        return own.into_iter().chain([walk(filter, Index::Correlation)]).collect();
    }
    let short = !filter.statuses.is_empty() && !filter.statuses.contains(&Status::Succeeded);
    if short {
        let mut statuses = filter.statuses.clone();
        statuses.sort_unstable_by_key(|status| status.as_str());
        statuses.dedup();
        let of_status = |status| walk(filter, Index::Status(status));
        return statuses.into_iter().map(of_status).collect();
    }
    let index = match (&filter.workflow_id, &filter.tenant) {
        (Some(_), _) => Index::Workflow,
        // Those without a tenant may be nearly all, and are in no index.
        (None, Some(tenant)) if !tenant.is_empty() => Index::Tenant,
        _ => Index::Key,
    };
    vec![walk(filter, index)]
}

#[derive(Clone, Copy)]
enum Index {
    Key,
    Workflow,
    Tenant,
    Status(Status),
    Correlation,
}

/// Terms of a statement with the values they bind.
#[derive(Default)]
struct Terms {
    list: Vec<String>,
    values: Vec<Value>,
}

impl Terms {
    fn bind(&mut self, value: Value) -> usize {
        self.values.push(value);
        self.values.len()
    }

    fn text(&mut self, column: &str, text: &str) {
        let at = self.bind(Value::Text(text.to_owned()));
        self.list.push(format!("{column} = ?{at}"));
    }

    fn joined(list: &[String], otherwise: &str) -> String {
        match list.is_empty() {
            true => otherwise.to_owned(),
            false => list.join(" AND "),
        }
    }
}

/// Walks one index. It is named: the planner has no statistics, and a list that walks all runs is worse than one that
/// cannot be prepared. What the index does not tell is asked of each run.
fn walk(filter: &RunFilter, index: Index) -> Walk {
    let mut terms = Terms::default();
    let name = match index {
        Index::Key => "",
        Index::Workflow => {
            terms.text("workflow_id", filter.workflow_id.as_deref().unwrap_or_default());
            "INDEXED BY ix_executions_workflow"
        }
        Index::Tenant => {
            terms.text("tenant_id", filter.tenant.as_deref().unwrap_or_default());
            terms.list.push("tenant_id <> ''".to_owned());
            "INDEXED BY ix_executions_tenant"
        }
        Index::Status(status) => {
            terms.text("status", status.as_str());
            terms.list.push("status <> 'Succeeded'".to_owned());
            "INDEXED BY ix_executions_status"
        }
        Index::Correlation => {
            terms.text("correlation_id", filter.correlation_id.as_deref().unwrap_or_default());
            terms.list.push("correlation_id IS NOT NULL".to_owned());
            "INDEXED BY ix_executions_correlation"
        }
    };
    within(filter, &mut terms);
    let (places, fits) = (std::mem::take(&mut terms.list), fits(filter, terms));
    let places = Terms::joined(&places, "1");
    let direction = match filter.order {
        Order::NewestFirst => "DESC",
        Order::OldestFirst => "ASC",
    };
    let expression = Terms::joined(&fits.list, "1");
    Walk {
        sql: format!("SELECT id, {expression} FROM workflow_executions {name} WHERE {places} ORDER BY id {direction}"),
        values: fits.values,
    }
}

/// One run, if it fits.
fn one(filter: &RunFilter, id: RunId) -> Walk {
    let mut terms = Terms::default();
    let at = terms.bind(Value::Blob(key(&id).to_vec()));
    terms.list.push(format!("id = ?{at}"));
    within(filter, &mut terms);
    let (places, fits) = (std::mem::take(&mut terms.list), fits(filter, terms));
    let (places, expression) = (Terms::joined(&places, "1"), Terms::joined(&fits.list, "1"));
    Walk {
        sql: format!("SELECT id, {expression} FROM workflow_executions WHERE {places}"),
        values: fits.values,
    }
}

/// The range of ids.
fn within(filter: &RunFilter, terms: &mut Terms) {
    let bounds = [("id >=", filter.from), ("id <", filter.before)];
    for (column, bound) in bounds {
        if let Some(bound) = bound {
            let at = terms.bind(Value::Blob(key(&bound).to_vec()));
            terms.list.push(format!("{column} ?{at}"));
        }
    }
}

/// What is asked of each run.
fn fits(filter: &RunFilter, mut terms: Terms) -> Terms {
    let exact = [
        ("workflow_id", &filter.workflow_id),
        ("tenant_id", &filter.tenant),
        ("workflow_request_id", &filter.request_id),
    ];
    for (column, text) in exact {
        if let Some(text) = text {
            terms.text(column, text);
        }
    }
    if let Some(correlation_id) = &filter.correlation_id {
        let at = terms.bind(Value::Text(correlation_id.clone()));
        let own = correlation_id.parse::<RunId>().ok();
        let own = terms.bind(own.map_or(Value::Null, |id| Value::Blob(key(&id).to_vec())));
        let term = format!("CASE WHEN correlation_id IS NULL THEN id IS ?{own} ELSE correlation_id = ?{at} END");
        terms.list.push(term);
    }
    if !filter.statuses.is_empty() {
        let words = filter.statuses.iter().map(|status| format!("'{}'", status.as_str()));
        let words = words.collect::<Vec<_>>().join(", ");
        terms.list.push(format!("status IN ({words})"));
    }
    if let Some(search) = &filter.search {
        let at = terms.bind(Value::Text(search.to_ascii_lowercase()));
        let columns = ["workflow_request_id", "workflow_id", "COALESCE(correlation_id, '')"];
        let any = columns.map(|column| format!("instr(lower({column}), ?{at}) > 0"));
        terms.list.push(format!("({})", any.join(" OR ")));
    }
    terms
}

fn follow(connection: &Connection, walk: &Walk, limit: u32, budget: usize) -> rusqlite::Result<Found> {
    let mut statement = connection.prepare_cached(&walk.sql)?;
    let mut rows = statement.query(params_from_iter(&walk.values))?;
    let (mut ids, mut last) = (Vec::new(), None);
    for _ in 0..budget {
        let Some(row) = rows.next()? else {
            return Ok(Found { ids, stopped: None });
        };
        let id = run_id(row, 0)?;
        last = Some(id);
        if row.get::<_, Option<bool>>(1)?.unwrap_or(false) {
            ids.push(id);
            // One more than fits on the page says that there is more.
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
