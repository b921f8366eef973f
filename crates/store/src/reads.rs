//! What is read of runs by people and programs: rows, pages, windows.

use crate::runs::{AttemptStatus, Principal};
use fermata_core::{NodeId, RunId, Status, Timestamp};

/// A run's row. JSON texts are compact JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// The workflow.
    pub workflow_id: String,
    /// The version it follows.
    pub workflow_version: u32,
    /// The caller's idempotency key.
    pub request_id: String,
    /// Empty for no tenant.
    pub tenant: String,
    /// Where it stands.
    pub status: Status,
    /// A stable word, if it did not succeed.
    pub reason: Option<String>,
    /// Why it failed, as JSON.
    pub error: Option<String>,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// Who asked for it.
    pub principal: Principal,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The trigger payload, as JSON.
    pub trigger: String,
    /// The structured payload beside it, as JSON.
    pub spec: Option<String>,
    /// Its outputs, once it ended, as JSON.
    pub outputs: Option<String>,
    /// What was kept of its context, as JSON.
    pub context_snapshot: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a parked run is due.
    pub wake_at: Option<Timestamp>,
    /// Whether a runner holds it now.
    pub held: bool,
}

/// A recorded attempt. JSON texts are compact JSON.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct ActionRecord {
    pub node: NodeId,
    pub attempt: u32,
    pub action_type: String,
    pub status: AttemptStatus,
    pub parameters: Option<String>,
    pub outputs: Option<String>,
    pub error: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
}

/// A journal row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its place, from 1.
    pub seq: u32,
    /// When it was decided.
    pub at: Timestamp,
    /// As [`fermata_core::decode`] reads it.
    pub data: String,
}

/// An external resource of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LinkRecord {
    pub node: NodeId,
    pub attempt: u32,
    pub system: String,
    pub resource_type: String,
    pub resource_id: String,
    pub url: Option<String>,
    pub created_at: Timestamp,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this workflow.
    pub workflow_id: Option<String>,
    /// Only with this status.
    pub status: Option<Status>,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only older than this one.
    pub before: Option<RunId>,
    /// At most this many.
    pub limit: u32,
}

/// A part of a list that is not paged by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// At most this many.
    pub limit: u32,
    /// Leave out this many first.
    pub offset: u32,
}

/// Some items, and whether there are more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

impl<T> Page<T> {
    /// A page from one item more than fits, if there are so many.
    pub(crate) fn cut(mut items: Vec<T>, limit: u32) -> Page<T> {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        Page { items, more }
    }
}
