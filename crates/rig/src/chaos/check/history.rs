//! A single run: its journal, its attempts and its end.

use super::{Found, Rule, RunEvidence};
use crate::chaos::evidence::AttemptRow;
use fermata_core::{Event, Outcome, Status};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(subject: &RunEvidence<'_>, found: &mut Found) {
    end(subject, found);
    journal(subject, found);
    attempts(subject, found);
}

/// The run has ended, in a way that its workflow allows, and no runner holds it.
fn end(subject: &RunEvidence<'_>, found: &mut Found) {
    let (id, rows) = (subject.id, subject.rows);
    if !rows.status.is_terminal() {
        let what = format!(
            "{} run of `{}` is {}: owner {:?}, wake_at {:?}, {} messages unread, {} takeovers, last event {:?}",
            rows.request,
            rows.workflow,
            rows.status,
            rows.owner,
            rows.wake_at,
            rows.unread,
            subject.taken_over.len(),
            subject.events.last().map(|(_, event)| event.name()),
        );
        return found.add(Rule::Stuck, Some(id), what);
    }
    let free = rows.owner.is_none() && rows.wake_at.is_none() && rows.end_time.is_some();
    found.ensure(free, Rule::Stuck, id, || {
        format!(
            "it has ended, but {:?} holds it or {:?} wakes it",
            rows.owner, rows.wake_at
        )
    });
    found.ensure(rows.messages == 0 && rows.unread == 0, Rule::Stuck, id, || {
        format!(
            "it has ended and still has {} messages, {} unread",
            rows.messages, rows.unread
        )
    });
    for wait in rows.waits.iter().filter(|wait| wait.open) {
        found.add(
            Rule::Stuck,
            Some(id),
            format!("it has ended, but {} is open", wait.node),
        );
    }
    found.ensure(rows.dead_letters == 0, Rule::Stuck, id, || {
        format!("it was dead-lettered: {:?}", rows.reason)
    });
    let expected = rows.status == Status::Cancelled || subject.workflow.ends.contains(&rows.status);
    found.ensure(expected, Rule::WrongEnd, id, || {
        format!("`{}` ended as {}: {:?}", rows.workflow, rows.status, rows.reason)
    });
}

/// The state of a node, derived from the journal alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Idle,
    Open(u32),
    Finished,
    Routed,
    Skipped,
}

fn journal(subject: &RunEvidence<'_>, found: &mut Found) {
    let id = subject.id;
    let mut nodes: BTreeMap<&str, Node> = subject.shape.keys().map(|name| (name.as_str(), Node::Idle)).collect();
    let (mut started, mut stopping, mut paused, mut ended) = (false, false, false, None);
    for (_, event) in &subject.events {
        found.ensure(ended.is_none(), Rule::History, id, || {
            format!("`{}` comes after the end", event.name())
        });
        let fits = match event {
            Event::Started { .. } => !std::mem::replace(&mut started, true),
            Event::Stopping { .. } => started && !std::mem::replace(&mut stopping, true),
            Event::Ended { status, .. } => {
                ended = Some(*status);
                status.is_terminal()
            }
            Event::Paused { .. } => !stopping && !std::mem::replace(&mut paused, true),
            Event::Resumed { .. } => std::mem::replace(&mut paused, false),
            Event::Opened { .. } | Event::Began { .. } | Event::Routed { .. } if paused && !stopping => false,
            _ => started && step(subject, event, &mut nodes, stopping, found),
        };
        found.ensure(fits, Rule::History, id, || {
            let node = event.node().map_or("the run", |node| node.as_str());
            format!("`{}` of {node} does not fit what was before: {nodes:?}", event.name())
        });
    }
    let expected = subject.rows.status.is_terminal().then_some(subject.rows.status);
    found.ensure(ended == expected, Rule::History, id, || {
        format!("its row says {}, its journal {ended:?}", subject.rows.status)
    });
    if !started || ended.is_none() {
        return;
    }
    for (name, node) in nodes {
        // Nodes that ended while the run was stopping open no other nodes.
        let over = matches!(node, Node::Routed | Node::Skipped) || (stopping && node == Node::Finished);
        found.ensure(over, Rule::Outcome, id, || {
            format!("{name} has no outcome: it is {node:?}")
        });
    }
}

/// Applies an event to a node; false if the event is illegal in its state.
fn step<'a>(
    subject: &RunEvidence<'a>,
    event: &Event,
    nodes: &mut BTreeMap<&'a str, Node>,
    stopping: bool,
    found: &mut Found,
) -> bool {
    let known = event.node().and_then(|node| nodes.get_key_value(node.as_str()));
    let Some((&name, &state)) = known else {
        return false;
    };
    let next = match (event, state) {
        (Event::Opened { .. }, Node::Idle) if !stopping => {
            joined(subject, name, nodes, found);
            Node::Open(1)
        }
        (Event::Opened { .. }, _) => {
            found.add(Rule::Join, Some(subject.id), format!("{name} was opened again"));
            return false;
        }
        (Event::Skipped { .. }, Node::Idle | Node::Open(_)) => Node::Skipped,
        (Event::Answered { .. }, Node::Idle) => Node::Idle,
        (Event::Slept { .. }, Node::Open(attempt)) => Node::Open(attempt),
        (
            Event::Began { attempt, .. }
            | Event::Requested { attempt, .. }
            | Event::Resending { attempt, .. }
            | Event::Resent { attempt, .. },
            Node::Open(open),
        ) if *attempt == open => Node::Open(open),
        (Event::Retried { attempt, .. }, Node::Open(open)) if *attempt == open => Node::Open(open + 1),
        (Event::Finished { attempt, .. }, Node::Open(open)) if *attempt == open => Node::Finished,
        // A node that waited for a retry when the run stopped ends with its last failure.
        (Event::Finished { attempt, .. }, Node::Open(open)) if stopping && attempt + 1 == open => Node::Finished,
        (Event::Routed { .. }, Node::Finished) => Node::Routed,
        _ => return false,
    };
    nodes.insert(name, next);
    true
}

/// A node opens when all nodes that lead to it are settled.
fn joined(subject: &RunEvidence<'_>, name: &str, nodes: &BTreeMap<&str, Node>, found: &mut Found) {
    for parent in &subject.shape[name].parents {
        let state = nodes.get(parent.as_str());
        let settled = matches!(state, Some(Node::Routed | Node::Skipped));
        found.ensure(settled, Rule::Join, subject.id, || {
            format!("{name} was opened while {parent} was {state:?}")
        });
    }
}

/// Recorded attempts match the journal, are numbered from one, and only the last one is final.
fn attempts(subject: &RunEvidence<'_>, found: &mut Found) {
    let id = subject.id;
    let mut by_node: BTreeMap<&str, Vec<&AttemptRow>> = BTreeMap::new();
    for row in &subject.rows.attempts {
        by_node.entry(&row.node).or_default().push(row);
    }
    let cut_short = cut_short(subject);
    for (node, rows) in &by_node {
        let counted = rows.iter().map(|row| row.attempt).eq(1..=rows.len() as u32);
        let again = |row: &&&AttemptRow| row.status == "RetriableFailure";
        let finals = rows.len() - rows.iter().filter(again).count();
        let last_is_final = rows.last().is_some_and(|row| !again(&row));
        let fits = counted && (finals == 1 && last_is_final || finals == 0 && cut_short.contains(node));
        found.ensure(fits || !subject.rows.status.is_terminal(), Rule::Outcome, id, || {
            let rows: Vec<_> = rows.iter().map(|row| (row.attempt, row.status.as_str())).collect();
            format!("{node} is recorded as {rows:?}")
        });
    }
    let in_journal = subject.events.iter().filter_map(|(_, event)| match event {
        Event::Skipped { node, .. } => Some((node.as_str(), 1, "Skipped")),
        Event::Retried { node, attempt, .. } => Some((node.as_str(), *attempt, "RetriableFailure")),
        Event::Finished {
            node, attempt, outcome, ..
        } => match outcome {
            Outcome::Succeeded(_) => Some((node.as_str(), *attempt, "Succeeded")),
            Outcome::Failed(_) if cut_short.contains(node.as_str()) => None,
            Outcome::Failed(_) => Some((node.as_str(), *attempt, "Failed")),
        },
        _ => None,
    });
    let in_journal: BTreeSet<_> = in_journal.collect();
    let rows = subject.rows.attempts.iter();
    let recorded: BTreeSet<_> = rows
        .map(|row| (row.node.as_str(), row.attempt, row.status.as_str()))
        .collect();
    found.ensure(in_journal == recorded, Rule::Outcome, id, || {
        let only: Vec<_> = in_journal.symmetric_difference(&recorded).collect();
        format!("journal and recorded attempts differ in {only:?}")
    });
}

/// Nodes that waited for a retry when their run stopped. They end with the failure of an attempt that was recorded before.
fn cut_short<'a>(subject: &'a RunEvidence<'_>) -> BTreeSet<&'a str> {
    let mut retried = BTreeSet::new();
    let mut nodes = BTreeSet::new();
    for (_, event) in &subject.events {
        match event {
            Event::Retried { node, attempt, .. } => {
                retried.insert((node.as_str(), *attempt));
            }
            Event::Finished { node, attempt, .. } if retried.contains(&(node.as_str(), *attempt)) => {
                nodes.insert(node.as_str());
            }
            _ => {}
        }
    }
    nodes
}
