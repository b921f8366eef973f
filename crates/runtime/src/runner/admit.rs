//! The first claim of a run with flow control: before its first step it asks for what it needs (`fermata_store::flow`).
//!
//! | the run | what happens |
//! | --- | --- |
//! | has everything, is not limited, or has begun | it is driven |
//! | was cancelled, or its workflow was archived | it is driven: it ends without beginning |
//! | gets everything now | it is driven |
//! | has to wait, or its workflow is paused | the store has released it |
//! | was started by SQL, and its unique key has a run, or its payload went to another run | it ends as `Cancelled` |
//! | was started by SQL, and its key is full and refuses | it ends as `Cancelled` |

use crate::{
    compiled::Compiled, engine::Shared, error::EngineError, flow::Subject, runner::quarantine, scope::Payloads,
};
use fermata_core::Status;
use fermata_store::{
    StoreError,
    flow::{Admission, Admit, Flow, UNLIMITED},
    runs::{RunMessage, StoredRun},
};

/// Why a claimed run is not driven.
pub(super) enum NotAdmitted {
    /// It was released or has ended.
    Settled,
    /// A key of its document cannot be rendered.
    InvalidKey(String),
    /// The store failed.
    Store(StoreError),
}

/// What a claimed run has to know of its workflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WorkflowState {
    pub(super) archived: bool,
    /// Whether it was paused when the run was claimed. The store decides whether the run waits.
    pub(super) paused: bool,
    /// The active version.
    pub(super) current: Option<u32>,
}

/// Asks for what a claimed run needs before its first step.
pub(super) async fn admit(
    shared: &Shared,
    stored: &StoredRun,
    compiled: &Compiled,
    payloads: &Payloads,
    workflow: WorkflowState,
) -> Result<(), NotAdmitted> {
    let paused = workflow.paused;
    let is_admitted = !paused && stored.flow.as_ref().is_some_and(|flow| flow.is_admitted());
    if stored.status != Status::Pending || is_admitted {
        return Ok(());
    }
    let flow = match &stored.flow {
        Some(stored) => stored.flow.clone(),
        None => {
            let (trigger, spec) = payloads.given();
            let subject = Subject {
                tenant: &stored.tenant,
                workflow: stored.workflow_uid,
                version: stored.workflow_version,
                trigger,
                spec,
                shares: &[],
            };
            match shared.settings.flow_of(compiled, &subject) {
                Ok(None) if paused => Flow::default(),
                Ok(None) => return Ok(()),
                Ok(Some(mut flow)) => {
                    // As when it was stored (`engine/start.rs`).
                    if stored.rerun.is_some() || stored.parent_waits {
                        flow.debounce = None;
                    }
                    if flow.is_empty() && !paused {
                        return Ok(());
                    }
                    *flow
                }
                Err(error) => {
                    let (rule, why) = (error.rule, error.why);
                    return Err(NotAdmitted::InvalidKey(format!(
                        "the key of `{rule}` cannot be rendered: {why}"
                    )));
                }
            }
        }
    };
    if is_cancelled(shared, stored).await.map_err(NotAdmitted::Store)? {
        return Ok(());
    }
    let limit = active_limit(shared, stored, workflow.current)
        .await
        .map_err(NotAdmitted::Store)?;
    let request = Admit {
        run: stored.id,
        runner: shared.runner.id,
        epoch: stored.epoch,
        workflow: stored.workflow_uid,
        flow,
        limit,
        at: shared.clock.now(),
    };
    match shared.store.admit(request).await.map_err(NotAdmitted::Store)? {
        Admission::Admitted => Ok(()),
        Admission::Waits | Admission::Fenced => Err(NotAdmitted::Settled),
        Admission::Merged { into } => {
            tracing::info!(ExecutionId = %stored.id, into = %into, "a run was merged into another one");
            cancel(shared, stored, "merged").await
        }
        Admission::Full => cancel(shared, stored, "concurrency_limit").await,
    }
}

/// The limit of the active version, if the run follows another one.
async fn active_limit(shared: &Shared, stored: &StoredRun, current: Option<u32>) -> Result<Option<u32>, StoreError> {
    let Some(current) = current.filter(|current| *current != stored.workflow_version) else {
        return Ok(None);
    };
    let compiled = shared
        .workflows
        .compiled(stored.workflow_uid, &stored.workflow_id, current)
        .await;
    match compiled {
        Ok(active) => {
            let control = active.plan.flow.as_ref();
            let rule = control.and_then(|control| control.concurrency.as_ref());
            Ok(Some(rule.map_or(UNLIMITED, |rule| rule.limit.min(UNLIMITED))))
        }
        Err(EngineError::Store(error)) => Err(error),
        Err(_) => Ok(None), // its runs are quarantined; those of this version keep their limit
    }
}

async fn is_cancelled(shared: &Shared, stored: &StoredRun) -> Result<bool, StoreError> {
    if stored.message_seq <= stored.messages_seen {
        return Ok(false);
    }
    let messages = shared.store.messages(stored.id, stored.messages_seen).await?;
    let is_cancel = |message: &RunMessage| matches!(message, RunMessage::Cancel { .. });
    Ok(messages.iter().any(|message| is_cancel(&message.message)))
}

/// Ends a run that may not begin. If it fails, the lease is found as orphaned.
async fn cancel(shared: &Shared, stored: &StoredRun, reason: &str) -> Result<(), NotAdmitted> {
    let change = quarantine::change(Status::Cancelled, shared.clock.now(), reason.to_owned(), None);
    let parent = stored.parent.filter(|_| stored.parent_waits);
    quarantine::end(shared, stored.id, stored.epoch, parent, change, None).await;
    Err(NotAdmitted::Settled)
}
