//! Child runs: starting them, cancelling them, and telling their parents that they ended.
//!
//! | what must stay true | how |
//! | --- | --- |
//! | One attempt of a node has at most one child, or one for each item of its list | its requestId is `fermata:child:{run}:{node}:{attempt}`, with `:{index}` for an item, so a repeated start finds it |
//! | A child starts only while its parent is held under the lease that started it | the store checks the lease in the same transaction |
//! | A parent ends only after the cancels of its awaited children are durable | the driver cancels before it records the end of the node |
//! | The end of an awaited child reaches its parent | a message after the child's last commit, and a sweep (`runner/child_sweep.rs`) |
//! | The name of a child means the same to all callers of its parent | it is looked up for the tenant of the parent's workflow, not of the run |

use super::{Accepted, Engine, Request, Shared};
use crate::{
    error::{EngineError, Refusal},
    metrics::WorkflowMetrics,
    trace::TraceContext,
    triggers::inherited,
    workflows::WorkflowsOf,
};
use fermata_core::{Failure, NodeId, RunId, code};
use fermata_store::{
    StoreError,
    children::{AwaitedChild, NodeAttempt, Parent, ParentLease},
    reads::RunFilter,
    runs::{Principal, RunMessage},
};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all, try_join_all},
};
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// The pause before a start whose outcome is unknown is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Children that are cancelled at once.
const CANCELLED_AT_ONCE: u32 = 500;

/// Children of items that are started or cancelled at the same time. Their rows share a transaction.
const CONCURRENT: usize = 32;

/// The requestId of the child of an attempt, or of an item of its list.
pub(crate) fn child_request_id(run: RunId, node: &NodeId, attempt: u32, item: Option<u32>) -> String {
    match item {
        None => format!("fermata:child:{run}:{node}:{attempt}"),
        Some(index) => format!("fermata:child:{run}:{node}:{attempt}:{index}"),
    }
}

/// What came of starting the children of items. Items in neither list were not started: the process is stopping, or it no
/// longer holds the parent.
#[derive(Default)]
pub(crate) struct StartedItems {
    /// Items whose children exist.
    pub started: Vec<u32>,
    /// Items whose children may not start.
    pub refused: Vec<(u32, Failure)>,
}

/// The attempt that starts a child, and what the child inherits.
pub(crate) struct StartedBy {
    pub run: RunId,
    pub node: NodeId,
    pub attempt: u32,
    /// Whether the node waits for the end of the child.
    pub waits: bool,
    pub epoch: u64,
    pub workflow_uid: Uuid,
    pub depth: u32,
    pub lineage: Arc<[Uuid]>,
    /// Keys whose places awaited children share.
    pub shares: Arc<[String]>,
    pub tenant: Arc<str>,
    pub correlation_id: Arc<str>,
    pub traceparent: Option<TraceContext>,
    pub principal: Arc<Principal>,
    /// How many events led to the parent.
    pub chain_depth: u32,
    pub priority: i32,
    /// Of the workflow of the parent.
    pub metrics: Arc<WorkflowMetrics>,
}

/// Starts the child run of one attempt.
#[derive(Clone)]
pub struct Children {
    shared: Arc<Shared>,
    by: Arc<StartedBy>,
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Children of {} in {}", self.by.node, self.by.run)
    }
}

impl Children {
    pub(crate) fn new(shared: Arc<Shared>, by: StartedBy) -> Children {
        Children {
            shared,
            by: Arc::new(by),
        }
    }

    /// Starts the child, or finds it if it was started before. It returns only when the outcome is known. `version` is a number
    /// or the version that a document names.
    ///
    /// # Errors
    /// If the child may not start. A repetition would be refused as well.
    pub async fn start(&self, workflow: &str, version: Option<&str>, trigger: Value) -> Result<RunId, Failure> {
        let engine = Engine {
            shared: self.shared.clone(),
        };
        let id = RunId(self.shared.ids.next());
        loop {
            match self.try_start(&engine, id, workflow, version, &trigger).await {
                Ok(accepted) => {
                    if accepted.created {
                        self.shared.metrics.subworkflow_started(&self.by.metrics);
                    }
                    return Ok(accepted.run);
                }
                Err(StartError::Refused(failure)) => return Err(failure),
                // The commit of this failure is refused, because another lease holds the run.
                Err(StartError::Lost) => {
                    let message = "this process no longer holds the run";
                    return Err(Failure::retriable(code::CHILD_REFUSED, message));
                }
                // The run continues in another process, which finds the child or starts it.
                Err(StartError::Stopping) => return std::future::pending().await,
                Err(StartError::Unknown(error)) => {
                    let what = "a child run could not be started; trying again";
                    self.shared.health.retried(Some(self.by.run), &error, what);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn try_start(
        &self,
        engine: &Engine,
        id: RunId,
        workflow: &str,
        version: Option<&str>,
        trigger: &Value,
    ) -> Result<Accepted, StartError> {
        let prepared = self.prepare(workflow, version).await?;
        let request = self.request(workflow, &prepared, None, trigger.clone());
        engine.accept_child(id, request, self.child_of(prepared.parent)).await
    }

    /// What the new runs have in common, or why they may not start.
    async fn prepare(&self, workflow: &str, version: Option<&str>) -> Result<Prepared, StartError> {
        let tenant = self.shared.workflows.tenant_of(self.by.workflow_uid).await?;
        let workflows = self.shared.workflows.named_by(&tenant);
        let parent = self.parent(workflow, workflows).await?;
        let version = match version {
            None => None,
            Some(label) => {
                let found = workflows.resolve(workflow).await?;
                Some(workflows.version_number(&found, label).await?)
            }
        };
        Ok(Prepared {
            parent,
            version,
            lookup_tenant: tenant.clone(),
        })
    }

    /// Starts the children of items with these triggers, or finds those that were started before. It returns only when the
    /// outcomes are known, unless the process is stopping. Boxed, because a driver awaits it and it may create drivers.
    pub(crate) fn start_items(
        self,
        workflow: String,
        version: Option<String>,
        triggers: Vec<(u32, Value)>,
    ) -> BoxFuture<'static, StartedItems> {
        async move {
            let mut all = StartedItems::default();
            let prepared = self.insistently(|| self.prepare(&workflow, version.as_deref())).await;
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(NotStarted::Left) => return all,
                Err(NotStarted::Refused(failure)) => {
                    let refused = triggers.into_iter().map(|(item, _)| (item, failure.clone()));
                    all.refused.extend(refused);
                    return all;
                }
            };
            let mut triggers = triggers.into_iter().peekable();
            while triggers.peek().is_some() {
                let some = triggers.by_ref().take(CONCURRENT);
                let starts = some.map(|(item, trigger)| {
                    let parent = Parent {
                        item: Some(item),
                        ..prepared.parent.clone()
                    };
                    self.start_item(item, &workflow, &prepared, parent, trigger)
                });
                for (item, started) in join_all(starts).await {
                    match started {
                        Ok(()) => all.started.push(item),
                        Err(NotStarted::Refused(failure)) => all.refused.push((item, failure)),
                        Err(NotStarted::Left) => {}
                    }
                }
            }
            all
        }
        .boxed()
    }

    async fn start_item(
        &self,
        item: u32,
        workflow: &str,
        prepared: &Prepared,
        parent: Parent,
        trigger: Value,
    ) -> (u32, Result<(), NotStarted>) {
        let engine = Engine {
            shared: self.shared.clone(),
        };
        let id = RunId(self.shared.ids.next());
        let request = || self.request(workflow, prepared, parent.item, trigger.clone());
        let started = self
            .insistently(|| engine.accept_child(id, request(), self.child_of(parent.clone())))
            .await;
        (item, started.map(|_| ()))
    }

    /// Repeats an operation while its outcome is unknown and the process is not stopping.
    async fn insistently<T, F>(&self, mut operation: impl FnMut() -> F) -> Result<T, NotStarted>
    where
        F: Future<Output = Result<T, StartError>>,
    {
        loop {
            match operation().await {
                Ok(done) => return Ok(done),
                Err(StartError::Refused(failure)) => return Err(NotStarted::Refused(failure)),
                Err(StartError::Lost | StartError::Stopping) => return Err(NotStarted::Left),
                Err(StartError::Unknown(_)) if self.shared.shutdown.is_stopping() => return Err(NotStarted::Left),
                Err(StartError::Unknown(error)) => {
                    let what = "a child run could not be started; trying again";
                    self.shared.health.retried(Some(self.by.run), &error, what);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    fn request(&self, workflow: &str, prepared: &Prepared, item: Option<u32>, trigger: Value) -> Request {
        let by = &self.by;
        Request {
            workflow_id: workflow.to_owned(),
            lookup_tenant: Some(prepared.lookup_tenant.clone()),
            version: prepared.version,
            request_id: Some(child_request_id(by.run, &by.node, by.attempt, item)),
            trigger,
            priority: (by.priority != 0).then_some(by.priority),
            tenant: by.tenant.to_string(),
            correlation_id: Some(by.correlation_id.to_string()),
            traceparent: by.traceparent,
            principal: (*by.principal).clone(),
            request: inherited(by.chain_depth),
            ..Request::default()
        }
    }

    /// A child that its parent waits for shares the places of its parent: it would wait for them forever.
    fn child_of(&self, parent: Parent) -> ChildOf {
        let shares = match parent.waits {
            true => self.by.shares.clone(),
            false => Arc::default(),
        };
        ChildOf { parent, shares }
    }

    /// The parent of the new run, or why the run may not start.
    async fn parent(&self, workflow: &str, workflows: WorkflowsOf<'_>) -> Result<Parent, StartError> {
        let by = &self.by;
        let settings = &self.shared.settings;
        let depth = by.depth + 1;
        if depth > settings.max_nesting_depth {
            return Err(refused(format!(
                "workflow `{workflow}` would be started at depth {depth}; the limit is {} (subworkflows.max_nesting_depth)",
                settings.max_nesting_depth
            )));
        }
        let mut lineage = vec![by.workflow_uid];
        lineage.extend_from_slice(&by.lineage);
        let head = workflows.head(workflow, false).await?;
        if lineage.contains(&head.uid) && !settings.dialects.allow_recursion {
            return Err(refused(format!(
                "workflow `{workflow}` would start itself: it is among the {} workflows that started this run \
                 (subworkflows.allow_recursion permits it)",
                lineage.len()
            )));
        }
        Ok(Parent {
            run: by.run,
            node: Some(by.node.clone()),
            attempt: by.attempt,
            item: None,
            waits: by.waits,
            lease: Some(ParentLease {
                runner: self.shared.runner.id,
                epoch: by.epoch,
            }),
            depth,
            lineage,
        })
    }
}

/// The parent of a new run, and the keys whose places they share.
pub(super) struct ChildOf {
    pub parent: Parent,
    pub shares: Arc<[String]>,
}

fn refused(message: String) -> StartError {
    StartError::Refused(Failure::permanent(code::CHILD_REFUSED, message))
}

/// What the children of an attempt have in common.
struct Prepared {
    parent: Parent,
    /// The number of their version, if it is pinned.
    version: Option<u32>,
    /// The tenant for which the name of their workflow is looked up.
    lookup_tenant: Arc<str>,
}

/// Why the child of an item did not start.
enum NotStarted {
    /// It may not start.
    Refused(Failure),
    /// The process is stopping, or no longer holds the parent.
    Left,
}

/// Why a child run did not start.
pub(super) enum StartError {
    /// It may not start.
    Refused(Failure),
    /// Its parent is over or no longer held under the lease that started it.
    Lost,
    /// This process is stopping.
    Stopping,
    /// It may have been stored.
    Unknown(StoreError),
}

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> StartError {
        match error {
            EngineError::Store(error) => StartError::Unknown(error),
            EngineError::Stopping => StartError::Stopping,
            EngineError::Refused(refusal @ (Refusal::ConcurrencyLimit { .. } | Refusal::UniqueKeyTaken { .. })) => {
                let message = format!("the child run cannot start: {refusal}");
                StartError::Refused(Failure::retriable(code::CHILD_REFUSED, message))
            }
            other => refused(format!("the child run cannot start: {other}")),
        }
    }
}

impl Shared {
    /// Tells a run that an awaited child has ended. If it fails, the sweep repairs it.
    pub(crate) async fn notify_parent(&self, parent: RunId) {
        let now = self.clock.now();
        if let Err(error) = self.store.deliver(parent, RunMessage::ChildrenEnded, now).await {
            let what = "the end of a child run could not be delivered to its parent; it is delivered later";
            self.health.retried(Some(parent), &error, what);
        }
    }

    /// Cancels the child of an attempt, if it was started. The cancel is durable when this returns.
    pub(crate) async fn cancel_child(&self, tenant: &str, request_id: String, reason: &str) -> Result<(), StoreError> {
        let filter = RunFilter {
            request_id: Some(request_id),
            tenant: Some(tenant.to_owned()),
            limit: 1,
            ..RunFilter::default()
        };
        for child in self.store.runs(filter).await?.items {
            self.cancel_one(child.id, reason).await?;
        }
        Ok(())
    }

    /// Cancels all awaited children of a run. The cancels are durable when this returns.
    pub(crate) async fn cancel_awaited_children(&self, run: RunId, reason: &str) -> Result<(), StoreError> {
        self.cancel_awaited(run, |_| true, reason).await
    }

    /// Cancels all awaited children of an attempt. The cancels are durable when this returns.
    pub(crate) async fn cancel_children_of(&self, of: &NodeAttempt, reason: &str) -> Result<(), StoreError> {
        let is_own = |child: &AwaitedChild| child.node == of.node && child.attempt == of.attempt;
        self.cancel_awaited(of.run, is_own, reason).await
    }

    async fn cancel_awaited(
        &self,
        run: RunId,
        which: impl Fn(&AwaitedChild) -> bool,
        reason: &str,
    ) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let children = self.store.awaited_children(run, after, CANCELLED_AT_ONCE).await?;
            let wanted: Vec<RunId> = children
                .iter()
                .filter(|child| which(child))
                .map(|child| child.run)
                .collect();
            for some in wanted.chunks(CONCURRENT) {
                try_join_all(some.iter().map(|child| self.cancel_one(*child, reason))).await?;
            }
            match children.last() {
                Some(last) if children.len() == CANCELLED_AT_ONCE as usize => after = Some(last.run),
                _ => return Ok(()),
            }
        }
    }

    async fn cancel_one(&self, run: RunId, reason: &str) -> Result<(), StoreError> {
        let message = RunMessage::Cancel {
            reason: reason.to_owned(),
        };
        self.store.deliver(run, message, self.clock.now()).await?;
        Ok(())
    }
}
