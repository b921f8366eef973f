//! Bulk jobs. The row of a job is locked while it changes; due jobs are locked with `SKIP LOCKED`, so processes share them.

use super::{
    PostgresStore,
    columns::{get, maybe, plain, signed, text},
    definitions::{execute, row, rows},
    error::PgError,
    sessions::{commit, patiently},
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
use deadpool_postgres::{GenericClient, Object, Transaction};
use fermata_core::{RunId, Timestamp};
use tokio_postgres::Row;
use uuid::Uuid;

/// With the types of the parameters.
pub(super) const ADD_ITEMS: &str =
    "INSERT INTO bulk_items (job_id, run_id, state) SELECT $1::uuid, run, 'pending' FROM unnest($2::uuid[]) AS u (run)";

#[async_trait]
impl BulkStore for PostgresStore {
    async fn add_bulk(&self, job: BulkJob, runs: Vec<RunId>) -> Result<()> {
        patiently!(self.sessions, |session| add(&mut session, &job, &runs))
    }

    async fn change_bulk(&self, id: Uuid, to: BulkChange, at: Timestamp) -> Result<Option<BulkJob>> {
        patiently!(self.sessions, |session| change(&mut session, id, to, at))
    }

    async fn bulk(&self, id: Uuid) -> Result<Option<BulkJob>> {
        patiently!(self.sessions, |session| one(&session, JOB, id))
    }

    async fn bulks(&self, tenant: Option<&str>, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>> {
        patiently!(self.sessions, |session| jobs(&session, tenant, before, limit))
    }

    async fn bulk_items(
        &self,
        id: Uuid,
        state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>> {
        patiently!(self.sessions, |session| items(&session, id, state, after, limit))
    }

    async fn next_bulk(&self) -> Result<Option<Timestamp>> {
        patiently!(self.sessions, |session| next(&session))
    }

    async fn take_bulk(&self, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>> {
        patiently!(self.sessions, |session| take(&mut session, now, until))
    }

    async fn advance_bulk(&self, step: BulkStep) -> Result<Option<Vec<RunId>>> {
        patiently!(self.sessions, |session| advance(&mut session, &step))
    }

    async fn prune_bulks(&self, before: Timestamp, limit: u32) -> Result<u64> {
        patiently!(self.sessions, |session| prune(&mut session, before, limit))
    }
}

async fn add(session: &mut Object, job: &BulkJob, runs: &[RunId]) -> Result<(), PgError> {
    let tx = session.transaction().await?;
    // The answer to an earlier try may have been lost.
    if one(&tx, JOB, job.id).await?.is_some() {
        return Ok(());
    }
    let (retry, started, ended) = (
        job.retry_at.map(|at| at.0),
        job.started_at.map(|at| at.0),
        job.ended_at.map(|at| at.0),
    );
    execute(
        &tx,
        ADD_JOB,
        &[
            &job.id,
            &job.tenant,
            &job.action,
            &job.query,
            &job.caller,
            &job.state.as_str(),
            &signed(job.total),
            &signed(job.done),
            &signed(job.refused),
            &signed(job.failed),
            &signed(job.epoch),
            &retry,
            &job.created_at.0,
            &started,
            &ended,
        ],
    )
    .await?;
    let runs: Vec<Uuid> = runs.iter().map(|run| run.0).collect();
    execute(&tx, ADD_ITEMS, &[&job.id, &runs]).await?;
    commit(tx).await
}

async fn change(session: &mut Object, id: Uuid, change: BulkChange, at: Timestamp) -> Result<Option<BulkJob>, PgError> {
    let tx = session.transaction().await?;
    let Some(mut job) = locked(&tx, id).await? else {
        return Ok(None);
    };
    if job.change(change, at) {
        put(&tx, &job).await?;
        commit(tx).await?;
    }
    Ok(Some(job))
}

async fn jobs(
    client: &impl GenericClient,
    tenant: Option<&str>,
    before: Option<Uuid>,
    limit: u32,
) -> Result<Page<BulkJob>, PgError> {
    let (before, most) = (before.unwrap_or(Uuid::max()), i64::from(limit) + 1);
    let rows = match tenant {
        None => rows(client, JOBS, &[&before, &most]).await?,
        Some(tenant) => rows(client, JOBS_OF_TENANT, &[&before, &most, &tenant]).await?,
    };
    Ok(Page::cut(rows.iter().map(job_row).collect::<Result<_, _>>()?, limit))
}

async fn items(
    client: &impl GenericClient,
    id: Uuid,
    state: Option<ItemState>,
    after: Option<RunId>,
    limit: u32,
) -> Result<Page<BulkItem>, PgError> {
    let (after, most) = (after.map_or(Uuid::nil(), |run| run.0), i64::from(limit) + 1);
    let rows = match state {
        None => rows(client, ITEMS, &[&id, &after, &most]).await?,
        Some(state) => rows(client, ITEMS_IN_STATE, &[&id, &after, &most, &state.as_str()]).await?,
    };
    let item = |row: &Row| {
        Ok(BulkItem {
            run: get(row, 0)?,
            state: get(row, 1)?,
            code: plain(row, 2)?,
            message: plain(row, 3)?,
            created: maybe(row, 4)?,
        })
    };
    Ok(Page::cut(rows.iter().map(item).collect::<Result<_, PgError>>()?, limit))
}

async fn next(client: &impl GenericClient) -> Result<Option<Timestamp>, PgError> {
    let row = row(client, NEXT_JOB, &[]).await?;
    row.as_ref().map(|row| get(row, 0)).transpose()
}

async fn take(session: &mut Object, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>, PgError> {
    let tx = session.transaction().await?;
    let due = row(&tx, &format!("{DUE_JOB} FOR UPDATE SKIP LOCKED"), &[&now.0]).await?;
    let Some(mut job) = due.as_ref().map(job_row).transpose()? else {
        return Ok(None);
    };
    job.take(until);
    put(&tx, &job).await?;
    commit(tx).await?;
    Ok(Some(job))
}

async fn advance(session: &mut Object, step: &BulkStep) -> Result<Option<Vec<RunId>>, PgError> {
    let tx = session.transaction().await?;
    let Some(mut job) = locked(&tx, step.job).await?.filter(|job| job.is_held(step.epoch)) else {
        return Ok(None);
    };
    for item in &step.results {
        let (code, message) = (item.code.as_deref().map(text), item.message.as_deref().map(text));
        let created = item.created.map(|run| run.0);
        let (state, run) = (item.state.as_str(), item.run.0);
        let settled = execute(&tx, SETTLE, &[&step.job, &run, &state, &code, &message, &created]).await?;
        if settled > 0 {
            job.count(item.state);
        }
    }
    let found = rows(&tx, SLICE, &[&step.job, &i64::from(step.limit)]).await?;
    let slice = found.iter().map(|row| get(row, 0)).collect::<Result<Vec<RunId>, _>>()?;
    let continues = job.continues(&slice, step);
    put(&tx, &job).await?;
    commit(tx).await?;
    Ok(continues.then_some(slice))
}

async fn prune(session: &mut Object, before: Timestamp, limit: u32) -> Result<u64, PgError> {
    let tx = session.transaction().await?;
    let old = row(
        &tx,
        &format!("{OLD_JOB} FOR UPDATE SKIP LOCKED"),
        &[&first_id_at(before)],
    )
    .await?;
    let Some(mut job) = old.as_ref().map(job_row).transpose()? else {
        return Ok(0);
    };
    // It cannot be started without all its runs.
    if job.change(BulkChange::Cancel, before) {
        put(&tx, &job).await?;
    }
    let mut removed = execute(&tx, DELETE_ITEMS, &[&job.id, &i64::from(limit)]).await?;
    if removed < u64::from(limit) {
        removed += execute(&tx, DELETE_JOB, &[&job.id]).await?;
    }
    commit(tx).await?;
    Ok(removed)
}

async fn one(client: &impl GenericClient, sql: &str, id: Uuid) -> Result<Option<BulkJob>, PgError> {
    let row = row(client, sql, &[&id]).await?;
    row.as_ref().map(job_row).transpose()
}

async fn locked(tx: &Transaction<'_>, id: Uuid) -> Result<Option<BulkJob>, PgError> {
    one(tx, &format!("{JOB} FOR UPDATE"), id).await
}

async fn put(client: &impl GenericClient, job: &BulkJob) -> Result<(), PgError> {
    let (retry, started, ended) = (
        job.retry_at.map(|at| at.0),
        job.started_at.map(|at| at.0),
        job.ended_at.map(|at| at.0),
    );
    execute(
        client,
        PUT_JOB,
        &[
            &job.id,
            &job.state.as_str(),
            &signed(job.done),
            &signed(job.refused),
            &signed(job.failed),
            &signed(job.epoch),
            &retry,
            &started,
            &ended,
        ],
    )
    .await?;
    Ok(())
}

fn job_row(row: &Row) -> Result<BulkJob, PgError> {
    Ok(BulkJob {
        id: plain(row, 0)?,
        tenant: plain(row, 1)?,
        action: plain(row, 2)?,
        query: plain(row, 3)?,
        caller: plain(row, 4)?,
        state: get(row, 5)?,
        total: get(row, 6)?,
        done: get(row, 7)?,
        refused: get(row, 8)?,
        failed: get(row, 9)?,
        epoch: get(row, 10)?,
        retry_at: maybe(row, 11)?,
        created_at: get(row, 12)?,
        started_at: maybe(row, 13)?,
        ended_at: maybe(row, 14)?,
    })
}
