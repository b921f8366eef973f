//! Quarantine of runs that this program cannot advance: their plan or journal cannot be read, or their driver failed.
//!
//! | condition | result |
//! | --- | --- |
//! | a cancel among its messages | the run ends as `Cancelled` |
//! | the run's deadline has passed | the run ends as `Failed`, reason `timeout` |
//! | the run was claimed `max_poison_retries` times in a row without a commit | the run is dead-lettered |
//! | none of these | the run is released, and due again after `poison_delay`, at its deadline, or with the next message |
//!
//! What must stay true: such a run is ended from its row, its messages and the deadline in its journal, without its plan and
//! without replay. So it ends without a journal row, like a dead-lettered run. Each claim counts toward the poison limit.

use super::nothing_but;
use crate::stats::CountedRun;
use crate::{
    dead_letters::{self, Held},
    engine::{Ended, Shared},
    metrics::{FailureReason, between},
    trace::{ExecutionFacts, RunTrace, execution},
};
use fermata_core::{RunId, Status, Timestamp, code, recorded_deadline};
use fermata_store::{
    StoreError,
    dead_letters::{DeadLetter, DeadReason},
    runs::{CommitAnswer, RunMessage, StatusChange, StoredRun, Then},
};
use serde_json::json;
use std::time::Duration;

/// Pauses before an end that was not confirmed is committed again, in milliseconds.
const PAUSES: [u64; 3] = [50, 250, 1000];

/// Releases a run that cannot be advanced, or ends it.
pub(crate) async fn quarantine(shared: &Shared, run: RunId, epoch: u64, what: &str) {
    let stored = match shared.store.load(run).await {
        Ok(Some(stored)) if stored.owner == Some(shared.runner.id) && stored.epoch == epoch => stored,
        Ok(_) => return,
        Err(error) => {
            return tracing::error!(ExecutionId = %run, %what, %error, "a run can be neither advanced nor read; its lease is released later");
        }
    };
    let examined = match ended(shared, &stored).await {
        Ok(Some(examined)) => examined,
        Ok(None) => return,
        Err(error) => {
            return tracing::error!(ExecutionId = %run, %what, %error, "a run can be neither advanced nor read; its lease is released later");
        }
    };
    let settings = &shared.settings;
    if stored.takeovers >= settings.max_poison_retries {
        let what = format!("{what}; claimed {} times in a row without a commit", stored.takeovers);
        dead_letters::dead_letter_run(shared, Held::of(&stored), DeadReason::Poison, &what).await;
        return;
    }
    let pause = settings.poison_delay;
    tracing::error!(
        ExecutionId = %run, %what, takeovers = stored.takeovers,
        "a run cannot be advanced; it is quarantined for {} s and can be cancelled", pause.as_secs()
    );
    let retry_at = shared.clock.now().plus_millis(pause.as_millis() as u64);
    let wake_at = recorded_deadline(&stored.journal).map_or(retry_at, |deadline| deadline.min(retry_at));
    let then = Then::GiveUp { wake_at, examined };
    let commit = nothing_but(shared, run, epoch, then);
    shared.store.commit(commit).await; // if it fails, the lease is found as orphaned
}

/// Ends a claimed run that was cancelled or whose deadline has passed, without replay. Otherwise returns the newest message
/// that was examined.
async fn ended(shared: &Shared, stored: &StoredRun) -> Result<Option<u64>, StoreError> {
    let messages = match stored.message_seq > stored.messages_seen {
        true => shared.store.messages(stored.id, stored.messages_seen).await?,
        false => Vec::new(),
    };
    let examined = messages.last().map_or(stored.messages_seen, |message| message.seq);
    let cancel = messages.into_iter().find_map(|message| match message.message {
        RunMessage::Cancel { reason } => Some(reason),
        _ => None,
    });
    let now = shared.clock.now();
    let late = recorded_deadline(&stored.journal).is_some_and(|deadline| deadline <= now);
    let (status, reason, error) = match cancel {
        Some(reason) => (Status::Cancelled, reason, None),
        None if late => {
            let message = "the run exceeded its time limit and could not be advanced";
            let error = json!({ "code": code::RUN_TIMEOUT, "message": message });
            (Status::Failed, "timeout".to_owned(), Some(error.to_string()))
        }
        None => return Ok(Some(examined)),
    };
    let change = change(status, now, reason.clone(), error);
    // If it fails, the lease is found as orphaned.
    let parent = stored.parent;
    if let Settled::Ended { .. } = end(shared, stored.id, stored.epoch, parent, change, None).await {
        let (metrics, took) = (&shared.metrics, between(created_at(stored.id), now));
        let of = metrics.workflow(&stored.workflow_id);
        metrics.run_ended(&of, status, FailureReason::of(status, Some(&reason)), took);
        let counted = CountedRun {
            workflow_uid: stored.workflow_uid,
            workflow: &stored.workflow_id,
            tenant: &stored.tenant.as_str().into(),
        };
        shared.numbers.ended(&counted, now, status, took);
        let trace = RunTrace::of_stored(stored.id, stored.traceparent.as_deref());
        if shared.tracer_for(&trace).is_some() {
            shared.emit([execution(ExecutionFacts {
                trace,
                workflow: &stored.workflow_id,
                version: stored.workflow_version,
                correlation_id: stored.correlation_id.as_deref(),
                is_child: stored.parent.is_some(),
                status,
                start: created_at(stored.id),
                end: now,
                failure: None,
            })]);
        }
        // The reason of a cancel is what its caller wrote.
        let reason = Some(reason).filter(|_| status == Status::Failed);
        tracing::warn!(
            ExecutionId = %stored.id,
            WorkflowId = stored.workflow_id,
            status = status.as_str(),
            reason,
            "a run that could not be advanced was ended"
        );
    }
    Ok(None)
}

/// When a run was created, to the millisecond: ids are UUIDv7.
fn created_at(run: RunId) -> Timestamp {
    let millis = run.0.as_u128() >> 80;
    Timestamp(i64::try_from(millis).unwrap_or(0) * 1000)
}

/// A terminal status of a run that is not replayed.
pub(crate) fn change(status: Status, at: Timestamp, reason: String, error: Option<String>) -> StatusChange {
    StatusChange {
        status,
        started_at: None,
        ended_at: Some(at),
        reason: Some(reason),
        error,
        outputs: None,
        context_snapshot: None,
    }
}

/// What came of ending a run.
pub(crate) enum Settled {
    /// It ended now.
    Ended {
        /// Whether its dead letter is stored.
        has_dead_letter: bool,
    },
    /// It had ended before, or another runner holds it.
    Elsewhere,
    /// Not known to have ended: this process may still hold it.
    No,
}

/// Commits the end of a run that this process holds and notifies its waiters and its parent.
pub(crate) async fn end(
    shared: &Shared,
    run: RunId,
    epoch: u64,
    parent: Option<RunId>,
    change: StatusChange,
    dead_letter: Option<Box<DeadLetter>>,
) -> Settled {
    let ended = Ended {
        status: change.status,
        reason: change.reason.clone(),
        error: change.error.clone(),
        outputs: None,
    };
    if let Err(error) = shared.cancel_awaited_children(run, "parent_ended").await {
        tracing::warn!(ExecutionId = %run, %error, "the children of a run could not be cancelled; its end is tried again later");
        return Settled::No;
    }
    let mut commit = nothing_but(shared, run, epoch, Then::Keep);
    commit.status = Some(change);
    commit.dead_letter = dead_letter;
    let mut pauses = PAUSES.into_iter();
    loop {
        match (shared.store.commit(commit.clone()).await, pauses.next()) {
            (CommitAnswer::Committed { .. }, _) => break,
            (CommitAnswer::Unknown(_), Some(pause)) => tokio::time::sleep(Duration::from_millis(pause)).await,
            (CommitAnswer::Unknown(_), None) => return Settled::No,
            // The end of the run is more important than its dead letter.
            (CommitAnswer::Rejected(what), _) if commit.dead_letter.take().is_some() => {
                tracing::error!(ExecutionId = %run, %what, "the dead letter of a run was rejected; the run ends without one");
            }
            (CommitAnswer::Rejected(what), _) => {
                tracing::error!(ExecutionId = %run, %what, "the end of a run was rejected");
                return Settled::No;
            }
            (CommitAnswer::Fenced | CommitAnswer::Conflict(_), _) => return Settled::Elsewhere,
        }
    }
    if let Some(parent) = parent {
        shared.notify_parent(parent).await;
    }
    shared.hub.committed(run, 0, || Some(ended));
    Settled::Ended {
        has_dead_letter: commit.dead_letter.is_some(),
    }
}
