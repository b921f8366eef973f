//! Retention: finished runs, dead letters and rows of the audit trail are removed when their time is over.
//!
//! What must stay true:
//! * Each step is small and one transaction, so a crash between two steps loses nothing: the next pass starts at the oldest run.
//! * Pruning takes a small part of the database's time: after each step it rests nine times as long as the step took.
//! * Each process that works and has retention prunes. One is enough; several remove the same runs, which is harmless.

use crate::{
    engine::{Engine, Shared},
    error::{EngineError, Refusal},
};
use fermata_core::{RunId, Timestamp};
use fermata_store::{
    Store, StoreError, bulk,
    dead_letters::DeadLetterFilter,
    retention::{PruneBatch, Retention, RunDeletion},
    triggers::KEPT_FOR,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Runs that are removed in one transaction.
const BATCH: u32 = 200;
/// Dead letters that are read at once.
const DEAD_LETTERS: u32 = 100;
/// Rows of the audit trail that are removed in one transaction.
const AUDIT_ROWS: u32 = 500;
/// Deliveries and events that are removed in one transaction.
const DELIVERIES: u32 = 500;
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
    /// Rows of the audit trail.
    pub audit: u64,
    /// Deliveries of triggers, events, and rows of bulk jobs.
    pub deliveries: u64,
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
    removed.audit = prune_audit(store, retention, now, pace).await?;
    removed.deliveries = prune_triggers(store, now, pace).await?;
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

async fn prune_audit(store: &dyn Store, retention: &Retention, now: Timestamp, pace: Pace) -> Result<u64, StoreError> {
    let mut removed = 0;
    let (Some(before), false) = (retention.first_kept_audit_row(now), pace == Pace::DryRun) else {
        return Ok(0);
    };
    loop {
        let began = Instant::now();
        let now = store.prune_audit(before, AUDIT_ROWS).await?;
        removed += now;
        if now < u64::from(AUDIT_ROWS) {
            return Ok(removed);
        }
        pace.rest(began).await;
    }
}

/// Deliveries of triggers and events are always kept for [`KEPT_FOR`], and so are bulk jobs.
async fn prune_triggers(store: &dyn Store, now: Timestamp, pace: Pace) -> Result<u64, StoreError> {
    let mut removed = 0;
    if pace == Pace::DryRun {
        return Ok(0);
    }
    let before = Timestamp(now.0 - KEPT_FOR.as_micros() as i64);
    loop {
        let began = Instant::now();
        let now = store.prune_triggers(before, DELIVERIES).await?;
        removed += now;
        if now < u64::from(DELIVERIES) {
            break;
        }
        pace.rest(began).await;
    }
    let before = Timestamp(now.0 - bulk::KEPT_FOR.as_micros() as i64);
    loop {
        let began = Instant::now();
        let now = store.prune_bulks(before, DELIVERIES).await?;
        removed += now;
        if now == 0 {
            return Ok(removed);
        }
        pace.rest(began).await;
    }
}

/// Prunes again and again, if this process works. Never returns.
pub(crate) async fn run(shared: &Shared) {
    let retention = Arc::new(shared.settings.retention.clone());
    if !shared.settings.role.works() {
        return std::future::pending().await;
    }
    let (store, interval) = (shared.store.as_ref(), shared.settings.retention_interval);
    let mut pause = interval;
    loop {
        tokio::time::sleep(pause).await;
        let began = Instant::now();
        let pruned = match retention.keeps_all() {
            true => {
                let deliveries = prune_triggers(store, shared.clock.now(), Pace::Gentle).await;
                deliveries.map(|deliveries| Removed {
                    deliveries,
                    ..Removed::default()
                })
            }
            false => prune(store, &retention, shared.clock.now(), Pace::Gentle, u64::MAX).await,
        };
        match &pruned {
            Ok(removed) if *removed == Removed::default() => {}
            Ok(removed) => tracing::info!(
                runs = removed.runs,
                emptied = removed.emptied,
                dead_letters = removed.dead_letters,
                audit = removed.audit,
                deliveries = removed.deliveries,
                "finished runs were removed, as [retention] says"
            ),
            Err(error) => tracing::warn!(%error, "finished runs could not be removed; trying again later"),
        }
        pause = pause_after(interval, began.elapsed(), pruned.ok());
    }
}

/// The pause after a pass. A long walk over runs that are all kept is not repeated soon. A pass that removed something has
/// rested already: with a longer pause, pruning would fall behind.
fn pause_after(interval: Duration, took: Duration, removed: Option<Removed>) -> Duration {
    match removed == Some(Removed::default()) {
        true => interval.max(took * REST),
        false => interval,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pass_that_removed_nothing_is_followed_by_a_long_pause() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        let removed = Removed {
            runs: 1,
            ..Removed::default()
        };
        for (took, removed, expected) in [
            (hour, Some(removed), minute),
            (hour, None, minute),
            (hour, Some(Removed::default()), hour * REST),
            (Duration::ZERO, Some(Removed::default()), minute),
        ] {
            assert_eq!(pause_after(minute, took, removed), expected, "{took:?} {removed:?}");
        }
    }
}
