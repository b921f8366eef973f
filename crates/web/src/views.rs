//! JSON representations. Absent fields are left out; payloads are copied as they are stored.

use crate::{flow_views::WaitingForView, run_views::ItemsView, time::Iso};
use fermata_core::{RunId, RunnerId, Status, Timestamp};
use fermata_dialects::Diagnostic;
use fermata_runtime::{
    PublishedWorkflow,
    timeline::{Entry, Level},
};
use fermata_store::{
    definitions::{VersionRow, Workflow},
    reads::{LinkRecord, RunRecord},
    runs::{Attempt, Principal, WaitRecord},
};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use serde_json::{Value, value::RawValue};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Stored JSON, embedded without parsing it into values. Invalid JSON is shown as a string, and an empty text, which is a
/// payload that was removed, as null.
#[derive(Debug, Clone, Copy, JsonSchema)]
#[schemars(inline)]
pub(crate) struct JsonText<'a>(#[schemars(with = "Value")] pub &'a str);

impl Serialize for JsonText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) if self.0.is_empty() => serializer.serialize_none(),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

fn json(text: &Option<String>) -> Option<JsonText<'_>> {
    text.as_deref().map(JsonText)
}

fn millis_between(start: Timestamp, end: Timestamp) -> u64 {
    end.micros_since(start) / 1000
}

/// A page of a list.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "PageOf{T}")]
pub(crate) struct PageView<T> {
    pub items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A workflow's row.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkflowView<'a> {
    pub id: &'a str,
    pub uid: Uuid,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tenant_id: &'a str,
    pub display_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    pub status: &'static str,
    pub is_enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_version: Option<u32>,
    pub dialect: &'a str,
    pub created_at: Iso,
    pub updated_at: Iso,
    /// When it was paused, if it is: executions that have not begun wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Iso>,
}

impl<'a> From<&'a Workflow> for WorkflowView<'a> {
    fn from(workflow: &'a Workflow) -> Self {
        WorkflowView {
            id: &workflow.id,
            uid: workflow.uid,
            tenant_id: &workflow.tenant,
            display_name: &workflow.display_name,
            description: workflow.description.as_deref(),
            status: workflow.status.as_str(),
            is_enabled: workflow.enabled,
            current_version: workflow.current_version,
            latest_version: workflow.latest_version,
            dialect: &workflow.dialect,
            created_at: Iso(workflow.created_at),
            updated_at: Iso(workflow.updated_at),
            paused_at: workflow.paused_at.map(Iso),
        }
    }
}

/// A draft that was saved.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SavedView<'a> {
    #[serde(flatten)]
    pub workflow: WorkflowView<'a>,
    pub checksum: &'a str,
    pub warnings: Vec<Diagnostic>,
}

/// A version that was published.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublishedView {
    pub workflow_id: String,
    pub version: u32,
    pub status: &'static str,
    /// False if the newest version has the same content.
    pub created: bool,
    pub warnings: Vec<Diagnostic>,
}

impl From<PublishedWorkflow> for PublishedView {
    fn from(published: PublishedWorkflow) -> Self {
        PublishedView {
            status: published.workflow.status.as_str(),
            workflow_id: published.workflow.id,
            version: published.version,
            created: published.created,
            warnings: published.warnings,
        }
    }
}

/// A version without its document.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionView<'a> {
    version: u32,
    dialect: &'a str,
    checksum: &'a str,
    created_at: Iso,
}

impl<'a> From<&'a VersionRow> for VersionView<'a> {
    fn from(row: &'a VersionRow) -> Self {
        VersionView {
            version: row.version,
            dialect: &row.dialect,
            checksum: &row.checksum,
            created_at: Iso(row.created_at),
        }
    }
}

/// A workflow with one of its documents.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkflowWithDefinition<'a> {
    #[serde(flatten)]
    pub workflow: WorkflowView<'a>,
    /// The version that `definition` is of; absent for a draft.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    pub checksum: &'a str,
    #[schemars(with = "Value")]
    pub definition: DefinitionView<'a>,
    /// The document as it was sent, if that was not plain JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'a str>,
}

/// A document as JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum DefinitionView<'a> {
    AsSent(&'a RawValue),
    Read(Value),
}

/// A summary of a run: its status, and the URL to read it again.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AcceptedView {
    #[schemars(with = "Uuid")]
    pub execution_id: RunId,
    pub status: &'static str,
    pub status_url: StatusUrl,
}

impl AcceptedView {
    pub fn new(run: RunId, status: Status) -> AcceptedView {
        AcceptedView {
            execution_id: run,
            status: status.as_str(),
            status_url: StatusUrl(run),
        }
    }
}

/// The URL of a run.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct StatusUrl(#[schemars(with = "String")] pub RunId);

impl Serialize for StatusUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("/api/v1/executions/{}", self.0))
    }
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PrincipalView<'a> {
    user_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
}

impl<'a> From<&'a Principal> for PrincipalView<'a> {
    fn from(principal: &'a Principal) -> Self {
        PrincipalView {
            user_id: &principal.user_id,
            display_name: principal.display_name.as_deref(),
            email: principal.email.as_deref(),
        }
    }
}

/// A run as lists show it: its row without the payloads.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunRow<'a> {
    #[schemars(with = "Uuid")]
    id: RunId,
    #[schemars(with = "Uuid")]
    execution_id: RunId,
    workflow_uid: Uuid,
    workflow_id: &'a str,
    workflow_version: u32,
    request_id: &'a str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[schemars(with = "String")]
    correlation_id: CorrelationId<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant_id: &'a str,
    principal: PrincipalView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Uuid>")]
    parent_execution_id: Option<RunId>,
    /// The node of the parent that started it, and the index of its item if that node has one child for each item of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_node_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item_index: Option<u32>,
    /// The execution that it repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Uuid>")]
    rerun_of: Option<RunId>,
    created_at: Iso,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Iso>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// When a parked run is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_at: Option<Iso>,
    /// The runner that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Uuid>")]
    runner_id: Option<RunnerId>,
    /// When it was paused, if it is: nothing new starts until it is resumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_at: Option<Iso>,
    /// What it waits for before its first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<WaitingForView<'a>>,
    status_url: StatusUrl,
}

/// A run without a correlation id uses its own id.
#[derive(Serialize)]
#[serde(untagged)]
enum CorrelationId<'a> {
    Given(&'a str),
    Own(RunId),
}

impl<'a> From<&'a RunRecord> for RunRow<'a> {
    fn from(run: &'a RunRecord) -> Self {
        let own = CorrelationId::Own(run.id);
        RunRow {
            id: run.id,
            execution_id: run.id,
            workflow_uid: run.workflow_uid,
            workflow_id: &run.workflow_id,
            workflow_version: run.workflow_version,
            request_id: &run.request_id,
            status: run.status.as_str(),
            reason: run.reason.as_deref(),
            error: json(&run.error),
            priority: run.priority,
            correlation_id: run.correlation_id.as_deref().map_or(own, CorrelationId::Given),
            tenant_id: &run.tenant,
            principal: (&run.principal).into(),
            parent_execution_id: run.parent,
            parent_node_id: run.parent_node.as_ref().map(|node| node.as_str()),
            item_index: run.parent_item,
            rerun_of: run.rerun_of.map(|of| of.run),
            created_at: Iso(run.created_at),
            started_at: run.started_at.map(Iso),
            ended_at: run.ended_at.map(Iso),
            duration_ms: run
                .started_at
                .zip(run.ended_at)
                .map(|(start, end)| millis_between(start, end)),
            wake_at: run
                .wake_at
                .filter(|_| run.status == Status::Running && !run.held())
                .map(Iso),
            runner_id: run.runner,
            paused_at: run.paused_at.map(Iso),
            waiting_for: WaitingForView::of(run),
            status_url: StatusUrl(run.id),
        }
    }
}

/// A run with its payloads and the included parts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView<'a> {
    #[serde(flatten)]
    row: RunRow<'a>,
    trigger: JsonText<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_snapshot: Option<JsonText<'a>>,
    #[serde(flatten)]
    pub included: Included<'a>,
}

/// The parts that a request can include.
#[derive(Serialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Included<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<ActionView<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actions_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<EventView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ResourceView<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources_total: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<Vec<RunRow<'a>>>,
    /// Whether there are more children than the window shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_children: Option<bool>,
    /// The progress of nodes with one child for each item of a list, by node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<BTreeMap<String, ItemsView>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Vec<WaitView>>,
}

/// A wait for a callback.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitView {
    node_id: String,
    is_open: bool,
    /// Only of an open wait. It is a secret: the token in it is the only credential of the callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_url: Option<String>,
}

impl WaitView {
    /// `base` is the public address of the server; without it the view has no callback URL.
    pub fn new(wait: &WaitRecord, base: Option<&str>) -> WaitView {
        WaitView {
            node_id: wait.node.to_string(),
            is_open: wait.open,
            callback_url: base
                .filter(|_| wait.open)
                .map(|base| format!("{base}/wh/{}", wait.token)),
        }
    }
}

impl<'a> RunView<'a> {
    /// `ahead`: how many runs are before it, if it waits for a place.
    pub fn new(run: &'a RunRecord, ahead: Option<u32>, included: Included<'a>) -> RunView<'a> {
        let mut row = RunRow::from(run);
        if let Some(waiting_for) = &mut row.waiting_for {
            waiting_for.ahead = ahead;
        }
        RunView {
            row,
            trigger: JsonText(&run.trigger),
            spec: json(&run.spec),
            outputs: json(&run.outputs),
            context_snapshot: json(&run.context_snapshot),
            included,
        }
    }
}

/// A recorded attempt.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ActionView<'a> {
    node_id: &'a str,
    action_type: &'a str,
    status: &'static str,
    attempt: u32,
    retry_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outputs: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JsonText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<Iso>,
    end_time: Iso,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    /// The execution that made it, if this one only keeps its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Uuid>")]
    reused_from: Option<RunId>,
}

impl<'a> From<&'a Attempt> for ActionView<'a> {
    fn from(action: &'a Attempt) -> Self {
        ActionView {
            node_id: action.node.as_str(),
            action_type: &action.action_type,
            status: action.status.as_str(),
            attempt: action.attempt,
            retry_count: action.attempt.saturating_sub(1),
            parameters: json(&action.parameters),
            outputs: json(&action.outputs),
            error: json(&action.error),
            start_time: action.started_at.map(Iso),
            end_time: Iso(action.ended_at),
            duration_ms: action.started_at.map(|start| millis_between(start, action.ended_at)),
            reused_from: action.reused_from,
        }
    }
}

/// An event with a readable message.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventView {
    seq: u32,
    ts: Iso,
    level: Level,
    category: String,
    message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    data: Value,
}

impl From<Entry> for EventView {
    fn from(entry: Entry) -> Self {
        EventView {
            seq: entry.seq,
            ts: Iso(entry.at),
            level: entry.level,
            category: entry.category,
            message: entry.message,
            data: entry.data,
        }
    }
}

/// An external resource.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceView<'a> {
    node_id: &'a str,
    attempt: u32,
    system: &'a str,
    resource_type: &'a str,
    resource_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    created_at: Iso,
}

impl<'a> From<&'a LinkRecord> for ResourceView<'a> {
    fn from(link: &'a LinkRecord) -> Self {
        ResourceView {
            node_id: link.node.as_str(),
            attempt: link.attempt,
            system: &link.system,
            resource_type: &link.resource_type,
            resource_id: &link.resource_id,
            url: link.url.as_deref(),
            created_at: Iso(link.created_at),
        }
    }
}
