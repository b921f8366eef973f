//! Flow control in memory (see [`crate::flow`]).
//!
//! What must stay true: `waiting` contains exactly the runs with a key that they wait for; it changes in
//! [`State::set_flow`] and nowhere else.

use super::{MemoryStore, State};
use crate::{
    ChangeHint, Result,
    flow::{
        Admission, Admit, Flow, FlowStep, FlowStore, KEPT_REQUESTS_MS, MAX_AHEAD, RELEASED_AT_ONCE, RunFlow, Swept,
        paused_key, paused_workflow, places_of,
        rules::{self, Asked, Granted, KeyRow, KeyRows},
    },
    runs::{Enqueued, NewRun},
};
use async_trait::async_trait;
use fermata_core::{RunId, Status, Timestamp};
use std::{cmp::Reverse, ops::Bound};
use uuid::Uuid;

#[async_trait]
impl FlowStore for MemoryStore {
    async fn admit(&self, request: Admit) -> Result<Admission> {
        self.with(|state| state.admit(&request))
    }

    async fn wake_waiting(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.with(|state| state.wake_waiting(workflow, limit, now))
    }

    async fn ahead(&self, run: RunId) -> Result<Option<u32>> {
        self.with(|state| {
            let waiting = state.runs.get(&run)?.flow.as_ref()?.waiting.clone()?;
            let before = state.waiting_for(&waiting).take_while(|other| *other != run);
            u32::try_from(before.take(MAX_AHEAD as usize).count()).ok()
        })
    }

    async fn release_paused(&self, workflow: Uuid, limit: u32, now: Timestamp) -> Result<u32> {
        self.with(|state| state.release_waiting(workflow, limit, now))
    }

    async fn sweep_flow(&self, after: Option<String>, limit: u32, now: Timestamp) -> Result<Swept> {
        self.with(|state| state.sweep_flow(after.unwrap_or_default(), limit, now))
    }
}

impl State {
    /// What becomes of a new run with flow control: how it is stored, or the answer to its start.
    pub(super) fn enter(
        &mut self,
        new: &NewRun,
        flow: &Flow,
        paused: Option<String>,
    ) -> Result<(Granted, KeyRows), Enqueued> {
        let mut rows = self.key_rows(flow);
        match rules::ask(flow, new.id, None, !new.pinned, paused, new.created_at, &mut rows) {
            Asked::Stored(granted) => Ok((granted, rows)),
            Asked::Full => Err(Enqueued::Full),
            Asked::Existing(owner) => Err(self.answered_with(new, owner)),
            Asked::Merge { run, wake_at } => {
                self.merge(run, new, wake_at);
                Err(self.answered_with(new, run))
            }
        }
    }

    /// Another run answers this start; its requestId is kept.
    fn answered_with(&mut self, new: &NewRun, run: RunId) -> Enqueued {
        let request = (new.tenant.clone(), new.request_id.clone());
        self.merged_requests.entry(request).or_insert((run, new.created_at));
        let status = self.runs.get(&run).map_or(Status::Pending, |entry| entry.status);
        Enqueued::Existing { run, status }
    }

    fn merge(&mut self, run: RunId, source: &NewRun, wake_at: Timestamp) {
        if let Some(entry) = self.runs.get_mut(&run) {
            let NewRun {
                trigger, spec, request, ..
            } = source.clone();
            (entry.new.trigger, entry.new.spec, entry.new.request) = (trigger, spec, request);
            self.place(run, None, Some(wake_at));
            self.hints.push(ChangeHint::Due(wake_at));
        }
    }

    /// The rows of the keys of a run. A debounce key whose run has begun has no owner.
    fn key_rows(&self, flow: &Flow) -> KeyRows {
        let mut rows = KeyRows::new();
        for name in flow.keys() {
            if let Some(row) = self.key_row(name) {
                rows.insert(name.to_owned(), row);
            }
        }
        if let Some(debounce) = &flow.debounce
            && let Some(row) = rows.get_mut(&debounce.key.key)
        {
            let pending = row.run.and_then(|run| self.runs.get(&run)).filter(|entry| {
                let step = entry.flow.as_ref().map(|flow| flow.step);
                let is_free = entry.status == Status::Pending && entry.lease_owner.is_none();
                is_free && step == Some(FlowStep::Debounce) && entry.message_seq == entry.messages_seen
            });
            if pending.is_none() {
                (row.run, row.begin) = (None, None);
            }
        }
        rows
    }

    fn key_row(&self, name: &str) -> Option<KeyRow> {
        let mut row = self.flow_keys.get(name)?.clone();
        row.has_waiters = self.waiting_for(name).next().is_some();
        Some(row)
    }

    /// The runs that wait for a key, first come first.
    fn waiting_for(&self, name: &str) -> impl Iterator<Item = RunId> {
        let from = (name.to_owned(), Reverse(i32::MAX), RunId(Uuid::nil()));
        let name = name.to_owned();
        let rows = self.waiting.range(from..);
        rows.take_while(move |(key, ..)| *key == name).map(|(.., run)| *run)
    }

    /// Writes rows of keys, and hands over places that are free while runs wait. Returns how many.
    pub(super) fn put_keys(&mut self, rows: KeyRows, at: Timestamp) -> u32 {
        let mut handed = 0;
        for (name, mut row) in rows {
            for _ in 0..row.spare() {
                let Some(first) = self.waiting_for(&name).next() else {
                    break;
                };
                let Some(entry) = self.runs.get(&first) else {
                    break;
                };
                let (owner, wake_at) = (entry.lease_owner, entry.wake_at.map_or(at, |wake_at| wake_at.min(at)));
                let flow = entry.flow.clone().map(|mut flow| {
                    (flow.waiting, flow.held) = (None, flow.held + 1);
                    flow
                });
                self.set_flow(first, flow);
                self.place(first, owner, Some(wake_at));
                self.hints.push(ChangeHint::Due(at));
                (row.held, handed) = (row.held + 1, handed + 1);
            }
            row.has_waiters = false;
            match row.is_free() {
                true => self.flow_keys.remove(&name),
                false => self.flow_keys.insert(name, row),
            };
        }
        handed
    }

    /// Sets the flow control of a run, and keeps the index of waiting runs in step.
    pub(super) fn set_flow(&mut self, run: RunId, flow: Option<Box<RunFlow>>) {
        let Some(entry) = self.runs.get_mut(&run) else {
            return;
        };
        let priority = Reverse(entry.new.priority.unwrap_or(0));
        let was = std::mem::replace(&mut entry.flow, flow);
        if let Some(key) = was.and_then(|flow| flow.waiting) {
            self.waiting.remove(&(key, priority, run));
        }
        if let Some(key) = entry.flow.as_ref().and_then(|flow| flow.waiting.clone()) {
            self.waiting.insert((key, priority, run));
        }
    }

    /// A run has ended: its places go to runs that wait, or are freed, and its keys are free.
    pub(super) fn end_flow(&mut self, run: RunId, at: Timestamp) {
        let Some(stored) = self.runs.get(&run).and_then(|entry| entry.flow.clone()) else {
            return;
        };
        self.set_flow(run, None);
        for name in rules::freed(&stored) {
            if let Some(mut row) = self.key_row(name) {
                row.held = row.held.saturating_sub(1);
                self.put_keys(KeyRows::from([(name.to_owned(), row)]), at);
            }
        }
        for name in stored.flow.owned() {
            if let Some(mut row) = self.key_row(name).filter(|row| row.run == Some(run)) {
                (row.run, row.begin) = (None, None);
                self.put_keys(KeyRows::from([(name.to_owned(), row)]), at);
            }
        }
    }

    fn admit(&mut self, request: &Admit) -> Admission {
        let run = request.run;
        let Some(entry) = self.runs.get(&run) else {
            return Admission::Fenced;
        };
        let holds = entry.lease_owner == Some(request.runner) && entry.epoch == request.epoch;
        if !holds || entry.status != Status::Pending {
            return Admission::Fenced;
        }
        let stored = entry.flow.clone();
        let flow = request.in_force(stored.as_deref());
        let mut rows = self.key_rows(&flow);
        let paused = self.is_paused(request.workflow).then(|| paused_key(request.workflow));
        let before = stored.as_deref().map(|stored| (stored, entry.wake_at));
        match rules::ask(&flow, run, before, false, paused, request.at, &mut rows) {
            Asked::Full => Admission::Full,
            Asked::Existing(into) => Admission::Merged { into },
            Asked::Merge { run: into, wake_at } => {
                let source = entry.new.clone();
                self.merge(into, &source, wake_at);
                Admission::Merged { into }
            }
            Asked::Stored(granted) => {
                let begins = granted.begins();
                let wake_at = granted.wake_at(request.at);
                self.set_flow(run, Some(Box::new(granted.of(flow))));
                if !begins {
                    if let Some(entry) = self.runs.get_mut(&run) {
                        entry.takeovers = 0;
                    }
                    self.place(run, None, wake_at);
                    self.hints.extend(wake_at.map(ChangeHint::Due));
                }
                self.put_keys(rows, request.at);
                match begins {
                    true => Admission::Admitted,
                    false => Admission::Waits,
                }
            }
        }
    }

    fn is_paused(&self, workflow: Uuid) -> bool {
        self.live(workflow).is_some_and(|entry| entry.row.paused_at.is_some())
    }

    /// Makes runs due that wait for the resume of a workflow that is not paused.
    fn release_waiting(&mut self, workflow: Uuid, limit: u32, now: Timestamp) -> u32 {
        if self.is_paused(workflow) {
            return 0;
        }
        let waiting: Vec<RunId> = self.waiting_for(&paused_key(workflow)).take(limit as usize).collect();
        for run in waiting.iter().copied() {
            let Some(entry) = self.runs.get(&run) else { continue };
            let (owner, wake_at) = (entry.lease_owner, entry.wake_at.map_or(now, |wake_at| wake_at.min(now)));
            let flow = entry.flow.clone().map(|mut flow| {
                flow.waiting = None;
                flow
            });
            self.set_flow(run, flow);
            self.place(run, owner, Some(wake_at));
        }
        if !waiting.is_empty() {
            self.hints.push(ChangeHint::Due(now));
        }
        u32::try_from(waiting.len()).unwrap_or(u32::MAX)
    }

    fn wake_waiting(&mut self, workflow: Uuid, limit: u32, now: Timestamp) -> u32 {
        let all = self.waiting.iter().map(|(.., run)| *run);
        let asleep = all.filter(|run| {
            let entry = self.runs.get(run);
            entry.is_some_and(|entry| entry.new.workflow_uid == workflow && entry.wake_at.is_none())
        });
        let woken: Vec<RunId> = asleep.take(limit as usize).collect();
        for run in &woken {
            self.place(*run, None, Some(now));
            self.hints.push(ChangeHint::Due(now));
        }
        woken.len() as u32
    }

    /// Gives the keys of a workflow the limit of this plan, which is current now. The sweep hands over places that are free then.
    pub(super) fn set_limit(&mut self, workflow: Uuid, version: u32, plan: &str) {
        let limit = rules::limit_of(plan);
        for (_, row) in self.flow_keys.range_mut::<String, _>(between(&places_of(workflow))) {
            (row.most, row.version) = (limit, version);
        }
    }

    fn sweep_flow(&mut self, mut after: String, limit: u32, now: Timestamp) -> Swept {
        self.flow_keys
            .retain(|_, row| row.expires_at.is_none_or(|expires_at| expires_at > now));
        let kept_since = Timestamp(now.0.saturating_sub(KEPT_REQUESTS_MS as i64 * 1000));
        self.merged_requests.retain(|_, (_, at)| *at > kept_since);
        let mut handed = 0;
        for _ in 0..limit {
            let last = (after.clone(), Reverse(i32::MIN), RunId(Uuid::max()));
            let mut rest = self.waiting.range((Bound::Excluded(last), Bound::Unbounded));
            let Some(name) = rest.next().map(|(key, ..)| key.clone()) else {
                return Swept { next: None, handed };
            };
            if let Some(workflow) = paused_workflow(&name) {
                handed += self.release_waiting(workflow, RELEASED_AT_ONCE, now);
                after = name;
                continue;
            }
            let row = self.key_row(&name).unwrap_or(KeyRow {
                most: 1,
                has_waiters: true,
                ..KeyRow::default()
            });
            if row.spare() > 0 {
                handed += self.put_keys(KeyRows::from([(name.clone(), row)]), now);
            }
            after = name;
        }
        let next = Some(after);
        Swept { next, handed }
    }
}

fn between((first, last): &(String, String)) -> (Bound<&String>, Bound<&String>) {
    (Bound::Excluded(first), Bound::Excluded(last))
}
