//! A request for a run, and the answer once the run is durable.

use super::rerun::Repeated;
use crate::{memory::Share, trace::TraceContext};
use fermata_core::{RunId, Status};
use fermata_store::{runs::Principal, triggers::TriggerDelivery};
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// A request to start a run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The workflow: its name or its uid, with or without the prefix `wf_`.
    pub workflow_id: String,
    /// The version to follow, if not the current one.
    pub version: Option<u32>,
    /// The caller's idempotency key.
    pub request_id: Option<String>,
    /// The payload that starts the run.
    pub trigger: Value,
    /// A second, structured payload.
    pub spec: Option<Value>,
    /// Within a workflow, runs with a higher priority are claimed first.
    pub priority: Option<i32>,
    /// The tenant of the run; empty for none.
    pub tenant: String,
    /// The tenant whose workflows are looked up, if it is another one: a child is looked up for the tenant of its parent's
    /// workflow.
    pub lookup_tenant: Option<Arc<str>>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// The caller's position in its own trace.
    pub traceparent: Option<TraceContext>,
    /// On whose behalf the run is started.
    pub principal: Principal,
    /// The id of the run. It must never have been used before, also not for the same requestId. Generated if absent.
    pub id: Option<RunId>,
    /// What expressions see as `request`: the request or the event that started the run.
    pub request: Option<Value>,
    /// The delivery of a trigger that is stored with the run.
    pub delivery: Option<Box<TriggerDelivery>>,
    /// What it has of the run that it repeats, if it does: [`Engine::rerun`](super::Engine::rerun) sets it.
    pub rerun: Option<Box<Repeated>>,
    /// The memory that the request is counted as. Released when the run is stored, also if the caller stopped waiting.
    pub memory: Option<Arc<Share>>,
}

/// A run that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The uid of its workflow.
    pub workflow_uid: Uuid,
    /// Its status.
    pub status: Status,
    /// Whether this request created it. False if an earlier request with the same requestId did.
    pub created: bool,
}
