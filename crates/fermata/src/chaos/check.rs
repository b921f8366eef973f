//! The invariants, checked on what is left when a run of the rig is over.
//!
//! Pure: evidence in, violations out. Nothing here asks the engine or the store what they make of their rows; journals
//! are decoded, and followed by rules that are written down again here.

mod effects;
mod history;
mod leases;
mod promises;
#[cfg(test)]
mod tests;

use super::{
    evidence::{Evidence, Micros, RunRows},
    workflows::{Shape, Workflow},
};
use fermata_core::{Event, decode};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// Which invariant.
    pub rule: Rule,
    /// The run, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Uuid>,
    pub what: String,
}

/// The invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// Every acknowledged start exists.
    Lost,
    /// Every run is over in the end, and nothing is left of its work.
    Stuck,
    /// It ended in a way that its workflow has.
    WrongEnd,
    /// The same requestId is the same run, whoever is asked.
    SecondRun,
    /// Every node has one recorded outcome.
    Outcome,
    /// Journals and statuses go only the ways there are.
    History,
    /// A join fires once, when all that lead to it are settled.
    Join,
    /// Epochs only grow, by one with each change of owner.
    Epoch,
    /// Only the owner of a run writes to it.
    Zombie,
    /// Only the runs of the dead are taken over.
    Takeover,
    /// Effects are repeated only inside a crash window, with the same key and body.
    Effect,
    /// An acknowledged cancel took effect, and only who was cancelled is.
    Cancel,
    /// An acknowledged callback was taken, and one only.
    Callback,
    /// A good request is not refused.
    Refused,
    /// No process ends by itself.
    Fell,
}

/// What a check needs to know beyond the evidence.
pub struct Rules {
    pub lease: Duration,
    workflows: BTreeMap<String, (Workflow, Shape)>,
}

impl Rules {
    pub fn new(workflows: &[Workflow], lease: Duration) -> Rules {
        let with_shape = |workflow: &Workflow| (workflow.name.to_owned(), (workflow.clone(), workflow.shape()));
        Rules {
            lease,
            workflows: workflows.iter().map(with_shape).collect(),
        }
    }

    /// All that is wrong.
    pub fn check(&self, evidence: &Evidence) -> Vec<Violation> {
        let mut found = Found::default();
        promises::check(self, evidence, &mut found);
        leases::check(self, evidence, &mut found);
        let takeovers = takeovers(evidence);
        let effects = effects::by_run(evidence, &mut found);
        for (id, rows) in &evidence.runs {
            let Some((workflow, shape)) = self.workflows.get(&rows.workflow) else {
                found.add(
                    Rule::Lost,
                    Some(*id),
                    format!("it is of `{}`, which nobody made", rows.workflow),
                );
                continue;
            };
            let story = Story {
                id: *id,
                rows,
                shape,
                workflow,
                events: events(*id, rows, &mut found),
                takeovers: takeovers.get(id).map_or(&[][..], Vec::as_slice),
            };
            history::check(&story, &mut found);
            effects::check(&story, effects.get(id).map_or(&[][..], Vec::as_slice), &mut found);
        }
        found.0.sort();
        found.0.dedup();
        found.0
    }
}

/// One run, and all that its checks need.
struct Story<'a> {
    id: Uuid,
    rows: &'a RunRows,
    workflow: &'a Workflow,
    shape: &'a Shape,
    events: Vec<Event>,
    /// When it was taken over.
    takeovers: &'a [Micros],
}

impl Story<'_> {
    /// Whether it was told to end before its time.
    fn stopped(&self) -> bool {
        let stops = |event: &Event| matches!(event, Event::Stopping { .. });
        self.events.iter().any(stops)
    }
}

/// Violations as they are found.
#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, run: Option<Uuid>, what: impl Into<String>) {
        self.0.push(Violation {
            rule,
            run,
            what: what.into(),
        });
    }

    /// Notes it unless it holds.
    fn ensure(&mut self, holds: bool, rule: Rule, run: Uuid, what: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, Some(run), what());
        }
    }
}

/// When runs were taken over.
pub fn takeovers(evidence: &Evidence) -> BTreeMap<Uuid, Vec<Micros>> {
    let mut takeovers: BTreeMap<Uuid, Vec<Micros>> = BTreeMap::new();
    for change in evidence.changes.iter().filter(|change| change.is_takeover()) {
        takeovers.entry(change.run).or_default().push(change.at);
    }
    takeovers
}

/// The events of a run's journal. Its rows must have no gap.
fn events(id: Uuid, rows: &RunRows, found: &mut Found) -> Vec<Event> {
    let mut events = Vec::new();
    for (place, (seq, text)) in (1..).zip(&rows.journal) {
        found.ensure(*seq == place, Rule::History, id, || {
            format!("journal row {place} has the number {seq}")
        });
        match decode(text) {
            Ok(row) => events.extend(row),
            Err(error) => found.add(Rule::History, Some(id), format!("journal row {seq}: {error}")),
        }
    }
    events
}

/// Calls of a run that no recorded attempt knows of: their answers were lost.
pub fn lost_calls(evidence: &Evidence) -> usize {
    let recorded = evidence.runs.values().flat_map(|run| &run.attempts);
    let recorded = recorded.filter_map(effects::recorded_call).count();
    evidence.effects.len().saturating_sub(recorded)
}
