//! Facts about a held run that its plan and journal do not contain.

use crate::{
    flow::{shared_by, shared_with_children},
    settings::Settings,
    trace::RunTrace,
    triggers::chain_depth,
};
use fermata_core::{Plan, Reused, RunId};
use fermata_store::runs::{NewRun, Principal, StoredRun};
use std::sync::Arc;
use uuid::Uuid;

/// The identity of a run and of its caller.
pub(crate) struct Meta {
    pub id: RunId,
    pub epoch: u64,
    pub tenant: Arc<str>,
    pub priority: i32,
    pub correlation_id: Arc<str>,
    pub trace: RunTrace,
    pub principal: Arc<Principal>,
    pub workflow_uid: Uuid,
    pub workflow_version: u32,
    /// 0 without a parent.
    pub depth: u32,
    /// The workflows of its parent, of the parent's parent and so on.
    pub lineage: Arc<[Uuid]>,
    /// Keys whose places its awaited children share.
    pub shares: Arc<[String]>,
    /// The parent, if it waits for the end of this run.
    pub awaited_by: Option<RunId>,
    /// Whether the workflow was archived before the run started.
    pub archived: bool,
    /// How many events led to it.
    pub chain_depth: u32,
    /// What it keeps of the run that it repeats.
    pub reused: Option<Box<Reused>>,
}

impl Meta {
    pub fn of_new(new: &NewRun) -> Meta {
        Meta {
            id: new.id,
            epoch: 1,
            tenant: new.tenant.as_str().into(),
            priority: new.priority.unwrap_or(0),
            correlation_id: correlation_id(new.id, new.correlation_id.as_deref()),
            trace: RunTrace::of_stored(new.id, new.traceparent.as_deref()),
            principal: Arc::new(new.principal.clone()),
            workflow_uid: new.workflow_uid,
            workflow_version: new.workflow_version,
            depth: new.parent.as_ref().map_or(0, |parent| parent.depth),
            lineage: new
                .parent
                .as_ref()
                .map_or(Arc::default(), |parent| parent.lineage.as_slice().into()),
            shares: shared_with_children(new.flow.as_deref()),
            awaited_by: new
                .parent
                .as_ref()
                .filter(|parent| parent.waits)
                .map(|parent| parent.run),
            archived: false,
            chain_depth: depth_of(new.request.as_deref()),
            reused: None,
        }
    }

    pub fn of_stored(stored: &StoredRun, archived: bool) -> Meta {
        Meta {
            id: stored.id,
            epoch: stored.epoch,
            tenant: stored.tenant.as_str().into(),
            priority: stored.priority.unwrap_or(0),
            correlation_id: correlation_id(stored.id, stored.correlation_id.as_deref()),
            trace: RunTrace::of_stored(stored.id, stored.traceparent.as_deref()),
            principal: Arc::new(stored.principal.clone()),
            workflow_uid: stored.workflow_uid,
            workflow_version: stored.workflow_version,
            depth: stored.depth,
            lineage: stored.lineage.as_slice().into(),
            shares: shared_by(stored.flow.as_deref()),
            awaited_by: stored.parent.filter(|_| stored.parent_waits),
            archived,
            chain_depth: depth_of(stored.request.as_deref()),
            reused: None,
        }
    }
}

impl Meta {
    /// The timeout of the run, if it is not the plan's: an awaited child has its own default.
    pub fn timeout_ms(&self, plan: &Plan, settings: &Settings) -> Option<u64> {
        let is_default = plan.timeout_ms.is_some() && plan.timeout_ms == settings.dialects.workflow_timeout_ms;
        let is_awaited = self.awaited_by.is_some() && is_default;
        is_awaited.then_some(settings.default_child_timeout.as_millis() as u64)
    }
}

/// How many events led to a run, from the text of its `request`.
fn depth_of(request: Option<&str>) -> u32 {
    let request = request.filter(|text| text.contains("\"chain\""));
    let request = request.and_then(|text| serde_json::from_str(text).ok());
    chain_depth(request.as_ref())
}

fn correlation_id(run: RunId, given: Option<&str>) -> Arc<str> {
    given.map_or_else(|| run.to_string().into(), Into::into)
}
