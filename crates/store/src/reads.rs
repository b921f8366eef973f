//! What is read of runs by people and programs: rows, pages, windows.

use crate::{
    Result,
    runs::{AttemptStatus, Principal},
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use uuid::Uuid;

/// Reads for the API and the command line. Nothing here is needed to advance a run.
#[async_trait]
pub trait ReadStore: Send + Sync {
    /// A run's row.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>>;

    /// Runs by age, without their payloads. Looks at no more than [`reads::MAX_EXAMINED`] runs: what no index rules
    /// out may make a page short or empty, and `next` says where to go on.
    async fn runs(&self, filter: RunFilter) -> Result<RunPage>;

    /// The runs that a run started, oldest first, without their payloads; only those after `after`, if given.
    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>>;

    /// Recorded attempts of a run, in the order in which they ended, and how many there are in all.
    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<ActionRecord>, u64)>;

    /// Journal rows of a run, oldest first, and how many there are in all.
    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)>;

    /// External resources of a run.
    async fn links(&self, run: RunId) -> Result<Vec<LinkRecord>>;
}

/// A run's row. JSON texts are compact JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
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
    /// The runner that holds it now.
    pub runner: Option<RunnerId>,
}

impl RunRecord {
    /// Whether a runner holds it now.
    pub fn held(&self) -> bool {
        self.runner.is_some()
    }

    /// The node of its parent that started it. The engine writes it into the request ids of the runs it starts:
    /// `fermata:child:{run}:{node}:{attempt}`.
    pub fn parent_node(&self) -> Option<&str> {
        let rest = self.request_id.strip_prefix("fermata:child:")?;
        let (parent, rest) = rest.split_once(':')?;
        let (node, _attempt) = rest.rsplit_once(':')?;
        (parent.parse().ok() == self.parent && self.parent.is_some()).then_some(node)
    }

    /// The run as lists have it: without trigger, spec, outputs and context.
    #[must_use]
    pub fn without_payloads(mut self) -> RunRecord {
        self.trigger = String::new();
        (self.spec, self.outputs, self.context_snapshot) = (None, None, None);
        self
    }
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

/// A list of runs looks at no more than this many, however few of them fit.
pub const MAX_EXAMINED: u32 = 20_000;

/// Which runs to list. What is left empty fits every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only of this workflow.
    pub workflow_uid: Option<Uuid>,
    /// Only with one of these.
    pub statuses: Vec<Status>,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Only with this correlation id; a run that came without one has its own id.
    pub correlation_id: Option<String>,
    /// Only with this request id.
    pub request_id: Option<String>,
    /// Only what this runner holds now.
    pub runner: Option<RunnerId>,
    /// Only with this in their request id, workflow id or correlation id, in any case (of ASCII letters).
    pub search: Option<String>,
    /// Only this one and newer ones.
    pub from: Option<RunId>,
    /// Only older than this one.
    pub before: Option<RunId>,
    /// Which come first.
    pub order: Order,
    /// At most this many.
    pub limit: u32,
}

/// Which runs come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest.
    #[default]
    NewestFirst,
    /// The oldest.
    OldestFirst,
}

impl RunFilter {
    /// Whether a run is one of those to list. The range of ids is the caller's to keep.
    pub(crate) fn fits(&self, run: &RunRecord) -> bool {
        let is = |wanted: &Option<String>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text);
        let correlates = |wanted: &String| match &run.correlation_id {
            Some(id) => id == wanted,
            None => wanted.parse() == Ok(run.id),
        };
        let contains = |needle: &String| {
            let needle = needle.to_ascii_lowercase();
            let correlation_id = run.correlation_id.as_deref().unwrap_or_default();
            [&run.request_id, &run.workflow_id, correlation_id]
                .into_iter()
                .any(|text| text.to_ascii_lowercase().contains(&needle))
        };
        self.workflow_uid.is_none_or(|workflow| run.workflow_uid == workflow)
            && is(&self.tenant, &run.tenant)
            && is(&self.request_id, &run.request_id)
            && self.runner.is_none_or(|runner| run.runner == Some(runner))
            && (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.correlation_id.as_ref().is_none_or(correlates)
            && self.search.as_ref().is_none_or(contains)
    }
}

/// Some runs, and where the list goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    /// The runs, without their payloads.
    pub items: Vec<RunRecord>,
    /// The last run that was looked at, if more follow it.
    pub next: Option<RunId>,
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
