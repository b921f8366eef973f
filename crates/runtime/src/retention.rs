//! Retention: finished runs and dead letters are removed when their time is over.
//!
//! What must stay true:
//! * Each step is small and one transaction, so a crash between two steps loses nothing: the next pass starts at the oldest run.
//! * Pruning takes a small part of the database's time: after each step it rests nine times as long as the step took.
//! * One process is enough. The oldest runner prunes; if two believe that they are it, they remove the same runs.

use crate::{
    engine::{Engine, Shared},
    error::{EngineError, Refusal},
    settings::Role,
};
use fermata_core::{RunId, Timestamp};
use fermata_store::{
    Store, StoreError,
    dead_letters::DeadLetterFilter,
    retention::{PruneBatch, Retention, RunDeletion},
    runners::RunnerRecord,
};
use std::sync::Arc;
use tokio::time::Instant;

/// Runs that are removed in one transaction.
const BATCH: u32 = 200;
/// Dead letters that are read at once.
const DEAD_LETTERS: u32 = 100;
/// How long pruning rests for each unit of time that it worked.
const REST: u32 = 9;

/// What a pass removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    /// Runs, with all that belongs to them.
    pub runs: u64,
    /// Runs of which the row with the idempotency key is left.
    pub emptied: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// How a pass proceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// With rests, next to other work.
    Gentle,
    /// As fast as possible.
    Fast,
    /// Only count what would be removed.
    DryRun,
}

impl Pace {
    async fn rest(self, since: Instant) {
        if self == Pace::Gentle {
            tokio::time::sleep(since.elapsed() * REST).await;
        }
    }
}

/// Removes what is due at `now`, from the oldest run on, until about `most` runs were removed.
///
/// # Errors
/// If the store fails. What was removed until then stays removed.
pub async fn prune(
    store: &dyn Store,
    retention: &Arc<Retention>,
    now: Timestamp,
    pace: Pace,
    most: u64,
) -> Result<Removed, StoreError> {
    let mut removed = Removed::default();
    let mut after = None;
    loop {
        let began = Instant::now();
        let batch = PruneBatch {
            retention: retention.clone(),
            now,
            after,
            limit: BATCH,
            dry_run: pace == Pace::DryRun,
        };
        let pruned = store.prune(batch).await?;
        removed.runs += pruned.deleted;
        removed.emptied += pruned.emptied;
        after = pruned.next;
        if after.is_none() || removed.runs >= most {
            break;
        }
        pace.rest(began).await;
    }
    removed.dead_letters = prune_dead_letters(store, retention, now, pace).await?;
    if pace != Pace::DryRun && removed != Removed::default() {
        loop {
            let began = Instant::now();
            if !store.reclaim().await? {
                break;
            }
            pace.rest(began).await;
        }
    }
    Ok(removed)
}

/// Dead letters are few, so they are removed one by one.
async fn prune_dead_letters(
    store: &dyn Store,
    retention: &Retention,
    now: Timestamp,
    pace: Pace,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    let mut before = retention.first_kept_dead_letter(now);
    while before.is_some() {
        let began = Instant::now();
        let filter = DeadLetterFilter {
            before,
            limit: DEAD_LETTERS,
            ..DeadLetterFilter::default()
        };
        let page = store.dead_letters(filter).await?;
        before = page.items.last().filter(|_| page.more).map(|letter| letter.id);
        let is_due = |workflow: &str, at| retention.removes_dead_letter(workflow, at, now);
        for letter in page
            .items
            .iter()
            .filter(|letter| is_due(&letter.workflow_id, letter.at))
        {
            let is_gone = pace == Pace::DryRun || store.delete_dead_letter(letter.id).await?;
            removed += u64::from(is_gone);
        }
        pace.rest(began).await;
    }
    Ok(removed)
}

/// Prunes again and again, if this process is the one to do it. Never returns.
pub(crate) async fn run(shared: &Shared) {
    let retention = Arc::new(shared.settings.retention.clone());
    if retention.keeps_all() || !shared.settings.role.works() {
        return std::future::pending().await;
    }
    let mut pause = shared.settings.retention_interval;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        match pass(shared, &retention).await {
            Ok(removed) if removed == Removed::default() => {}
            Ok(removed) => tracing::info!(
                runs = removed.runs,
                emptied = removed.emptied,
                dead_letters = removed.dead_letters,
                "finished runs were removed, as [retention] says"
            ),
            Err(error) => tracing::warn!(%error, "finished runs could not be removed; trying again later"),
        }
        // A long walk over runs that are kept is not repeated soon.
        pause = shared.settings.retention_interval.max(began.elapsed() * REST);
    }
}

async fn pass(shared: &Shared, retention: &Arc<Retention>) -> Result<Removed, StoreError> {
    if !is_oldest_runner(shared).await? {
        return Ok(Removed::default());
    }
    prune(
        shared.store.as_ref(),
        retention,
        shared.clock.now(),
        Pace::Gentle,
        u64::MAX,
    )
    .await
}

/// Whether no other living process that works on runs has a smaller id. Ids are UUIDv7.
async fn is_oldest_runner(shared: &Shared) -> Result<bool, StoreError> {
    const PAGE: u32 = 100;
    let api = Role::Api.to_string();
    let alive_since = shared.clock.now().0 - shared.settings.lease_ttl.as_micros() as i64;
    let mut before = Some(shared.runner.id);
    loop {
        let page = shared.store.runners(before, PAGE).await?;
        let works = |record: &RunnerRecord| record.runner.role != api && record.heartbeat_at.0 >= alive_since;
        if page.items.iter().any(works) {
            return Ok(false);
        }
        before = page.items.last().map(|record| record.runner.id);
        if !page.more || before.is_none() {
            return Ok(true);
        }
    }
}

impl Engine {
    /// Removes a run that has ended, with its child runs and all that belongs to them.
    ///
    /// # Errors
    /// [`Refusal::RunNotFound`] or [`Refusal::RunNotFinished`].
    pub async fn delete_run(&self, run: RunId) -> Result<(), EngineError> {
        match self.shared.store.delete_run(run).await? {
            RunDeletion::Deleted => Ok(()),
            RunDeletion::NotFound => Err(Refusal::RunNotFound(run).into()),
            RunDeletion::Unfinished => Err(Refusal::RunNotFinished(run).into()),
        }
    }
}
