//! The invariants, checked on the evidence after a run of the rig.
//!
//! Pure: evidence in, violations out. The checks use neither the engine nor the store. Journals are decoded and compared with rules
//! that are written here a second time.

mod children;
mod effects;
mod history;
mod leases;
mod places;
mod promises;
#[cfg(test)]
mod tests;
mod time;
mod triggers;
mod workers;

use super::{
    evidence::{Evidence, Micros, RunRows},
    workflows::{Shape, Workflow},
};
use fermata_core::{Event, decode};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};
use uuid::Uuid;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    /// Which invariant.
    pub rule: Rule,
    /// The run, if the violation concerns one run.
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
    /// Every run ends, no runner holds it, and no message is left.
    Stuck,
    /// It ended in a way that its workflow allows.
    WrongEnd,
    /// The same requestId leads to the same run in every process.
    SecondRun,
    /// Every node has one recorded outcome.
    Outcome,
    /// Journals and statuses contain only legal transitions.
    History,
    /// A join fires once, when all nodes that lead to it are settled.
    Join,
    /// Epochs only grow, by one with each change of owner.
    Epoch,
    /// Only the owner of a run writes to it.
    Zombie,
    /// Runs are taken over only from dead runners.
    Takeover,
    /// Effects are repeated only inside a crash window, with the same key and body.
    Effect,
    /// A process that was stopped past its lease starts no attempt of a run that was taken over. Attempts that had started may go on.
    Late,
    /// Times are those of the database, whatever the clock of a process shows.
    Clock,
    /// An acknowledged cancel took effect, and only cancelled runs are cancelled.
    Cancel,
    /// An acknowledged callback was accepted, and no other.
    Callback,
    /// An attempt of a node has one child run, whose end is recorded once, as it was. A child is cancelled only with its parent.
    Child,
    /// Two workers never hold the same task. One answer counts, of the worker that held the task when it was sent.
    Worker,
    /// Never more runs of a concurrency key than its limit are active.
    Place,
    /// An acknowledged webhook or event starts each of its runs once. Each instant of a schedule fires once, and not before its time.
    Occurrence,
    /// A valid request is not refused.
    Refused,
    /// No process exits by itself.
    Fell,
}

/// How many late calls are allowed for each stop of a process: calls that were in flight. Attempts that waited for a slot would be
/// many more.
const LATE_CALLS: usize = 6;

/// What the checks need beside the evidence.
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

    /// All violations.
    pub fn check(&self, evidence: &Evidence) -> Vec<Violation> {
        let mut found = Found::default();
        promises::check(self, evidence, &mut found);
        time::check(evidence, &mut found);
        leases::check(self, evidence, &mut found);
        workers::check(evidence, &mut found);
        places::check(self, evidence, &mut found);
        triggers::check(evidence, &mut found);
        let children = children::by_parent(evidence, &mut found);
        let taken_over = taken_over(evidence);
        let written = evidence.written.iter();
        let epochs = written.map(|row| ((row.run, row.seq), row.epoch)).collect();
        let effects = effects::by_run(evidence, &mut found);
        for (id, rows) in &evidence.runs {
            let Some((workflow, shape)) = self.workflows.get(&rows.workflow) else {
                found.add(
                    Rule::Lost,
                    Some(*id),
                    format!("it belongs to `{}`, which was not published", rows.workflow),
                );
                continue;
            };
            let subject = RunEvidence {
                id: *id,
                rows,
                shape,
                workflow,
                events: events(*id, rows, &epochs, &mut found),
                taken_over: taken_over.get(id).map_or(&[][..], Vec::as_slice),
            };
            history::check(&subject, &mut found);
            children::check(&subject, children.get(id).map_or(&[][..], Vec::as_slice), &mut found);
            effects::check(&subject, effects.get(id).map_or(&[][..], Vec::as_slice), &mut found);
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

/// One run and everything that its checks need.
struct RunEvidence<'a> {
    id: Uuid,
    rows: &'a RunRows,
    workflow: &'a Workflow,
    shape: &'a Shape,
    /// Each with the epoch under which it was written.
    events: Vec<(i64, Event)>,
    /// The periods of owners that lost it by a takeover, in order.
    taken_over: &'a [Tenure],
}

/// Collects violations.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    /// Calls of processes that had lost the run.
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

    /// Adds a violation unless the condition holds.
    fn ensure(&mut self, holds: bool, rule: Rule, run: Uuid, what: impl FnOnce() -> String) {
        if !holds {
            self.add(rule, Some(run), what());
        }
    }
}

/// The period in which one owner held a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    pub epoch: i64,
    pub from: Micros,
    pub to: Micros,
}

/// For each run, the periods of the owners that lost it by a takeover.
pub fn taken_over(evidence: &Evidence) -> BTreeMap<Uuid, Vec<Tenure>> {
    let mut taken_over: BTreeMap<Uuid, Vec<Tenure>> = BTreeMap::new();
    let mut since: BTreeMap<Uuid, Micros> = BTreeMap::new();
    for change in evidence
        .changes
        .iter()
        .filter(|change| change.owner != change.old_owner)
    {
        let from = since.insert(change.run, change.at);
        if let Some(from) = from.filter(|_| change.is_takeover()) {
            taken_over.entry(change.run).or_default().push(Tenure {
                epoch: change.old_epoch,
                from,
                to: change.at,
            });
        }
    }
    taken_over
}

/// The events of a run's journal. Its rows must be without gaps.
fn events(id: Uuid, rows: &RunRows, epochs: &BTreeMap<(Uuid, i32), i64>, found: &mut Found) -> Vec<(i64, Event)> {
    let mut events = Vec::new();
    for (place, (seq, text)) in (1..).zip(&rows.journal) {
        found.ensure(*seq == place, Rule::History, id, || {
            format!("journal row {place} has the number {seq}")
        });
        let epoch = epochs.get(&(id, *seq)).copied();
        found.ensure(epoch.is_some(), Rule::History, id, || {
            format!("journal row {seq} was not audited")
        });
        let epoch = epoch.unwrap_or_default();
        match decode(text) {
            Ok(row) => events.extend(row.into_iter().map(|event| (epoch, event))),
            Err(error) => found.add(Rule::History, Some(id), format!("journal row {seq}: {error}")),
        }
    }
    events
}

/// Calls that no recorded attempt refers to: their responses were lost.
pub fn lost_calls(evidence: &Evidence) -> usize {
    let recorded = evidence.runs.values().flat_map(|run| &run.attempts);
    let recorded = recorded.filter_map(effects::recorded_call).count();
    evidence.effects.len().saturating_sub(recorded)
}
