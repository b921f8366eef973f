//! Reads of runs in memory: rows, pages, windows.

use super::{MemoryStore, State, runs::Entry};
use crate::{
    Result,
    reads::{
        EventRecord, LinkRecord, MAX_EXAMINED, MAX_QUEUE_DEPTH, Order, Page, QueueDepth, ReadStore, RunFilter, RunPage,
        RunPosition, RunRecord, Window,
    },
    runs::{Attempt, StoredMessage, WaitRecord},
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, Timestamp};
use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

#[async_trait]
impl ReadStore for MemoryStore {
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.with(|state| state.runs.get(&id).map(Entry::record))
    }

    async fn runs(&self, filter: RunFilter) -> Result<RunPage> {
        self.with(|state| state.list_runs(&filter))
    }

    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>> {
        self.with(|state| state.children_of(parent, after, limit))
    }

    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64)> {
        self.with(|state| state.actions(run, window))
    }

    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)> {
        self.with(|state| state.events(run, window))
    }

    async fn positions(&self, runs: &[RunId]) -> Result<Vec<RunPosition>> {
        self.with(|state| state.positions(runs))
    }

    async fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<EventRecord>> {
        self.with(|state| state.journal_after(run, after, limit))
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>> {
        self.with(|state| state.queue_depths(now))
    }

    async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64)> {
        self.with(|state| state.links_of(run, window))
    }
}

impl State {
    fn queue_depths(&self, now: Timestamp) -> Vec<QueueDepth> {
        let mut depths: BTreeMap<_, (u64, Timestamp)> = BTreeMap::new();
        let due = self.free.iter().take_while(|(at, _)| *at <= now);
        for (at, run) in due.take(MAX_QUEUE_DEPTH as usize) {
            if let Some(Entry { new, .. }) = self.runs.get(run) {
                let of = (&new.workflow_id, new.workflow_uid, &new.tenant);
                // They are in the order of their due times.
                depths.entry(of).or_insert((0, *at)).0 += 1;
            }
        }
        let depths = depths.into_iter();
        let depths = depths.map(|((workflow_id, workflow_uid, tenant), (runs, oldest))| QueueDepth {
            workflow_uid,
            workflow_id: workflow_id.clone(),
            tenant: tenant.clone(),
            runs,
            oldest,
        });
        depths.collect()
    }

    pub(super) fn list_runs(&self, filter: &RunFilter) -> RunPage {
        let from = filter.from.map_or(Bound::Unbounded, Bound::Included);
        let to = filter.before.map_or(Bound::Unbounded, Bound::Excluded);
        let empty = filter
            .from
            .zip(filter.before)
            .is_some_and(|(from, before)| from >= before);
        let range = if empty { None } else { Some((from, to)) };
        let workflow = match filter.workflows.as_slice() {
            [workflow] => Some(workflow),
            _ => None,
        };
        let ids: Box<dyn DoubleEndedIterator<Item = RunId>> = match (workflow, range) {
            (_, None) => Box::new(std::iter::empty()),
            (_, Some(range)) if filter.runner.is_some() => {
                let held = filter.runner.into_iter().flat_map(|runner| self.of_runner(runner));
                let mut held: Vec<RunId> = held.filter(|run| range.contains(run)).collect();
                held.sort_unstable();
                Box::new(held.into_iter())
            }
            (Some(workflow), Some(range)) => {
                let of_workflow = self.by_workflow.get(workflow).into_iter();
                Box::new(of_workflow.flat_map(move |ids| ids.range(range)).copied())
            }
            (None, Some(range)) => Box::new(self.runs.range(range).map(|(id, _)| *id)),
        };
        let ids: Box<dyn Iterator<Item = RunId>> = match filter.order {
            Order::NewestFirst => Box::new(ids.rev()),
            Order::OldestFirst => ids,
        };
        let mut page = RunPage {
            items: Vec::new(),
            next: None,
        };
        let mut last = None;
        let of_tenant = |id: &RunId| {
            let is_of = |entry: &Entry| filter.tenant.as_ref().is_none_or(|tenant| entry.new.tenant == *tenant);
            self.runs.get(id).is_some_and(is_of)
        };
        for (examined, id) in ids.filter(of_tenant).enumerate() {
            if examined == MAX_EXAMINED as usize {
                page.next = last;
                break;
            }
            last = Some(id);
            let record = self.runs.get(&id).map(Entry::record);
            let Some(fitting) = record.filter(|run| filter.fits(run) && self.is_labelled(run, filter)) else {
                continue;
            };
            if page.items.len() == filter.limit as usize {
                page.next = page.items.last().map(|run| run.id);
                break;
            }
            page.items.push(fitting.without_payloads());
        }
        page
    }

    /// Whether a run has the tags and fields of a filter.
    fn is_labelled(&self, run: &RunRecord, filter: &RunFilter) -> bool {
        let has_field = |(field, values): &(String, Vec<String>)| {
            let fields = self.runs.get(&run.id).into_iter().flat_map(|entry| &entry.new.fields);
            let mut fields = fields.filter(|own| own.field == *field);
            fields.any(|own| values.contains(&own.value))
        };
        let has_tag = filter.tags.is_empty() || self.has_tag(run.workflow_uid, run.workflow_version, &filter.tags);
        has_tag && filter.fields.iter().all(has_field)
    }

    pub(super) fn children_of(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Page<RunRecord> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.children.get(&parent).into_iter();
        let ids = ids.flat_map(|ids| ids.range((after, Bound::Unbounded)));
        let runs = ids.filter_map(|id| self.runs.get(id)).map(Entry::record);
        let runs = runs.map(RunRecord::without_payloads);
        Page::cut(runs.take(limit as usize + 1).collect(), limit)
    }

    pub(super) fn actions(&self, run: RunId, window: Window) -> (Vec<Attempt>, u64) {
        let Some(entry) = self.runs.get(&run) else {
            return (Vec::new(), 0);
        };
        let mut all: Vec<&Attempt> = entry.attempts.values().collect();
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

    fn positions(&self, runs: &[RunId]) -> Vec<RunPosition> {
        let position = |run: &RunId| {
            let entry = self.runs.get(run)?;
            Some(RunPosition {
                run: *run,
                seq: entry.journal.last().map_or(0, |row| row.seq),
                status: entry.record().status,
            })
        };
        runs.iter().filter_map(position).collect()
    }

    fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Vec<EventRecord> {
        let rows = self.runs.get(&run).into_iter().flat_map(|entry| &entry.journal);
        let rows = rows.filter(|row| row.seq > after);
        rows.take(limit as usize).cloned().collect()
    }

    pub(super) fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Vec<Attempt> {
        let Some(entry) = self.runs.get(&run) else {
            return Vec::new();
        };
        let mut last: Vec<Attempt> = Vec::new();
        for ((node, _), action) in &entry.attempts {
            if !nodes.is_empty() && !nodes.contains(node) {
                continue;
            }
            last.pop_if(|before| before.node == *node);
            last.push(action.clone());
        }
        last
    }

    pub(super) fn links_of(&self, run: RunId, window: Window) -> (Vec<LinkRecord>, u64) {
        let mut links = self.runs.get(&run).map(|entry| entry.links.clone()).unwrap_or_default();
        let name = |link: &LinkRecord| {
            (
                link.system.clone(),
                link.resource_type.clone(),
                link.resource_id.clone(),
            )
        };
        links.sort_by_cached_key(|link| (link.created_at, name(link)));
        let total = links.len() as u64;
        (cut(links.into_iter(), window).collect(), total)
    }

    pub(super) fn messages(&self, run: RunId, after: u64) -> Vec<StoredMessage> {
        let messages = self.runs.get(&run).into_iter().flat_map(|entry| &entry.messages);
        messages.filter(|message| message.seq > after).cloned().collect()
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
