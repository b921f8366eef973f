//! Runners in memory.

use super::{MemoryStore, State};
use crate::{
    ChangeHint, Result,
    reads::Page,
    runners::{FORGOTTEN_AFTER, Lease, Runner, RunnerRecord, RunnerStore},
};
use async_trait::async_trait;
use fermata_core::{RunId, RunnerId, Timestamp};
use uuid::Uuid;

#[async_trait]
impl RunnerStore for MemoryStore {
    async fn heartbeat(&self, runner: &Runner, at: Timestamp) -> Result<()> {
        self.with(|state| state.heartbeat(runner, at))
    }

    async fn retire(&self, runner: RunnerId) -> Result<()> {
        self.with(|state| {
            state.runners.remove(&runner);
            state.hints.push(ChangeHint::Due(Timestamp::default()));
        })
    }

    async fn runners(&self, before: Option<RunnerId>, limit: u32) -> Result<Page<RunnerRecord>> {
        self.with(|state| state.list_runners(before, limit))
    }

    async fn runs_with_messages(&self, runner: RunnerId) -> Result<Vec<RunId>> {
        self.with(|state| state.runs_with_messages(runner))
    }

    async fn held(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Result<Vec<Lease>> {
        self.with(|state| state.held_by(runner, after, limit))
    }
}

impl State {
    pub(super) fn heartbeat(&mut self, runner: &Runner, at: Timestamp) {
        let beat = (runner.clone(), at);
        let (known, last_beat) = self.runners.entry(runner.id).or_insert(beat);
        (known.role, *last_beat) = (runner.role.clone(), at);
        let long_ago = Timestamp(at.0.saturating_sub(FORGOTTEN_AFTER));
        let silent = self.runners.iter().filter(|(_, (_, last_beat))| *last_beat < long_ago);
        let gone: Vec<RunnerId> = silent
            .map(|(id, _)| *id)
            .filter(|id| self.count_held(*id) == 0)
            .collect();
        for id in gone {
            self.runners.remove(&id);
        }
    }

    pub(super) fn list_runners(&self, before: Option<RunnerId>, limit: u32) -> Page<RunnerRecord> {
        let all = self.runners.iter().rev();
        let older = all.filter(|(id, _)| before.is_none_or(|before| **id < before));
        let records = older.map(|(id, (runner, heartbeat_at))| RunnerRecord {
            runner: runner.clone(),
            heartbeat_at: *heartbeat_at,
            held: self.count_held(*id) as u64,
        });
        Page::cut(records.take(limit as usize + 1).collect(), limit)
    }

    pub(super) fn runs_with_messages(&self, runner: RunnerId) -> Vec<RunId> {
        let has_messages = |id: &RunId| {
            self.runs
                .get(id)
                .is_some_and(|entry| entry.message_seq > entry.messages_seen)
        };
        self.of_runner(runner).filter(has_messages).collect()
    }

    pub(super) fn held_by(&self, runner: RunnerId, after: Option<RunId>, limit: u32) -> Vec<Lease> {
        let mut ids: Vec<RunId> = self.of_runner(runner).filter(|id| Some(*id) > after).collect();
        ids.sort_unstable();
        let leases = ids.into_iter().filter_map(|run| {
            let epoch = self.runs.get(&run)?.epoch;
            Some(Lease { run, epoch })
        });
        leases.take(limit as usize).collect()
    }

    fn count_held(&self, runner: RunnerId) -> usize {
        self.of_runner(runner).count()
    }

    /// The runs that a runner holds.
    pub(super) fn of_runner(&self, runner: RunnerId) -> impl Iterator<Item = RunId> {
        let first = (runner, Timestamp(i64::MIN), RunId(Uuid::nil()));
        let last = (runner, Timestamp(i64::MAX), RunId(Uuid::max()));
        self.held.range(first..=last).map(|(.., run)| *run)
    }
}
