//! Bulk jobs.

use super::{
    SqliteStore,
    columns::{count, get, key, maybe, run_id, uid_key},
    writer::Tx,
};
use crate::{
    Result,
    bulk::{
        ADD_JOB, BulkChange, BulkItem, BulkJob, BulkStep, BulkStore, DELETE_ITEMS, DELETE_JOB, DUE_JOB, ITEMS,
        ITEMS_IN_STATE, ItemState, JOB, JOBS, JOBS_OF_TENANT, NEXT_JOB, OLD_JOB, PUT_JOB, SETTLE, SLICE,
    },
    reads::Page,
    triggers::first_id_at,
};
use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

const ADD_ITEM: &str = "INSERT INTO bulk_items (job_id, run_id, state) VALUES (?1, ?2, 'pending')";

#[async_trait]
impl BulkStore for SqliteStore {
    async fn add_bulk(&self, job: BulkJob, mut runs: Vec<RunId>) -> Result<()> {
        runs.sort_unstable();
        let add = move |tx: &mut Tx<'_>| {
            tx.connection.prepare_cached(ADD_JOB)?.execute(params![
                uid_key(&job.id),
                job.tenant,
                job.action,
                job.query,
                job.caller,
                job.state.as_str(),
                job.total as i64,
                job.done as i64,
                job.refused as i64,
                job.failed as i64,
                job.epoch as i64,
                job.retry_at.map(|at| at.0),
                job.created_at.0,
                job.started_at.map(|at| at.0),
                job.ended_at.map(|at| at.0),
            ])?;
            let mut statement = tx.connection.prepare_cached(ADD_ITEM)?;
            for run in &runs {
                statement.execute(params![uid_key(&job.id), key(run)])?;
            }
            Ok(())
        };
        self.writer.write(add).await
    }

    async fn change_bulk(&self, id: Uuid, change: BulkChange, at: Timestamp) -> Result<Option<BulkJob>> {
        let change = move |tx: &mut Tx<'_>| {
            let Some(mut job) = one(tx.connection, id)? else {
                return Ok(None);
            };
            if job.change(change, at) {
                put(tx, &job)?;
            }
            Ok(Some(job))
        };
        self.writer.write(change).await
    }

    async fn bulk(&self, id: Uuid) -> Result<Option<BulkJob>> {
        self.readers.read(move |connection| one(connection, id)).await
    }

    async fn bulks(&self, tenant: Option<&str>, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>> {
        let (tenant, before) = (tenant.map(str::to_owned), before.unwrap_or(Uuid::max()));
        let list = move |connection: &Connection| {
            let most = i64::from(limit) + 1;
            let rows: rusqlite::Result<Vec<BulkJob>> = match &tenant {
                None => {
                    let mut statement = connection.prepare_cached(JOBS)?;
                    statement.query_map(params![uid_key(&before), most], job_row)?.collect()
                }
                Some(tenant) => {
                    let mut statement = connection.prepare_cached(JOBS_OF_TENANT)?;
                    let rows = statement.query_map(params![uid_key(&before), most, tenant], job_row)?;
                    rows.collect()
                }
            };
            Ok(Page::cut(rows?, limit))
        };
        self.readers.read(list).await
    }

    async fn bulk_items(
        &self,
        id: Uuid,
        state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>> {
        let list = move |connection: &Connection| {
            let after = after.map_or(Vec::new(), |after| key(&after).to_vec());
            let most = i64::from(limit) + 1;
            let rows: rusqlite::Result<Vec<BulkItem>> = match state {
                None => {
                    let mut statement = connection.prepare_cached(ITEMS)?;
                    statement
                        .query_map(params![uid_key(&id), after, most], item_row)?
                        .collect()
                }
                Some(state) => {
                    let mut statement = connection.prepare_cached(ITEMS_IN_STATE)?;
                    let rows = statement.query_map(params![uid_key(&id), after, most, state.as_str()], item_row)?;
                    rows.collect()
                }
            };
            Ok(Page::cut(rows?, limit))
        };
        self.readers.read(list).await
    }

    async fn next_bulk(&self) -> Result<Option<Timestamp>> {
        let next = |connection: &Connection| {
            let mut statement = connection.prepare_cached(NEXT_JOB)?;
            statement.query_row([], |row| row.get(0).map(Timestamp)).optional()
        };
        self.readers.read(next).await
    }

    async fn take_bulk(&self, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>> {
        let take = move |tx: &mut Tx<'_>| {
            let Some(mut job) = tx.query_row(DUE_JOB, [now.0], job_row)? else {
                return Ok(None);
            };
            job.take(until);
            put(tx, &job)?;
            Ok(Some(job))
        };
        self.writer.write(take).await
    }

    async fn advance_bulk(&self, step: BulkStep) -> Result<Option<Vec<RunId>>> {
        self.writer.write(move |tx| advance(tx, &step)).await
    }

    async fn prune_bulks(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let prune = move |tx: &mut Tx<'_>| {
            let Some(mut job) = tx.query_row(OLD_JOB, [uid_key(&first_id_at(before))], job_row)? else {
                return Ok(0);
            };
            // It cannot be started without all its runs.
            if job.change(BulkChange::Cancel, before) {
                put(tx, &job)?;
            }
            let removed = tx.execute(DELETE_ITEMS, params![uid_key(&job.id), limit])? as u64;
            match removed < u64::from(limit) {
                true => Ok(removed + tx.execute(DELETE_JOB, [uid_key(&job.id)])? as u64),
                false => Ok(removed),
            }
        };
        self.writer.write(prune).await
    }
}

fn advance(tx: &mut Tx<'_>, step: &BulkStep) -> rusqlite::Result<Option<Vec<RunId>>> {
    let Some(mut job) = one(tx.connection, step.job)?.filter(|job| job.is_held(step.epoch)) else {
        return Ok(None);
    };
    for item in &step.results {
        let settled = tx.execute(
            SETTLE,
            params![
                uid_key(&step.job),
                key(&item.run),
                item.state.as_str(),
                item.code,
                item.message,
                item.created.as_ref().map(key),
            ],
        )?;
        if settled > 0 {
            job.count(item.state);
        }
    }
    let slice: Vec<RunId> = {
        let mut statement = tx.connection.prepare_cached(SLICE)?;
        let rows = statement.query_map(params![uid_key(&step.job), step.limit], |row| run_id(row, 0))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    let continues = job.continues(&slice, step);
    put(tx, &job)?;
    Ok(continues.then_some(slice))
}

fn one(connection: &Connection, id: Uuid) -> rusqlite::Result<Option<BulkJob>> {
    let mut statement = connection.prepare_cached(JOB)?;
    statement.query_row([uid_key(&id)], job_row).optional()
}

fn put(tx: &mut Tx<'_>, job: &BulkJob) -> rusqlite::Result<()> {
    tx.execute(
        PUT_JOB,
        params![
            uid_key(&job.id),
            job.state.as_str(),
            job.done as i64,
            job.refused as i64,
            job.failed as i64,
            job.epoch as i64,
            job.retry_at.map(|at| at.0),
            job.started_at.map(|at| at.0),
            job.ended_at.map(|at| at.0),
        ],
    )?;
    Ok(())
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<BulkJob> {
    Ok(BulkJob {
        id: get(row, 0)?,
        tenant: row.get(1)?,
        action: row.get(2)?,
        query: row.get(3)?,
        caller: row.get(4)?,
        state: get(row, 5)?,
        total: count(row, 6)?,
        done: count(row, 7)?,
        refused: count(row, 8)?,
        failed: count(row, 9)?,
        epoch: count(row, 10)?,
        retry_at: maybe(row, 11)?,
        created_at: get(row, 12)?,
        started_at: maybe(row, 13)?,
        ended_at: maybe(row, 14)?,
    })
}

fn item_row(row: &Row<'_>) -> rusqlite::Result<BulkItem> {
    Ok(BulkItem {
        run: run_id(row, 0)?,
        state: get(row, 1)?,
        code: row.get(2)?,
        message: row.get(3)?,
        created: maybe::<Uuid>(row, 4)?.map(RunId),
    })
}
