//! The events of a run as [`timeline`] entries, in windows that count entries.
//!
//! A journal row holds the events of one commit, so the store cannot apply such a window. The journal is read in parts, and
//! only entries inside the window are kept. Journals hold no payloads: reading one costs about 100 bytes per event.

use super::{MAX_PAGE, Reads};
use crate::{
    compiled::Compiled,
    error::EngineError,
    mask::Mask,
    timeline::{self, Entry, Level},
};
use fermata_core::{Event, Kind, Plan, decode};
use fermata_store::{
    reads::{EventRecord, RunRecord, Window},
    runs::WaitRecord,
};
use serde_json::Value;
use std::{fmt::Display, sync::Arc};

/// Journal rows that are read at once.
const ROWS: u32 = 1000;

impl Reads<'_> {
    /// The entries in this window, oldest first, and how many there are in all. A journal row that this program cannot read
    /// counts as one entry of level Error.
    pub async fn events(&self, run: &RunRecord, window: Window) -> Result<(Vec<Entry>, u64), EngineError> {
        let compiled = self.compiled(run).await;
        let plan = compiled.as_ref().map(|compiled| &*compiled.plan);
        let from = u64::from(window.offset);
        let mut wanted = Wanted {
            from,
            to: from + u64::from(window.limit.min(MAX_PAGE)),
            seen: 0,
            entries: Vec::new(),
        };
        let mut offset = 0;
        loop {
            let part = Window { limit: ROWS, offset };
            let (rows, _) = self.engine.shared.store.events(run.id, part).await?;
            rows.iter()
                .for_each(|row| wanted.add(row, plan, &self.engine.shared.settings.mask));
            offset += ROWS;
            if rows.len() < ROWS as usize {
                break;
            }
        }
        let ends = wanted.entries.iter_mut().filter(|entry| is_end(entry)).collect();
        self.add_answers(run, plan, ends).await?;
        Ok((wanted.entries, wanted.seen))
    }

    /// The entries of journal rows, with the seq of each row.
    pub(crate) async fn shown(
        &self,
        run: &RunRecord,
        rows: &[EventRecord],
    ) -> Result<Vec<(u32, Vec<Entry>)>, EngineError> {
        let compiled = self.compiled(run).await;
        let plan = compiled.as_ref().map(|compiled| &*compiled.plan);
        let mask = &self.engine.shared.settings.mask;
        let shown = rows
            .iter()
            .map(|row| (row.seq, entries(row, decode(&row.data), plan, mask)));
        let mut shown: Vec<_> = shown.collect();
        let all = shown.iter_mut().flat_map(|(_, entries)| entries);
        let ends = all.filter(|entry| is_end(entry)).collect();
        self.add_answers(run, plan, ends).await?;
        Ok(shown)
    }

    /// Without the plan, entries have less detail.
    async fn compiled(&self, run: &RunRecord) -> Option<Arc<Compiled>> {
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        compiled.await.ok()
    }

    /// Adds who answered requests to entries of attempts that ended.
    async fn add_answers(
        &self,
        run: &RunRecord,
        plan: Option<&Plan>,
        ends: Vec<&mut Entry>,
    ) -> Result<(), EngineError> {
        let has_requests =
            plan.is_some_and(|plan| plan.nodes.iter().any(|node| matches!(node.kind, Kind::Request { .. })));
        if has_requests && !ends.is_empty() {
            let waits = self.engine.shared.store.waits(run.id).await?;
            ends.into_iter().for_each(|entry| add_answer(entry, &waits));
        }
        Ok(())
    }
}

/// Whether an entry ends an attempt.
fn is_end(entry: &Entry) -> bool {
    matches!(entry.data["type"].as_str(), Some("finished" | "retried"))
}

/// Adds who answered and when to an entry of an attempt that an answer ended. The journal does not have it.
fn add_answer(entry: &mut Entry, waits: &[WaitRecord]) {
    let data = &entry.data;
    let is_of = |wait: &&WaitRecord| {
        data["node"].as_str() == Some(wait.node.as_str()) && data["attempt"].as_u64() == Some(wait.attempt.into())
    };
    let wait = waits.iter().find(is_of);
    let Some((by, at)) = wait.and_then(|wait| Some((wait.answered_by.clone(), wait.answered_at?))) else {
        return;
    };
    if let Value::Object(members) = &mut entry.data {
        members.insert("answeredBy".to_owned(), by.into());
        let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or_default();
        members.insert("answeredAt".to_owned(), format!("{at:.3}").into());
    }
}

struct Wanted {
    from: u64,
    to: u64,
    seen: u64,
    entries: Vec<Entry>,
}

impl Wanted {
    fn add(&mut self, row: &EventRecord, plan: Option<&Plan>, mask: &Mask) {
        let decoded = decode(&row.data);
        let count = decoded.as_ref().map_or(1, |events| timeline::count(events)) as u64;
        let first = self.seen;
        self.seen += count;
        if self.seen <= self.from || first >= self.to {
            return;
        }
        let entries = entries(row, decoded, plan, mask);
        let inside = |at: u64| (self.from..self.to).contains(&at);
        let placed = (first..).zip(entries).filter(|(at, _)| inside(*at));
        self.entries.extend(placed.map(|(_, entry)| entry));
    }
}

/// The entries of one journal row.
fn entries<E: Display>(
    row: &EventRecord,
    decoded: Result<Vec<Event>, E>,
    plan: Option<&Plan>,
    mask: &Mask,
) -> Vec<Entry> {
    match decoded {
        Ok(events) => timeline::entries(row.seq, row.at, &events, plan, mask),
        Err(error) => vec![unreadable(row, &error.to_string())],
    }
}

fn unreadable(row: &EventRecord, why: &str) -> Entry {
    Entry {
        seq: row.seq,
        at: row.at,
        level: Level::Error,
        category: "Orchestrator".to_owned(),
        message: format!("this journal row cannot be read: {why}"),
        data: Value::Null,
    }
}
