//! What is read of runs in memory: rows, pages, windows.

use super::{State, runs::Entry};
use crate::{
    reads::{ActionRecord, EventRecord, LinkRecord, Page, RunFilter, RunRecord, Window},
    runs::{Mail, WaitRecord},
};
use fermata_core::{NodeId, RunId};
use std::ops::Bound;

impl State {
    pub(super) fn list_runs(&self, filter: &RunFilter) -> Page<RunRecord> {
        let range = (
            Bound::Unbounded,
            filter.before.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let fits = |entry: &&Entry| {
            filter.status.is_none_or(|status| status == entry.status)
                && filter.tenant.as_ref().is_none_or(|tenant| *tenant == entry.new.tenant)
        };
        let limit = filter.limit as usize + 1;
        let items = match &filter.workflow_id {
            Some(workflow) => {
                let ids = self
                    .by_workflow
                    .get(workflow)
                    .into_iter()
                    .flat_map(|ids| ids.range(range).rev());
                let entries = ids.filter_map(|id| self.runs.get(id));
                entries.filter(fits).take(limit).map(Entry::record).collect()
            }
            None => {
                let entries = self.runs.range(range).rev().map(|(_, entry)| entry);
                entries.filter(fits).take(limit).map(Entry::record).collect()
            }
        };
        Page::cut(items, filter.limit)
    }

    pub(super) fn actions(&self, run: RunId, window: Window) -> (Vec<ActionRecord>, u64) {
        let Some(entry) = self.runs.get(&run) else {
            return (Vec::new(), 0);
        };
        let mut all: Vec<&ActionRecord> = entry.attempts.values().collect();
        all.sort_by_key(|action| action.ended_at);
        let total = all.len() as u64;
        (cut(all.into_iter(), window).cloned().collect(), total)
    }

    pub(super) fn events(&self, run: RunId, window: Window) -> (Vec<EventRecord>, u64) {
        let Some(entry) = self.runs.get(&run) else {
            return (Vec::new(), 0);
        };
        (
            cut(entry.journal.iter(), window).cloned().collect(),
            entry.journal.len() as u64,
        )
    }

    pub(super) fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Vec<ActionRecord> {
        let Some(entry) = self.runs.get(&run) else {
            return Vec::new();
        };
        let mut last: Vec<ActionRecord> = Vec::new();
        for ((node, _), action) in &entry.attempts {
            if !nodes.is_empty() && !nodes.contains(node) {
                continue;
            }
            last.pop_if(|before| before.node == *node);
            last.push(action.clone());
        }
        last
    }

    pub(super) fn links_of(&self, run: RunId) -> Vec<LinkRecord> {
        let mut links = self.runs.get(&run).map(|entry| entry.links.clone()).unwrap_or_default();
        let name = |link: &LinkRecord| {
            (
                link.system.clone(),
                link.resource_type.clone(),
                link.resource_id.clone(),
            )
        };
        links.sort_by_cached_key(|link| (link.created_at, name(link)));
        links
    }

    pub(super) fn inbox(&self, run: RunId, after: u64) -> Vec<Mail> {
        let mail = self.runs.get(&run).into_iter().flat_map(|entry| &entry.inbox);
        mail.filter(|mail| mail.seq > after).cloned().collect()
    }

    pub(super) fn waits(&self, run: RunId) -> Vec<WaitRecord> {
        let mut waits: Vec<WaitRecord> = self
            .runs
            .get(&run)
            .into_iter()
            .flat_map(|entry| &entry.waits)
            .map(|wait| wait.record.clone())
            .collect();
        waits.sort_by(|a, b| (&a.node, &a.token).cmp(&(&b.node, &b.token)));
        waits
    }
}

fn cut<I: Iterator>(items: I, window: Window) -> impl Iterator<Item = I::Item> {
    items.skip(window.offset as usize).take(window.limit as usize)
}
