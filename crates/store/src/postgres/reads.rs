//! Reads of one run: its row, attempts, journal rows, links, run messages and waits.

use super::{
    PostgresStore,
    columns::{flow, get, maybe, plain, principal, signed, small, storable},
    error::PgError,
    lists,
    sessions::patiently,
};
use crate::{
    Result,
    reads::{
        EventRecord, LinkRecord, MAX_QUEUE_DEPTH, Page, QueueDepth, ReadStore, RunFilter, RunPage, RunPosition,
        RunRecord, Window,
    },
    runs::{Attempt, RerunOf, RunMessage, StoredMessage, WaitRecord},
    statements::{self, ACTION_COLUMNS, RUN_COLUMNS, dollars},
};
use async_trait::async_trait;
use deadpool_postgres::GenericClient;
use fermata_core::{NodeId, RunId, Status, Timestamp};
use tokio_postgres::{Row, types::ToSql};

#[async_trait]
impl ReadStore for PostgresStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        patiently!(self.sessions, |session| run(&session, id))
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        patiently!(self.sessions, |session| lists::runs(&session, &filter))
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        patiently!(self.sessions, |session| lists::children(&session, parent, after, limit))
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64)> {
        patiently!(self.sessions, |session| actions(&session, run, window))
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        patiently!(self.sessions, |session| events(&session, run, window))
    }

    async fn positions(&self, runs: &[RunId]) -> Result<Vec<RunPosition>> {
        patiently!(self.sessions, |session| positions(&session, runs))
    }

    async fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<EventRecord>> {
        patiently!(self.sessions, |session| journal_after(&session, run, after, limit))
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>> {
        patiently!(self.sessions, |session| queue_depths(&session, now))
    }

    async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64)> {
        patiently!(self.sessions, |session| links(&session, run, window))
    }
}

/// Runs that are due and not held, by workflow.
async fn queue_depths(client: &impl GenericClient, now: Timestamp) -> Result<Vec<QueueDepth>, PgError> {
    let most = i64::from(MAX_QUEUE_DEPTH);
    let rows = rows(client, statements::QUEUE_DEPTHS, &[&now.0, &most]).await?;
    let depth = |row: &Row| {
        Ok(QueueDepth {
            workflow_uid: plain(row, 0)?,
            workflow_id: plain(row, 1)?,
            tenant: plain(row, 2)?,
            runs: get(row, 3)?,
            oldest: get(row, 4)?,
        })
    };
    rows.iter().map(depth).collect()
}

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Runs a statement in the syntax that both databases share.
async fn rows(client: &impl GenericClient, sql: &str, params: Params<'_>) -> Result<Vec<Row>, PgError> {
    let statement = client.prepare_cached(&dollars(sql)).await?;
    Ok(client.query(&statement, params).await?)
}

/// Converts a row of `LIST_COLUMNS` or `RUN_COLUMNS`.
pub(super) fn run_row(row: &Row) -> Result<RunRecord, PgError> {
    let status: Status = get(row, 5)?;
    Ok(RunRecord {
        id: get(row, 0)?,
        workflow_id: plain(row, 1)?,
        workflow_version: get(row, 2)?,
        request_id: plain(row, 3)?,
        tenant: plain(row, 4)?,
        status,
        reason: plain(row, 6)?,
        error: plain(row, 7)?,
        priority: plain(row, 8)?,
        correlation_id: plain(row, 9)?,
        traceparent: plain(row, 27)?,
        request: plain(row, 32)?,
        principal: principal(row, 10)?,
        parent: maybe(row, 13)?,
        parent_node: maybe(row, 24)?,
        parent_item: maybe(row, 25)?,
        depth: maybe(row, 26)?.unwrap_or(0),
        rerun_of: match (maybe(row, 33)?, maybe(row, 34)?) {
            (Some(run), Some(root)) => Some(RerunOf { run, root }),
            _ => None,
        },
        trigger: plain(row, 14)?,
        spec: plain(row, 15)?,
        outputs: plain(row, 16)?,
        context_snapshot: plain(row, 17)?,
        created_at: get(row, 18)?,
        started_at: maybe(row, 19)?,
        ended_at: maybe(row, 20)?,
        wake_at: maybe(row, 21)?,
        runner: maybe(row, 22)?,
        workflow_uid: plain(row, 23)?,
        paused_at: maybe(row, 35)?.filter(|_| !status.is_terminal()),
        flow: flow(row, 28)?,
    })
}

/// The row of a run.
pub(super) async fn run(client: &impl GenericClient, id: RunId) -> Result<Option<RunRecord>, PgError> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM workflow_executions WHERE id = ?1");
    let row = rows(client, &sql, &[&id.0]).await?.pop();
    row.as_ref().map(run_row).transpose()
}

fn action_row(row: &Row) -> Result<Attempt, PgError> {
    Ok(Attempt {
        node: get(row, 0)?,
        attempt: get(row, 1)?,
        action_type: plain(row, 2)?,
        status: get(row, 3)?,
        parameters: plain(row, 4)?,
        outputs: plain(row, 5)?,
        error: plain(row, 6)?,
        started_at: maybe(row, 7)?,
        ended_at: get(row, 8)?,
        reused_from: maybe(row, 9)?,
    })
}

/// Recorded attempts, oldest first.
pub(super) async fn actions(
    client: &impl GenericClient,
    run: RunId,
    window: Window,
) -> Result<(Vec<Attempt>, u64), PgError> {
    let (actions, total) = windowed(client, &statements::actions(), statements::COUNT_ACTIONS, run, window).await?;
    Ok((actions.iter().map(action_row).collect::<Result<_, _>>()?, total))
}

/// The rows of a window, and the total number of rows.
async fn windowed(
    client: &impl GenericClient,
    sql: &str,
    count: &str,
    run: RunId,
    window: Window,
) -> Result<(Vec<Row>, u64), PgError> {
    let (limit, offset) = (i64::from(window.limit), i64::from(window.offset));
    let window: Params<'_> = &[&run.0, &limit, &offset];
    let only_run: Params<'_> = &[&run.0];
    let (found, total) = futures::try_join!(rows(client, sql, window), rows(client, count, only_run))?;
    let total = total.first().map_or(Ok(0), |row| get(row, 0))?;
    Ok((found, total))
}

/// The cached state of a run.
pub(super) async fn cached_state(client: &impl GenericClient, run: RunId) -> Result<Option<String>, PgError> {
    let found = rows(client, statements::CACHED_STATE, &[&run.0]).await?;
    found.first().map(|row| plain(row, 0)).transpose()
}

/// The last attempt of each of these nodes, or of all nodes if the list is empty.
pub(super) async fn last_attempts(
    client: &impl GenericClient,
    run: RunId,
    nodes: &[NodeId],
) -> Result<Vec<Attempt>, PgError> {
    if nodes.is_empty() {
        let found = rows(client, &statements::last_attempts(), &[&run.0]).await?;
        return found.iter().map(action_row).collect();
    }
    let nodes = nodes.iter().map(NodeId::as_str).filter(|node| storable(node));
    let mut nodes: Vec<&str> = nodes.collect();
    nodes.sort_unstable();
    nodes.dedup();
    let sql = last_of_nodes();
    let found = rows(client, &sql, &[&run.0, &nodes]).await?;
    found.iter().map(action_row).collect()
}

/// One index lookup for each node.
pub(super) fn last_of_nodes() -> String {
    format!(
        "SELECT a.* FROM unnest($2::text[]) AS u (node) CROSS JOIN LATERAL (SELECT {ACTION_COLUMNS}
         FROM action_executions WHERE workflow_execution_id = $1 AND node_id = u.node ORDER BY attempt DESC LIMIT 1) a"
    )
}

/// One recorded attempt.
pub(super) async fn attempt(
    client: &impl GenericClient,
    run: RunId,
    node: &NodeId,
    attempt: u32,
) -> Result<Option<Attempt>, PgError> {
    let params: Params<'_> = &[&run.0, &node.as_str(), &small(attempt)];
    let row = rows(client, &statements::attempt(), params).await?.pop();
    row.as_ref().map(action_row).transpose()
}

/// Journal rows, oldest first.
pub(super) async fn events(
    client: &impl GenericClient,
    run: RunId,
    window: Window,
) -> Result<(Vec<EventRecord>, u64), PgError> {
    let (found, total) = windowed(client, statements::EVENTS, statements::COUNT_EVENTS, run, window).await?;
    Ok((found.iter().map(event_row).collect::<Result<_, _>>()?, total))
}

fn event_row(row: &Row) -> Result<EventRecord, PgError> {
    Ok(EventRecord {
        seq: get(row, 0)?,
        at: get(row, 1)?,
        data: plain(row, 2)?,
    })
}

/// Journal rows after one, oldest first.
async fn journal_after(
    client: &impl GenericClient,
    run: RunId,
    after: u32,
    limit: u32,
) -> Result<Vec<EventRecord>, PgError> {
    let params: Params<'_> = &[&run.0, &small(after), &i64::from(limit)];
    let found = rows(client, statements::JOURNAL_AFTER, params).await?;
    found.iter().map(event_row).collect()
}

/// The newest journal row and the status of each of these runs. One index lookup for each, and one snapshot for both.
pub(super) const POSITIONS: &str = "SELECT p.* FROM unnest($1::uuid[]) AS u (run) CROSS JOIN LATERAL
    (SELECT id, status, COALESCE((SELECT seq FROM execution_events WHERE workflow_execution_id = u.run
     ORDER BY seq DESC LIMIT 1), 0) FROM workflow_executions WHERE id = u.run LIMIT 1) p";

async fn positions(client: &impl GenericClient, runs: &[RunId]) -> Result<Vec<RunPosition>, PgError> {
    let ids: Vec<_> = runs.iter().map(|run| run.0).collect();
    let found = rows(client, POSITIONS, &[&ids]).await?;
    let position = |row: &Row| {
        Ok(RunPosition {
            run: get(row, 0)?,
            status: get(row, 1)?,
            seq: get(row, 2)?,
        })
    };
    found.iter().map(position).collect()
}

/// External resources of a run, in the order in which they were linked.
pub(super) async fn links(
    client: &impl GenericClient,
    run: RunId,
    window: Window,
) -> Result<(Vec<LinkRecord>, u64), PgError> {
    let (found, total) = windowed(client, statements::LINKS, statements::COUNT_LINKS, run, window).await?;
    let links = found.iter().map(|row| {
        Ok(LinkRecord {
            node: get(row, 0)?,
            attempt: get(row, 1)?,
            system: plain(row, 2)?,
            resource_type: plain(row, 3)?,
            resource_id: plain(row, 4)?,
            url: plain(row, 5)?,
            created_at: get(row, 6)?,
        })
    });
    Ok((links.collect::<Result<_, PgError>>()?, total))
}

/// Messages after the sequence number `after`, oldest first.
pub(super) async fn messages(
    client: &impl GenericClient,
    run: RunId,
    after: u64,
) -> Result<Vec<StoredMessage>, PgError> {
    let found = rows(client, statements::MESSAGES, &[&run.0, &signed(after)]).await?;
    let messages = found.iter().map(|row| {
        let message: RunMessage =
            serde_json::from_str(plain(row, 2)?).map_err(|error| PgError::UnexpectedValue(error.to_string()))?;
        Ok(StoredMessage {
            seq: get(row, 0)?,
            at: get(row, 1)?,
            message,
        })
    });
    messages.collect()
}

/// The waits of a run, ordered by node, attempt and token.
pub(super) async fn waits(client: &impl GenericClient, run: RunId) -> Result<Vec<WaitRecord>, PgError> {
    let found = rows(client, statements::WAITS, &[&run.0]).await?;
    let waits = found.iter().map(|row| {
        Ok(WaitRecord {
            node: get(row, 0)?,
            attempt: get(row, 1)?,
            token: plain(row, 2)?,
            open: plain(row, 3)?,
            payload: plain(row, 4)?,
            answered_by: plain(row, 5)?,
            answered_at: maybe(row, 6)?,
        })
    });
    waits.collect()
}

/// The run, node and attempt that a token belongs to.
pub(super) async fn token(client: &impl GenericClient, token: &str) -> Result<Option<(RunId, NodeId, u32)>, PgError> {
    let sql = "SELECT workflow_execution_id, node_id, attempt FROM run_waits WHERE token = ?1";
    let row = rows(client, sql, &[&token]).await?.pop();
    row.map(|row| Ok((get(&row, 0)?, get(&row, 1)?, get(&row, 2)?)))
        .transpose()
}
