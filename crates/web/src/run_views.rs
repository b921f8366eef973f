//! JSON of runs and their tasks on the Runlater routes: snake_case, below `data`. Fields that do not apply are left out.

use crate::time::Iso;
use fermata_core::{RunId, Status, Timestamp};
use fermata_runtime::{Accepted, ItemProgress, NodeOverview, Overview};
use fermata_store::reads::RunRecord;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use uuid::Uuid;

/// A response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DataOf{T}")]
pub(crate) struct DataView<T> {
    pub data: T,
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DataPageOf{T}")]
pub(crate) struct DataPage<T> {
    pub data: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The status of a run, in the terms of Runlater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunStatus {
    Running,
    Completed,
    Failed,
    Timeout,
    Cancelled,
}

impl From<Status> for RunStatus {
    fn from(status: Status) -> RunStatus {
        match status {
            Status::Pending | Status::Running => RunStatus::Running,
            Status::Succeeded => RunStatus::Completed,
            Status::Failed => RunStatus::Failed,
            Status::Cancelled => RunStatus::Cancelled,
        }
    }
}

impl RunStatus {
    pub fn of(run: &RunRecord) -> RunStatus {
        match run.status {
            Status::Failed if run.reason.as_deref() == Some("timeout") => RunStatus::Timeout,
            status => status.into(),
        }
    }

    /// The statuses in the store that this one covers.
    pub fn statuses(self) -> &'static [Status] {
        match self {
            RunStatus::Running => &[Status::Pending, Status::Running],
            RunStatus::Completed => &[Status::Succeeded],
            RunStatus::Failed | RunStatus::Timeout => &[Status::Failed],
            RunStatus::Cancelled => &[Status::Cancelled],
        }
    }

    pub fn parse(word: &str) -> Option<RunStatus> {
        match word.to_ascii_lowercase().as_str() {
            "running" => Some(RunStatus::Running),
            "completed" => Some(RunStatus::Completed),
            "failed" => Some(RunStatus::Failed),
            "timeout" => Some(RunStatus::Timeout),
            "cancelled" => Some(RunStatus::Cancelled),
            _ => None,
        }
    }
}

/// The start of a run; its creation if it has not started.
fn started(run: &RunRecord) -> Iso {
    Iso(run.started_at.unwrap_or(run.created_at))
}

/// A run that was just triggered.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TriggeredRun {
    #[schemars(with = "Uuid")]
    run_id: RunId,
    workflow_id: Uuid,
    status: RunStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Iso>,
}

impl TriggeredRun {
    pub fn new(run: &RunRecord, status: RunStatus) -> TriggeredRun {
        TriggeredRun {
            run_id: run.id,
            workflow_id: run.workflow_uid,
            status,
            started_at: Some(started(run)),
        }
    }

    /// A run that is durable and could not be read.
    pub fn unread(accepted: &Accepted, status: RunStatus) -> TriggeredRun {
        TriggeredRun {
            run_id: accepted.run,
            workflow_id: accepted.workflow_uid,
            status,
            started_at: None,
        }
    }
}

/// A run as lists show it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ShortRun {
    #[schemars(with = "Uuid")]
    id: RunId,
    status: RunStatus,
    started_at: Iso,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Iso>,
}

impl From<&RunRecord> for ShortRun {
    fn from(run: &RunRecord) -> Self {
        ShortRun {
            id: run.id,
            status: RunStatus::of(run),
            started_at: started(run),
            finished_at: run.ended_at.map(Iso),
        }
    }
}

/// A run with its tasks.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RunWithTasks<'a> {
    #[serde(flatten)]
    run: ShortRun,
    #[schemars(with = "BTreeMap<String, TaskView<'a>>")]
    tasks: Tasks<'a>,
}

impl<'a> RunWithTasks<'a> {
    pub fn new(overview: &'a Overview, now: Timestamp) -> RunWithTasks<'a> {
        RunWithTasks {
            run: (&overview.run).into(),
            tasks: Tasks(overview.nodes.iter().map(|node| TaskView::new(node, now)).collect()),
        }
    }
}

/// Tasks by name, in the order of the document.
struct Tasks<'a>(Vec<TaskView<'a>>);

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|task| (task.name, task)))
    }
}

/// A task of a run.
#[derive(Serialize, Default, JsonSchema)]
#[schemars(rename = "RunTask")]
struct TaskView<'a> {
    #[serde(skip)]
    name: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Iso>,
    /// Only if it is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_truncated: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error_message: Option<&'a str>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_reason: Option<&'a str>,
    /// When a sleep is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_at: Option<Iso>,
    /// When a wait times out.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_at: Option<Iso>,
    /// When a failed task is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Iso>,
    /// The progress of a task that runs one child for each item of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<ItemsView>,
}

/// How many items of a list have ended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ItemsView {
    total: u32,
    succeeded: u32,
    failed: u32,
}

impl From<ItemProgress> for ItemsView {
    fn from(items: ItemProgress) -> ItemsView {
        ItemsView {
            total: items.total,
            succeeded: items.succeeded,
            failed: items.failed,
        }
    }
}

impl<'a> TaskView<'a> {
    fn new(node: &'a NodeOverview, now: Timestamp) -> TaskView<'a> {
        let bare = TaskView {
            name: node.node.as_str(),
            status: &node.status,
            skip_reason: node.skip_reason.as_deref(),
            ..TaskView::default()
        };
        if matches!(node.status.as_str(), "pending" | "skipped") {
            return bare;
        }
        let until = node.until.filter(|_| node.ended_at.is_none());
        let next_attempt = until.filter(|until| node.status == "running" && *until > now);
        // The result of an earlier attempt is not shown while another attempt runs.
        let is_known = node.ended_at.is_some() || next_attempt.is_some();
        let failure = node.failure.as_ref().filter(|_| is_known);
        let times = node.started_at.zip(node.ended_at);
        TaskView {
            status_code: node.status_code.filter(|_| is_known),
            duration_ms: times.map(|(start, end)| end.micros_since(start) / 1000),
            started_at: node.started_at.map(Iso),
            finished_at: node.ended_at.map(Iso),
            attempt: node.attempt.filter(|attempt| *attempt > 1),
            is_truncated: (is_known && node.is_truncated).then_some(true),
            error_message: failure.map(|failure| failure.message.as_str()),
            wake_at: until.filter(|_| node.status == "sleeping").map(Iso),
            timeout_at: until.filter(|_| node.status == "waiting").map(Iso),
            next_attempt_at: next_attempt.map(Iso),
            items: node.items.map(ItemsView::from),
            ..bare
        }
    }
}
