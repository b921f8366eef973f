//! What happens to claimed runs: most are driven; some are dead-lettered, quarantined or declined.
//!
//! What must stay true: runs that may crash this process start after all other runs of the claim are driven or released.

use super::{
    admit::{NotAdmitted, WorkflowState, admit},
    nothing_but,
    probation::Probation,
    quarantine::quarantine,
};
use crate::{
    compiled::Compiled,
    dead_letters::{self, Held},
    driver::Driver,
    engine::Shared,
    error::{EngineError, Refusal},
    scope::Payloads,
    search_fields::fields_of,
    trigger::check_trigger,
};
use fermata_core::Status;
use fermata_store::{
    StoreError,
    dead_letters::DeadReason,
    definitions::Lifecycle,
    runs::{StoredRun, Then},
};
use std::{collections::HashMap, sync::Arc};
use uuid::Uuid;

/// The delay before a run that could not be read is claimed again: from 100 ms to about 6 s, doubled with each failure in a
/// row.
const FIRST_DELAY_MS: u64 = 100;
const MAX_DOUBLINGS: u32 = 6;

/// Counts claimed runs in a row that could not be read.
#[derive(Debug, Default)]
pub(super) struct ReadBackoff(u32);

impl ReadBackoff {
    fn reset(&mut self) {
        self.0 = 0;
    }

    fn next_ms(&mut self) -> u64 {
        let delay = FIRST_DELAY_MS << self.0.min(MAX_DOUBLINGS);
        self.0 += 1;
        delay
    }
}

/// Drives claimed runs, or ends, quarantines or declines them. The claim was sent when `gaps` gaps had been counted
/// (`lease_gate.rs`).
pub(super) async fn all(shared: &Arc<Shared>, runs: Vec<StoredRun>, gaps: u64, backoff: &mut ReadBackoff) {
    let (poison, rest): (Vec<_>, Vec<_>) = runs
        .into_iter()
        .partition(|run| run.takeovers > shared.settings.max_poison_retries);
    for run in poison {
        let what = format!(
            "claimed {} times in a row without a commit; it may have crashed the processes that ran it",
            run.takeovers
        );
        dead_letters::dead_letter_run(shared, Held::of(&run), DeadReason::Poison, &what).await;
    }
    let (suspects, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(Probation::concerns);
    let mut on_probation = Vec::new();
    for run in suspects {
        match Probation::of(shared, &run) {
            Some(probation) => on_probation.push((run, probation)),
            None => decline(shared, &run).await,
        }
    }
    let mut states = WorkflowStates::default();
    for run in others {
        one(shared, run, None, gaps, backoff, &mut states).await;
    }
    for (run, probation) in on_probation {
        one(shared, run, Some(probation), gaps, backoff, &mut states).await;
    }
}

/// Sets the searchable fields of a run before its first step: SQL stores runs without them, and the payload of a delayed run may
/// have changed.
async fn set_fields(
    shared: &Shared,
    stored: &StoredRun,
    compiled: &Compiled,
    payloads: &Payloads,
) -> Result<(), StoreError> {
    if compiled.plan.searchable.is_empty() {
        return Ok(());
    }
    let fields = fields_of(&compiled.plan, payloads.given().0);
    shared.store.set_fields(stored.id, &stored.tenant, fields).await
}

/// The workflows of one claim, so that each is read once.
type WorkflowStates = HashMap<Uuid, WorkflowState>;

/// Releases a run that must wait for its probation. A cancel or its deadline takes effect when it is tried, a few `lease_ttl`
/// later at most: the run can be replayed, so it ends with a journal row like others.
async fn decline(shared: &Shared, run: &StoredRun) {
    let pause = shared.settings.lease_ttl / 3;
    let wake_at = shared.clock.now().plus_millis(pause.as_millis() as u64);
    let commit = nothing_but(shared, run.id, run.epoch, Then::Decline { wake_at });
    shared.store.commit(commit).await; // if it fails, the lease is found as orphaned
}

async fn one(
    shared: &Arc<Shared>,
    stored: StoredRun,
    probation: Option<Probation>,
    gaps: u64,
    backoff: &mut ReadBackoff,
    states: &mut WorkflowStates,
) {
    let compiled = shared
        .workflows
        .compiled(stored.workflow_uid, &stored.workflow_id, stored.workflow_version)
        .await;
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(EngineError::Store(error)) => return try_again(shared, &stored, &error, backoff).await,
        Err(error) => return quarantine(shared, stored.id, stored.epoch, &error.to_string()).await,
    };
    // True also of a run that a session acquired by SQL and left: it is Running, and its journal is empty.
    let starts = stored.journal.is_empty();
    let state = match stored.status {
        Status::Pending => state_of(shared, stored.workflow_uid, states).await,
        _ => Ok(WorkflowState::default()),
    };
    let workflow = match state {
        Ok(state) => state,
        Err(error) => return try_again(shared, &stored, &error, backoff).await,
    };
    let archived = workflow.archived;
    backoff.reset();
    let payloads = read_payloads(shared, &compiled, &stored, starts && !archived).await;
    let payloads = match payloads {
        Ok(payloads) => payloads,
        Err(what) if starts && !archived => {
            dead_letters::dead_letter_run(shared, Held::of(&stored), DeadReason::InvalidTrigger, &what).await;
            return;
        }
        Err(what) => return quarantine(shared, stored.id, stored.epoch, &what).await,
    };
    if starts
        && !archived
        && let Err(error) = set_fields(shared, &stored, &compiled, &payloads).await
    {
        return try_again(shared, &stored, &error, backoff).await;
    }
    // A run that was paused before its start has a journal and has not begun.
    if !archived {
        match admit(shared, &stored, &compiled, &payloads, workflow).await {
            Ok(()) => {}
            Err(NotAdmitted::Settled) => return,
            Err(NotAdmitted::Store(error)) => return try_again(shared, &stored, &error, backoff).await,
            Err(NotAdmitted::InvalidKey(what)) => {
                dead_letters::dead_letter_run(shared, Held::of(&stored), DeadReason::InvalidTrigger, &what).await;
                return;
            }
        }
    }
    match Driver::recover(shared.clone(), &stored, compiled, payloads, archived, probation, gaps) {
        Ok(Some(driver)) => driver.spawn(),
        Ok(None) => {} // if the lease is still ours, it is found as orphaned
        Err(what) => quarantine(shared, stored.id, stored.epoch, &what).await,
    }
}

/// Parses the payloads of a run. With `check` the trigger is checked against its schema too, for runs that were not accepted
/// by an engine.
async fn read_payloads(
    shared: &Shared,
    compiled: &Arc<Compiled>,
    stored: &StoredRun,
    check: bool,
) -> Result<Payloads, String> {
    let parse = async |what: &str, text: &str| {
        let parsed = shared.offload.parse(text).await;
        parsed
            .map(Arc::new)
            .map_err(|error| format!("the {what} is not JSON: {error}"))
    };
    let trigger = parse("trigger", &stored.trigger).await?;
    let spec = match &stored.spec {
        Some(spec) => Some(parse("spec", spec).await?),
        None => None,
    };
    let request = match &stored.request {
        Some(request) => Some(parse("request", request).await?),
        None => None,
    };
    let bytes = stored.trigger.len() + stored.spec.as_ref().map_or(0, String::len);
    if !check {
        return Ok(Payloads::new(trigger, spec, bytes).started_by(request));
    }
    let checked = check_trigger(&shared.offload, compiled, &trigger, stored.trigger.len()).await;
    let describe = |refusal: Refusal| match &refusal {
        Refusal::InvalidTrigger { problems, .. } => {
            let problems = problems.iter().map(|(pointer, what)| match pointer.as_str() {
                "" => what.clone(),
                pointer => format!("{pointer}: {what}"),
            });
            format!("{refusal}: {}", problems.collect::<Vec<_>>().join("; "))
        }
        _ => refusal.to_string(),
    };
    let payloads = |()| Payloads::new(trigger, spec, bytes).started_by(request);
    checked.map_err(describe).map(payloads)
}

/// Runs of a deleted workflow continue, whatever its status was.
async fn state_of(shared: &Shared, uid: Uuid, known: &mut WorkflowStates) -> Result<WorkflowState, StoreError> {
    if let Some(state) = known.get(&uid) {
        return Ok(*state);
    }
    let workflow = shared.store.workflow_by_uid(uid).await?;
    let workflow = workflow.filter(|workflow| workflow.deleted_at.is_none());
    let state = workflow.map_or(WorkflowState::default(), |workflow| WorkflowState {
        archived: workflow.status == Lifecycle::Archived,
        paused: workflow.paused_at.is_some(),
        current: workflow.current_version,
    });
    known.insert(uid, state);
    Ok(state)
}

/// Releases a run that could not be read because the store failed, to be claimed again soon.
async fn try_again(shared: &Shared, run: &StoredRun, error: &StoreError, backoff: &mut ReadBackoff) {
    let delay = backoff.next_ms();
    tracing::warn!(ExecutionId = %run.id, %error, "a run could not be read; it is claimed again in {delay} ms");
    let wake_at = shared.clock.now().plus_millis(delay);
    let commit = nothing_but(shared, run.id, run.epoch, Then::Decline { wake_at });
    shared.store.commit(commit).await; // if it fails, the lease is found as orphaned
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Engine, Settings,
        actions::{HttpSettings, Registry},
        clock::SystemClock,
    };
    use fermata_store::{Store, memory::MemoryStore};

    #[tokio::test]
    async fn workflow_of_several_runs_is_read_once() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let store = Arc::new(MemoryStore::new());
        let engine = Engine::new(store.clone(), registry, Settings::default(), Arc::new(SystemClock));
        let (workflow, other) = (Uuid::now_v7(), Uuid::now_v7());
        let mut known = WorkflowStates::default();
        assert_eq!(
            state_of(&engine.shared, workflow, &mut known).await.unwrap(),
            WorkflowState::default()
        );
        store.close().await.unwrap();
        assert_eq!(
            state_of(&engine.shared, workflow, &mut known).await.unwrap(),
            WorkflowState::default()
        );
        assert!(state_of(&engine.shared, other, &mut known).await.is_err());
    }
}
