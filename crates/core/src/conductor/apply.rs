//! Applies events to a run. Nothing else changes a run, neither live nor in recovery.

use crate::{
    Event, Illegal, Items, Kind, NodeId, NodeIx, Open, Outcome, Phase, Reused, Run, Status, Stop, Timestamp, run::End,
};
use std::collections::BTreeSet;

/// Applies one event, or returns why it is illegal in the current state. A refused event changes nothing.
pub fn apply(run: &mut Run, event: &Event) -> Result<(), Illegal> {
    match event {
        Event::Started { at, deadline, vars } => {
            let fits = run.status == Status::Pending && run.paused_at.is_none();
            expect(event, fits, || describe_run(run))?;
            run.status = Status::Running;
            run.started_at = Some(*at);
            run.deadline = *deadline;
            run.vars = vars.clone().into();
            let plan = run.plan.clone();
            run.agenda.extend(plan.indices().filter(|ix| plan.incoming(*ix) == 0));
        }
        Event::Reused(reused) => *run = with_reused(run, event, reused)?,
        Event::Stopping {
            status,
            reason,
            node,
            failure,
        } => {
            let fits = run.status == Status::Running && run.stop.is_none() && status.is_terminal();
            expect(event, fits, || describe_run(run))?;
            run.paused_at = None;
            run.stop = Some(Stop {
                status: *status,
                reason: reason.clone(),
                node: node.clone(),
                failure: failure.clone(),
            });
            run.agenda = run.plan.indices().filter(|ix| is_skipped_by_stop(run, *ix)).collect();
        }
        Event::Ended { at, status, reason, .. } => {
            let fits = !run.status.is_terminal() && status.is_terminal() && run.active.is_empty();
            expect(event, fits, || {
                format!("a {} run with {} open nodes", run.status, run.active.len())
            })?;
            run.status = *status;
            run.paused_at = None;
            run.agenda.clear();
            run.end = Some(End {
                at: *at,
                reason: reason.clone(),
            });
        }
        Event::Paused { at } => {
            let fits = !run.status.is_terminal() && run.stop.is_none() && run.paused_at.is_none();
            expect(event, fits, || describe_run(run))?;
            run.paused_at = Some(*at);
        }
        Event::Resumed { .. } => {
            expect(event, run.paused_at.is_some(), || describe_run(run))?;
            run.paused_at = None;
        }
        Event::Opened { node, .. }
        | Event::Skipped { node, .. }
        | Event::Slept { node, .. }
        | Event::Began { node, .. }
        | Event::Requested { node, .. }
        | Event::ItemsEnded { node, .. }
        | Event::Answered { node, .. }
        | Event::Retried { node, .. }
        | Event::Finished { node, .. }
        | Event::Resending { node, .. }
        | Event::Resent { node, .. }
        | Event::Routed { node, .. } => {
            let starts = matches!(event, Event::Opened { .. } | Event::Began { .. } | Event::Routed { .. });
            let fits = run.status == Status::Running && !(starts && run.paused_at.is_some());
            expect(event, fits, || describe_run(run))?;
            let ix = find(run, event, node)?;
            apply_to_node(run, event, ix)?;
        }
    }
    Ok(())
}

/// The run with the nodes that keep what an earlier run recorded. Their events are applied as in that run, so the same
/// transitions are legal; every node among them must have ended.
fn with_reused(run: &Run, event: &Event, reused: &Reused) -> Result<Run, Illegal> {
    let is_new = run.status == Status::Running && run.completed.is_empty() && run.active.is_empty();
    expect(event, is_new && run.stop.is_none(), || {
        format!("a {} run that has begun", run.status)
    })?;
    let mut next = run.clone();
    for kept in &reused.events {
        let node = kept.node().filter(|_| kept.is_of_node());
        let node = node.ok_or_else(|| Illegal {
            event: event.name(),
            what: format!("the event `{}` among its events", kept.name()),
        })?;
        let ix = find(&next, event, node)?;
        apply_to_node(&mut next, kept, ix)?;
    }
    expect(event, next.active.is_empty(), || "a node that has not ended".to_owned())?;
    next.kept_failure = reused.failure.clone();
    Ok(next)
}

fn apply_to_node(run: &mut Run, event: &Event, ix: NodeIx) -> Result<(), Illegal> {
    let sees = run.completed.len() as u32;
    let stopping = run.stop.is_some();
    let passes = run.plan.node(ix).kind == Kind::Pass;
    let state = &mut run.nodes[ix.at()];
    match (event, &mut state.phase) {
        (Event::Opened { at, until, .. }, phase @ Phase::Idle) => {
            *phase = Phase::Open(Open {
                attempt: 1,
                due: *at,
                until: *until,
                times_out: false,
                sees,
                began: false,
                requested: false,
                resending: None,
                last_failure: None,
            });
            state.opened_at = Some(*at);
            if state.answer.is_none() && !passes {
                run.agenda.remove(&ix);
            }
            run.active.insert(ix);
            run.timers.extend(until.map(|until| (until, ix)));
        }
        (Event::Skipped { .. }, phase @ (Phase::Idle | Phase::Open(_))) => {
            let phase = std::mem::replace(phase, Phase::Skipped);
            run.agenda.remove(&ix);
            close(run, ix, &phase);
            settle_edges(run, ix, &[]);
        }
        (Event::Answered { output, .. }, Phase::Idle) if state.answer.is_none() => state.answer = Some(*output),
        (Event::Slept { until, times_out, .. }, Phase::Open(open)) if open.until.is_none() => {
            open.until = Some(*until);
            open.times_out = *times_out;
            run.timers.insert((*until, ix));
        }
        (Event::Began { attempt, .. }, Phase::Open(open))
            if open.attempt == *attempt && *attempt > 1 && !open.began =>
        {
            open.began = true;
            open.sees = sees;
        }
        (
            Event::Requested {
                attempt, until, items, ..
            },
            Phase::Open(open),
        ) if open.attempt == *attempt && !open.requested && open.until.is_none() => {
            open.requested = true;
            open.until = *until;
            state.items = items.map(|count| Box::new(Items::new(count)));
            run.timers.extend(until.map(|until| (until, ix)));
        }
        (
            Event::ItemsEnded {
                attempt,
                succeeded,
                failed,
                refused,
                ..
            },
            Phase::Open(open),
        ) if open.attempt == *attempt
            && state
                .items
                .as_ref()
                .is_some_and(|items| items.accepts(succeeded, failed)) =>
        {
            if let Some(items) = &mut state.items {
                items.end(succeeded, failed, refused);
            }
        }
        (
            Event::Retried {
                attempt,
                failure,
                retry_at,
                ..
            },
            Phase::Open(open),
        ) if open.attempt == *attempt => {
            open.attempt += 1;
            open.due = *retry_at;
            open.began = false;
            open.requested = false;
            open.resending = None;
            state.items = None;
            open.last_failure = Some(failure.clone());
            if let Some(until) = open.until.take() {
                run.timers.remove(&(until, ix));
            }
        }
        (
            Event::Finished {
                attempt,
                outcome,
                chosen,
                ..
            },
            Phase::Open(open),
        ) if open.attempt == *attempt || (stopping && ends_with_last_failure(open, *attempt, outcome)) => {
            if let Outcome::Succeeded(output) = outcome {
                run.context_bytes = run.context_bytes.saturating_add(output.bytes);
            }
            let finished = Phase::Finished {
                outcome: outcome.clone(),
                attempt: *attempt,
                order: sees,
                chosen: chosen.clone(),
                routed: false,
            };
            let phase = std::mem::replace(&mut state.phase, finished);
            run.completed.push(ix);
            close(run, ix, &phase);
            if run.stop.is_none() {
                run.agenda.insert(ix);
            }
        }
        (Event::Resending { attempt, at, .. }, Phase::Open(open))
            if open.attempt == *attempt && open.requested && open.resending.is_none() && state.items.is_none() =>
        {
            open.resending = Some(*at);
        }
        (Event::Resent { attempt, .. }, Phase::Open(open)) if open.attempt == *attempt && open.resending.is_some() => {
            open.resending = None;
        }
        (Event::Routed { taken, .. }, Phase::Finished { routed, .. }) if !*routed => {
            *routed = true;
            run.agenda.remove(&ix);
            settle_edges(run, ix, taken);
        }
        (_, phase) => {
            let what = format!("node `{}`, which is {}", run.plan.node(ix).id, describe(phase));
            return Err(Illegal {
                event: event.name(),
                what,
            });
        }
    }
    Ok(())
}

/// Whether a node that waits for its next attempt ends with the failure of the previous one.
fn ends_with_last_failure(open: &Open, attempt: u32, outcome: &Outcome) -> bool {
    let last = open.last_failure.as_ref();
    open.attempt == attempt + 1 && matches!(outcome, Outcome::Failed(failure) if Some(failure) == last)
}

/// Removes a node from the open nodes and its timer.
fn close(run: &mut Run, ix: NodeIx, phase: &Phase) {
    run.active.remove(&ix);
    if let Phase::Open(Open { until: Some(until), .. }) = phase {
        run.timers.remove(&(*until, ix));
    }
}

/// Marks the edges of a node as satisfied (`taken`) or dead, and adds targets whose incoming edges are all settled to the
/// agenda.
fn settle_edges(run: &mut Run, ix: NodeIx, taken: &[u32]) {
    let plan = run.plan.clone();
    let taken: BTreeSet<u32> = taken.iter().copied().collect();
    for (at, edge) in (0u32..).zip(&plan.node(ix).edges) {
        let target = &mut run.nodes[edge.target.at()];
        target.settled += 1;
        target.satisfied += u32::from(taken.contains(&at));
        if target.settled == plan.incoming(edge.target) && target.phase == Phase::Idle {
            run.agenda.insert(edge.target);
        }
    }
}

/// Whether a stop skips the node at once: nodes that are not open yet, and open sleeps and waits. An open request is
/// aborted by the runner, which may have to cancel child runs first.
fn is_skipped_by_stop(run: &Run, ix: NodeIx) -> bool {
    match run.node(ix).phase {
        Phase::Idle => true,
        Phase::Open(_) => !matches!(run.plan.node(ix).kind, Kind::Action { .. } | Kind::Request { .. }),
        Phase::Finished { .. } | Phase::Skipped => false,
    }
}

fn find(run: &Run, event: &Event, node: &NodeId) -> Result<NodeIx, Illegal> {
    run.plan.find(node.as_str()).ok_or_else(|| Illegal {
        event: event.name(),
        what: format!("the plan: it has no node `{node}`"),
    })
}

fn expect(event: &Event, fits: bool, what: impl FnOnce() -> String) -> Result<(), Illegal> {
    match fits {
        true => Ok(()),
        false => Err(Illegal {
            event: event.name(),
            what: what(),
        }),
    }
}

fn describe_run(run: &Run) -> String {
    let state = match (&run.stop, run.paused_at) {
        (Some(_), _) => ", stopping",
        (None, Some(_)) => ", paused",
        (None, None) => "",
    };
    format!("a {}{state} run", run.status)
}

fn describe(phase: &Phase) -> String {
    match phase {
        Phase::Idle => "not open yet".to_owned(),
        Phase::Open(Open {
            attempt,
            due: Timestamp(due),
            requested,
            resending,
            ..
        }) => {
            let sent = if *requested { ", requested" } else { "" };
            let again = if resending.is_some() { ", to be sent again" } else { "" };
            format!("open with attempt {attempt} due at {due}{sent}{again}")
        }
        Phase::Finished { routed, .. } => format!("finished and {}routed", if *routed { "" } else { "not " }),
        Phase::Skipped => "skipped".to_owned(),
    }
}
