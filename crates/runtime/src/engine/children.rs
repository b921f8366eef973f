//! Child runs: starting them, cancelling them, and telling their parents that they ended.
//!
//! | what must stay true | how |
//! | --- | --- |
//! | One attempt of a node has at most one child | its requestId is `fermata:child:{run}:{node}:{attempt}`, so a repeated start finds it |
//! | A child starts only while its parent is held under the lease that started it | the store checks the lease in the same transaction |
//! | A parent ends only after the cancels of its awaited children are durable | the driver cancels before it records the end of the node |
//! | The end of an awaited child reaches its parent | a message after the child's last commit, and a sweep (`runner/child_sweep.rs`) |

use super::{Accepted, Engine, Request, Shared};
use crate::error::EngineError;
use fermata_core::{Failure, NodeId, RunId, code};
use fermata_store::{
    StoreError,
    children::{Parent, ParentLease},
    reads::RunFilter,
    runs::{Principal, RunMessage},
};
use serde_json::Value;
use std::{fmt, sync::Arc, time::Duration};
use uuid::Uuid;

/// The pause before a start whose outcome is unknown is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Children that are cancelled at once.
const CANCELLED_AT_ONCE: u32 = 500;

/// The requestId of the child of an attempt.
pub(crate) fn child_request_id(run: RunId, node: &NodeId, attempt: u32) -> String {
    format!("fermata:child:{run}:{node}:{attempt}")
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
    pub tenant: Arc<str>,
    pub correlation_id: Arc<str>,
    pub principal: Arc<Principal>,
    pub priority: i32,
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
                Ok(accepted) => return Ok(accepted.run),
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
        let parent = self.parent(workflow).await?;
        let version = match version {
            None => None,
            Some(label) => {
                let found = self.shared.workflows.resolve(workflow).await?;
                Some(self.shared.workflows.version_number(&found, label).await?)
            }
        };
        let request = self.request(workflow, version, trigger.clone());
        engine.accept_child(id, request, parent).await
    }

    fn request(&self, workflow: &str, version: Option<u32>, trigger: Value) -> Request {
        let by = &self.by;
        Request {
            workflow_id: workflow.to_owned(),
            version,
            request_id: Some(child_request_id(by.run, &by.node, by.attempt)),
            trigger,
            priority: (by.priority != 0).then_some(by.priority),
            tenant: by.tenant.to_string(),
            correlation_id: Some(by.correlation_id.to_string()),
            principal: (*by.principal).clone(),
            ..Request::default()
        }
    }

    /// The parent of the new run, or why the run may not start.
    async fn parent(&self, workflow: &str) -> Result<Parent, StartError> {
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
        let head = self.shared.workflows.head(workflow, false).await?;
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

fn refused(message: String) -> StartError {
    StartError::Refused(Failure::permanent(code::CHILD_REFUSED, message))
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
        let mut after = None;
        loop {
            let children = self.store.awaited_children(run, after, CANCELLED_AT_ONCE).await?;
            for child in &children {
                self.cancel_one(*child, reason).await?;
            }
            match children.last() {
                Some(last) if children.len() == CANCELLED_AT_ONCE as usize => after = Some(*last),
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
