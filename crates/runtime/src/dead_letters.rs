//! Dead letters: runs that are given up, kept with their requests so that they can be requeued.
//!
//! What must stay true: a run is dead-lettered from its row only, since its journal may be what crashes processes. A terminal
//! status is final, so requeueing creates a new run; requeueing twice creates one.

use crate::stats::CountedRun;
use crate::{
    engine::{Accepted, Engine, Request, Shared},
    error::{EngineError, Refusal},
    metrics::{FailureReason, between},
    runner::quarantine::{self, Settled},
    trace::{ExecutionFacts, RunTrace, execution},
};
use fermata_core::{RunId, Status};
use fermata_store::{
    dead_letters::{DeadLetter, DeadLetterFilter, DeadReason},
    reads::{RunFilter, RunRecord},
    runs::{Principal, StoredRun},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The reason of runs that were dead-lettered.
const REASON: &str = "dead_letter";
/// How many dead letters one transaction deletes when many are purged.
const PURGED_AT_ONCE: u32 = 1000;
/// The largest length of the error message in a dead letter, in characters.
const MAX_MESSAGE: usize = 2000;

/// The request of a run, as a dead letter keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptRequest {
    workflow_id: String,
    workflow_version: u32,
    request_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tenant_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    principal: Principal,
    /// The run that it repeats, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rerun_of: Option<RunId>,
    /// `trigger`, `spec` and `request`, or `triggerText` and so on if they are not JSON.
    #[serde(flatten)]
    payloads: Map<String, Value>,
}

impl KeptRequest {
    fn of(record: RunRecord) -> KeptRequest {
        let mut payloads = Map::new();
        let texts = [
            ("trigger", Some(record.trigger)),
            ("spec", record.spec),
            ("request", record.request),
        ];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            match serde_json::from_str(&text) {
                Ok(value) => payloads.insert(name.to_owned(), value),
                Err(_) => payloads.insert(format!("{name}Text"), Value::String(text)),
            };
        }
        KeptRequest {
            workflow_id: record.workflow_id,
            workflow_version: record.workflow_version,
            request_id: record.request_id,
            tenant_id: record.tenant,
            priority: record.priority,
            correlation_id: record.correlation_id,
            principal: record.principal,
            rerun_of: record.rerun_of.map(|of| of.run),
            payloads,
        }
    }
}

/// The lease of a run that is dead-lettered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub run: RunId,
    pub epoch: u64,
    /// How often it was claimed since its last commit.
    pub takeovers: u32,
}

impl Held {
    pub fn of(stored: &StoredRun) -> Held {
        Held {
            run: stored.id,
            epoch: stored.epoch,
            takeovers: stored.takeovers,
        }
    }
}

/// Fails a run that this process holds and stores its dead letter, in one commit without events. False if that is not
/// confirmed and this process may still hold the run; its lease is found as orphaned then.
pub(crate) async fn dead_letter_run(shared: &Shared, held: Held, reason: DeadReason, what: &str) -> bool {
    let record = match shared.store.run(held.run).await {
        Ok(Some(record)) => record,
        Ok(None) => return true,
        Err(error) => {
            tracing::warn!(ExecutionId = %held.run, %error, "a run could not be read to be dead-lettered; it is tried again later");
            return false;
        }
    };
    let parent = record.parent;
    let now = shared.clock.now();
    let started_at = record.started_at.unwrap_or(record.created_at);
    let trace = RunTrace::of_stored(record.id, record.traceparent.as_deref());
    let (version, is_child) = (record.workflow_version, record.parent.is_some());
    let correlation_id = record.correlation_id.clone();
    let code = match reason {
        DeadReason::InvalidTrigger => "WFENG005",
        DeadReason::Poison => "POISON",
        DeadReason::Rejected => "COMMIT_REJECTED",
    };
    let what = &printable(what);
    let error = json!({ "code": code, "message": what }).to_string();
    let dead_letter = DeadLetter {
        id: shared.ids.next(),
        at: now,
        reason,
        run: held.run,
        workflow_uid: record.workflow_uid,
        workflow_id: record.workflow_id.clone(),
        workflow_version: record.workflow_version,
        tenant: record.tenant.clone(),
        attempts: held.takeovers,
        last_error: Some(what.to_owned()),
        payload: serde_json::to_string(&KeptRequest::of(record)).unwrap_or_else(|error| error.to_string()),
    };
    let (id, workflow) = (dead_letter.id, dead_letter.workflow_id.clone());
    let (uid, tenant) = (dead_letter.workflow_uid, dead_letter.tenant.as_str().into());
    let queue = shared.settings.dead_letters.as_deref();
    let dead_letter = queue.map(|_| Box::new(dead_letter));
    let change = quarantine::change(Status::Failed, now, REASON.to_owned(), Some(error));
    match quarantine::end(shared, held.run, held.epoch, parent, change, dead_letter).await {
        Settled::Ended { has_dead_letter } => {
            shared.metrics.dead_letters.inc();
            let took = between(started_at, now);
            let of = shared.metrics.workflow(&workflow);
            let counted = FailureReason::of_dead(reason);
            shared.metrics.run_ended(&of, Status::Failed, Some(counted), took);
            let counted = CountedRun {
                workflow_uid: uid,
                workflow: &workflow,
                tenant: &tenant,
            };
            shared.numbers.ended(&counted, now, Status::Failed, took);
            if shared.tracer_for(&trace).is_some() {
                shared.emit([execution(ExecutionFacts {
                    trace,
                    workflow: &workflow,
                    version,
                    correlation_id: correlation_id.as_deref(),
                    is_child,
                    status: Status::Failed,
                    start: started_at,
                    end: now,
                    failure: Some(code.to_owned()),
                })]);
            }
            // What is wrong with a trigger may quote it, and payloads are not logged.
            let what = (reason != DeadReason::InvalidTrigger).then_some(what);
            let (run, reason) = (held.run, reason.as_str());
            match has_dead_letter {
                true => tracing::error!(
                    ExecutionId = %run, WorkflowId = workflow, code, reason, queue, dead_letter = %id, what,
                    "a run failed and was dead-lettered"
                ),
                false => {
                    tracing::error!(ExecutionId = %run, WorkflowId = workflow, code, reason, what, "a run failed; it has no dead letter")
                }
            }
            true
        }
        Settled::Elsewhere => true,
        Settled::No => false,
    }
}

/// A message that every database can store.
fn printable(what: &str) -> String {
    let whole = what.chars().take(MAX_MESSAGE);
    whole.map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The version that a requeued run follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Again {
    /// The current version.
    #[default]
    Current,
    /// The version of the dead-lettered run.
    Same,
}

impl Engine {
    /// Creates a new run from a dead letter and deletes the letter. Calling this again returns the same run.
    pub async fn requeue(&self, id: Uuid, version: Again) -> Result<Accepted, EngineError> {
        self.requeue_of(None, id, version).await
    }

    /// As [`Engine::requeue`]; with a tenant, only its own dead letters.
    pub(crate) async fn requeue_of(
        &self,
        tenant: Option<&str>,
        id: Uuid,
        version: Again,
    ) -> Result<Accepted, EngineError> {
        let request_id = format!("fermata:requeue:{id}");
        let letter = match self.reads_of(tenant.unwrap_or_default()).dead_letter(id).await {
            Ok(letter) => letter,
            Err(EngineError::Refused(Refusal::DeadLetterNotFound(_))) => {
                return self.requeued(tenant, id, request_id).await;
            }
            Err(error) => return Err(error),
        };
        let unreadable = |what: &str| Refusal::DeadLetterUnusable {
            id,
            what: what.to_owned(),
        };
        let mut kept: KeptRequest = serde_json::from_str(&letter.payload)
            .map_err(|error| unreadable(&format!("its payload cannot be read: {error}")))?;
        if kept.payloads.contains_key("specText") {
            return Err(unreadable("its spec is not JSON").into());
        }
        if let Some(of) = kept.rerun_of {
            // A plain start would execute what the rerun keeps.
            let what = format!("its execution repeats execution {of} in part; rerun that one again");
            return Err(unreadable(&what).into());
        }
        let trigger = kept.payloads.remove("trigger");
        let request = Request {
            workflow_id: self.workflow_of(&letter).await?,
            version: (version == Again::Same).then_some(kept.workflow_version),
            request_id: Some(request_id),
            trigger: trigger.ok_or_else(|| unreadable("its trigger is not JSON"))?,
            spec: kept.payloads.remove("spec"),
            priority: kept.priority,
            tenant: kept.tenant_id,
            lookup_tenant: None,
            correlation_id: kept.correlation_id,
            traceparent: None,
            principal: kept.principal,
            id: None,
            memory: None,
            request: kept.payloads.remove("request"),
            delivery: None,
            rerun: None,
        };
        let accepted = self.accept(RunId(self.shared.ids.next()), request).await?;
        // If this fails, the next call finds the run.
        self.shared.store.delete_dead_letter(id).await?;
        Ok(accepted)
    }

    /// The workflow of a dead letter, by uid: a later workflow of the same name is another one.
    async fn workflow_of(&self, letter: &DeadLetter) -> Result<String, EngineError> {
        match self.shared.store.workflow_by_uid(letter.workflow_uid).await? {
            Some(workflow) if workflow.deleted_at.is_some() => Err(Refusal::DeadLetterUnusable {
                id: letter.id,
                what: format!("its workflow `{}` was deleted", workflow.id),
            }
            .into()),
            Some(workflow) => Ok(workflow.uid.to_string()),
            None => Err(Refusal::WorkflowNotFound(letter.workflow_id.clone()).into()),
        }
    }

    /// The run that was created from a dead letter that no longer exists.
    async fn requeued(&self, tenant: Option<&str>, id: Uuid, request_id: String) -> Result<Accepted, EngineError> {
        let filter = RunFilter {
            request_id: Some(request_id),
            tenant: tenant.map(str::to_owned),
            limit: 1,
            ..RunFilter::default()
        };
        let run = self.shared.store.runs(filter).await?.items.pop();
        let run = run.ok_or(Refusal::DeadLetterNotFound(id))?;
        Ok(Accepted {
            run: run.id,
            workflow_uid: run.workflow_uid,
            status: run.status,
            created: false,
        })
    }

    /// Deletes one dead letter.
    pub async fn delete_dead_letter(&self, id: Uuid) -> Result<(), EngineError> {
        match self.shared.store.delete_dead_letter(id).await? {
            true => Ok(()),
            false => Err(Refusal::DeadLetterNotFound(id).into()),
        }
    }

    /// Deletes the matching dead letters, except those that are added meanwhile. Returns how many.
    pub async fn purge(&self, filter: DeadLetterFilter) -> Result<u64, EngineError> {
        let filter = DeadLetterFilter {
            before: filter.before.or_else(|| Some(self.shared.ids.next())),
            limit: PURGED_AT_ONCE,
            ..filter
        };
        let mut removed = 0;
        loop {
            let now = self.shared.store.purge_dead_letters(filter.clone()).await?;
            removed += now;
            if now < u64::from(PURGED_AT_ONCE) {
                return Ok(removed);
            }
        }
    }
}
