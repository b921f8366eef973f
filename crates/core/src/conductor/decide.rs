//! Decides which events follow from an input. A fact that does not match the state of the run yields no events.

use super::{
    commands::{pause, resend, resume, skip},
    items::{EndedItems, items_ended, listed},
    route::{open_conditions, route},
};
use crate::{
    Event, Fact, Failure, Input, Join, Kind, NodeId, NodeIx, OnFailure, Open, Outcome, Output, Phase, Reused, Run,
    SkipReason, Status, Timestamp, Verdict, code, duration, plan::Overflow,
};
use serde_json::Value;
use std::time::Duration;

/// Returns the events that follow directly from `input`; [`super::advance`] also decides what follows from them.
pub fn decide(run: &Run, input: &Input) -> Vec<Event> {
    if run.status.is_terminal() {
        return Vec::new();
    }
    let at = input.at;
    match &input.fact {
        Fact::Start {
            vars,
            timeout_ms,
            reused,
        } => start(run, at, vars, *timeout_ms, reused.as_deref()),
        Fact::Returned {
            node,
            attempt,
            result,
            jitter,
            queued_ms,
        } => {
            let mut events = returned(run, at, node, *attempt, result, *jitter);
            events.iter_mut().for_each(|event| event.note_queue(*queued_ms));
            events
        }
        Fact::Judged { node, verdicts } => judged(run, node, verdicts),
        Fact::Guarded { node, verdict } => guarded(run, at, node, verdict),
        Fact::Timed { node, duration_ms } => timed(run, at, node, duration_ms),
        Fact::Tick => tick(run, at),
        Fact::Callback { node, output } => callback(run, node, *output),
        Fact::Answered {
            node,
            attempt,
            result,
            chosen,
            jitter,
        } => answered(run, at, node, *attempt, result, chosen.as_ref(), *jitter),
        Fact::Listed {
            node,
            attempt,
            items,
            jitter,
        } => listed(run, at, node, *attempt, items, *jitter),
        Fact::ItemsEnded {
            node,
            attempt,
            succeeded,
            failed,
            refused,
            failure,
            jitter,
        } => {
            let ended = EndedItems {
                succeeded,
                failed,
                refused,
                failure: failure.as_ref(),
            };
            items_ended(run, at, node, *attempt, &ended, *jitter)
        }
        Fact::Cancel { reason } => cancel(run, at, reason),
        Fact::Pause { at } => pause(run, *at),
        Fact::Resume { at } => resume(run, *at),
        Fact::Skip {
            node,
            output,
            chosen,
            skipped,
        } => skip(run, at, node, *output, chosen.as_ref(), skipped),
        Fact::Resend { node, attempt, at } => resend(run, node, *attempt, *at),
        Fact::Aborted { node, attempt } => aborted(run, node, *attempt),
        Fact::Begins { node, attempt } => begins(run, at, node, *attempt),
        Fact::Settle => settle(run, at),
    }
}

fn start(run: &Run, at: Timestamp, vars: &Value, timeout_ms: Option<u64>, reused: Option<&Reused>) -> Vec<Event> {
    if run.status != Status::Pending || run.paused_at.is_some() {
        return Vec::new();
    }
    let timeout_ms = timeout_ms.or(run.plan.timeout_ms);
    let deadline = timeout_ms.map(|millis| at.plus_millis(millis));
    let started = Event::Started {
        at,
        deadline,
        vars: vars.clone(),
    };
    let reused = reused.map(|reused| Event::Reused(Box::new(reused.clone())));
    std::iter::once(started).chain(reused).collect()
}

fn returned(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    attempt: u32,
    result: &Result<Output, Failure>,
    jitter: u32,
) -> Vec<Event> {
    let is_sending = |open: &Open| !open.requested || open.resending.is_some();
    let Some((ix, open)) = open_attempt(run, node, attempt).filter(|(_, open)| is_sending(open)) else {
        return Vec::new();
    };
    if open.requested {
        return vec![Event::Resent {
            node: node.clone(),
            attempt,
            failure: result.as_ref().err().cloned(),
        }];
    }
    let kind = &run.plan.node(ix).kind;
    if kind.each().is_some() && result.is_ok() {
        return Vec::new(); // its list is answered with `Fact::Listed`
    }
    let event = match (kind, result) {
        (Kind::Action { .. }, Ok(output)) => finished(node, attempt, Outcome::Succeeded(*output), None),
        (Kind::Request { timeout_ms, .. }, Ok(_)) => Event::Requested {
            node: node.clone(),
            attempt,
            until: timeout_ms.map(|millis| at.plus_millis(millis)),
            items: None,
            queued_ms: None,
        },
        (Kind::Action { .. } | Kind::Request { .. }, Err(failure)) => failed(run, at, ix, open, failure, jitter),
        (Kind::Sleep { .. } | Kind::Wait { .. } | Kind::Pass, _) => return Vec::new(),
    };
    vec![event]
}

/// The answer of a request. It may arrive before the request is recorded as sent.
fn answered(
    run: &Run,
    at: Timestamp,
    node: &NodeId,
    attempt: u32,
    result: &Result<Output, Failure>,
    chosen: Option<&String>,
    jitter: u32,
) -> Vec<Event> {
    let is_request = |ix| matches!(run.plan.node(ix).kind, Kind::Request { .. });
    let Some((ix, open)) = open_attempt(run, node, attempt).filter(|(ix, _)| is_request(*ix)) else {
        return Vec::new();
    };
    vec![match result {
        Ok(output) => finished(node, attempt, Outcome::Succeeded(*output), chosen.cloned()),
        Err(failure) => failed(run, at, ix, open, failure, jitter),
    }]
}

/// The event for an attempt that failed: a retry if the policy allows one.
pub(super) fn failed(run: &Run, at: Timestamp, ix: NodeIx, open: &Open, failure: &Failure, jitter: u32) -> Event {
    let node = run.plan.node(ix);
    match node.policies.retry.delay_after(open.attempt, failure, jitter) {
        Some(delay) if run.stop.is_none() => Event::Retried {
            node: node.id.clone(),
            attempt: open.attempt,
            failure: failure.clone(),
            retry_at: at.plus_millis(delay),
            queued_ms: None,
        },
        _ => finished(&node.id, open.attempt, Outcome::Failed(failure.clone()), None),
    }
}

fn finished(node: &NodeId, attempt: u32, outcome: Outcome, chosen: Option<String>) -> Event {
    Event::Finished {
        node: node.clone(),
        attempt,
        outcome,
        chosen,
        skipped: None,
        queued_ms: None,
    }
}

fn judged(run: &Run, node: &NodeId, verdicts: &[Verdict]) -> Vec<Event> {
    let unrouted = run.plan.find(node.as_str()).filter(|ix| run.agenda.contains(ix));
    let Some(ix) = unrouted.filter(|_| run.goes_on()) else {
        return Vec::new();
    };
    match &run.node(ix).phase {
        Phase::Finished { outcome, .. } => route(run, ix, outcome, verdicts),
        _ => Vec::new(),
    }
}

fn guarded(run: &Run, at: Timestamp, node: &NodeId, verdict: &Verdict) -> Vec<Event> {
    let waiting = run.plan.find(node.as_str()).filter(|ix| run.agenda.contains(ix));
    match waiting.filter(|ix| run.node(*ix).phase == Phase::Idle && run.goes_on()) {
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
                _ => None,
            };
            let times_out = limit.is_some_and(|limit| limit < *millis);
            vec![Event::Slept {
                node,
                until: at.plus_millis(limit.map_or(*millis, |limit| limit.min(*millis))),
                times_out,
            }]
        }
        Err(failure) => vec![finished(&node, open.attempt, Outcome::Failed(failure.clone()), None)],
    }
}

fn tick(run: &Run, at: Timestamp) -> Vec<Event> {
    if run.stop.is_some() || run.status == Status::Pending {
        return Vec::new();
    }
    if let Some(deadline) = run.deadline.filter(|deadline| *deadline <= at) {
        let limit = deadline.micros_since(run.started_at.unwrap_or_default()) / 1000;
        let message = format!("the run did not end within its timeout of {}", show(limit));
        let failure = Failure::permanent(code::RUN_TIMEOUT, message);
        return vec![stopping(Status::Failed, "timeout", None, Some(failure))];
    }
    if run.paused_at.is_some() {
        return Vec::new(); // timers that are due expire when the run is resumed
    }
    let due = run.timers.iter().take_while(|(until, _)| *until <= at);
    due.filter_map(|(_, ix)| timer_expired(run, at, *ix)).collect()
}

/// The event for a sleep that has ended, or a wait or request that has timed out. A sleep that exceeds its timeout is not
/// retried: the next attempt would take just as long. A retry after a timeout has the full delay, because a tick has no
/// randomness.
fn timer_expired(run: &Run, at: Timestamp, ix: NodeIx) -> Option<Event> {
    let node = run.plan.node(ix);
    let Phase::Open(open) = &run.node(ix).phase else {
        return None;
    };
    let after = |limit: &Option<u64>| limit.map_or(String::new(), |limit| format!(" after {}", show(limit)));
    let outcome = match &node.kind {
        Kind::Wait { timeout_ms } => {
            let message = format!("the wait timed out{} without a callback", after(timeout_ms));
            Outcome::Failed(Failure::permanent(code::WAIT_TIMEOUT, message))
        }
        Kind::Request {
            timeout_ms,
            retry_on_timeout,
            timeout_code,
            ..
        } => {
            let message = format!("the request timed out{} without an answer", after(timeout_ms));
            let failure = Failure {
                retriable: *retry_on_timeout,
                ..Failure::permanent(timeout_code, message)
            };
            return Some(failed(run, at, ix, open, &failure, u32::MAX));
        }
        Kind::Sleep {
            timeout_ms: Some(limit),
            ..
        } if open.times_out => {
            let message = format!("the sleep is longer than its timeout of {}", show(*limit));
            Outcome::Failed(Failure::permanent(code::TIMEOUT, message))
        }
        Kind::Action { .. } | Kind::Sleep { .. } | Kind::Pass => Outcome::Succeeded(Output::EMPTY),
    };
    Some(finished(&node.id, open.attempt, outcome, None))
}

/// A configured limit, exactly.
fn show(millis: u64) -> String {
    duration::exact(Duration::from_millis(millis))
}

fn callback(run: &Run, node: &NodeId, output: Output) -> Vec<Event> {
    let is_wait = |ix: &NodeIx| matches!(run.plan.node(*ix).kind, Kind::Wait { .. });
    let Some(ix) = run.plan.find(node.as_str()).filter(is_wait) else {
        return Vec::new();
    };
    match &run.node(ix).phase {
        Phase::Open(open) if run.stop.is_none() => {
            vec![finished(node, open.attempt, Outcome::Succeeded(output), None)]
        }
        Phase::Idle if run.status == Status::Running && run.node(ix).answer.is_none() => vec![Event::Answered {
            node: node.clone(),
            output,
        }],
        _ => Vec::new(),
    }
}

fn cancel(run: &Run, at: Timestamp, reason: &str) -> Vec<Event> {
    match (run.status, &run.stop) {
        (Status::Pending, _) => vec![Event::Ended {
            at,
            status: Status::Cancelled,
            reason: Some(reason.to_owned()),
            missing_outputs: Vec::new(),
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
        Some(failure) => vec![finished(node, attempt - 1, Outcome::Failed(failure.clone()), None)],
    }
}

/// Records the start of an attempt if its parameters depend on the time of the start.
fn begins(run: &Run, at: Timestamp, node: &NodeId, attempt: u32) -> Vec<Event> {
    let due = open_attempt(run, node, attempt).filter(|(ix, _)| run.goes_on() && run.must_record_start(*ix));
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
                missing_outputs: Vec::new(),
            }];
        }
        return events;
    }
    if run.paused_at.is_some() {
        return Vec::new();
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
            Phase::Open(open) => events.extend(ends_at_once(run, ix, open)),
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
        Kind::Action { .. } | Kind::Sleep { .. } | Kind::Request { .. } | Kind::Pass => None,
    };
    Event::Opened {
        node: node.id.clone(),
        at,
        until,
        verdict,
    }
}

/// The end of a wait that was answered before it was opened, or of a node that does nothing.
fn ends_at_once(run: &Run, ix: NodeIx, open: &Open) -> Option<Event> {
    let node = run.plan.node(ix);
    let passes = (node.kind == Kind::Pass).then_some(Output::EMPTY);
    let output = run.node(ix).answer.or(passes)?;
    Some(finished(&node.id, open.attempt, Outcome::Succeeded(output), None))
}

/// The final event of a run that was not stopped.
fn ended(run: &Run, at: Timestamp) -> Event {
    if let Some(kept) = &run.kept_failure {
        return Event::Ended {
            at,
            status: Status::Failed,
            reason: Some(kept.reason.clone()),
            missing_outputs: Vec::new(),
        };
    }
    let failed = run.plan.on_failure == OnFailure::Continue && unhandled_failure(run);
    match failed {
        true => Event::Ended {
            at,
            status: Status::Failed,
            reason: Some("action_failed".to_owned()),
            missing_outputs: Vec::new(),
        },
        false => Event::Ended {
            at,
            status: Status::Succeeded,
            reason: None,
            missing_outputs: Vec::new(),
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

pub(super) fn stopping(status: Status, reason: &str, node: Option<NodeId>, failure: Option<Failure>) -> Event {
    Event::Stopping {
        status,
        reason: reason.to_owned(),
        node,
        failure,
    }
}

pub(super) fn open_attempt<'a>(run: &'a Run, node: &NodeId, attempt: u32) -> Option<(NodeIx, &'a Open)> {
    let ix = run.plan.find(node.as_str())?;
    match &run.node(ix).phase {
        Phase::Open(open) if open.attempt == attempt => Some((ix, open)),
        _ => None,
    }
}
