//! The engine as one caller sees it: the one door of the API.
//!
//! What must stay true:
//! * What belongs to another tenant does not exist for the caller: reads, lists and commands answer as if it had never been
//!   there. What has no tenant is shared: it can be read and executed, and is changed only by callers without a tenant.
//! * The tenant and the principal of a new run are the caller's. A request that names others is refused.
//! * Changes are recorded in the audit trail (`audit.rs`).
//! * Handlers get a session, never the engine (`fermata_web::door`), so a request without a caller does not compile.
//!
//! Scopes are checked before a session is used, by route (`fermata_web::api::scopes`).

mod dry_run;
mod workflows;

use crate::{
    audit::{About, Audit, Recorder, short},
    bulk::Bulk,
    callbacks::Callbacks,
    caller::{Caller, Scope},
    dead_letters::Again,
    engine::{Accepted, Ended, Engine, Request, RerunRequest, Skip, check_request_id},
    error::{EngineError, Refusal},
    inbox::Inbox,
    keys::Keys,
    reads::Reads,
    triggers::Triggers,
};
pub use dry_run::DryRunOf;
use fermata_core::{RunId, Status, Timestamp};
use fermata_metrics::Text;
use fermata_store::{audit::describe, dead_letters::DeadLetterFilter, runs::Principal};
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use uuid::Uuid;
pub use workflows::CallerWorkflows;

/// What one caller can do. Cheap to clone.
#[derive(Clone)]
pub struct Session {
    pub(crate) engine: Engine,
    caller: Caller,
}

impl Engine {
    /// The engine as this caller sees it.
    pub fn as_caller(&self, caller: Caller) -> Session {
        Session {
            engine: self.clone(),
            caller,
        }
    }
}

impl Session {
    /// The caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Reads of stored data.
    pub fn reads(&self) -> Reads<'_> {
        Reads {
            engine: &self.engine,
            tenant: self.caller.tenant(),
        }
    }

    /// Commands on workflows.
    pub fn workflows(&self) -> CallerWorkflows<'_> {
        let workflows = self.engine.workflows_of(self.caller.tenant().unwrap_or_default());
        CallerWorkflows::new(workflows, self.recorder())
    }

    /// Requests that wait for an answer.
    pub fn inbox(&self) -> Inbox<'_> {
        Inbox {
            engine: &self.engine,
            caller: Some(&self.caller),
        }
    }

    /// Registered callbacks.
    pub fn callbacks(&self) -> Callbacks<'_> {
        Callbacks {
            engine: &self.engine,
            tenant: self.caller.tenant(),
            caller: Some(&self.caller),
        }
    }

    /// Triggers, deliveries and events.
    pub fn triggers(&self) -> Triggers<'_> {
        Triggers {
            engine: &self.engine,
            caller: Some(&self.caller),
        }
    }

    /// Bulk jobs.
    pub fn bulk(&self) -> Bulk<'_> {
        Bulk {
            engine: &self.engine,
            caller: &self.caller,
        }
    }

    /// The audit trail.
    pub fn audit(&self) -> Audit<'_> {
        Audit {
            engine: &self.engine,
            tenant: self.caller.tenant(),
        }
    }

    fn recorder(&self) -> Recorder<'_> {
        Recorder {
            engine: &self.engine,
            caller: &self.caller,
        }
    }

    /// API keys.
    pub fn keys(&self) -> Keys<'_> {
        Keys::new(&self.engine, &self.caller)
    }

    /// All metrics of the engine; `None` for a caller that belongs to a tenant, because labels name workflows of others.
    pub async fn metrics(&self) -> Option<Text> {
        match self.caller.tenant() {
            Some(_) => None,
            None => Some(self.engine.metrics().await),
        }
    }

    /// Database time.
    pub fn now(&self) -> Timestamp {
        self.engine.now()
    }

    /// Starts a run; see [`Engine::start`]. `principal` is the one that the request names, if it names one.
    pub async fn start(&self, request: Request, principal: Option<Principal>) -> Result<Accepted, EngineError> {
        self.admitted(request, principal, |request| self.engine.start(request))
            .await
    }

    /// Starts a run and waits for its end, for at most this long; see [`Engine::start_and_wait`].
    pub async fn start_and_wait(
        &self,
        request: Request,
        principal: Option<Principal>,
        limit: Duration,
    ) -> Result<(Accepted, Option<Arc<Ended>>), EngineError> {
        self.admitted(request, principal, |request| self.engine.start_and_wait(request, limit))
            .await
    }

    /// Starts a run, if the request may be made. A run on behalf of another principal has that one only, so who starts it is
    /// recorded before.
    async fn admitted<T, F: Future<Output = Result<T, EngineError>>>(
        &self,
        mut request: Request,
        named: Option<Principal>,
        start: impl FnOnce(Request) -> F,
    ) -> Result<T, EngineError> {
        const ACTION: &str = "execution.start";
        let own = self.caller.identity().principal.as_ref();
        let other = own.zip(named.as_ref()).filter(|(own, named)| !is_same(own, named));
        let on_behalf = other.map(|(_, named)| format!("on behalf of {}", named.user_id));
        if let Err(refusal) = self.admit(&mut request, named) {
            let refused = async { Err(refusal.into()) };
            return self.recorder().record(ACTION, &request.workflow_id, refused).await;
        }
        let Some(detail) = on_behalf else {
            return start(request).await;
        };
        let about = About {
            tenant: Some(request.tenant.clone()),
            detail: Some(short(&detail)),
        };
        let workflow = request.workflow_id.clone();
        let recorder = self.recorder();
        // On the heap, so that the starts above do not have its size.
        let recorded = recorder.record_before(ACTION, &workflow, about, start(request));
        Box::pin(recorded).await
    }

    /// Gives a request the tenant and the principal of this caller, if it may be made.
    fn admit(&self, request: &mut Request, named: Option<Principal>) -> Result<(), Refusal> {
        if let Some(own) = self.caller.tenant() {
            if !request.tenant.is_empty() && request.tenant != own {
                return Err(Refusal::OtherTenant);
            }
            own.clone_into(&mut request.tenant);
        }
        request.principal = match (&self.caller.identity().principal, named) {
            (None, None) if self.engine.settings().require_principal => return Err(Refusal::PrincipalRequired),
            (None, named) => named.unwrap_or_default(),
            (Some(own), None) => own.clone(),
            (Some(_), Some(named)) if self.caller.has(Scope::OnBehalfOf) => named,
            (Some(own), Some(named)) if is_same(own, &named) => own.clone(),
            (Some(_), Some(_)) => return Err(Refusal::OtherPrincipal),
        };
        Ok(())
    }

    /// Creates a run that repeats another one; see [`Engine::rerun`]. `principal` is the one that the request names, if it names
    /// one. Changed parameters decide where the secrets of the workflow go, so they need the right to change the workflow.
    pub async fn rerun(
        &self,
        run: RunId,
        request: RerunRequest,
        principal: Option<Principal>,
    ) -> Result<Accepted, EngineError> {
        check_request_id(request.request_id.as_deref())?;
        self.rerun_once(run, request, principal).await
    }

    /// As [`Session::rerun`], also with a requestId of the engine.
    pub(crate) async fn rerun_once(
        &self,
        run: RunId,
        request: RerunRequest,
        principal: Option<Principal>,
    ) -> Result<Accepted, EngineError> {
        const ACTION: &str = "execution.rerun";
        let target = run.to_string();
        let old = self.reads().run_row(run).await?;
        let old = old.ok_or(Refusal::RunNotFound(run))?;
        if let Some(known) = self.engine.known_rerun(&old, request.request_id.as_deref()).await? {
            return Ok(known);
        }
        let about = About {
            tenant: Some(old.tenant),
            detail: request.from_node.as_ref().map(|node| short(&format!("from {node}"))),
        };
        let is_edited = !request.parameters.is_empty();
        let mut prepared = self.engine.prepare_rerun(run, request).await?;
        let admitted = async {
            if is_edited {
                self.may_edit(&prepared.workflow_id).await?;
            }
            Ok(self.admit(&mut prepared, principal)?)
        };
        self.recorder().record(ACTION, &target, admitted).await?;
        let start = self.engine.start_rerun(run, prepared);
        self.recorder().record_before(ACTION, &target, about, start).await
    }

    /// Refuses a caller that may not change this workflow.
    async fn may_edit(&self, workflow: &str) -> Result<(), EngineError> {
        if !self.caller.has(Scope::Manage) {
            let scope = Scope::Manage.as_str();
            let what =
                format!("changed parameters need a token with the scope `{scope}`, as changing the workflow does");
            return Err(Refusal::Forbidden(what).into());
        }
        let workflow = self.reads().workflow(workflow).await?;
        match self.caller.tenant().is_none_or(|tenant| tenant == workflow.tenant) {
            true => Ok(()),
            false => Err(Refusal::Shared(workflow.id).into()),
        }
    }

    /// Requests that a run stops; see [`Engine::cancel`].
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Status, EngineError> {
        let cancel = async {
            let tenant = self.reads().visible_tenant(run).await?;
            describe(|row| {
                row.detail = Some(short(reason));
                row.tenant = tenant.unwrap_or_default();
            });
            self.engine.cancel(run, reason).await
        };
        self.recorder()
            .record("execution.cancel", &run.to_string(), cancel)
            .await
    }

    /// Pauses a run; see [`Engine::pause`].
    pub async fn pause(&self, run: RunId, reason: Option<&str>) -> Result<(), EngineError> {
        let pause = async { self.engine.pause(run).await };
        self.operate("execution.pause", run, reason.map(short), pause).await
    }

    /// Resumes a run; see [`Engine::resume`].
    pub async fn resume(&self, run: RunId, reason: Option<&str>) -> Result<(), EngineError> {
        let resume = async { self.engine.resume(run).await };
        self.operate("execution.resume", run, reason.map(short), resume).await
    }

    /// Skips a node that waits; see [`Engine::skip`].
    pub async fn skip(
        &self,
        run: RunId,
        node: &str,
        outputs: Map<String, Value>,
        reason: &str,
    ) -> Result<(), EngineError> {
        let skip = Skip {
            node: node.to_owned(),
            outputs,
            reason: reason.to_owned(),
            by: self.caller.identity().principal.as_ref().map(|own| own.user_id.clone()),
        };
        let detail = short(&format!("{node}: {reason}"));
        let skip = async { self.engine.skip(run, skip).await };
        self.operate("execution.skip", run, Some(detail), skip).await
    }

    /// Sends the request of a node again; see [`Engine::resend`].
    pub async fn resend(&self, run: RunId, node: &str, reason: Option<&str>) -> Result<(), EngineError> {
        let detail = reason.map_or_else(|| node.to_owned(), |reason| format!("{node}: {reason}"));
        let resend = async { self.engine.resend(run, node).await };
        self.operate("execution.resend", run, Some(short(&detail)), resend)
            .await
    }

    /// Changes a run that this caller sees, and records it.
    async fn operate(
        &self,
        action: &str,
        run: RunId,
        detail: Option<String>,
        change: impl Future<Output = Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let operate = async {
            let tenant = self.reads().visible_tenant(run).await?;
            describe(|row| {
                row.detail = detail;
                row.tenant = tenant.unwrap_or_default();
            });
            change.await
        };
        self.recorder().record(action, &run.to_string(), operate).await
    }

    /// Waits for the end of a run; see [`Engine::wait`].
    pub async fn wait(&self, run: RunId, limit: Duration) -> Result<Option<Arc<Ended>>, EngineError> {
        self.reads().visible(run).await?;
        self.engine.wait(run, limit).await
    }

    /// Removes a run that has ended; see [`Engine::delete_run`].
    pub async fn delete_run(&self, run: RunId) -> Result<(), EngineError> {
        let delete = async {
            let tenant = self.reads().visible_tenant(run).await?;
            describe(|row| row.tenant = tenant.unwrap_or_default());
            self.engine.delete_run(run).await
        };
        self.recorder()
            .record("execution.delete", &run.to_string(), delete)
            .await
    }

    /// Creates a new run from a dead letter; see [`Engine::requeue`].
    pub async fn requeue(&self, id: Uuid, version: Again) -> Result<Accepted, EngineError> {
        let requeue = self.engine.requeue_of(self.caller.tenant(), id, version);
        let letter = self.reads().dead_letter_row(id).await?;
        let about = About {
            tenant: letter.map(|letter| letter.tenant),
            detail: None,
        };
        let recorder = self.recorder();
        recorder
            .record_before("dead-letter.requeue", &id.to_string(), about, requeue)
            .await
    }

    /// Deletes one dead letter.
    pub async fn delete_dead_letter(&self, id: Uuid) -> Result<(), EngineError> {
        let delete = async {
            let letter = self.reads().dead_letter_row(id).await?;
            let letter = letter.ok_or(Refusal::DeadLetterNotFound(id))?;
            describe(|row| row.tenant = letter.tenant);
            self.engine.delete_dead_letter(id).await
        };
        self.recorder()
            .record("dead-letter.delete", &id.to_string(), delete)
            .await
    }

    /// Deletes the matching dead letters of this caller; see [`Engine::purge`].
    pub async fn purge(&self, filter: DeadLetterFilter) -> Result<u64, EngineError> {
        match self.reads().own_dead_letters(filter) {
            Some(filter) => {
                let about = About {
                    tenant: filter.tenant.clone(),
                    detail: Some(purged(&filter)),
                };
                let purge = self.engine.purge(filter);
                let recorder = self.recorder();
                recorder.record_before("dead-letter.purge", "", about, purge).await
            }
            None => Ok(0),
        }
    }
}

/// Which dead letters are deleted, for the audit trail.
fn purged(filter: &DeadLetterFilter) -> String {
    let tenant = filter.tenant.as_ref().map(|tenant| format!("tenant {tenant}"));
    let workflow = filter.workflow_uid.map(|uid| format!("workflow {uid}"));
    let reason = filter.reason.map(|reason| format!("reason {}", reason.as_str()));
    let parts: Vec<String> = [tenant, workflow, reason].into_iter().flatten().collect();
    match parts.is_empty() {
        true => "all".to_owned(),
        false => parts.join(", "),
    }
}

/// Whether a request names the caller itself. What it leaves out is not compared.
fn is_same(own: &Principal, named: &Principal) -> bool {
    let fits = |own: &Option<String>, named: &Option<String>| {
        let named = named.as_ref().filter(|text| !text.is_empty());
        named.is_none_or(|named| own.as_ref() == Some(named))
    };
    own.user_id == named.user_id && fits(&own.display_name, &named.display_name) && fits(&own.email, &named.email)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_the_callers_if_nothing_differs() {
        let principal = |id: &str, name: Option<&str>, email: Option<&str>| Principal {
            user_id: id.to_owned(),
            display_name: name.map(str::to_owned),
            email: email.map(str::to_owned),
        };
        let own = principal("ada", Some("Ada"), None);
        for (named, same) in [
            (own.clone(), true),
            (principal("ada", None, None), true),
            (principal("ada", Some(""), Some("")), true),
            (principal("Ada", None, None), false),
            (principal("ada", Some("Bob"), None), false),
            (principal("ada", None, Some("ada@example.com")), false),
        ] {
            assert_eq!(is_same(&own, &named), same, "{named:?}");
        }
    }
}
