//! Attempts: rendering parameters, calling actions, and what comes back.

use super::{Driver, Trouble, step::Step};
use crate::{
    actions::{Action, Call, Failed, ResourceLink, Success},
    clock::{Clock, until},
    compiled::Needs,
    entry::{Went, entry},
    runner::probation::Probation,
    slots::Behalf,
};
use fermata_core::{Failure, NodeId, NodeIx, Phase, Run, RunId, Timestamp, code};
use fermata_store::runs::{AttemptStatus, Link};
use futures::FutureExt;
use serde_json::Value;
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// What became of an attempt. Without a result it never began.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub node: NodeIx,
    pub attempt: u32,
    /// What it was called with, as it is stored: without secrets.
    pub parameters: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub result: Option<Result<Given, Failed>>,
}

/// What an action gave, and its text.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub outputs: Arc<Value>,
    pub text: String,
    pub links: Vec<ResourceLink>,
}

impl From<Success> for Given {
    fn from(success: Success) -> Self {
        Given {
            text: success.outputs.to_string(),
            outputs: Arc::new(success.outputs),
            links: success.links,
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

impl Report {
    pub fn never_started(node: NodeIx, attempt: u32, at: Timestamp) -> Report {
        Report {
            node,
            attempt,
            parameters: None,
            started_at: None,
            ended_at: at,
            result: None,
        }
    }

    /// Whether it never began although the run still wants it.
    pub fn is_left_undone(&self, run: &Run) -> bool {
        self.result.is_none() && run.stop().is_none()
    }

    pub fn success(&self) -> Option<&Given> {
        self.result.as_ref().and_then(|result| result.as_ref().ok())
    }

    pub fn failed(&self) -> Option<&Failed> {
        self.result.as_ref().and_then(|result| result.as_ref().err())
    }

    /// The same attempt, failed because what it created belongs to another run.
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
    /// Puts an attempt on its way. It waits for its slot itself, unless it has one.
    pub(super) async fn start(&mut self, ix: NodeIx, attempt: u32) -> Result<(), Trouble> {
        if self.run.must_record_start(ix) {
            self.queue_for_slot(ix, attempt);
            return Ok(());
        }
        let now = self.shared.clock.now();
        let report = Report::never_started(ix, attempt, now);
        let rendered = self.render(ix, &Step::nothing(now)).await?;
        let slot = self.slots.remove(&(ix, attempt));
        self.running.insert((ix, attempt));
        let parameters = match rendered {
            Ok(parameters) => parameters,
            Err(failure) => {
                let result = Some(Err(failure.into()));
                let report = Report {
                    started_at: Some(now),
                    result,
                    ..report
                };
                self.attempts.push(std::future::ready(report).boxed());
                return Ok(());
            }
        };
        let node = self.compiled.plan.node(ix);
        let action = self.shared.registry.get(node.kind.action_type()).cloned();
        let policies = node.policies;
        let idempotency_key = match policies.rerender_on_retry {
            true => format!("{}:{}:{attempt}", self.meta.id, node.id),
            false => format!("{}:{}", self.meta.id, node.id),
        };
        let call = Call {
            run: self.meta.id,
            node: node.id.clone(),
            attempt,
            idempotency_key,
            correlation_id: self.meta.correlation_id.clone(),
            principal: self.meta.principal.clone(),
            cancelled: self.unwanted.clone(),
        };
        let limit = Limit::of(policies.timeout_ms, self.run.deadline());
        let halt = self.halt.clone();
        let action_type = node.kind.action_type().to_owned();
        let (shared, plan) = (self.shared.clone(), self.compiled.plan.clone());
        let (tenant, priority) = (self.meta.tenant.clone(), self.meta.priority);
        let queued = self.probation.as_ref().map(Probation::queue);
        let execute = async move {
            let behalf = Behalf {
                tenant: &tenant,
                workflow: &plan.workflow,
                priority,
            };
            let turn = match slot {
                Some(slot) => slot,
                None => tokio::select! {
                    biased;
                    () = call.cancelled.cancelled() => return report,
                    () = shared.stopping.cancelled() => return report, // the runner that claims the run next starts it
                    turn = shared.turns.take(call.run, behalf) => turn,
                },
            };
            let started_at = shared.clock.now();
            queued.into_iter().for_each(|queued| queued.begin(started_at));
            if let Some(observer) = &shared.observer {
                observer.started(call.run, &call.node, attempt);
            }
            let text = shared.settings.mask.to_text(&parameters);
            let result = match action {
                None => Err(unknown_action(&action_type).into()),
                Some(action) => tokio::select! {
                    biased;
                    result = invoke(action, parameters, call, limit, &*shared.clock) => result,
                    () = halt.cancelled() => Err(stopped("the run was stopped while this attempt ran").into()),
                },
            };
            drop(turn);
            Report {
                parameters: Some(text),
                started_at: Some(started_at),
                ended_at: shared.clock.now(),
                result: Some(result.map(Given::from)),
                ..report
            }
        };
        self.attempts.push(execute.boxed());
        Ok(())
    }

    /// Waits for a slot. Only then is the start of the attempt recorded and are its parameters rendered.
    fn queue_for_slot(&mut self, ix: NodeIx, attempt: u32) {
        self.running.insert((ix, attempt));
        let (shared, plan, unwanted) = (self.shared.clone(), self.compiled.plan.clone(), self.unwanted.clone());
        let (tenant, priority, run) = (self.meta.tenant.clone(), self.meta.priority, self.meta.id);
        let wait = async move {
            let behalf = Behalf {
                tenant: &tenant,
                workflow: &plan.workflow,
                priority,
            };
            let slot = tokio::select! {
                biased;
                () = unwanted.cancelled() => None,
                () = shared.stopping.cancelled() => None,
                slot = shared.turns.take(run, behalf) => Some(slot),
            };
            (ix, attempt, slot)
        };
        self.queueing.push(wait.boxed());
    }

    /// Renders a node's parameters with what it may see.
    pub(super) async fn render(&mut self, ix: NodeIx, step: &Step) -> Result<Result<Value, Failure>, Trouble> {
        let compiled = self.compiled.clone();
        let Some(template) = &compiled.nodes[ix.at()].parameters else {
            return Ok(Ok(Value::Null));
        };
        let sees = match &self.run.node(ix).phase {
            Phase::Open(open) => open.sees,
            _ => self.run.completed().len() as u32,
        };
        self.ensure(&template.1, sees, step).await?;
        Ok(self.payloads.render(&self.run, template, sees, &compiled.templates))
    }

    /// Fetches what an expression needs and is not in memory.
    pub(super) async fn ensure(&mut self, needs: &Needs, sees: u32, step: &Step) -> Result<(), Trouble> {
        if needs.waits && !self.payloads.knows_waits() {
            let waits = self.shared.store.waits(self.meta.id).await;
            let waits = waits.map_err(|error| self.read_failed(&error, step))?;
            let tokens = waits.iter().map(|wait| (&wait.node, wait.token.as_str()));
            self.payloads.learn_waits(tokens, &self.shared.settings.public_url);
        }
        let missing = self.payloads.missing(&self.run, needs, sees);
        if missing.is_empty() {
            return Ok(());
        }
        self.fetch(missing, step).await
    }

    /// Keeps what later nodes see of a node that ended.
    pub(super) fn learn(&mut self, ix: NodeIx, went: Went<'_>) {
        let entry = entry(&self.compiled.plan, ix, went);
        self.payloads.entries.insert(ix, entry);
    }

    pub(super) async fn fetch(&mut self, nodes: Vec<NodeIx>, step: &Step) -> Result<(), Trouble> {
        let ids: Vec<NodeId> = nodes.iter().map(|ix| self.compiled.plan.node(*ix).id.clone()).collect();
        let rows = self.shared.store.last_attempts(self.meta.id, &ids).await;
        for row in rows.map_err(|error| self.read_failed(&error, step))? {
            let Some(ix) = self.compiled.plan.find(row.node.as_str()) else {
                continue;
            };
            let outputs = row.outputs.and_then(|text| serde_json::from_str(&text).ok());
            let failure: Option<Failure> = row.error.and_then(|text| serde_json::from_str(&text).ok());
            let went = match (row.status, &failure) {
                (AttemptStatus::Succeeded, _) => Went::Well(Arc::new(outputs.unwrap_or_default())),
                (_, Some(failure)) => Went::Badly(failure, outputs.as_ref()),
                (_, None) => continue,
            };
            self.learn(ix, went);
        }
        Ok(())
    }
}

/// How long an attempt may take.
#[derive(Debug, Clone, Copy)]
struct Limit {
    timeout: Duration,
    /// When the time of the whole run is up.
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
    limit: Limit,
    clock: &dyn Clock,
) -> Result<Success, Failed> {
    let left = limit.deadline.map(|deadline| until(clock.now(), deadline));
    let at_most = left.map_or(limit.timeout, |left| left.min(limit.timeout));
    let running = AssertUnwindSafe(action.run(parameters, call)).catch_unwind();
    match tokio::time::timeout(at_most, running).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let what = panic_text(panic.as_ref());
            Err(Failure::permanent(code::ACTION_PANICKED, format!("the action panicked: {what}")).into())
        }
        Err(_) if at_most < limit.timeout => {
            // The run stops at its deadline, so that must be over for everyone who looks at the clock.
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

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

fn unknown_action(action: &str) -> Failure {
    Failure::permanent(code::UNKNOWN_ACTION, format!("this program has no action `{action}`"))
}
