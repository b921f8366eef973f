//! Workers and the tasks that they claimed.

use super::{Found, Rule};
use crate::chaos::evidence::{AttemptRow, Evidence, Micros, Note, RunRows, WaitRow};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The accuracy with which processes know the time of the database.
const TOLERANCE: Micros = 1_000_000;

pub(super) fn check(evidence: &Evidence, found: &mut Found) {
    leases(evidence, found);
    let items = items(evidence);
    claims(evidence, &items, found);
    answers(evidence, &items, found);
    for (run, rows, wait) in items.values() {
        recorded(*run, rows, wait, found);
    }
}

type Items<'a> = BTreeMap<Uuid, (Uuid, &'a RunRows, &'a WaitRow)>;

fn items(evidence: &Evidence) -> Items<'_> {
    let runs = evidence.runs.iter();
    let waits = runs.flat_map(|(id, rows)| rows.waits.iter().map(move |wait| (*id, rows, wait)));
    waits
        .filter_map(|(id, rows, wait)| Some((wait.item?, (id, rows, wait))))
        .collect()
}

/// A task gets a new lease only when the one before has lapsed.
fn leases(evidence: &Evidence, found: &mut Found) {
    for change in &evidence.leased {
        let held = change.old_lease.is_some() && change.lease != change.old_lease;
        let lapsed = change.old_until <= change.at + TOLERANCE;
        if held && !lapsed {
            let what = format!(
                "{} was claimed at {}, and the lease before lapses at {}",
                change.item, change.at, change.old_until
            );
            found.add(Rule::Worker, None, what);
        }
    }
}

/// A worker gets only tasks of its tenant.
fn claims(evidence: &Evidence, items: &Items<'_>, found: &mut Found) {
    for note in &evidence.notes {
        let Note::Claimed { tenant, item, run, .. } = note else {
            continue;
        };
        let Some((of, rows, _)) = items.get(item) else {
            found.add(Rule::Worker, Some(*run), format!("the claimed task {item} is lost"));
            continue;
        };
        let own = of == run && tenant.as_ref().is_none_or(|tenant| rows.tenant == *tenant);
        found.ensure(own, Rule::Worker, *of, || {
            format!(
                "{item} was claimed as a task of {run} for {tenant:?}, and it is of tenant {:?}",
                rows.tenant
            )
        });
    }
}

/// An acknowledged answer is stored, it is the only one, and its lease was valid when it was sent.
fn answers(evidence: &Evidence, items: &Items<'_>, found: &mut Found) {
    let mut sent: BTreeSet<(Uuid, Uuid, String)> = BTreeSet::new();
    let mut taken: BTreeSet<Uuid> = BTreeSet::new();
    for note in &evidence.notes {
        match note {
            Note::Completing { item, lease, payload } => {
                sent.insert((*item, *lease, payload.to_string()));
            }
            Note::Completed {
                sent: at,
                item,
                lease,
                payload,
            } => {
                let Some((run, _, wait)) = items.get(item) else {
                    found.add(Rule::Worker, None, format!("the answered task {item} is lost"));
                    continue;
                };
                found.ensure(taken.insert(*item), Rule::Worker, *run, || {
                    format!("{item} took a second answer")
                });
                let kept = wait.payload.as_ref() == Some(payload) && wait.lease == Some(*lease);
                found.ensure(kept, Rule::Worker, *run, || {
                    format!("{item} took {payload} under {lease} and kept {wait:?}")
                });
                let mut changes = evidence.leased.iter();
                let answer = changes.find(|change| change.item == *item && change.answered);
                let in_time = answer.is_some_and(|answer| *at <= answer.until + TOLERANCE);
                found.ensure(in_time, Rule::Worker, *run, || {
                    format!("{item} took an answer that was sent at {at}, after its lease had lapsed: {answer:?}")
                });
            }
            _ => {}
        }
    }
    for (item, (run, _, wait)) in items {
        let Some(payload) = &wait.payload else { continue };
        let lease = wait.lease.unwrap_or_default();
        found.ensure(
            sent.contains(&(*item, lease, payload.to_string())),
            Rule::Worker,
            *run,
            || format!("{item} kept {payload} under {lease}, which was not sent"),
        );
    }
}

/// The attempt of a task shows its answer, unless its run stopped first.
fn recorded(run: Uuid, rows: &RunRows, wait: &WaitRow, found: &mut Found) {
    let Some(payload) = &wait.payload else { return };
    let mut attempts = rows.attempts.iter();
    let row = attempts.find(|row| row.node == wait.node && row.attempt == wait.attempt);
    let used = row.is_none_or(|row| shows(row, payload)) || !rows.status.is_terminal();
    found.ensure(
        used && (row.is_some() || !rows.status.is_terminal()),
        Rule::Worker,
        run,
        || {
            format!(
                "attempt {} of {} was answered with {payload} and is {row:?}",
                wait.attempt, wait.node
            )
        },
    );
}

fn shows(row: &AttemptRow, payload: &Value) -> bool {
    let code = |error: Option<&Value>| error.and_then(|error| error["code"].as_str().map(str::to_owned));
    match (row.status.as_str(), payload.get("error")) {
        ("Skipped", _) => true,
        (_, _) if code(row.error.as_ref()).as_deref() == Some("CANCELLED") => true,
        ("Succeeded", None) => row.outputs.as_ref() == Some(payload.get("state").unwrap_or(payload)),
        ("RetriableFailure" | "Failed", Some(error)) => code(row.error.as_ref()) == code(Some(error)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ITEM, LEASE_ID, broken_in, worked};
    use super::*;
    use crate::chaos::evidence::Leased;
    use serde_json::json;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn broken(breaks: impl FnOnce(&mut Evidence)) -> bool {
        let mut evidence = worked();
        breaks(&mut evidence);
        broken_in(&evidence).contains(&Rule::Worker)
    }

    fn run(evidence: &mut Evidence) -> &mut RunRows {
        evidence.runs.values_mut().next().expect("a run")
    }

    fn completed(sent: Micros, lease: u128, mark: &str) -> Note {
        Note::Completed {
            sent,
            item: id(ITEM),
            lease: id(lease),
            payload: json!({ "state": { "mark": mark } }),
        }
    }

    #[test]
    fn tasks_are_held_and_answered_once() {
        assert!(!broken(|_| {}));
        let again = |at: Micros| Leased {
            at,
            item: id(ITEM),
            old_lease: Some(id(LEASE_ID)),
            lease: Some(id(7)),
            old_until: 10_000_000,
            until: 20_000_000,
            answered: false,
        };
        assert!(!broken(|all| all.leased.push(again(10_000_000))));
        assert!(broken(|all| all.leased.push(again(5_000_000))), "two workers hold it");
        assert!(broken(|all| all.notes.push(completed(1, LEASE_ID, "a"))), "twice");
        assert!(
            broken(|all| run(all).waits[0].payload = Some(json!({ "state": { "mark": "b" } }))),
            "another answer"
        );
        assert!(broken(|all| run(all).waits[0].lease = Some(id(7))), "another worker");
        let late = |all: &mut Evidence| {
            all.notes.retain(|note| !matches!(note, Note::Completed { .. }));
            all.notes.push(completed(15_000_000, LEASE_ID, "a"));
        };
        assert!(broken(late), "its lease had lapsed");
        assert!(
            broken(|all| run(all).attempts[0].outputs = Some(json!({ "mark": "b" }))),
            "another output"
        );
        assert!(
            broken(|all| run(all).attempts[0].status = "Failed".to_owned()),
            "no output"
        );
        assert!(broken(|all| run(all).attempts.clear()), "no attempt");
        assert!(
            broken(|all| all.notes.retain(|note| !matches!(note, Note::Completing { .. }))),
            "never sent"
        );
        let of_tenant = |all: &mut Evidence| {
            for note in &mut all.notes {
                if let Note::Claimed { tenant, .. } = note {
                    *tenant = Some("blue".to_owned());
                }
            }
        };
        assert!(broken(of_tenant), "another tenant");
    }
}
