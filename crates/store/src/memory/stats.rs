//! Numbers of runs.

use super::{MemoryStore, State};
use crate::{
    Result,
    stats::{Stats, StatsFilter, StatsPart, StatsRow, StatsStore},
};
use async_trait::async_trait;
use std::{cmp::Reverse, collections::BTreeMap};

#[async_trait]
impl StatsStore for MemoryStore {
    async fn write_stats(&self, rows: Vec<StatsRow>) -> Result<()> {
        self.with(|state| {
            for row in rows {
                let key = (row.minute, row.runner, row.workflow_uid, row.tenant.clone());
                state.stats.insert(key, row);
            }
        })
    }

    async fn stats(&self, filter: &StatsFilter) -> Result<Stats> {
        self.with(|state| state.sum_up(filter))
    }

    async fn prune_stats(&self, before: i64) -> Result<u64> {
        self.with(|state| {
            let count = state.stats.len();
            state.stats.retain(|(minute, ..), _| *minute >= before);
            (count - state.stats.len()) as u64
        })
    }
}

impl State {
    fn sum_up(&self, filter: &StatsFilter) -> Stats {
        let rows = self.stats.values().filter(|row| {
            (filter.from..filter.until).contains(&row.minute)
                && filter.tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant)
                && filter.workflow_uid.is_none_or(|uid| uid == row.workflow_uid)
        });
        let mut stats = Stats::default();
        let mut workflows = BTreeMap::new();
        let mut parts: BTreeMap<i64, StatsPart> = BTreeMap::new();
        let mut queues = BTreeMap::new();
        let step = i64::from(filter.step.max(1));
        for row in rows {
            stats.all.add(&row.counts);
            let (name, counts): &mut (String, crate::stats::RunCounts) = workflows.entry(row.workflow_uid).or_default();
            if *name < row.workflow_id {
                name.clone_from(&row.workflow_id);
            }
            counts.add(&row.counts);
            let minute = row.minute / step * step;
            let part = parts.entry(minute).or_default();
            part.minute = minute;
            part.counts.add(&row.counts);
            let queue: &mut u64 = queues.entry((row.minute, row.workflow_uid, &row.tenant)).or_default();
            *queue = (*queue).max(row.waiting.unwrap_or(0));
        }
        let mut minutes: BTreeMap<i64, u64> = BTreeMap::new();
        for ((minute, ..), waiting) in queues {
            *minutes.entry(minute).or_default() += waiting;
        }
        for (minute, waiting) in minutes {
            let part = parts.entry(minute / step * step).or_default();
            part.waiting = part.waiting.max(waiting);
        }
        stats.workflows = workflows
            .into_iter()
            .map(|(uid, (name, counts))| (uid, name, counts))
            .collect();
        stats
            .workflows
            .sort_by_key(|(uid, _, counts)| (Reverse(counts.ended()), *uid));
        stats.workflows.truncate(filter.limit as usize);
        stats.series = parts.into_values().collect();
        stats
    }
}
