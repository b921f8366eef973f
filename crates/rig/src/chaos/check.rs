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
mod time;

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
    /// A process that was stopped past its lease starts nothing of what was taken over. Only what it had begun may go on.
    Late,
    /// Times are the database's, whatever the clock of a process shows.
    Clock,
    /// An acknowledged cancel took effect, and only who was cancelled is.
    Cancel,
    /// An acknowledged callback was taken, and one only.
    Callback,
    /// A good request is not refused.
    Refused,
    /// No process ends by itself.
    Fell,
}

/// So many calls may come late for each time that a process is stopped: those that were on their way. Attempts that waited
/// for a slot are many more.
const LATE_CALLS: usize = 6;

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
        time::check(evidence, &mut found);
        leases::check(self, evidence, &mut found);
        let robbed = robbed(evidence);
        let written = evidence.written.iter();
        let epochs = written.map(|row| ((row.run, row.seq), row.epoch)).collect();
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
                events: events(*id, rows, &epochs, &mut found),
                robbed: robbed.get(id).map_or(&[][..], Vec::as_slice),
            };
            history::check(&story, &mut found);
            effects::check(&story, effects.get(id).map_or(&[][..], Vec::as_slice), &mut found);
        }
        let (late, most) = (found.late, evidence.stops * LATE_CALLS);
        if late > most {
            let what = format!(
                "{late} calls came from processes after their runs were taken over, in {} stops",
                evidence.stops
            );
            found.add(Rule::Late, None, what);
        }
        found.violations.sort();
        found.violations.dedup();
        found.violations
    }
}

/// One run, and all that its checks need.
struct Story<'a> {
    id: Uuid,
    rows: &'a RunRows,
    workflow: &'a Workflow,
    shape: &'a Shape,
    /// With the epochs under which they were written.
    events: Vec<(i64, Event)>,
    /// The times of owners that lost it to another, in order.
    robbed: &'a [Tenure],
}

/// Violations as they are found.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    /// Calls of processes that had lost the run already.
    late: usize,
}

impl Found {
    fn add(&mut self, rule: Rule, run: Option<Uuid>, what: impl Into<String>) {
        self.violations.push(Violation {
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

/// The time for which one owner held a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    pub epoch: i64,
    pub from: Micros,
    pub to: Micros,
}

/// When runs were held by those who lost them to another.
pub fn robbed(evidence: &Evidence) -> BTreeMap<Uuid, Vec<Tenure>> {
    let mut robbed: BTreeMap<Uuid, Vec<Tenure>> = BTreeMap::new();
    let mut since: BTreeMap<Uuid, Micros> = BTreeMap::new();
    for change in evidence
        .changes
        .iter()
        .filter(|change| change.owner != change.old_owner)
    {
        let from = since.insert(change.run, change.at);
        if let Some(from) = from.filter(|_| change.is_takeover()) {
            robbed.entry(change.run).or_default().push(Tenure {
                epoch: change.old_epoch,
                from,
                to: change.at,
            });
        }
    }
    robbed
}

/// The events of a run's journal. Its rows must have no gap.
fn events(id: Uuid, rows: &RunRows, epochs: &BTreeMap<(Uuid, i32), i64>, found: &mut Found) -> Vec<(i64, Event)> {
    let mut events = Vec::new();
    for (place, (seq, text)) in (1..).zip(&rows.journal) {
        found.ensure(*seq == place, Rule::History, id, || {
            format!("journal row {place} has the number {seq}")
        });
        let epoch = epochs.get(&(id, *seq)).copied();
        found.ensure(epoch.is_some(), Rule::History, id, || {
            format!("nobody saw journal row {seq} come")
        });
        let epoch = epoch.unwrap_or_default();
        match decode(text) {
            Ok(row) => events.extend(row.into_iter().map(|event| (epoch, event))),
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
