//! One attempt: rendering its parameters, calling its action, and its report.

use super::{Driver, StepError, judge::Rendering, requests::with_position, step::Step};
use crate::{
    actions::{Action, Call, CallbackAddresses, Children, EventPublisher, Failed, Offer, ResourceLink, Success},
    clock::{Clock, until},
    compiled::Needs,
    engine::{Shared, StartedBy},
    entry::{NodeResult, entry},
    memory::Reserved,
    metrics::between,
    offload::{Offload, short_text},
    runner::probation::Probation,
    secrets,
    slots::Behalf,
    trace::TraceContext,
    wait_rows::is_wait,
};
use fermata_core::{Failure, Kind, NodeId, NodeIx, Phase, Run, RunId, Timestamp, code};
use fermata_store::runs::{AttemptStatus, Link};
use futures::FutureExt;
use serde_json::Value;
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// The outcome of an attempt. Without a result the attempt never began.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub node: NodeIx,
    pub attempt: u32,
    /// Its parameters as they are stored: without secrets.
    pub parameters: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    /// How long it waited for a slot, or for a place of its tenant.
    pub queued_ms: u32,
    pub result: Option<Result<ActionOutputs, Failed>>,
    /// The memory of the result, counted until it is recorded.
    pub _memory: Reserved,
}

/// The outputs of an action, with their text.
#[derive(Debug, Clone)]
pub(super) struct ActionOutputs {
    pub outputs: Arc<Value>,
    pub text: String,
    pub links: Vec<ResourceLink>,
    pub offer: Option<Offer>,
}

impl ActionOutputs {
    async fn new(success: Success, offload: &Offload) -> ActionOutputs {
        let outputs = Arc::new(success.outputs);
        ActionOutputs {
            text: offload.to_text(outputs.clone()).await,
            outputs,
            links: success.links,
            offer: success.offer,
        }
    }
}

impl ResourceLink {
    pub(super) fn for_node(&self, node: &NodeId, attempt: u32) -> Link {
        Link {
            node: node.clone(),
            attempt,
            system: self.system.clone(),
            resource_type: self.resource_type.clone(),
            resource_id: self.resource_id.clone(),
            url: self.url.clone(),
        }
    }
}

/// A shorter time in which an attempt waits for a slot or a place is not recorded: it cannot be seen in a timeline.
const SHOWN_QUEUE_MS: u32 = 10;

impl Report {
    /// How long it waited for a slot or a place, if that is to be recorded.
    pub fn long_queue_ms(&self) -> Option<u64> {
        (self.queued_ms >= SHOWN_QUEUE_MS).then_some(self.queued_ms.into())
    }

    pub fn never_started(node: NodeIx, attempt: u32, at: Timestamp) -> Report {
        Report {
            node,
            attempt,
            parameters: None,
            started_at: None,
            ended_at: at,
            queued_ms: 0,
            result: None,
            _memory: Reserved::default(),
        }
    }

    /// Whether it never began although the run is not stopping.
    pub fn is_left_undone(&self, run: &Run) -> bool {
        self.result.is_none() && run.stop().is_none()
    }

    pub fn success(&self) -> Option<&ActionOutputs> {
        self.result.as_ref().and_then(|result| result.as_ref().ok())
    }

    pub fn failed(&self) -> Option<&Failed> {
        self.result.as_ref().and_then(|result| result.as_ref().err())
    }

    /// The same attempt, failed because a resource that it linked belongs to another run.
    pub fn with_link_conflict(&self, link: &Link, owner: RunId) -> Report {
        let message = format!(
            "{} {} `{}` is already linked to execution {owner}",
            link.system, link.resource_type, link.resource_id
        );
        Report {
            result: Some(Err(Failure::permanent(code::RESOURCE_LINK_CONFLICT, message).into())),
            ..self.clone()
        }
    }
}

impl Driver {
    /// Starts an attempt. Its future waits for a slot, unless the attempt has one.
    pub(super) async fn start(&mut self, ix: NodeIx, attempt: u32) -> Result<(), StepError> {
        if self.run.must_record_start(ix) {
            self.queue_for_slot(ix, attempt);
            return Ok(());
        }
        let now = self.shared.clock.now();
        let mut report = Report::never_started(ix, attempt, now);
        let step = Step::nothing(now);
        let rendered = self.render(ix, &step).await?;
        let answer = self.answer_to(ix, attempt, &step).await?;
        let state = self.state_for(ix, &step).await?;
        let slot = self.attempts.take_slot(ix, attempt);
        let node = self.compiled.plan.node(ix);
        let action = self.shared.registry.get(node.kind.action_type()).cloned();
        let policies = node.policies;
        // Every attempt of a request has its own token, so it is a request of its own.
        let is_request = matches!(node.kind, Kind::Request { .. });
        let is_action = matches!(node.kind, Kind::Action { .. });
        let position = (is_request || state.is_some()).then(|| self.position(ix));
        let idempotency_key = match policies.rerender_on_retry || is_request {
            true => format!("{}:{}:{attempt}", self.meta.id, node.id),
            false => format!("{}:{}", self.meta.id, node.id),
        };
        let traceparent = self.traceparent(ix, attempt);
        let tier = self.shared.settings.tiers.of(&self.meta.tenant);
        let most = tier.and_then(|tier| tier.http_steps_at_once);
        let most = most.filter(|_| self.sends_http(ix));
        let is_child = self.is_child(ix);
        let starts_children = action.as_ref().is_some_and(|action| action.starts_children());
        let children = starts_children.then(|| Children::new(self.shared.clone(), self.started_by(ix, attempt)));
        let mut call = Call {
            run: self.meta.id,
            node: node.id.clone(),
            attempt,
            idempotency_key,
            correlation_id: self.meta.correlation_id.clone(),
            traceparent,
            principal: self.meta.principal.clone(),
            workflow: self.compiled.plan.workflow.as_str().into(),
            answer,
            children,
            callbacks: Some(CallbackAddresses::new(
                self.shared.clone(),
                self.meta.id,
                self.meta.workflow_uid,
            )),
            events: Some(EventPublisher::new(
                self.shared.clone(),
                self.meta.tenant.clone(),
                self.meta.id,
                self.meta.chain_depth,
            )),
            state: Arc::default(),
            cancelled: match is_request {
                true => self.stopping.no_new.child_token(),
                false => self.stopping.no_new.clone(),
            },
            memory: Reserved::of(&self.shared.admission.responses),
        };
        if is_request {
            self.attempts.keep_signal(ix, attempt, call.cancelled.clone());
        }
        let limit = Limit::of(policies.timeout_ms, self.run.deadline());
        let (halt, paused) = (self.stopping.halt.clone(), self.stopping.paused.clone());
        let action_type = node.kind.action_type().to_owned();
        let (shared, plan) = (self.shared.clone(), self.compiled.plan.clone());
        let (tenant, priority, epoch) = (self.meta.tenant.clone(), self.meta.priority, self.meta.epoch);
        let workflow_uid = self.meta.workflow_uid;
        let queued = self.lease.probation.as_ref().map(Probation::queue);
        let execute = async move {
            let behalf = Behalf {
                tenant: &tenant,
                workflow: &plan.workflow,
                priority,
            };
            let rendered = match rendered {
                Rendering::Now(rendered) => rendered,
                Rendering::Later(rendering) => tokio::select! {
                    biased;
                    () = call.cancelled.cancelled() => return report,
                    () = paused.cancelled() => return report,
                    rendered = rendering => rendered,
                },
            };
            let mut rendered = match rendered {
                Ok(rendered) => rendered,
                Err(failure) => {
                    let took = between(now, shared.clock.now());
                    let is_retriable = Some(failure.retriable);
                    shared.metrics.action_ended(&action_type, attempt, took, is_retriable);
                    return Report {
                        started_at: Some(now),
                        ended_at: shared.clock.now(),
                        result: Some(Err(failure.into())),
                        ..report
                    };
                }
            };
            let (parameters, text) = masked(&shared, std::mem::take(&mut rendered.value), position).await;
            rendered.value = parameters;
            if let Some((bytes, state)) = state {
                call.state = Arc::new(shared.offload.run(bytes, state).await);
            }
            let asked_at = shared.clock.now();
            // A step that waits for the other steps of its tenant holds no slot.
            let slot = slot.filter(|_| most.is_none());
            let place = match most {
                None => None,
                Some(most) => tokio::select! {
                    biased;
                    () = call.cancelled.cancelled() => return report,
                    () = paused.cancelled() => return report,
                    () = shared.shutdown.stopping.cancelled() => return report,
                    place = shared.http_places.take(&tenant, most, call.run, &call.node) => Some(place),
                },
            };
            let slot = match slot {
                Some(slot) => slot,
                None => tokio::select! {
                    biased;
                    () = call.cancelled.cancelled() => return report,
                    () = paused.cancelled() => return report,
                    () = shared.shutdown.stopping.cancelled() => return report, // the runner that claims the run next starts it
                    slot = shared.admission.action_slots.take(call.run, behalf) => slot,
                },
            };
            // The run may have been taken over while this process was stopped.
            if !shared.admission.lease_gate.is_open() {
                tokio::select! {
                    biased;
                    () = call.cancelled.cancelled() => return report,
                    () = paused.cancelled() => return report,
                    () = shared.shutdown.stopping.cancelled() => return report,
                    () = shared.admission.lease_gate.opens() => {}
                }
            }
            // The run may have been stopped, or its request answered, since the attempt was scheduled.
            if call.cancelled.is_cancelled() || paused.is_cancelled() || shared.shutdown.is_stopping() {
                return report;
            }
            if shared.held.is_lost(call.run, epoch) {
                drop(slot);
                return std::future::pending().await; // the driver is about to be dropped
            }
            let memory = call.memory.clone();
            let started_at = shared.clock.now();
            report.queued_ms = between(asked_at, started_at).as_millis() as u32;
            queued.into_iter().for_each(|queued| queued.begin(started_at));
            if let Some(observer) = &shared.observer {
                observer.started(call.run, &call.node, attempt);
            }
            let allowed = is_action && action.as_ref().is_some_and(|action| action.takes_secrets());
            let names = &plan.templates.secrets;
            let resolved = secrets::resolve(&shared, workflow_uid, names, allowed, rendered).await;
            let (parameters, echoes) = match resolved {
                Ok(resolved) => resolved,
                Err(failure) => {
                    return Report {
                        parameters: Some(text),
                        started_at: Some(started_at),
                        ended_at: shared.clock.now(),
                        result: Some(Err(failure.into())),
                        ..report
                    };
                }
            };
            let result = match action {
                None => Err(unknown_action(&action_type).into()),
                // Whether the child was started must be known before its parent can end.
                Some(action) if is_child => match AssertUnwindSafe(action.run(parameters, call)).catch_unwind().await {
                    Ok(result) => result,
                    Err(panic) => Err(panicked(panic.as_ref()).into()),
                },
                Some(action) => tokio::select! {
                    biased;
                    result = invoke(action, parameters, call, started_at, limit, &*shared.clock) => result,
                    () = halt.cancelled() => Err(stopped("the run was stopped while this attempt ran").into()),
                },
            };
            drop((slot, place));
            let ended_at = shared.clock.now();
            let failed = result.as_ref().err().map(|failed| failed.failure.retriable);
            let took = between(started_at, ended_at);
            shared.metrics.action_ended(&action_type, attempt, took, failed);
            let result = match echoes.remove(result, &shared.offload).await {
                Ok(success) => Ok(ActionOutputs::new(success, &shared.offload).await),
                Err(failed) => Err(failed),
            };
            Report {
                parameters: Some(text),
                started_at: Some(started_at),
                ended_at,
                result: Some(result),
                _memory: memory,
                ..report
            }
        };
        self.attempts.execute(ix, attempt, execute.boxed());
        Ok(())
    }

    /// An attempt that starts child runs, and what they inherit.
    pub(super) fn started_by(&self, ix: NodeIx, attempt: u32) -> StartedBy {
        StartedBy {
            run: self.meta.id,
            node: self.compiled.plan.node(ix).id.clone(),
            attempt,
            waits: self.is_child(ix),
            epoch: self.meta.epoch,
            workflow_uid: self.meta.workflow_uid,
            depth: self.meta.depth,
            lineage: self.meta.lineage.clone(),
            shares: self.meta.shares.clone(),
            tenant: self.meta.tenant.clone(),
            correlation_id: self.meta.correlation_id.clone(),
            traceparent: self.traceparent(ix, attempt),
            principal: self.meta.principal.clone(),
            chain_depth: self.meta.chain_depth,
            priority: self.meta.priority,
            metrics: self.compiled.metrics.clone(),
        }
    }

    /// What an attempt sends to services and child runs.
    fn traceparent(&self, ix: NodeIx, attempt: u32) -> Option<TraceContext> {
        let node = &self.compiled.plan.node(ix).id;
        self.meta
            .trace
            .of_attempt(self.shared.settings.tracer.as_ref(), node, attempt)
    }

    /// Waits for a slot, before the start of the attempt is recorded and its parameters are rendered.
    fn queue_for_slot(&mut self, ix: NodeIx, attempt: u32) {
        let (shared, plan) = (self.shared.clone(), self.compiled.plan.clone());
        let (no_new, paused) = (self.stopping.no_new.clone(), self.stopping.paused.clone());
        let (tenant, priority, run) = (self.meta.tenant.clone(), self.meta.priority, self.meta.id);
        let wait = async move {
            let behalf = Behalf {
                tenant: &tenant,
                workflow: &plan.workflow,
                priority,
            };
            let slot = tokio::select! {
                biased;
                () = no_new.cancelled() => None,
                () = paused.cancelled() => None,
                () = shared.shutdown.stopping.cancelled() => None,
                slot = shared.admission.action_slots.take(run, behalf) => Some(slot),
            };
            (ix, attempt, slot)
        };
        self.attempts.queue(ix, attempt, wait.boxed());
    }

    /// The position of the completion order that an open node sees.
    pub(super) fn position(&self, ix: NodeIx) -> u32 {
        match &self.run.node(ix).phase {
            Phase::Open(open) => open.sees,
            _ => self.run.completed().len() as u32,
        }
    }

    /// If the node's action reads the state: about its size, and how to build it.
    pub(super) async fn state_for(
        &mut self,
        ix: NodeIx,
        step: &Step,
    ) -> Result<Option<(usize, BuildState)>, StepError> {
        let kind = &self.compiled.plan.node(ix).kind;
        let (Kind::Action { action, parameters } | Kind::Request { action, parameters, .. }) = kind else {
            return Ok(None);
        };
        let action = self.shared.registry.get(action);
        if !action.is_some_and(|action| action.reads_state(parameters)) {
            return Ok(None);
        }
        let sees = self.position(ix);
        self.ensure(&Needs::STATE, sees, step).await?;
        let payloads = self.payloads.clone();
        let build: BuildState = Box::new(move || Value::Object(payloads.state_at(sees)));
        Ok(Some((self.payloads.bytes(&Needs::STATE), build)))
    }

    /// Fetches the data that an expression needs and that is not in memory.
    pub(super) async fn ensure(&mut self, needs: &Needs, sees: u32, step: &Step) -> Result<(), StepError> {
        if needs.waits && !self.payloads.knows_waits() {
            let waits = self.shared.store.waits(self.meta.id).await;
            let waits = waits.map_err(|error| self.read_failed(&error, step))?;
            let waits = waits.iter().filter(|wait| is_wait(&self.compiled.plan, &wait.node));
            let tokens = waits.map(|wait| (&wait.node, wait.token.as_str()));
            let reused = self.meta.reused.as_deref();
            self.payloads
                .learn_waits(tokens, reused, &self.shared.settings.public_url);
        }
        let mut missing = self.payloads.missing(&self.run, needs, sees);
        if !needs.state.is_none() && self.read_cached_state(missing.len(), step).await? {
            missing = self.payloads.missing(&self.run, needs, sees);
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.fetch(missing, step).await
    }

    /// Keeps the entry of a node that ended, for later nodes. Its output has `bytes` bytes.
    pub(super) fn learn(&mut self, ix: NodeIx, result: NodeResult<'_>, bytes: usize) {
        let merges = matches!(result, NodeResult::Succeeded(_)) && self.compiled.plan.node(ix).merges_into_state;
        let order = match &self.run.node(ix).phase {
            Phase::Finished { order, .. } if merges => Some(*order),
            _ => None,
        };
        let entry = entry(&self.compiled.plan, ix, result);
        self.payloads.learn(ix, entry, bytes, order);
    }

    pub(super) async fn fetch(&mut self, nodes: Vec<NodeIx>, step: &Step) -> Result<(), StepError> {
        let ids: Vec<NodeId> = nodes.iter().map(|ix| self.compiled.plan.node(*ix).id.clone()).collect();
        let rows = self.shared.store.last_attempts(self.meta.id, &ids).await;
        let rows = rows.map_err(|error| self.read_failed(&error, step))?;
        let bytes = rows.iter().map(|row| row.outputs.as_ref().map_or(0, String::len)).sum();
        let read = move || {
            let parse = |text: &String| serde_json::from_str::<Value>(text).ok();
            let outputs = rows
                .iter()
                .map(|row| row.outputs.as_ref().and_then(parse))
                .collect::<Vec<_>>();
            rows.into_iter().zip(outputs).collect::<Vec<_>>()
        };
        for (row, outputs) in self.shared.offload.run(bytes, read).await {
            let Some(ix) = self.compiled.plan.find(row.node.as_str()) else {
                continue;
            };
            let bytes = row.outputs.as_ref().map_or(0, String::len);
            let failure: Option<Failure> = row.error.and_then(|text| serde_json::from_str(&text).ok());
            let result = match (row.status, &failure) {
                (AttemptStatus::Succeeded, _) => NodeResult::Succeeded(Arc::new(outputs.unwrap_or_default())),
                (_, Some(failure)) => NodeResult::Failed(failure, outputs.as_ref()),
                (_, None) => continue,
            };
            self.learn(ix, result, bytes);
        }
        Ok(())
    }
}

/// Builds the state of a run.
pub(super) type BuildState = Box<dyn FnOnce() -> Value + Send>;

/// The parameters, and their masked text, which is stored. With `position` the text names the position of the state.
pub(super) async fn masked(shared: &Arc<Shared>, parameters: Value, position: Option<u32>) -> (Value, String) {
    if let Some(sees) = position {
        let mut recorded = parameters.clone();
        with_position(&mut recorded, sees);
        let (_, text) = Box::pin(masked(shared, recorded, None)).await;
        return (parameters, text);
    }
    match short_text(&shared.settings.mask.of(&parameters)) {
        Some(text) => (parameters, text),
        None => {
            let own = shared.clone();
            let mask = move || {
                let text = own.settings.mask.to_text(&parameters);
                (parameters, text)
            };
            shared.offload.elsewhere(mask).await
        }
    }
}

/// The time limits of an attempt.
#[derive(Debug, Clone, Copy)]
struct Limit {
    timeout: Duration,
    /// The deadline of the run.
    deadline: Option<Timestamp>,
}

impl Limit {
    fn of(timeout_ms: u64, deadline: Option<Timestamp>) -> Limit {
        Limit {
            timeout: Duration::from_millis(timeout_ms),
            deadline,
        }
    }
}

async fn invoke(
    action: Arc<dyn Action>,
    parameters: Value,
    call: Call,
    started_at: Timestamp,
    limit: Limit,
    clock: &dyn Clock,
) -> Result<Success, Failed> {
    let left = limit.deadline.map(|deadline| until(started_at, deadline));
    let at_most = left.map_or(limit.timeout, |left| left.min(limit.timeout));
    let running = AssertUnwindSafe(action.run(parameters, call)).catch_unwind();
    match tokio::time::timeout(at_most, running).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(panicked(panic.as_ref()).into()),
        Err(_) if at_most < limit.timeout => {
            // The run stops at its deadline, so this must return only when the clock has reached it.
            while let Some(early) = limit
                .deadline
                .map(|deadline| until(clock.now(), deadline))
                .filter(|early| !early.is_zero())
            {
                tokio::time::sleep(early).await;
            }
            Err(stopped("the time allowed for the run was over while this attempt ran").into())
        }
        Err(_) => {
            let message = format!("the attempt took longer than {} ms", limit.timeout.as_millis());
            Err(Failure::retriable(code::TIMEOUT, message).into())
        }
    }
}

fn stopped(why: &str) -> Failure {
    Failure::permanent(code::CANCELLED, why)
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let message = format!("the action panicked: {}", panic_text(panic));
    Failure::permanent(code::ACTION_PANICKED, message)
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn unknown_action(action: &str) -> Failure {
    Failure::permanent(code::UNKNOWN_ACTION, format!("this program has no action `{action}`"))
}
