//! Reads of runs for people and programs: rows, pages, windows.

use crate::{
    Result,
    flow::RunFlow,
    runs::{Attempt, Principal, RerunOf},
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use uuid::Uuid;

/// Reads for the API and the command line. Nothing here is needed to advance a run.
#[async_trait]
pub trait ReadStore: Send + Sync {
    /// A run's row.
    async fn run(&self, id: RunId) -> Result<Option<RunRecord>>;

    /// The same for a run that was probably written just now, so that its row is in memory.
    async fn recent_run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.run(id).await
    }

    /// Runs by age, without their payloads. Examines at most [`MAX_EXAMINED`] runs. So a filter that no index supports
    /// may return a short or empty page; `next` says where to continue.
    async fn runs(&self, filter: RunFilter) -> Result<RunPage>;

    /// The runs that a run started, oldest first, without their payloads; only those after `after`, if given.
    async fn children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Page<RunRecord>>;

    /// Recorded attempts of a run, in the order in which they ended, and their total number.
    async fn actions(&self, run: RunId, window: Window) -> Result<(Vec<Attempt>, u64)>;

    /// Journal rows of a run, oldest first, and their total number.
    async fn events(&self, run: RunId, window: Window) -> Result<(Vec<EventRecord>, u64)>;

    /// The newest journal row and the status of these runs, in one statement and in any order. Runs that do not exist are left out.
    async fn positions(&self, runs: &[RunId]) -> Result<Vec<RunPosition>>;

    /// Journal rows of a run after the row `after`, oldest first.
    async fn journal_after(&self, run: RunId, after: u32, limit: u32) -> Result<Vec<EventRecord>>;

    /// How many runs are due at `now` and not held, by workflow and tenant. Examines the longest-waiting [`MAX_QUEUE_DEPTH`] runs only.
    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>>;

    /// External resources of a run, in the order in which they were linked, and their total number.
    async fn links(&self, run: RunId, window: Window) -> Result<(Vec<LinkRecord>, u64)>;
}

/// How far a run has come. Its status is that of its newest journal row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunPosition {
    /// The run.
    pub run: RunId,
    /// The seq of its newest journal row; 0 if it has none.
    pub seq: u32,
    /// Its status.
    pub status: Status,
}

/// The most runs that [`ReadStore::queue_depths`] counts.
pub const MAX_QUEUE_DEPTH: u32 = 20_000;

/// How many runs of a workflow and tenant wait for a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueDepth {
    /// The workflow.
    pub workflow_uid: Uuid,
    /// Its name.
    pub workflow_id: String,
    /// The tenant of the runs.
    pub tenant: String,
    /// The runs.
    pub runs: u64,
    /// Since when the run that waits longest is due.
    pub oldest: Timestamp,
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
    /// Its status.
    pub status: Status,
    /// Why: `action_failed`, `timeout` or another stable word, if it did not succeed; for a cancel, the reason that the caller gave.
    pub reason: Option<String>,
    /// Why it failed, as JSON.
    pub error: Option<String>,
    /// Higher goes first within a workflow.
    pub priority: Option<i32>,
    /// For tracing across systems.
    pub correlation_id: Option<String>,
    /// The `traceparent` of the request that started it, if it had one.
    pub traceparent: Option<String>,
    /// The user that requested it.
    pub principal: Principal,
    /// The run that started it.
    pub parent: Option<RunId>,
    /// The node of its parent that started it.
    pub parent_node: Option<NodeId>,
    /// The index of its item, if that node starts one child for each item of a list.
    pub parent_item: Option<u32>,
    /// 0 without a parent.
    pub depth: u32,
    /// The run that it repeats, if it does.
    pub rerun_of: Option<RerunOf>,
    /// The trigger payload, as JSON.
    pub trigger: String,
    /// The structured payload, in addition to the trigger, as JSON.
    pub spec: Option<String>,
    /// The request or event that started it, if a trigger did, as JSON.
    pub request: Option<String>,
    /// Its outputs, once it ended, as JSON.
    pub outputs: Option<String>,
    /// The context snapshot, as JSON.
    pub context_snapshot: Option<String>,
    /// When it was requested.
    pub created_at: Timestamp,
    /// When it started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a parked run is due.
    pub wake_at: Option<Timestamp>,
    /// The runner that holds it now.
    pub runner: Option<RunnerId>,
    /// When it was paused, if it is. A run that has ended is not.
    pub paused_at: Option<Timestamp>,
    /// How it is limited, if it is. Nothing is kept of it after the end of the run.
    pub flow: Option<Box<RunFlow>>,
}

impl RunRecord {
    /// Whether a runner holds it now.
    pub fn held(&self) -> bool {
        self.runner.is_some()
    }

    /// The run as lists show it: without trigger, spec, outputs and context.
    #[must_use]
    pub fn without_payloads(mut self) -> RunRecord {
        self.trigger = String::new();
        (self.spec, self.request, self.outputs, self.context_snapshot) = (None, None, None, None);
        self
    }
}

/// A journal row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its seq, from 1.
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

/// A list examines at most this many runs, even if few of them match.
pub const MAX_EXAMINED: u32 = 20_000;

/// A filter for runs. Fields that are empty match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only these runs.
    pub ids: Vec<RunId>,
    /// Only runs of these workflows.
    pub workflows: Vec<Uuid>,
    /// Only runs of versions with one of these tags.
    pub tags: Vec<String>,
    /// Only runs that have, for each of these searchable fields, one of its values.
    pub fields: Vec<(String, Vec<String>)>,
    /// Only runs with one of these statuses.
    pub statuses: Vec<Status>,
    /// Only runs of this tenant.
    pub tenant: Option<String>,
    /// Only runs with this correlation id. The correlation id of a run without one is its own id.
    pub correlation_id: Option<String>,
    /// Only runs with this request id.
    pub request_id: Option<String>,
    /// Only runs whose request id begins like this: those of a trigger ([`crate::triggers::request_id`]).
    pub request_prefix: Option<String>,
    /// Only runs that this runner holds now.
    pub runner: Option<RunnerId>,
    /// Only runs whose request id, workflow id or correlation id contains this text, ignoring the case of ASCII
    /// letters.
    pub search: Option<String>,
    /// Only this run and newer ones.
    pub from: Option<RunId>,
    /// Only runs older than this one, for paging.
    pub before: Option<RunId>,
    /// The order.
    pub order: Order,
    /// At most this many.
    pub limit: u32,
}

/// The order of a list of runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Newest first.
    #[default]
    NewestFirst,
    /// Oldest first.
    OldestFirst,
}

impl RunFilter {
    /// Whether a run matches the filter. The range of ids, tags and fields are not checked here.
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
        (self.ids.is_empty() || self.ids.contains(&run.id))
            && (self.workflows.is_empty() || self.workflows.contains(&run.workflow_uid))
            && self
                .request_prefix
                .as_ref()
                .is_none_or(|prefix| run.request_id.starts_with(prefix))
            && is(&self.tenant, &run.tenant)
            && is(&self.request_id, &run.request_id)
            && self.runner.is_none_or(|runner| run.runner == Some(runner))
            && (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.correlation_id.as_ref().is_none_or(correlates)
            && self.search.as_ref().is_none_or(contains)
    }
}

/// A page of runs, and where the list continues.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunPage {
    /// The runs, without their payloads.
    pub items: Vec<RunRecord>,
    /// The last run that was examined, if there may be more.
    pub next: Option<RunId>,
}

/// A part of a list that is not paged by key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// At most this many.
    pub limit: u32,
    /// Skip this many first.
    pub offset: u32,
}

/// A page of items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Whether more follow.
    pub more: bool,
}

/// A page without items.
impl<T> Default for Page<T> {
    fn default() -> Self {
        Page {
            items: Vec::new(),
            more: false,
        }
    }
}

impl<T> Page<T> {
    /// Makes a page from up to `limit` + 1 items; the extra item shows that there are more.
    pub(crate) fn cut(mut items: Vec<T>, limit: u32) -> Page<T> {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        Page { items, more }
    }
}
