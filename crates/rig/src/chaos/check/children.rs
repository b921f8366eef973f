//! Parents and their awaited children.

use super::{Found, Rule, RunEvidence};
use crate::chaos::evidence::{Evidence, RunRows};
use fermata_core::{Event, Status};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A child run and its rows.
pub(super) type Child<'a> = (Uuid, &'a RunRows);

/// The children of each run. A child without a parent was started for something that was never durable.
pub(super) fn by_parent<'a>(evidence: &'a Evidence, found: &mut Found) -> BTreeMap<Uuid, Vec<Child<'a>>> {
    let mut children: BTreeMap<Uuid, Vec<Child<'a>>> = BTreeMap::new();
    for (id, rows) in &evidence.runs {
        let Some((parent, node)) = &rows.parent else { continue };
        found.ensure(evidence.runs.contains_key(parent), Rule::Child, *id, || {
            format!("its parent {parent} is lost")
        });
        let of_its_node = rows.request.starts_with(&format!("fermata:child:{parent}:{node}:"));
        found.ensure(of_its_node, Rule::Child, *id, || {
            format!("{node} of {parent} started it as {}", rows.request)
        });
        children.entry(*parent).or_default().push((*id, rows));
    }
    children
}

pub(super) fn check(subject: &RunEvidence<'_>, children: &[Child<'_>], found: &mut Found) {
    let stops = subject
        .events
        .iter()
        .any(|(_, event)| matches!(event, Event::Stopping { .. }));
    for (id, child) in children {
        let node = child.parent.as_ref().map_or("", |(_, node)| node.as_str());
        let known = subject.shape.get(node).is_some_and(|shape| shape.child);
        found.ensure(known, Rule::Child, *id, || {
            format!("{node} of `{}` starts no children", subject.workflow.name)
        });
        let with_parent = child.status != Status::Cancelled || stops || !subject.rows.status.is_terminal();
        found.ensure(with_parent, Rule::Child, *id, || {
            format!("it was cancelled, and its parent {} was not stopped", subject.id)
        });
        let attempt = child.request.rsplit(':').next().and_then(|text| text.parse().ok());
        let mut rows = subject.rows.attempts.iter();
        let row = rows.find(|row| row.node == node && Some(row.attempt) == attempt);
        let status = row.map_or("missing", |row| row.status.as_str());
        let seen = match child.status {
            Status::Succeeded => status == "Succeeded" || stops,
            Status::Failed => matches!(status, "Failed" | "RetriableFailure") || stops,
            Status::Cancelled | Status::Pending | Status::Running => status != "Succeeded",
        };
        found.ensure(seen || !subject.rows.status.is_terminal(), Rule::Child, *id, || {
            format!(
                "it is {}, and attempt {attempt:?} of {node} of its parent is {status}",
                child.status
            )
        });
    }
    outputs(subject, children, found);
}

/// A node that succeeded has the outputs of its child.
fn outputs(subject: &RunEvidence<'_>, children: &[Child<'_>], found: &mut Found) {
    let of_child = |node: &str| subject.shape.get(node).is_some_and(|shape| shape.child);
    let rows = subject.rows.attempts.iter();
    for row in rows.filter(|row| row.status == "Succeeded" && of_child(&row.node)) {
        let request = format!("fermata:child:{}:{}:{}", subject.id, row.node, row.attempt);
        let child = children.iter().find(|(_, child)| child.request == request);
        let recorded = row.outputs.as_ref();
        let same = child.is_some_and(|(id, child)| {
            recorded.is_some_and(|recorded| {
                recorded["executionId"] == id.to_string() && Some(&recorded["outputs"]) == child.outputs.as_ref()
            })
        });
        found.ensure(same, Rule::Child, subject.id, || {
            let child = child.map(|(id, child)| (id, child.outputs.as_ref()));
            format!("{} recorded {recorded:?}, and its child is {child:?}", row.node)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{broken_in, parent_and_child};
    use super::*;
    use serde_json::json;

    fn broken(breaks: impl FnOnce(&mut Evidence, Uuid, Uuid)) -> Vec<Rule> {
        let (mut evidence, parent, child) = parent_and_child();
        breaks(&mut evidence, parent, child);
        broken_in(&evidence)
    }

    #[test]
    fn ends_of_children_are_recorded_as_they_were() {
        assert_eq!(broken(|_, _, _| {}), []);
        let row = |all: &mut Evidence, run: Uuid| all.runs.get_mut(&run).expect("a run").clone();
        let second = broken(|all, parent, child| {
            let mut other = row(all, child);
            other.request = format!("fermata:child:{parent}:call:2");
            all.runs.insert(Uuid::from_u128(999), other);
        });
        assert!(second.contains(&Rule::Child), "{second:?}");
        let lost = broken(|all, parent, _| drop(all.runs.remove(&parent)));
        assert!(lost.contains(&Rule::Child), "{lost:?}");
        let other = broken(|all, _, child| {
            all.runs.get_mut(&child).expect("a run").outputs = Some(json!({ "n": 2 }));
        });
        assert!(other.contains(&Rule::Child), "{other:?}");
        let failed = broken(|all, _, child| all.runs.get_mut(&child).expect("a run").status = Status::Failed);
        assert!(failed.contains(&Rule::Child), "{failed:?}");
        let cancelled = broken(|all, _, child| {
            all.runs.get_mut(&child).expect("a run").status = Status::Cancelled;
        });
        assert!(cancelled.contains(&Rule::Child), "{cancelled:?}");
        let of_another = broken(|all, _, child| {
            all.runs.get_mut(&child).expect("a run").request = "order-9".to_owned();
        });
        assert!(of_another.contains(&Rule::Child), "{of_another:?}");
        let without = broken(|all, _, child| drop(all.runs.remove(&child)));
        assert!(without.contains(&Rule::Child), "{without:?}");
    }
}
