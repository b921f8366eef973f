//! Flow control of the members of a batch: what asking runs get, and what ended runs free (see [`crate::flow`]).
//!
//! What must stay true: a member that gets nothing changes no row. Places that members free are given to waiting runs by the
//! last statement, so a run that asks in the same batch does not take one before them.

use super::Deciding;
use crate::{
    flow::{
        Admission, Admit, Flow, RunFlow,
        rules::{self, Asked, Granted, KeyRows},
    },
    postgres::{
        columns::small,
        facts::RunRow,
        rows::{FlowColumns, Merge, RunUpdate},
    },
    rules::is_held_by,
    runs::NewRun,
};
use fermata_core::{RunId, Status, Timestamp};

impl<'a> Deciding<'a, '_> {
    /// Asks for a run, and adds the rows of its keys if it is stored.
    pub(super) fn ask(
        &mut self,
        flow: &Flow,
        run: RunId,
        stored: Option<(&RunFlow, Option<Timestamp>)>,
        is_current: bool,
        paused: Option<String>,
        at: Timestamp,
    ) -> Asked {
        let mut rows: KeyRows = KeyRows::new();
        for name in flow.keys() {
            let row = self.keys.get(name).or_else(|| self.facts.keys.get(name)).cloned();
            rows.insert(name.to_owned(), row.unwrap_or_default());
        }
        let asked = rules::ask(flow, run, stored, is_current, paused, at, &mut rows);
        let Asked::Stored(granted) = &asked else {
            return asked;
        };
        let held_before = stored.map_or(0, |(stored, _)| stored.held);
        for (at, place) in flow.places.iter().enumerate() {
            let Some(row) = rows.get(&place.key.key) else { continue };
            let is_new = (held_before..granted.held).contains(&(at as u32));
            let (most, version) = (small(row.most), small(row.version));
            // A run whose workflow is paused frees its places.
            if (granted.held..held_before).contains(&(at as u32)) {
                *self.writes.freed_places.entry(place.key.key.clone()).or_default() += 1;
                continue;
            }
            let taker = is_new.then_some(run.0);
            self.writes
                .taken_places
                .push((place.key.key.clone(), taker, most, version));
            if row.spare() > 0 {
                self.writes.freed_places.entry(place.key.key.clone()).or_default();
            }
        }
        let rate = flow.rate.iter().map(|rate| rate.key.key.as_str());
        for name in flow.owned().chain(rate) {
            if let Some(row) = rows.get(name) {
                self.writes.put_keys.insert(name.to_owned(), row.clone());
            }
        }
        self.writes.handed_at = self.writes.handed_at.max(at);
        self.keys.extend(rows);
        asked
    }

    /// After the last member: the limits of keys are those that the last one saw, and rows that were created for members that did
    /// not need them are deleted.
    pub(super) fn settle_keys(&mut self) {
        for (key, _, most, version) in &mut self.writes.taken_places {
            if let Some(row) = self.keys.get(key) {
                (*most, *version) = (small(row.most), small(row.version));
            }
        }
        self.writes.touched_keys.extend(self.facts.keys.keys().cloned());
    }

    /// A new run with flow control: its columns, or `Err` with the run that answers it (`None`: it is refused).
    pub(super) fn enter(
        &mut self,
        run: &'a NewRun,
        flow: &Flow,
        paused: Option<String>,
    ) -> Result<(Granted, FlowColumns), Option<RunId>> {
        match self.ask(flow, run.id, None, !run.pinned, paused, run.created_at) {
            Asked::Stored(granted) => {
                let columns = FlowColumns::of(&granted.clone().of(flow.clone()));
                Ok((granted, columns))
            }
            Asked::Full => Err(None),
            Asked::Existing(owner) => {
                self.writes.kept_requests.push((run, owner));
                Err(Some(owner))
            }
            Asked::Merge { run: into, wake_at } => {
                self.writes.notifications.due(wake_at);
                let member = self.member;
                self.writes.merges.push(Merge {
                    member,
                    into,
                    start: Some(run),
                    source: None,
                    wake_at,
                });
                Err(Some(into))
            }
        }
    }

    pub(super) fn status_of_owner(&self, run: RunId) -> Status {
        self.facts.owner_statuses.get(&run).copied().unwrap_or(Status::Pending)
    }

    pub(super) fn admit(&mut self, request: &'a Admit) -> Admission {
        let run = request.run;
        let row = self.facts.runs.get(&run).filter(|row| {
            let facts = &row.facts;
            is_held_by(facts, request.runner, request.epoch) && facts.status == Status::Pending
        });
        let Some(row) = row else {
            return Admission::Fenced;
        };
        let flow = &request.in_force(row.flow.as_deref());
        let before = row.flow.as_deref().map(|stored| (stored, row.wake_at.map(Timestamp)));
        let workflow = self.facts.workflows.get(&request.workflow).and_then(Option::as_ref);
        let paused = workflow.and_then(|workflow| workflow.pause_key(request.workflow));
        match self.ask(flow, run, before, false, paused, request.at) {
            Asked::Full => Admission::Full,
            Asked::Existing(into) => Admission::Merged { into },
            Asked::Merge { run: into, wake_at } => {
                self.writes.notifications.due(wake_at);
                let member = self.member;
                self.writes.merges.push(Merge {
                    member,
                    into,
                    start: None,
                    source: Some(run),
                    wake_at,
                });
                Admission::Merged { into }
            }
            Asked::Stored(granted) => {
                let begins = granted.begins();
                let mut update = RunUpdate {
                    flow: Some(FlowColumns::of(&granted.clone().of(flow.clone()))),
                    ..RunUpdate::unchanged(run, row)
                };
                if !begins {
                    let wake_at = granted.wake_at(request.at);
                    (update.released, update.takeovers) = (true, 0);
                    update.wake_at = wake_at.map(|at| at.0);
                    if let Some(at) = wake_at {
                        self.writes.notifications.due(at);
                    }
                }
                self.writes.updates.push(update);
                match begins {
                    true => Admission::Admitted,
                    false => Admission::Waits,
                }
            }
        }
    }

    /// A run with flow control has ended.
    pub(super) fn end_flow(&mut self, run: RunId, row: &RunRow, at: Timestamp) {
        let Some(stored) = &row.flow else { return };
        for name in rules::freed(stored) {
            *self.writes.freed_places.entry(name.to_owned()).or_default() += 1;
        }
        for name in stored.flow.owned() {
            let known = self.keys.get(name).or_else(|| self.facts.keys.get(name));
            if let Some(mut row) = known.filter(|row| row.run == Some(run)).cloned() {
                (row.run, row.begin) = (None, None);
                self.writes.put_keys.insert(name.to_owned(), row.clone());
                self.keys.insert(name.to_owned(), row);
            }
        }
        self.writes.handed_at = self.writes.handed_at.max(at);
    }
}
