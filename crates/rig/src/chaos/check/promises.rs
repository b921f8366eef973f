//! The responses that clients received, compared with the final state.

use super::{Found, Rule, Rules};
use crate::chaos::evidence::{Evidence, Micros, Note, RunRows};
use fermata_core::Status;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// A run that was about to end may end in its own way after a cancel was acknowledged, but not much later than this.
const ABOUT_TO: Micros = 30_000_000;

pub(super) fn check(rules: &Rules, evidence: &Evidence, found: &mut Found) {
    starts(evidence, found);
    requests(evidence, found);
    cancels(rules, evidence, found);
    callbacks(evidence, found);
    for note in &evidence.notes {
        if let Note::Refused { what } = note {
            found.add(Rule::Refused, None, what.clone());
        }
    }
}

fn run<'a>(evidence: &'a Evidence, id: &str) -> Option<(Uuid, &'a RunRows)> {
    let id = id.parse().ok()?;
    Some((id, evidence.runs.get(&id)?))
}

/// Every acknowledged start exists and is the run that was requested.
fn starts(evidence: &Evidence, found: &mut Found) {
    let mut runs: BTreeMap<(&str, &str), (&str, &str)> = BTreeMap::new();
    for note in &evidence.notes {
        let Note::Started {
            request,
            tenant,
            workflow,
            run: id,
            by,
            ..
        } = note
        else {
            continue;
        };
        match run(evidence, id) {
            None => found.add(
                Rule::Lost,
                None,
                format!("{id} ({request}) was acknowledged by {by} and is lost"),
            ),
            Some((id, rows)) => {
                let same = (&rows.request, &rows.tenant, &rows.workflow) == (request, tenant, workflow);
                found.ensure(same, Rule::Lost, id, || {
                    format!(
                        "{request} was acknowledged as it, but it is {} of `{}`",
                        rows.request, rows.workflow
                    )
                });
            }
        }
        let (first, teller) = *runs.entry((tenant, request)).or_insert((id, by));
        if first != id {
            let what = format!("{request} is {first} to {teller} and {id} to {by}");
            found.add(Rule::SecondRun, None, what);
        }
    }
}

/// There is one run for each request id.
fn requests(evidence: &Evidence, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for (id, rows) in &evidence.runs {
        found.ensure(seen.insert((&rows.tenant, &rows.request)), Rule::SecondRun, *id, || {
            format!("{} has another run", rows.request)
        });
    }
}

fn cancels(rules: &Rules, evidence: &Evidence, found: &mut Found) {
    let mut sent = BTreeSet::new();
    for note in &evidence.notes {
        match note {
            Note::Cancelling { run } => drop(sent.insert(run.parse::<Uuid>().ok())),
            Note::Cancelled { at, run: id, status } => {
                if let Some((id, rows)) = run(evidence, id) {
                    cancel(rules, id, rows, *at, status, found);
                }
            }
            _ => {}
        }
    }
    for (id, rows) in evidence
        .runs
        .iter()
        .filter(|(_, rows)| rows.status == Status::Cancelled)
    {
        // A child is cancelled by its parent, see `children.rs`.
        let by_request = sent.contains(&Some(*id)) || rows.parent.is_some();
        found.ensure(by_request, Rule::Cancel, *id, || {
            format!("it was cancelled without a request: {:?}", rows.reason)
        });
    }
}

fn cancel(rules: &Rules, id: Uuid, rows: &RunRows, at: Micros, answered: &str, found: &mut Found) {
    let ended = rows.status.as_str();
    match Status::parse(answered) {
        Some(status) if status.is_terminal() => found.ensure(ended == answered, Rule::Cancel, id, || {
            format!("a cancel was answered with {answered}, and it is {ended}")
        }),
        Some(_) => {
            let endless = rules
                .workflows
                .get(&rows.workflow)
                .is_some_and(|(it, _)| it.ends.is_empty());
            let about_to = !endless && rows.end_time.is_some_and(|end| end <= at + ABOUT_TO);
            let took = rows.status == Status::Cancelled || about_to || !rows.status.is_terminal();
            found.ensure(took, Rule::Cancel, id, || {
                format!(
                    "a cancel was acknowledged at {at}, and it became {ended} at {:?}",
                    rows.end_time
                )
            });
        }
        None => found.add(
            Rule::Cancel,
            Some(id),
            format!("a cancel was answered with `{answered}`"),
        ),
    }
}

/// The payloads that were sent to a wait, and those that were acknowledged.
#[derive(Default)]
struct Callback<'a> {
    sent: Vec<&'a Value>,
    taken: Vec<&'a Value>,
}

fn callbacks(evidence: &Evidence, found: &mut Found) {
    let mut callbacks: BTreeMap<(Uuid, &str), Callback<'_>> = BTreeMap::new();
    for note in &evidence.notes {
        let (id, node, payload, taken) = match note {
            Note::Calling { run, node, payload } => (run, node, payload, false),
            Note::Called { run, node, payload, .. } => (run, node, payload, true),
            _ => continue,
        };
        let Ok(id) = id.parse() else { continue };
        let callback = callbacks.entry((id, node)).or_default();
        match taken {
            true => callback.taken.push(payload),
            false => callback.sent.push(payload),
        }
    }
    for ((id, node), callback) in &callbacks {
        if let Some(rows) = evidence.runs.get(id) {
            taken(*id, rows, node, callback, found);
        }
    }
    // A wait with a payload must have received a callback.
    for (id, rows) in &evidence.runs {
        // Items of the inbox are answered by workers, see `workers.rs`.
        for wait in rows
            .waits
            .iter()
            .filter(|wait| wait.payload.is_some() && wait.item.is_none())
        {
            let known = callbacks.contains_key(&(*id, wait.node.as_str()));
            found.ensure(known, Rule::Callback, *id, || {
                format!("{} has a payload without a callback", wait.node)
            });
        }
    }
}

fn taken(id: Uuid, rows: &RunRows, node: &str, callback: &Callback<'_>, found: &mut Found) {
    found.ensure(callback.taken.len() <= 1, Rule::Callback, id, || {
        format!("{node} took {} callbacks", callback.taken.len())
    });
    let wait = rows.waits.iter().find(|wait| wait.node == node);
    let kept = wait.and_then(|wait| wait.payload.as_ref());
    if let Some(payload) = callback.taken.first() {
        found.ensure(kept == Some(*payload), Rule::Callback, id, || {
            format!("{node} acknowledged {payload} and kept {kept:?}")
        });
    }
    let Some(kept) = kept else { return };
    found.ensure(callback.sent.contains(&kept), Rule::Callback, id, || {
        format!("{node} kept {kept}, which was not sent")
    });
    let Some(row) = rows.attempts.iter().find(|row| row.node == node) else {
        // A run that was cancelled before it started has no attempts.
        return found.ensure(
            rows.attempts.is_empty() || !rows.status.is_terminal(),
            Rule::Callback,
            id,
            || format!("{node} was answered and has no outcome"),
        );
    };
    let used = match row.status.as_str() {
        "Succeeded" => row.outputs.as_ref() == Some(kept),
        // Its run stopped first.
        "Skipped" => true,
        _ => false,
    };
    found.ensure(used, Rule::Callback, id, || {
        format!(
            "{node} was answered with {kept} and is {}: {:?}",
            row.status, row.outputs
        )
    });
}
