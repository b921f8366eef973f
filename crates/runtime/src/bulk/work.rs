//! The background task: takes jobs that were started, and acts on their runs.
//!
//! What must stay true:
//! * There is no leader: every process that works does this. The store gives each job to one of them for [`HELD_FOR`]; if that one
//!   dies, another one goes on. Runs whose results were not recorded are acted on again, which changes nothing: see [`act`].
//! * A process acts only while it holds the job. It takes the next slice when the results of the last one are durable, so a
//!   cancelled job stops after at most one slice.
//! * A long job does not delay others: after a few seconds, the job that waits longest is taken.
//! * Dropping the task drops everything that it does, as a crash would.

use super::{BulkAction, StoredCaller};
use crate::{
    clock::until,
    engine::{Engine, RerunRequest, RerunVersion, Shared},
    error::{EngineError, Refusal},
    session::Session,
};
use fermata_core::{RunId, Status};
use fermata_store::{
    StoreError,
    bulk::{BulkItem, BulkJob, BulkStep, ItemState},
};
use futures::StreamExt;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a process has for a slice.
const HELD_FOR: Duration = Duration::from_secs(10);
/// The part of it in which new actions begin.
const ACTS_FOR: Duration = Duration::from_secs(6);
/// How long a process works on a job before it takes another one that is due.
const TURN: Duration = Duration::from_secs(2);
/// Runs of a slice, which are acted on at the same time.
const SLICE: u32 = 16;
/// The longest message of a result, in characters.
const MAX_MESSAGE: usize = 300;

/// Runs until it is dropped.
pub(crate) async fn run(shared: &Arc<Shared>) {
    let engine = Engine { shared: shared.clone() };
    let mut has_failed = false;
    loop {
        let pause = match pass(&engine).await {
            Ok(pause) => {
                has_failed = false;
                pause
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let what = "a bulk job cannot be continued; trying again";
                    shared.health.retried(None, &error, what);
                }
                shared.settings.poll_interval
            }
        };
        tokio::select! {
            biased;
            () = shared.bulk.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Works on a job that is due. Returns how long none is.
async fn pass(engine: &Engine) -> Result<Duration, StoreError> {
    let shared = &engine.shared;
    let poll = shared.settings.poll_interval;
    let Some(next) = shared.control.next_bulk().await? else {
        return Ok(poll);
    };
    let now = shared.clock.now();
    if next > now {
        return Ok(until(now, next).min(poll));
    }
    let held_until = now.plus_millis(HELD_FOR.as_millis() as u64);
    if let Some(job) = shared.store.take_bulk(now, held_until).await? {
        work(engine, job).await?;
    }
    Ok(Duration::ZERO)
}

async fn work(engine: &Engine, job: BulkJob) -> Result<(), StoreError> {
    let shared = &engine.shared;
    let caller = serde_json::from_str::<StoredCaller>(&job.caller).ok();
    let session = caller
        .and_then(StoredCaller::caller)
        .map(|caller| engine.as_caller(caller));
    let action = BulkAction::of(&job);
    let (Some(session), Some(action)) = (session, action) else {
        // A newer program may have stored it. Another process may know it.
        let what = format!("the bulk job {} was made by another version of this program", job.id);
        return Err(StoreError::Failed(what));
    };
    let mut results = Vec::new();
    let turn_ends = Instant::now() + TURN;
    loop {
        let now = shared.clock.now();
        let is_last = Instant::now() >= turn_ends;
        let held_for = if is_last { Duration::ZERO } else { HELD_FOR };
        let step = BulkStep {
            job: job.id,
            epoch: job.epoch,
            results: std::mem::take(&mut results),
            limit: SLICE,
            now,
            until: now.plus_millis(held_for.as_millis() as u64),
        };
        let acts_until = Instant::now() + ACTS_FOR;
        let Some(runs) = shared.store.advance_bulk(step).await? else {
            return Ok(());
        };
        if is_last {
            return Ok(());
        }
        let acted = futures::stream::iter(runs).map(|run| {
            let (session, job, action) = (&session, job.id, &action);
            async move {
                match Instant::now() < acts_until {
                    true => Some(act(session, job, action, run).await),
                    false => None,
                }
            }
        });
        let acted: Vec<_> = acted.buffer_unordered(SLICE as usize).collect().await;
        let acted: Result<Vec<BulkItem>, EngineError> = acted.into_iter().flatten().collect();
        results = match acted {
            Ok(results) => results,
            Err(EngineError::Store(error)) => return Err(error),
            Err(_) => return Ok(()), // this process is stopping
        };
    }
}

/// Acts on one run. It may have been acted on before, without a recorded result: the actions are the same the second time.
///
/// | action | the second time |
/// | --- | --- |
/// | `cancel` | the run is cancelled: done |
/// | `pause`, `resume` | the run is paused, or is not paused: done |
/// | `rerun` | the run that repeats it is found by its requestId: done |
/// | `delete` | the run is gone: done |
async fn act(session: &Session, job: Uuid, action: &BulkAction, run: RunId) -> Result<BulkItem, EngineError> {
    let result = match action {
        BulkAction::Cancel { reason } => {
            let reason = reason.as_deref().unwrap_or("cancelled");
            session.cancel(run, reason).await.map(|status| match status {
                Status::Succeeded | Status::Failed => {
                    refused(run, "ALREADY_ENDED", format!("it is {}", status.as_str()))
                }
                _ => done(run),
            })
        }
        BulkAction::Pause { reason } => session.pause(run, reason.as_deref()).await.map(|()| done(run)),
        BulkAction::Resume { reason } => session.resume(run, reason.as_deref()).await.map(|()| done(run)),
        BulkAction::Rerun { failed_only, latest } => {
            let request = RerunRequest {
                failed_only: *failed_only,
                version: if *latest {
                    RerunVersion::Latest
                } else {
                    RerunVersion::Same
                },
                request_id: Some(format!("fermata:bulk:{job}:{run}")),
                ..RerunRequest::default()
            };
            let accepted = session.rerun_once(run, request, None).await;
            accepted.map(|accepted| BulkItem {
                created: Some(accepted.run),
                ..done(run)
            })
        }
        BulkAction::Delete => match session.delete_run(run).await {
            Err(EngineError::Refused(Refusal::RunNotFound(_))) | Ok(()) => Ok(done(run)),
            Err(error) => Err(error),
        },
    };
    match result {
        Err(EngineError::Refused(refusal)) => Ok(refused(run, code(&refusal), refusal.to_string())),
        Err(EngineError::Unusable { what, .. }) => Ok(BulkItem {
            state: ItemState::Failed,
            ..refused(run, "UNUSABLE", what)
        }),
        other => other,
    }
}

/// The code that the API has for a refusal.
fn code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::RunNotFound(_) => "EXECUTION_NOT_FOUND",
        Refusal::RunEnded { .. } => "ALREADY_ENDED",
        // Of these actions, only a rerun has it.
        Refusal::RunNotFinished(_) | Refusal::WrongStatus { .. } => "EXECUTION_NOT_FINISHED",
        Refusal::RunUnusable { .. } => "EXECUTION_UNUSABLE",
        Refusal::InvalidRerun { .. } => "INVALID_RERUN",
        Refusal::UniqueKeyTaken { .. } => "UNIQUE_KEY_TAKEN",
        Refusal::NotActive { .. } => "WORKFLOW_NOT_ACTIVE",
        _ => "REFUSED",
    }
}

fn done(run: RunId) -> BulkItem {
    BulkItem {
        run,
        state: ItemState::Done,
        code: None,
        message: None,
        created: None,
    }
}

fn refused(run: RunId, code: &str, message: String) -> BulkItem {
    BulkItem {
        state: ItemState::Refused,
        code: Some(code.to_owned()),
        message: Some(message.chars().take(MAX_MESSAGE).collect()),
        ..done(run)
    }
}
