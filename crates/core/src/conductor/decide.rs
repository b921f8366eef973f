//! Decides which events follow from an input. A fact that does not match the state of the run yields no events.

use crate::{
    Effect, Event, Fact, Failure, Input, Join, Kind, Node, NodeId, NodeIx, OnFailure, Open, Outcome, Output, Phase,
    Route, Run, SkipReason, Status, Timestamp, Verdict, When, code, duration, plan::Overflow,
};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// Returns the events that follow directly from `input`; [`super::advance`] also decides what follows from them.
pub fn decide(run: &Run, input: &Input) -> Vec<Event> {
    if run.status.is_terminal() {
        return Vec::new();
    }
    let at = input.at;
    match &input.fact {
        Fact::Start { vars } => start(run, at, vars),
        Fact::Returned {
            node,
            attempt,
            result,
            jitter,
        } => returned(run, at, node, *attempt, result, *jitter),
        Fact::Judged { node, verdicts } => judged(run, node, verdicts),
        Fact::Guarded { node, verdict } => guarded(run, at, node, verdict),
        Fact::Timed { node, duration_ms } => timed(run, at, node, duration_ms),
        Fact::Tick => tick(run, at),
        Fact::Callback { node, output } => callback(run, node, *output),
        Fact::Cancel { reason } => cancel(run, at, reason),
        Fact::Aborted { node, attempt } => aborted(run, node, *attempt),
        Fact::Begins { node, attempt } => begins(run, at, node, *attempt),
        Fact::Settle => settle(run, at),
    }
}

fn start(run: &Run, at: Timestamp, vars: &Value) -> Vec<Event> {
    if run.status != Status::Pending {
        return Vec::new();
    }
    let deadline = run.plan.timeout_ms.map(|millis| at.plus_millis(millis));
    vec![Event::Started {
        at,
        deadline,
        vars: vars.clone(),
    }]
}

fn returned(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    attempt: u32,
    result: &Result<Output, Failure>,
    jitter: u32,
) -> Vec<Event> {
    let is_action = |ix| matches!(run.plan.node(ix).kind, Kind::Action { .. });
    let Some((ix, _)) = open_attempt(run, node, attempt).filter(|(ix, _)| is_action(*ix)) else {
        return Vec::new();
    };
    let finished = |outcome| {
        vec![Event::Finished {
            node: node.clone(),
            attempt,
            outcome,
        }]
    };
    let failure = match result {
        Ok(output) => return finished(Outcome::Succeeded(*output)),
        Err(failure) => failure,
    };
    let retry = &run.plan.node(ix).policies.retry;
    match retry.delay_after(attempt, failure, jitter) {
        Some(delay) if run.stop.is_none() => vec![Event::Retried {
            node: node.clone(),
            attempt,
            failure: failure.clone(),
            retry_at: at.plus_millis(delay),
        }],
        _ => finished(Outcome::Failed(failure.clone())),
    }
}

fn judged(run: &Run, node: &NodeId, verdicts: &[Verdict]) -> Vec<Event> {
    let unrouted = run.plan.find(node.as_str()).filter(|ix| run.agenda.contains(ix));
    let Some(ix) = unrouted.filter(|_| run.stop.is_none()) else {
        return Vec::new();
    };
    match &run.node(ix).phase {
        Phase::Finished { outcome, .. } => route(run, ix, outcome, verdicts),
        _ => Vec::new(),
    }
}

fn guarded(run: &Run, at: Timestamp, node: &NodeId, verdict: &Verdict) -> Vec<Event> {
    let waiting = run.plan.find(node.as_str()).filter(|ix| run.agenda.contains(ix));
    match waiting.filter(|ix| run.node(*ix).phase == Phase::Idle && run.stop.is_none()) {
        None => Vec::new(),
        Some(ix) if verdict.holds() => vec![open(run, ix, at, Some(verdict.clone()))],
        Some(_) => vec![Event::Skipped {
            node: node.clone(),
            reason: SkipReason::Guard,
            verdict: Some(verdict.clone()),
        }],
    }
}

fn timed(run: &Run, at: Timestamp, node: &NodeId, duration_ms: &Result<u64, Failure>) -> Vec<Event> {
    let is_sleep = |ix| matches!(run.plan.node(ix).kind, Kind::Sleep { .. });
    let untimed = open_attempt(run, node, 1).filter(|(ix, open)| is_sleep(*ix) && open.until.is_none());
    let Some((ix, open)) = untimed else {
        return Vec::new();
    };
    let node = node.clone();
    match duration_ms {
        Ok(millis) => {
            let limit = match run.plan.node(ix).kind {
                Kind::Sleep { timeout_ms, .. } => timeout_ms,
                Kind::Action { .. } | Kind::Wait { .. } => None,
            };
            let times_out = limit.is_some_and(|limit| limit < *millis);
            vec![Event::Slept {
                node,
                until: at.plus_millis(limit.map_or(*millis, |limit| limit.min(*millis))),
                times_out,
            }]
        }
        Err(failure) => vec![Event::Finished {
            node,
            attempt: open.attempt,
            outcome: Outcome::Failed(failure.clone()),
        }],
    }
}

fn tick(run: &Run, at: Timestamp) -> Vec<Event> {
    if run.stop.is_some() || run.status == Status::Pending {
        return Vec::new();
    }
    if run.deadline.is_some_and(|deadline| deadline <= at) {
        let message = match run.plan.timeout_ms {
            Some(limit) => format!("the run did not end within its timeout of {}", show(limit)),
            None => "the run did not end before its deadline".to_owned(),
        };
        let failure = Failure::permanent(code::RUN_TIMEOUT, message);
        return vec![stopping(Status::Failed, "timeout", None, Some(failure))];
    }
    let due = run.timers.iter().take_while(|(until, _)| *until <= at);
    due.map(|(_, ix)| timer_expired(run, *ix)).collect()
}

/// The event for a sleep that has ended or a wait that has timed out. A sleep that exceeds its timeout is not retried: the
/// next attempt would take just as long.
fn timer_expired(run: &Run, ix: NodeIx) -> Event {
    let node = run.plan.node(ix);
    let times_out = matches!(&run.node(ix).phase, Phase::Open(open) if open.times_out);
    let outcome = match node.kind {
        Kind::Wait { timeout_ms } => {
            let after = timeout_ms.map_or(String::new(), |limit| format!(" after {}", show(limit)));
            let message = format!("the wait timed out{after} without a callback");
            Outcome::Failed(Failure::permanent(code::WAIT_TIMEOUT, message))
        }
        Kind::Sleep {
            timeout_ms: Some(limit),
            ..
        } if times_out => {
            let message = format!("the sleep is longer than its timeout of {}", show(limit));
            Outcome::Failed(Failure::permanent(code::TIMEOUT, message))
        }
        Kind::Action { .. } | Kind::Sleep { .. } => Outcome::Succeeded(Output::EMPTY),
    };
    Event::Finished {
        node: node.id.clone(),
        attempt: 1,
        outcome,
    }
}

fn show(millis: u64) -> String {
    duration::show(Duration::from_millis(millis))
}

fn callback(run: &Run, node: &NodeId, output: Output) -> Vec<Event> {
    let is_wait = |ix: &NodeIx| matches!(run.plan.node(*ix).kind, Kind::Wait { .. });
    let Some(ix) = run.plan.find(node.as_str()).filter(is_wait) else {
        return Vec::new();
    };
    let node = node.clone();
    match &run.node(ix).phase {
        Phase::Open(open) if run.stop.is_none() => vec![Event::Finished {
            node,
            attempt: open.attempt,
            outcome: Outcome::Succeeded(output),
        }],
        Phase::Idle if run.status == Status::Running && run.node(ix).answer.is_none() => {
            vec![Event::Answered { node, output }]
        }
        _ => Vec::new(),
    }
}

fn cancel(run: &Run, at: Timestamp, reason: &str) -> Vec<Event> {
    match (run.status, &run.stop) {
        (Status::Pending, _) => vec![Event::Ended {
            at,
            status: Status::Cancelled,
            reason: Some(reason.to_owned()),
        }],
        (Status::Running, None) => vec![stopping(Status::Cancelled, reason, None, None)],
        _ => Vec::new(),
    }
}

/// A node whose first attempt did not start is skipped. A node that waits for a retry ends with the failure of its last
/// attempt.
fn aborted(run: &Run, node: &NodeId, attempt: u32) -> Vec<Event> {
    let Some((_, open)) = open_attempt(run, node, attempt).filter(|_| run.stop.is_some()) else {
        return Vec::new();
    };
    match &open.last_failure {
        None => vec![Event::Skipped {
            node: node.clone(),
            reason: SkipReason::Stopped,
            verdict: None,
        }],
        Some(failure) => vec![Event::Finished {
            node: node.clone(),
            attempt: attempt - 1,
            outcome: Outcome::Failed(failure.clone()),
        }],
    }
}

/// Records the start of an attempt if its parameters depend on the time of the start.
fn begins(run: &Run, at: Timestamp, node: &NodeId, attempt: u32) -> Vec<Event> {
    let due = open_attempt(run, node, attempt).filter(|(ix, _)| run.stop.is_none() && run.must_record_start(*ix));
    due.map_or_else(Vec::new, |_| {
        vec![Event::Began {
            node: node.clone(),
            attempt,
            at,
        }]
    })
}

/// The events that follow from the state of the run without a new fact.
fn settle(run: &Run, at: Timestamp) -> Vec<Event> {
    if run.status != Status::Running {
        return Vec::new();
    }
    if let Some(stop) = &run.stop {
        let events = wind_down(run);
        if events.is_empty() && run.active.is_empty() {
            return vec![Event::Ended {
                at,
                status: stop.status,
                reason: Some(stop.reason.clone()),
            }];
        }
        return events;
    }
    if let Some(event) = overflow(run) {
        return vec![event];
    }
    if run.agenda.is_empty() && run.active.is_empty() {
        return vec![ended(run, at)];
    }
    let mut events = Vec::new();
    for ix in run.agenda.iter().copied() {
        match &run.node(ix).phase {
            Phase::Idle => events.extend(join(run, ix, at)),
            Phase::Finished { outcome, .. } if open_conditions(run.plan.node(ix), outcome).next().is_none() => {
                events.extend(route(run, ix, outcome, &[]));
            }
            Phase::Open(open) => events.extend(answered_early(run, ix, open)),
            Phase::Finished { .. } | Phase::Skipped => {}
        }
        if matches!(events.last(), Some(Event::Stopping { .. })) {
            break;
        }
    }
    events
}

/// Skips the nodes that a stop ends at once. In a stopping run these are the agenda.
fn wind_down(run: &Run) -> Vec<Event> {
    let skip = |ix: NodeIx| Event::Skipped {
        node: run.plan.node(ix).id.clone(),
        reason: SkipReason::Stopped,
        verdict: None,
    };
    run.agenda.iter().copied().map(skip).collect()
}

fn overflow(run: &Run) -> Option<Event> {
    let policy = &run.plan.context;
    let over = run.context_bytes > policy.max_context_size_bytes;
    (over && policy.overflow_behavior == Overflow::Fail).then(|| {
        let message = format!(
            "the outputs of this run take {} bytes, more than the limit of {}",
            run.context_bytes, policy.max_context_size_bytes
        );
        let node = run.completed.last().map(|ix| run.plan.node(*ix).id.clone());
        let failure = Failure::permanent(code::CONTEXT_OVERFLOW, message);
        stopping(Status::Failed, "context_overflow", node, Some(failure))
    })
}

fn join(run: &Run, ix: NodeIx, at: Timestamp) -> Option<Event> {
    let state = run.node(ix);
    let incoming = run.plan.incoming(ix);
    let fires = match run.plan.node(ix).join {
        Join::Guard(_) => return None,
        Join::Any => state.satisfied > 0 || incoming == 0,
        Join::All => state.satisfied == incoming,
    };
    Some(match fires {
        true => open(run, ix, at, None),
        false => Event::Skipped {
            node: run.plan.node(ix).id.clone(),
            reason: SkipReason::DeadPath,
            verdict: None,
        },
    })
}

fn open(run: &Run, ix: NodeIx, at: Timestamp, verdict: Option<Verdict>) -> Event {
    let node = run.plan.node(ix);
    let until = match node.kind {
        Kind::Wait { timeout_ms } => timeout_ms.map(|millis| at.plus_millis(millis)),
        Kind::Action { .. } | Kind::Sleep { .. } => None,
    };
    Event::Opened {
        node: node.id.clone(),
        at,
        until,
        verdict,
    }
}

fn answered_early(run: &Run, ix: NodeIx, open: &Open) -> Option<Event> {
    run.node(ix).answer.map(|output| Event::Finished {
        node: run.plan.node(ix).id.clone(),
        attempt: open.attempt,
        outcome: Outcome::Succeeded(output),
    })
}

/// The evaluation a finished node needs before it can be routed, if any.
pub(super) fn judgement(node: &Node, outcome: &Outcome) -> Option<Effect> {
    let edges: Vec<u32> = open_conditions(node, outcome).collect();
    (!edges.is_empty()).then(|| Effect::Judge {
        node: node.id.clone(),
        edges,
        first_only: node.route == Route::FirstMatch,
    })
}

/// The edges whose conditions must be evaluated, in the order of evaluation: `Unhandled` edges last.
fn open_conditions(node: &Node, outcome: &Outcome) -> impl Iterator<Item = u32> {
    let fits = |when| match when {
        When::Always => true,
        When::Success => outcome.is_success(),
        When::Failure | When::Unhandled => !outcome.is_success(),
    };
    let first_only = node.route == Route::FirstMatch;
    let of = |unhandled| {
        let edges = (0u32..).zip(&node.edges);
        edges.filter(move |(_, edge)| fits(edge.when) && (edge.when == When::Unhandled) == unhandled)
    };
    // With first-match, an edge without a condition is always taken, so later edges are not needed.
    let reached = of(false)
        .chain(of(true))
        .take_while(move |(_, edge)| !first_only || edge.condition.is_some());
    reached.filter(|(_, edge)| edge.condition.is_some()).map(|(at, _)| at)
}

fn route(run: &Run, ix: NodeIx, outcome: &Outcome, verdicts: &[Verdict]) -> Vec<Event> {
    let node = run.plan.node(ix);
    let taken = taken_edges(node, outcome, verdicts);
    let handled = outcome.is_success() || !taken.is_empty();
    let mut events = vec![Event::Routed {
        node: node.id.clone(),
        taken,
        verdicts: verdicts.to_vec(),
    }];
    if let (false, OnFailure::FailFast, Outcome::Failed(failure)) = (handled, run.plan.on_failure, outcome) {
        let id = Some(node.id.clone());
        events.push(stopping(Status::Failed, "action_failed", id, Some(failure.clone())));
    }
    events
}

/// The satisfied edges, restricted by the route policy.
fn taken_edges(node: &Node, outcome: &Outcome, verdicts: &[Verdict]) -> Vec<u32> {
    let true_edges: BTreeSet<u32> = verdicts
        .iter()
        .filter(|verdict| verdict.holds())
        .map(|verdict| verdict.edge)
        .collect();
    let holds = |at: u32, condition: &Option<String>| condition.is_none() || true_edges.contains(&at);
    let satisfied = |wanted: &[When]| -> Vec<u32> {
        let edges = (0u32..).zip(&node.edges);
        let fitting = edges.filter(|(at, edge)| wanted.contains(&edge.when) && holds(*at, &edge.condition));
        fitting.map(|(at, _)| at).collect()
    };
    let mut taken = match outcome {
        Outcome::Succeeded(_) => satisfied(&[When::Success, When::Always]),
        Outcome::Failed(_) => satisfied(&[When::Failure, When::Always]),
    };
    if !outcome.is_success() {
        let by_failure_edge = taken.iter().any(|at| node.edges[*at as usize].when == When::Failure);
        if !by_failure_edge {
            taken.extend(satisfied(&[When::Unhandled]));
        }
    }
    if node.route == Route::FirstMatch {
        taken.truncate(1);
    }
    taken
}

/// The final event of a run that was not stopped.
fn ended(run: &Run, at: Timestamp) -> Event {
    let failed = run.plan.on_failure == OnFailure::Continue && unhandled_failure(run);
    match failed {
        true => Event::Ended {
            at,
            status: Status::Failed,
            reason: Some("action_failed".to_owned()),
        },
        false => Event::Ended {
            at,
            status: Status::Succeeded,
            reason: None,
        },
    }
}

/// With `OnFailure::Continue`: whether a failure makes the run fail. It does if no node succeeded, or if the failure
/// caused a node to be skipped and no guarded node after it ran.
fn unhandled_failure(run: &Run) -> bool {
    let ran = |ix: NodeIx| matches!(run.node(ix).phase, Phase::Finished { .. });
    let succeeded =
        |ix: &NodeIx| matches!(&run.node(*ix).phase, Phase::Finished { outcome, .. } if outcome.is_success());
    let any_success = run.completed.iter().any(succeeded);
    run.completed.iter().filter(|ix| !succeeded(ix)).any(|ix| {
        let targets = || run.plan.node(*ix).edges.iter().map(|edge| edge.target);
        let is_guarded = |ix: NodeIx| matches!(run.plan.node(ix).join, Join::Guard(_));
        let skipped_one = targets().any(|ix| !is_guarded(ix) && !ran(ix));
        let handled = targets().any(|ix| is_guarded(ix) && ran(ix));
        !any_success || (skipped_one && !handled)
    })
}

fn stopping(status: Status, reason: &str, node: Option<NodeId>, failure: Option<Failure>) -> Event {
    Event::Stopping {
        status,
        reason: reason.to_owned(),
        node,
        failure,
    }
}

fn open_attempt<'a>(run: &'a Run, node: &NodeId, attempt: u32) -> Option<(NodeIx, &'a Open)> {
    let ix = run.plan.find(node.as_str())?;
    match &run.node(ix).phase {
        Phase::Open(open) if open.attempt == attempt => Some((ix, open)),
        _ => None,
    }
}
