//! Reruns: a new run that repeats an ended one, whole or from a node on.
//!
//! What must stay true:
//! * Only a run that has ended is repeated, so what it recorded does not change any more.
//! * What the new run keeps is decided here, once, and stored with the run (`fermata_core::rerun`); a crash does not change it.
//! * A repeated request (the same requestId) finds its run.

use super::{Accepted, Engine, Request, check_request_id, commands::nodes_of};
use crate::{
    compiled::Compiled,
    error::{EngineError, Refusal},
    memory::Share,
    trace::TraceContext,
};
use fermata_core::{
    Plan, Rerun, RunId, decode,
    rerun::{Edits, Repeat, RerunError, edited, reused},
};
use fermata_store::{
    definitions::Workflow,
    reads::{RunFilter, RunRecord},
    runs::{NewRerun, RerunOf},
};
use serde_json::Value;
use std::sync::Arc;

/// A request to repeat a run. What is not given is that of the old run.
#[derive(Debug, Clone, Default)]
pub struct RerunRequest {
    /// Repeat this node and all that it reaches. Without it, and without `failed_only`, everything is repeated.
    pub from_node: Option<String>,
    /// Repeat the nodes that failed and all that they reach.
    pub failed_only: bool,
    /// Another trigger.
    pub trigger: Option<Value>,
    /// Another `spec`.
    pub spec: Option<Value>,
    /// Changed parameters of single nodes.
    pub parameters: Edits,
    /// The version to follow.
    pub version: RerunVersion,
    /// The caller's idempotency key.
    pub request_id: Option<String>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// The caller's position in its own trace.
    pub traceparent: Option<TraceContext>,
    /// The memory that the request is counted as.
    pub memory: Option<Arc<Share>>,
}

/// The version that a rerun follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RerunVersion {
    /// That of the old run.
    #[default]
    Same,
    /// The version of new runs.
    Latest,
    /// This one.
    Number(u32),
}

/// What a new run has of the run that it repeats.
#[derive(Debug, Clone)]
pub struct Repeated {
    pub(crate) source: RerunOf,
    pub(crate) rerun: Rerun,
}

impl Repeated {
    /// As it is stored with the new run.
    pub(super) fn stored(&self) -> NewRerun {
        let nodes = self.rerun.reused.iter().flat_map(|reused| reused.nodes());
        NewRerun {
            source: self.source,
            text: serde_json::to_string(&self.rerun)
                .unwrap_or_else(|error| unreachable!("what a rerun keeps is always JSON: {error}")),
            nodes: nodes.cloned().collect(),
        }
    }
}

impl Engine {
    /// Creates a run that repeats another one.
    pub async fn rerun(&self, run: RunId, request: RerunRequest) -> Result<Accepted, EngineError> {
        check_request_id(request.request_id.as_deref())?;
        let old = self.reads().run_row(run).await?;
        let old = old.ok_or(Refusal::RunNotFound(run))?;
        if let Some(known) = self.known_rerun(&old, request.request_id.as_deref()).await? {
            return Ok(known);
        }
        let prepared = self.prepare_rerun(run, request).await?;
        self.start_rerun(run, prepared).await
    }

    /// Starts a run that was prepared with [`Engine::prepare_rerun`]. The engine's own requestIds are accepted too.
    pub(crate) async fn start_rerun(&self, run: RunId, request: Request) -> Result<Accepted, EngineError> {
        let request_id = request.request_id.clone();
        let accepted = self.accept(RunId(self.shared.ids.next()), request).await?;
        if accepted.created {
            return Ok(accepted);
        }
        // A concurrent request, or a run that has the unique key of the workflow.
        let old = self.reads().run_row(run).await?;
        let old = old.ok_or(Refusal::RunNotFound(run))?;
        let known = self.known_rerun(&old, request_id.as_deref()).await?;
        known.map_or_else(
            || {
                let workflow = old.workflow_id.clone();
                let run = accepted.run;
                Err(Refusal::UniqueKeyTaken { workflow, run }.into())
            },
            Ok,
        )
    }

    /// The run of an earlier request with this requestId. Refused if that was no rerun of `source`.
    pub(crate) async fn known_rerun(
        &self,
        source: &RunRecord,
        request_id: Option<&str>,
    ) -> Result<Option<Accepted>, EngineError> {
        let Some(request_id) = request_id else {
            return Ok(None);
        };
        let filter = RunFilter {
            request_id: Some(request_id.to_owned()),
            tenant: Some(source.tenant.clone()),
            limit: 1,
            ..RunFilter::default()
        };
        let Some(known) = self.shared.store.runs(filter).await?.items.pop() else {
            return Ok(None);
        };
        if known.rerun_of.is_none_or(|of| of.run != source.id) {
            return Err(Refusal::RequestIdTaken {
                request_id: request_id.to_owned(),
                run: known.id,
                is_same_name: false,
                owner: known.workflow_id,
            }
            .into());
        }
        Ok(Some(Accepted {
            run: known.id,
            workflow_uid: known.workflow_uid,
            status: known.status,
            created: false,
        }))
    }

    /// Decides what a rerun keeps of the run and what it repeats.
    pub(crate) async fn prepare_rerun(&self, run: RunId, request: RerunRequest) -> Result<Request, EngineError> {
        let old = self.shared.store.run(run).await?;
        let old = old.ok_or(Refusal::RunNotFound(run))?;
        if !old.status.is_terminal() {
            return Err(Refusal::WrongStatus {
                run,
                status: old.status,
                what: "be rerun before it has ended; cancel it first, or wait for its end",
            }
            .into());
        }
        let unusable = |what: String| Refusal::RunUnusable { run, what };
        if old.trigger.is_empty() {
            return Err(unusable("retention has removed its payloads".to_owned()).into());
        }
        let workflow = self.workflow_of_run(&old).await?;
        let version = match request.version {
            RerunVersion::Same if old.workflow_version > 0 => Some(old.workflow_version),
            RerunVersion::Same | RerunVersion::Latest => workflow.current_version,
            RerunVersion::Number(version) => Some(version),
        };
        let rerun = match version {
            Some(version) => self.kept(&old, &workflow, version, &request).await?,
            None => Rerun::default(), // refused when it is started: the workflow has no version
        };
        let read = |what: &str, text: &str| {
            let value = serde_json::from_str::<Value>(text);
            value.map_err(|error| unusable(format!("its {what} is not JSON: {error}")))
        };
        let trigger = match request.trigger {
            Some(trigger) => trigger,
            None => read("trigger", &old.trigger)?,
        };
        let spec = match (request.spec, &old.spec) {
            (None, Some(spec)) => Some(read("spec", spec)?),
            (given, _) => given,
        };
        let started_by = old.request.as_deref().map(|text| read("request", text)).transpose()?;
        Ok(Request {
            workflow_id: workflow.uid.to_string(),
            version,
            request_id: request.request_id,
            trigger,
            spec,
            priority: old.priority,
            tenant: old.tenant,
            correlation_id: request.correlation_id.or(old.correlation_id),
            traceparent: request.traceparent,
            request: started_by,
            memory: request.memory,
            rerun: Some(Box::new(Repeated {
                source: RerunOf {
                    run,
                    root: old.rerun_of.map_or(run, |of| of.root),
                },
                rerun,
            })),
            ..Request::default()
        })
    }

    /// The workflow of a run, by uid: a later workflow of the same name is another one.
    async fn workflow_of_run(&self, run: &RunRecord) -> Result<Workflow, EngineError> {
        match self.shared.store.workflow_by_uid(run.workflow_uid).await? {
            Some(workflow) if workflow.deleted_at.is_none() => Ok(workflow),
            _ => Err(Refusal::RunUnusable {
                run: run.id,
                what: format!("its workflow `{}` was deleted", run.workflow_id),
            }
            .into()),
        }
    }

    async fn kept(
        &self,
        old: &RunRecord,
        workflow: &Workflow,
        version: u32,
        request: &RerunRequest,
    ) -> Result<Rerun, EngineError> {
        let workflows = &self.shared.workflows;
        let new = workflows.compiled(workflow.uid, &workflow.id, version).await?;
        let repeat = match (&request.from_node, request.failed_only) {
            (Some(_), true) => return Err(Refusal::ambiguous_rerun().into()),
            (Some(node), false) => Repeat::From(node),
            (None, true) => Repeat::Failed,
            (None, false) => Repeat::All,
        };
        let reused = match repeat {
            Repeat::All => None,
            _ => {
                let source = match old.workflow_version {
                    0 => new.clone(), // it never had a plan, so it did nothing
                    version => workflows.compiled(old.workflow_uid, &old.workflow_id, version).await?,
                };
                let events = self.events_of(old).await?;
                let chosen = if request.failed_only {
                    "/failedOnly"
                } else {
                    "/fromNode"
                };
                reused(old.id, &source.plan, &events, &new.plan, repeat)
                    .map_err(|error| refusal(old.id, chosen, &new.plan, error))?
            }
        };
        let rerun = Rerun {
            reused,
            parameters: request.parameters.clone(),
        };
        workflows
            .with_edits(&new, &rerun)
            .map_err(|(pointer, what)| Refusal::InvalidRerun { pointer, what })?;
        Ok(rerun)
    }

    async fn events_of(&self, old: &RunRecord) -> Result<Vec<fermata_core::Event>, EngineError> {
        let stored = self.shared.store.load(old.id).await?;
        let stored = stored.ok_or(Refusal::RunNotFound(old.id))?;
        let rows = stored
            .journal
            .iter()
            .map(|row| decode(row))
            .collect::<Result<Vec<_>, _>>();
        let rows = rows.map_err(|error| Refusal::RunUnusable {
            run: old.id,
            what: error.to_string(),
        })?;
        Ok(rows.into_iter().flatten().collect())
    }
}

fn refusal(run: RunId, pointer: &str, plan: &Plan, error: RerunError) -> Refusal {
    let mut what = error.to_string();
    if let RerunError::UnknownNode(node) = &error {
        what.push_str(&nodes_of(plan, node));
    }
    match error {
        RerunError::Unreadable(_) => Refusal::RunUnusable { run, what },
        _ => Refusal::InvalidRerun {
            pointer: pointer.to_owned(),
            what,
        },
    }
}

impl crate::workflows::Workflows {
    /// The plan of a rerun: that of its version, with its changed parameters. On error: where in the request, and what is wrong.
    pub(crate) fn with_edits(
        &self,
        compiled: &Arc<Compiled>,
        rerun: &Rerun,
    ) -> Result<Arc<Compiled>, (String, String)> {
        if rerun.parameters.is_empty() {
            return Ok(compiled.clone());
        }
        let plan = edited(&compiled.plan, &rerun.parameters, rerun.reused.as_deref()).map_err(|error| {
            let node = match &error {
                RerunError::UnknownNode(node) | RerunError::NotRepeated(node) | RerunError::NoParameters(node) => {
                    format!("/{node}")
                }
                _ => String::new(),
            };
            (format!("/parameters{node}"), error.to_string())
        })?;
        self.prepare(plan).map_err(|what| ("/parameters".to_owned(), what))
    }
}
