//! Bulk jobs in memory.

use super::{MemoryStore, State};
use crate::{
    Result,
    bulk::{BulkChange, BulkItem, BulkJob, BulkState, BulkStep, BulkStore, ItemState},
    reads::Page,
    triggers::first_id_at,
};
use async_trait::async_trait;
use fermata_core::{RunId, Timestamp};
use std::{collections::BTreeMap, ops::Bound};
use uuid::Uuid;

/// A job with its runs.
pub(super) struct Entry {
    job: BulkJob,
    items: BTreeMap<RunId, BulkItem>,
}

impl Entry {
    fn slice(&self, limit: u32) -> Vec<RunId> {
        let pending = self.items.values().filter(|item| item.state == ItemState::Pending);
        pending.map(|item| item.run).take(limit as usize).collect()
    }
}

#[async_trait]
impl BulkStore for MemoryStore {
    async fn add_bulk(&self, job: BulkJob, runs: Vec<RunId>) -> Result<()> {
        let pending = |run: RunId| BulkItem {
            run,
            state: ItemState::Pending,
            code: None,
            message: None,
            created: None,
        };
        let items = runs.into_iter().map(|run| (run, pending(run))).collect();
        let entry = Entry { job, items };
        self.change(|state| drop(state.bulks.insert(entry.job.id, entry)), |()| true)
    }

    async fn change_bulk(&self, id: Uuid, change: BulkChange, at: Timestamp) -> Result<Option<BulkJob>> {
        let change = |state: &mut State| {
            let job = &mut state.bulks.get_mut(&id)?.job;
            let is_changed = job.change(change, at);
            Some((job.clone(), is_changed))
        };
        let changed = self.change(change, |changed| changed.as_ref().is_some_and(|(_, is)| *is))?;
        Ok(changed.map(|(job, _)| job))
    }

    async fn bulk(&self, id: Uuid) -> Result<Option<BulkJob>> {
        self.with(|state| state.bulks.get(&id).map(|entry| entry.job.clone()))
    }

    async fn bulks(&self, tenant: Option<&str>, before: Option<Uuid>, limit: u32) -> Result<Page<BulkJob>> {
        self.with(|state| {
            let older = state.bulks.range(..before.unwrap_or(Uuid::max())).rev();
            let jobs = older.map(|(_, entry)| &entry.job);
            let jobs = jobs.filter(|job| tenant.is_none_or(|tenant| job.tenant == tenant));
            Page::cut(jobs.take(limit as usize + 1).cloned().collect(), limit)
        })
    }

    async fn bulk_items(
        &self,
        id: Uuid,
        in_state: Option<ItemState>,
        after: Option<RunId>,
        limit: u32,
    ) -> Result<Page<BulkItem>> {
        self.with(|state| {
            let after = after.map_or(Bound::Unbounded, Bound::Excluded);
            let items = state.bulks.get(&id).into_iter();
            let items = items.flat_map(|entry| entry.items.range((after, Bound::Unbounded)));
            let items = items.map(|(_, item)| item);
            let items = items.filter(|item| in_state.is_none_or(|state| item.state == state));
            Page::cut(items.take(limit as usize + 1).cloned().collect(), limit)
        })
    }

    async fn next_bulk(&self) -> Result<Option<Timestamp>> {
        self.with(|state| state.bulks.values().filter_map(|entry| entry.job.retry_at).min())
    }

    async fn take_bulk(&self, now: Timestamp, until: Timestamp) -> Result<Option<BulkJob>> {
        self.with(|state| {
            let jobs = state.bulks.values_mut().map(|entry| &mut entry.job);
            let due = jobs.filter(|job| job.retry_at.is_some_and(|at| at <= now));
            let job = due.min_by_key(|job| job.retry_at)?;
            job.take(until);
            Some(job.clone())
        })
    }

    async fn advance_bulk(&self, step: BulkStep) -> Result<Option<Vec<RunId>>> {
        self.with(|state| {
            let entry = state.bulks.get_mut(&step.job)?;
            if !entry.job.is_held(step.epoch) {
                return None;
            }
            for result in &step.results {
                let item = entry.items.get_mut(&result.run);
                if let Some(item) = item.filter(|item| item.state == ItemState::Pending) {
                    item.clone_from(result);
                    entry.job.count(result.state);
                }
            }
            let slice = entry.slice(step.limit);
            entry.job.continues(&slice, &step).then_some(slice)
        })
    }

    async fn prune_bulks(&self, before: Timestamp, limit: u32) -> Result<u64> {
        self.with(|state| {
            let is_old = |entry: &&mut Entry| entry.job.retry_at.is_none();
            let mut older = state.bulks.range_mut(..first_id_at(before)).map(|(_, entry)| entry);
            let Some(entry) = older.find(is_old) else {
                return 0;
            };
            if entry.job.state == BulkState::Ready {
                entry.job.change(BulkChange::Cancel, before);
            }
            let mut removed = 0;
            while removed < u64::from(limit) && entry.items.pop_first().is_some() {
                removed += 1;
            }
            let id = entry.job.id;
            if removed < u64::from(limit) {
                state.bulks.remove(&id);
                removed += 1;
            }
            removed
        })
    }
}
