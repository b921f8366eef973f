//! Runs that are given up: dead_lettered with all that is needed to ask for them again, and asked for again.
//!
//! What must stay true: a burial needs nothing of the run but its row, since its journal may be what takes its readers
//! down; a terminal status is final, so asking again makes a new run; asking twice makes one.

use crate::{
    engine::{Accepted, Engine, Request, Shared},
    error::{EngineError, Refusal},
    runner::quarantine::{self, Settled},
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

/// The reason of runs that were given up.
const REASON: &str = "dead_letter";
/// So many letters go with one write when many are removed.
const PURGED_AT_ONCE: u32 = 1000;
/// The most characters of an error message in a letter.
const MAX_MESSAGE: usize = 2000;

/// What was asked for, as it stands in a letter.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asked {
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
    /// `trigger` and `spec`, or `triggerText` and `specText` where they cannot be read as JSON.
    #[serde(flatten)]
    payloads: Map<String, Value>,
}

impl Asked {
    fn of(record: RunRecord) -> Asked {
        let mut payloads = Map::new();
        let texts = [("trigger", Some(record.trigger)), ("spec", record.spec)];
        for (name, text) in texts {
            let Some(text) = text else { continue };
            match serde_json::from_str(&text) {
                Ok(value) => payloads.insert(name.to_owned(), value),
                Err(_) => payloads.insert(format!("{name}Text"), Value::String(text)),
            };
        }
        Asked {
            workflow_id: record.workflow_id,
            workflow_version: record.workflow_version,
            request_id: record.request_id,
            tenant_id: record.tenant,
            priority: record.priority,
            correlation_id: record.correlation_id,
            principal: record.principal,
            payloads,
        }
    }
}

/// A lease on a run that is given up.
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

/// Fails a run that this process holds and leaves a dead letter, in one commit without events. False if that is not known
/// to be done, and the run may still be held here: it is found as a stray then.
pub(crate) async fn dead_letter_run(shared: &Shared, held: Held, reason: DeadReason, what: &str) -> bool {
    let record = match shared.store.run(held.run).await {
        Ok(Some(record)) => record,
        Ok(None) => return true,
        Err(error) => {
            tracing::warn!(run = %held.run, %error, "a run cannot be dead-lettered now");
            return false;
        }
    };
    let now = shared.clock.now();
    let code = match reason {
        DeadReason::InvalidTrigger => "WFENG005",
        DeadReason::Poison => "POISON",
        DeadReason::Rejected => "COMMIT_REJECTED",
    };
    let what = &printable(what);
    let error = json!({ "code": code, "message": what }).to_string();
    let letter = DeadLetter {
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
        payload: serde_json::to_string(&Asked::of(record)).unwrap_or_else(|error| error.to_string()),
    };
    let id = letter.id;
    let queue = shared.settings.dead_letters.as_deref();
    let letter = queue.map(|_| Box::new(letter));
    let change = quarantine::change(Status::Failed, now, REASON.to_owned(), Some(error));
    match quarantine::end(shared, held.run, held.epoch, change, letter).await {
        Settled::Ended => {
            tracing::error!(run = %held.run, queue, letter = %id, reason = reason.as_str(), %what, "a run was given up");
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

/// Which version a run follows that is asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Again {
    /// The current one.
    #[default]
    Current,
    /// The one that was given up.
    Same,
}

impl Engine {
    /// Asks again for what is in a dead letter: a new run, and the letter is gone. Again and again gives the same run.
    pub async fn requeue(&self, id: Uuid, version: Again) -> Result<Accepted, EngineError> {
        let request_id = format!("fermata:requeue:{id}");
        let Some(letter) = self.shared.store.dead_letter(id).await? else {
            return self.requeued(id, request_id).await;
        };
        let unreadable = |what: &str| Refusal::DeadLetterUnusable {
            id,
            what: what.to_owned(),
        };
        let mut asked: Asked = serde_json::from_str(&letter.payload)
            .map_err(|error| unreadable(&format!("its payload cannot be read: {error}")))?;
        if asked.payloads.contains_key("specText") {
            return Err(unreadable("its spec is not JSON").into());
        }
        let trigger = asked.payloads.remove("trigger");
        let request = Request {
            workflow_id: self.workflow_of(&letter).await?,
            version: (version == Again::Same).then_some(asked.workflow_version),
            request_id: Some(request_id),
            trigger: trigger.ok_or_else(|| unreadable("its trigger is not JSON"))?,
            spec: asked.payloads.remove("spec"),
            priority: asked.priority,
            tenant: asked.tenant_id,
            correlation_id: asked.correlation_id,
            principal: asked.principal,
            id: None,
            memory: None,
        };
        let accepted = self.accept(RunId(self.shared.ids.next()), request).await?;
        // If this fails, asking again finds the run.
        self.shared.store.delete_dead_letter(id).await?;
        Ok(accepted)
    }

    /// The workflow of a dead letter, as a reference. Another one that has its name now is not meant.
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

    /// The run that a letter that is gone became.
    async fn requeued(&self, id: Uuid, request_id: String) -> Result<Accepted, EngineError> {
        let filter = RunFilter {
            request_id: Some(request_id),
            limit: 1,
            ..RunFilter::default()
        };
        let run = self.shared.store.runs(filter).await?.items.pop();
        let run = run.ok_or(Refusal::DeadLetterNotFound(id))?;
        Ok(Accepted {
            run: run.id,
            status: run.status,
            created: false,
        })
    }

    /// Removes one dead letter.
    pub async fn delete_dead_letter(&self, id: Uuid) -> Result<(), EngineError> {
        match self.shared.store.delete_dead_letter(id).await? {
            true => Ok(()),
            false => Err(Refusal::DeadLetterNotFound(id).into()),
        }
    }

    /// Removes the dead letters that fit, except those that come meanwhile; how many.
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
