//! Reads of one run: its row, and windows of its events, attempts and links.

use super::{
    SqliteStore,
    columns::{count, flow, get, key, maybe, principal, run_id, signed},
    lists,
};
use crate::{
    Result,
    reads::{
        EventRecord, LinkRecord, MAX_QUEUE_DEPTH, Page, QueueDepth, ReadStore, RunFilter, RunPage, RunPosition,
        RunRecord, Window,
    },
    runs::{Attempt, RerunOf, RunMessage, StoredMessage, WaitRecord},
    statements::{self, ACTION_COLUMNS, RUN_COLUMNS},
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};
use uuid::Uuid;

/// The most bytes of payloads of a row that is read on the thread of the caller.
const SMALL: usize = 16 * 1024;

#[async_trait]
impl ReadStore for SqliteStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.readers.read_one(move |connection| run(connection, id)).await
    }

    async fn recent_run(&self, id: RunId) -> Result<Option<RunRecord>> {
        match self
            .readers
            .look_up(move |connection| small_run(connection, id))
            .await?
        {
            Some(run) => Ok(Some(run)),
            None => self.run(id).await,
        }
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        self.readers
            .read(move |connection| lists::runs(connection, &filter))
            .await
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        self.readers
            .read(move |connection| lists::children(connection, parent, after, limit))
            .await
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64)> {
        self.readers
            .read(move |connection| actions(connection, run, window))
            .await
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        self.readers
            .read(move |connection| events(connection, run, window))
            .await
    }

    async fn positions(&self, runs: &[RunId]) -> Result<Vec<RunPosition>> {
        let runs = runs.to_vec();
        self.readers.read(move |connection| positions(connection, &runs)).await
    }

    async fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<EventRecord>> {
        self.readers
            .read(move |connection| journal_after(connection, run, after, limit))
            .await
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>> {
        self.readers.read(move |connection| queue_depths(connection, now)).await
    }

    async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64)> {
        self.readers
            .read(move |connection| links(connection, run, window))
            .await
    }
}

/// A row of `LIST_COLUMNS`, or the same with payloads.
pub(super) fn run_row(row: &Row<'_>) -> rusqlite::Result<RunRecord> {
    let status: Status = get(row, 5)?;
    Ok(RunRecord {
        id: run_id(row, 0)?,
        workflow_id: row.get(1)?,
        workflow_version: row.get(2)?,
        request_id: row.get(3)?,
        tenant: row.get(4)?,
        status,
        reason: row.get(6)?,
        error: row.get(7)?,
        priority: row.get(8)?,
        correlation_id: row.get(9)?,
        traceparent: row.get(27)?,
        request: row.get(32)?,
        principal: principal(row, 10)?,
        parent: maybe::<Uuid>(row, 13)?.map(RunId),
        parent_node: maybe(row, 24)?,
        parent_item: row.get(25)?,
        depth: row.get::<_, Option<u32>>(26)?.unwrap_or(0),
        rerun_of: match (maybe::<Uuid>(row, 33)?, maybe::<Uuid>(row, 34)?) {
            (Some(run), Some(root)) => Some(RerunOf {
                run: RunId(run),
                root: RunId(root),
            }),
            _ => None,
        },
        trigger: row.get(14)?,
        spec: row.get(15)?,
        outputs: row.get(16)?,
        context_snapshot: row.get(17)?,
        created_at: get(row, 18)?,
        started_at: maybe(row, 19)?,
        ended_at: maybe(row, 20)?,
        wake_at: maybe(row, 21)?,
        workflow_uid: get(row, 23)?,
        runner: maybe::<Uuid>(row, 22)?.map(RunnerId),
        paused_at: maybe(row, 35)?.filter(|_| !status.is_terminal()),
        flow: flow(row, 28)?,
    })
}

/// A run's row.
pub(super) fn run(connection: &Connection, id: RunId) -> rusqlite::Result<Option<RunRecord>> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM workflow_executions WHERE id = ?1");
    connection
        .prepare_cached(&sql)?
        .query_row([key(&id)], run_row)
        .optional()
}

/// A run's row, unless its payloads are large.
fn small_run(connection: &Connection, id: RunId) -> rusqlite::Result<Option<RunRecord>> {
    // `octet_length` does not read the text.
    let sql = format!(
        "SELECT {RUN_COLUMNS} FROM workflow_executions WHERE id = ?1 AND octet_length(trigger_payload_json)
        + ifnull(octet_length(spec_json), 0) + ifnull(octet_length(outputs_json), 0)
        + ifnull(octet_length(context_snapshot_json), 0) + ifnull(octet_length(request_json), 0)
        + ifnull(octet_length(error_json), 0) + ifnull(octet_length(flow_json), 0) <= {SMALL}"
    );
    connection
        .prepare_cached(&sql)?
        .query_row([key(&id)], run_row)
        .optional()
}

fn action_row(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    Ok(Attempt {
        node: get(row, 0)?,
        attempt: row.get(1)?,
        action_type: row.get(2)?,
        status: get(row, 3)?,
        parameters: row.get(4)?,
        outputs: row.get(5)?,
        error: row.get(6)?,
        started_at: maybe(row, 7)?,
        ended_at: get(row, 8)?,
        reused_from: maybe::<Uuid>(row, 9)?.map(RunId),
    })
}

/// Recorded attempts, oldest first.
pub(super) fn actions(connection: &Connection, run: RunId, window: Window) -> rusqlite::Result<(Vec<Attempt>, u64)> {
    let mut statement = connection.prepare_cached(&statements::actions())?;
    let rows = statement.query_map(params![key(&run), window.limit, window.offset], action_row)?;
    let rows = rows.collect::<rusqlite::Result<_>>()?;
    let mut total = connection.prepare_cached(statements::COUNT_ACTIONS)?;
    Ok((rows, total.query_row([key(&run)], |row| count(row, 0))?))
}

/// The last attempt of each of these nodes, or of all.
pub(super) fn last_attempts(connection: &Connection, run: RunId, nodes: &[NodeId]) -> rusqlite::Result<Vec<Attempt>> {
    if nodes.is_empty() {
        return connection
            .prepare_cached(&statements::last_attempts())?
            .query_map([key(&run)], action_row)?
            .collect();
    }
    let sql = format!(
        "SELECT {ACTION_COLUMNS} FROM action_executions WHERE workflow_execution_id = ?1 AND node_id = ?2
         ORDER BY attempt DESC LIMIT 1"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut nodes: Vec<&NodeId> = nodes.iter().collect();
    nodes.sort();
    nodes.dedup();
    let last = nodes
        .into_iter()
        .map(|node| statement.query_row((key(&run), node.as_str()), action_row).optional());
    last.filter_map(Result::transpose).collect()
}

/// One recorded attempt.
pub(super) fn attempt(
    connection: &Connection,
    run: RunId,
    node: &NodeId,
    attempt: u32,
) -> rusqlite::Result<Option<Attempt>> {
    connection
        .prepare_cached(&statements::attempt())?
        .query_row((key(&run), node.as_str(), attempt), action_row)
        .optional()
}

/// Journal rows, oldest first.
pub(super) fn events(connection: &Connection, run: RunId, window: Window) -> rusqlite::Result<(Vec<EventRecord>, u64)> {
    let mut statement = connection.prepare_cached(statements::EVENTS)?;
    let rows = statement.query_map(params![key(&run), window.limit, window.offset], event_row)?;
    let rows = rows.collect::<rusqlite::Result<_>>()?;
    let mut total = connection.prepare_cached(statements::COUNT_EVENTS)?;
    Ok((rows, total.query_row([key(&run)], |row| count(row, 0))?))
}

fn event_row(row: &Row<'_>) -> rusqlite::Result<EventRecord> {
    Ok(EventRecord {
        seq: row.get(0)?,
        at: get(row, 1)?,
        data: row.get(2)?,
    })
}

/// Journal rows after one, oldest first.
fn journal_after(connection: &Connection, run: RunId, after: u32, limit: u32) -> rusqlite::Result<Vec<EventRecord>> {
    let mut statement = connection.prepare_cached(statements::JOURNAL_AFTER)?;
    let rows = statement.query_map(params![key(&run), after, limit], event_row)?;
    rows.collect()
}

/// The newest journal row of a run, and its status.
pub(super) const POSITION: &str = "SELECT id, status, COALESCE((SELECT seq FROM execution_events
    WHERE workflow_execution_id = ?1 ORDER BY seq DESC LIMIT 1), 0) FROM workflow_executions WHERE id = ?1";

fn positions(connection: &Connection, runs: &[RunId]) -> rusqlite::Result<Vec<RunPosition>> {
    let mut statement = connection.prepare_cached(POSITION)?;
    let position = |row: &Row<'_>| {
        Ok(RunPosition {
            run: run_id(row, 0)?,
            status: get(row, 1)?,
            seq: row.get(2)?,
        })
    };
    let found = runs
        .iter()
        .map(|run| statement.query_row([key(run)], position).optional());
    found.filter_map(Result::transpose).collect()
}

/// External resources of a run, in the order in which they were created.
pub(super) fn links(connection: &Connection, run: RunId, window: Window) -> rusqlite::Result<(Vec<LinkRecord>, u64)> {
    let mut statement = connection.prepare_cached(statements::LINKS)?;
    let rows = statement.query_map(params![key(&run), window.limit, window.offset], |row| {
        Ok(LinkRecord {
            node: get(row, 0)?,
            attempt: row.get(1)?,
            system: row.get(2)?,
            resource_type: row.get(3)?,
            resource_id: row.get(4)?,
            url: row.get(5)?,
            created_at: get(row, 6)?,
        })
    })?;
    let rows = rows.collect::<rusqlite::Result<_>>()?;
    let mut total = connection.prepare_cached(statements::COUNT_LINKS)?;
    Ok((rows, total.query_row([key(&run)], |row| count(row, 0))?))
}

/// Runs that are due and not held, by workflow.
fn queue_depths(connection: &Connection, now: Timestamp) -> rusqlite::Result<Vec<QueueDepth>> {
    let mut statement = connection.prepare_cached(statements::QUEUE_DEPTHS)?;
    let rows = statement.query_map(params![now.0, MAX_QUEUE_DEPTH], |row| {
        Ok(QueueDepth {
            workflow_uid: get(row, 0)?,
            workflow_id: row.get(1)?,
            tenant: row.get(2)?,
            runs: count(row, 3)?,
            oldest: get(row, 4)?,
        })
    })?;
    rows.collect()
}

/// Messages after `after`, oldest first.
pub(super) fn messages(connection: &Connection, run: RunId, after: u64) -> rusqlite::Result<Vec<StoredMessage>> {
    let mut statement = connection.prepare_cached(statements::MESSAGES)?;
    let rows = statement.query_map(params![key(&run), signed(after)], |row| {
        let text: String = row.get(2)?;
        let message: RunMessage = serde_json::from_str(&text)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error)))?;
        Ok(StoredMessage {
            seq: count(row, 0)?,
            at: get(row, 1)?,
            message,
        })
    })?;
    rows.collect()
}

/// The waits of a run, by node, attempt and token.
pub(super) fn waits(connection: &Connection, run: RunId) -> rusqlite::Result<Vec<WaitRecord>> {
    let mut statement = connection.prepare_cached(statements::WAITS)?;
    let rows = statement.query_map([key(&run)], |row| {
        Ok(WaitRecord {
            node: get(row, 0)?,
            attempt: row.get(1)?,
            token: row.get(2)?,
            open: row.get(3)?,
            payload: row.get(4)?,
            answered_by: row.get(5)?,
            answered_at: maybe(row, 6)?,
        })
    })?;
    rows.collect()
}
