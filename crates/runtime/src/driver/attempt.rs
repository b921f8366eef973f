//! Attempts: rendering parameters, calling actions, and what comes back.

use super::{Driver, Trouble, step::Step};
use crate::{
    actions::{Action, Call, Failed, ResourceLink, Success},
    compiled::Needs,
    entry::{Went, entry},
    runner::probation::Probation,
    turns::Behalf,
};
use fermata_core::{Failure, NodeId, NodeIx, Phase, Run, RunId, Timestamp, code};
use fermata_store::runs::{AttemptStatus, Link};
use futures::FutureExt;
use serde_json::Value;
use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// What an attempt was called with.
#[derive(Debug, Clone)]
pub(super) struct Parameters(Arc<Value>);

impl Parameters {
    pub fn to_text(&self) -> String {
        self.0.to_string()
    }
}

/// What became of an attempt. Without a result it never began.
#[derive(Debug, Clone)]
pub(super) struct Report {
    pub node: NodeIx,
    pub attempt: u32,
    pub parameters: Option<Parameters>,
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
    /// Puts an attempt on its way. It waits for its turn itself.
    pub(super) async fn start(&mut self, ix: NodeIx, attempt: u32) -> Result<(), Trouble> {
        let now = self.shared.clock.now();
        let report = Report::never_started(ix, attempt, now);
        let rendered = self.parameters(ix, attempt).await?;
        let token = CancellationToken::new();
        self.running.insert((ix, attempt), token.clone());
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
            cancelled: token.clone(),
        };
        let action_type = node.kind.action_type().to_owned();
        let (shared, plan) = (self.shared.clone(), self.compiled.plan.clone());
        let (tenant, priority) = (self.meta.tenant.clone(), self.meta.priority);
        let queued = self.probation.as_ref().map(Probation::queue);
        let execute = async move {
            let behalf = Behalf {
                tenant: &tenant,
                workflow: &plan.workflow,
                priority,
                run: call.run,
            };
            let turn = tokio::select! {
                biased;
                () = token.cancelled() => return report,
                () = shared.stopping.cancelled() => return report, // whoever claims the run next starts it
                turn = shared.turns.take(behalf) => turn,
            };
            let started_at = shared.clock.now();
            queued.into_iter().for_each(|queued| queued.begin(started_at));
            if let Some(observer) = &shared.observer {
                observer.started(call.run, &call.node, attempt);
            }
            let limit = Duration::from_millis(policies.timeout_ms);
            let result = match action {
                Some(action) => invoke(action, parameters.0.clone(), call, limit).await,
                None => Err(unknown_action(&action_type).into()),
            };
            drop(turn);
            Report {
                parameters: Some(parameters),
                started_at: Some(started_at),
                ended_at: shared.clock.now(),
                result: Some(result.map(Given::from)),
                ..report
            }
        };
        self.attempts.push(execute.boxed());
        Ok(())
    }

    /// Renders as of the node's opening, or reuses what the first attempt was called with.
    async fn parameters(&mut self, ix: NodeIx, attempt: u32) -> Result<Result<Parameters, Failure>, Trouble> {
        let reuse = attempt > 1 && !self.compiled.plan.node(ix).policies.rerender_on_retry;
        if reuse {
            if let Some(parameters) = self.first_parameters.get(&ix) {
                return Ok(Ok(parameters.clone()));
            }
            if let Some(recorded) = self.recorded_parameters(ix).await? {
                self.first_parameters.insert(ix, recorded.clone());
                return Ok(Ok(recorded));
            }
        }
        let step = Step::nothing(self.shared.clock.now());
        let rendered = self.render(ix, &step).await?;
        let may_repeat = self.compiled.plan.node(ix).policies.retry.max_attempts > 1;
        Ok(rendered.map(|value| {
            let parameters = Parameters(Arc::new(value));
            if attempt == 1 && may_repeat {
                self.first_parameters.insert(ix, parameters.clone());
            }
            parameters
        }))
    }

    async fn recorded_parameters(&mut self, ix: NodeIx) -> Result<Option<Parameters>, Trouble> {
        let node = &self.compiled.plan.node(ix).id;
        let recorded = self
            .shared
            .store
            .attempt(self.meta.id, node, 1)
            .await
            .map_err(|error| {
                tracing::warn!(run = %self.meta.id, %node, %error, "recorded parameters cannot be read");
                Trouble::Reload(Vec::new())
            })?;
        let text = recorded.and_then(|recorded| recorded.parameters);
        Ok(text
            .and_then(|text| serde_json::from_str(&text).ok())
            .map(|value| Parameters(Arc::new(value))))
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

async fn invoke(
    action: Arc<dyn Action>,
    parameters: Arc<Value>,
    call: Call,
    limit: Duration,
) -> Result<Success, Failed> {
    let parameters = Arc::unwrap_or_clone(parameters);
    let running = AssertUnwindSafe(action.run(parameters, call)).catch_unwind();
    match tokio::time::timeout(limit, running).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => {
            let what = panic_text(panic.as_ref());
            Err(Failure::permanent(code::ACTION_PANICKED, format!("the action panicked: {what}")).into())
        }
        Err(_) => {
            let message = format!("the attempt took longer than {} ms", limit.as_millis());
            Err(Failure::retriable(code::TIMEOUT, message).into())
        }
    }
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
