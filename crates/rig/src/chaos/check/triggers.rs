//! Triggers: every acknowledged webhook and event started each of its runs once, and every instant of the schedule fired once.
//!
//! The runs of an occurrence are those whose row has its mark, and those that called the service with it. One exception is
//! documented behaviour: a condition that exceeds its time limit is false. A process that is stopped while it judges exceeds it.

use super::{Found, Rule};
use crate::chaos::evidence::{DeliveryRow, Evidence, Micros, Note, RunRows};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The requestId of a run that a trigger started begins with this.
const STARTED: &str = "fermata:trigger:";
/// Part of the reason of such a delivery.
const NOT_JUDGED: &str = "could not be evaluated: ";
/// The time between two instants of the schedule.
const EVERY: Micros = 1_000_000;
/// The accuracy with which processes know the time of the database.
const TOLERANCE: Micros = 1_000_000;

/// The runs of each workflow and mark.
type Runs<'a> = BTreeMap<(&'a str, &'a str), BTreeSet<Uuid>>;

pub(super) fn check(evidence: &Evidence, found: &mut Found) {
    let runs = by_mark(evidence);
    for ((workflow, mark), runs) in runs.iter().filter(|(_, runs)| runs.len() > 1) {
        let what = format!("{mark} started {} runs of `{workflow}`: {runs:?}", runs.len());
        found.add(Rule::Occurrence, runs.last().copied(), what);
    }
    acknowledged(evidence, &runs, found);
    deliveries(evidence, found);
    instants(evidence, found);
}

fn is_triggered(rows: &RunRows) -> bool {
    rows.request.starts_with(STARTED)
}

fn is_not_judged(row: &DeliveryRow) -> bool {
    let reason = row.reason.as_deref().unwrap_or_default();
    row.state == "filtered" && reason.contains(NOT_JUDGED)
}

/// What differs for each occurrence, in the trigger of a run and in the body of its calls.
fn mark(value: &Value) -> Option<&str> {
    let mark = value.get("order").or_else(|| value.get("scheduledAt"));
    mark.and_then(Value::as_str)
}

fn by_mark(evidence: &Evidence) -> Runs<'_> {
    let mut runs = Runs::new();
    for (id, rows) in evidence.runs.iter().filter(|(_, rows)| is_triggered(rows)) {
        if let Some(mark) = mark(&rows.trigger) {
            runs.entry((&rows.workflow, mark)).or_default().insert(*id);
        }
    }
    for effect in &evidence.effects {
        let Ok(id) = effect.run.parse::<Uuid>() else {
            continue;
        };
        let rows = evidence.runs.get(&id).filter(|rows| is_triggered(rows));
        if let (Some(rows), Some(mark)) = (rows, mark(&effect.body)) {
            runs.entry((&rows.workflow, mark)).or_default().insert(id);
        }
    }
    runs
}

/// What was acknowledged started a run of each workflow, and the run that was named is that run.
fn acknowledged(evidence: &Evidence, runs: &Runs<'_>, found: &mut Found) {
    let not_judged = evidence.deliveries.iter().filter(|row| is_not_judged(row));
    let not_judged: BTreeSet<&str> = not_judged.map(|row| row.occurrence.as_str()).collect();
    for note in &evidence.notes {
        let Note::Occurred {
            order,
            workflows,
            run,
            by,
            ..
        } = note
        else {
            continue;
        };
        for workflow in workflows {
            match (runs.get(&(workflow.as_str(), order.as_str())), run) {
                (None, _) if !not_judged.contains(order.as_str()) => {
                    let what = format!("{order} was acknowledged by {by} and started no run of `{workflow}`");
                    found.add(Rule::Occurrence, None, what);
                }
                (Some(runs), Some(run)) if !runs.contains(run) => {
                    let what = format!("{order} was acknowledged by {by} as this run, and started {runs:?}");
                    found.add(Rule::Occurrence, Some(*run), what);
                }
                _ => {}
            }
        }
    }
}

/// Every stored occurrence started its run, and every run that a trigger started has an occurrence.
fn deliveries(evidence: &Evidence, found: &mut Found) {
    let mut known = BTreeSet::new();
    for row in &evidence.deliveries {
        let request = format!("{STARTED}{}:{}", row.trigger, row.occurrence);
        let run = evidence.runs.get(&row.run);
        let started = row.state == "started" && run.is_some_and(|run| run.request == request);
        let fits = started || (is_not_judged(row) && run.is_none());
        found.ensure(fits, Rule::Occurrence, row.run, || {
            let request = run.map(|run| &run.request);
            format!(
                "{} is {} ({:?}), and its run is {request:?}",
                row.occurrence, row.state, row.reason
            )
        });
        known.insert(request);
    }
    for (id, rows) in evidence.runs.iter().filter(|(_, rows)| is_triggered(rows)) {
        found.ensure(known.contains(&rows.request), Rule::Occurrence, *id, || {
            format!("{} is no stored occurrence", rows.request)
        });
    }
}

/// The instants that fired follow each other without a gap, and no run exists before its instant.
fn instants(evidence: &Evidence, found: &mut Found) {
    let created = evidence.changes.iter().filter(|change| change.old_status.is_none());
    let created: BTreeMap<Uuid, Micros> = created.map(|change| (change.run, change.at)).collect();
    let mut schedules: BTreeMap<Uuid, BTreeSet<Micros>> = BTreeMap::new();
    for row in &evidence.deliveries {
        let Some(instant) = row.instant else { continue };
        schedules.entry(row.trigger).or_default().insert(instant);
        let early = created.get(&row.run).is_some_and(|at| at + TOLERANCE < instant);
        found.ensure(!early, Rule::Occurrence, row.run, || {
            format!("it was created before its instant {}", row.occurrence)
        });
    }
    for instants in schedules.values() {
        for (one, next) in instants.iter().zip(instants.iter().skip(1)) {
            if next - one != EVERY {
                let what = format!("between the instants {one} and {next} of the schedule none fired");
                found.add(Rule::Occurrence, None, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::{
        check::tests::{effect_at, finished_run},
        evidence::{Change, Effect},
    };
    use serde_json::json;

    const HOOK: u128 = 1;
    const TICKS: [u128; 2] = [2, 3];
    const TRIGGER: u128 = 9;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// Adds the run of an occurrence, with its delivery and its call.
    fn add(evidence: &mut Evidence, run: u128, workflow: &str, trigger: Value, instant: Option<Micros>) {
        let occurrence = mark(&trigger).expect("a mark").to_owned();
        let rows = RunRows {
            request: format!("{STARTED}{}:{occurrence}", id(TRIGGER)),
            trigger: trigger.clone(),
            ..finished_run(workflow)
        };
        evidence.runs.insert(id(run), rows);
        evidence.effects.push(Effect {
            run: id(run).to_string(),
            body: trigger,
            ..effect_at(run as u64, 0)
        });
        evidence.deliveries.push(DeliveryRow {
            trigger: id(TRIGGER),
            occurrence,
            state: "started".to_owned(),
            reason: None,
            run: id(run),
            instant,
        });
    }

    /// A webhook that was acknowledged twice, and two instants.
    fn good() -> Evidence {
        let mut evidence = Evidence::default();
        add(&mut evidence, HOOK, "hooked", json!({ "order": "webhook-1" }), None);
        for (second, run) in (1..).zip(TICKS) {
            let trigger = json!({ "scheduledAt": format!("1970-01-01T00:00:0{second}Z") });
            add(&mut evidence, run, "ticked", trigger, Some(second * EVERY));
        }
        evidence.notes = vec![occurred("webhook-1", HOOK), occurred("webhook-1", HOOK)];
        evidence
    }

    fn occurred(order: &str, run: u128) -> Note {
        Note::Occurred {
            at: 0,
            order: order.to_owned(),
            workflows: vec!["hooked".to_owned()],
            run: Some(id(run)),
            by: "api".to_owned(),
        }
    }

    /// What is found after a change of the evidence.
    fn broken(breaks: impl FnOnce(&mut Evidence)) -> Vec<String> {
        let (mut evidence, mut found) = (good(), Found::default());
        breaks(&mut evidence);
        check(&evidence, &mut found);
        found.violations.into_iter().map(|violation| violation.what).collect()
    }

    fn is_found(words: &str, breaks: impl FnOnce(&mut Evidence)) {
        let found = broken(breaks);
        assert!(found.iter().any(|what| what.contains(words)), "{words}: {found:?}");
    }

    #[test]
    fn occurrences_that_are_lost_or_doubled_are_found() {
        assert_eq!(broken(|_| {}), Vec::<String>::new());
        is_found("started no run", |all| all.notes.push(occurred("webhook-2", HOOK)));
        is_found("as this run", |all| all.notes.push(occurred("webhook-1", 8)));
        is_found("started 2 runs", |all| {
            let copy = all.runs[&id(HOOK)].clone();
            all.runs.insert(id(8), copy);
        });
        is_found("is pending", |all| all.deliveries[0].state = "pending".to_owned());
        is_found("its run is None", |all| drop(all.runs.remove(&id(TICKS[1]))));
        is_found("no stored occurrence", |all| drop(all.deliveries.remove(0)));
    }

    #[test]
    fn conditions_that_exceed_their_time_start_nothing() {
        let filtered = |reason: &'static str| {
            broken(move |all| {
                all.runs.remove(&id(HOOK));
                all.deliveries[0].state = "filtered".to_owned();
                all.deliveries[0].reason = Some(reason.to_owned());
            })
        };
        assert!(filtered("the activation condition `c` could not be evaluated: took longer than 1s").is_empty());
        assert!(!filtered("the activation condition `c` is false").is_empty());
    }

    #[test]
    fn instants_that_fire_twice_never_or_early_are_found() {
        // Two runs called the service for the same instant.
        is_found("started 2 runs", |all| {
            all.effects[2].body = all.effects[1].body.clone()
        });
        is_found("none fired", |all| all.deliveries[2].instant = Some(3 * EVERY));
        is_found("before its instant", |all| {
            all.deliveries[2].instant = Some(5 * EVERY);
            all.changes.push(Change {
                at: 2 * EVERY,
                who: "runner-2".to_owned(),
                run: id(TICKS[1]),
                old_status: None,
                status: "Pending".to_owned(),
                old_owner: None,
                owner: None,
                old_epoch: 0,
                epoch: 0,
                began: 2 * EVERY,
            });
        });
    }
}
