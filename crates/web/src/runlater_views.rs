//! JSON of Runlater workflows: snake_case, below `data`. Fields that the document does not have are left out.

use crate::time::Iso;
use fermata_dialects::Diagnostic;
use fermata_store::definitions::Workflow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunlaterWorkflow")]
pub(crate) struct WorkflowResponse<'a> {
    data: WorkflowData<'a>,
    /// Warnings about the document.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [Diagnostic],
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RunlaterWorkflowData")]
struct WorkflowData<'a> {
    id: Uuid,
    name: &'a str,
    trigger: &'a str,
    task_count: usize,
    enabled: bool,
    inserted_at: Iso,
    #[serde(flatten)]
    more: Option<More<'a>>,
}

/// The fields of the response for one workflow.
#[derive(Serialize, JsonSchema)]
struct More<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron_expression: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_duration_seconds: Option<&'a Value>,
    #[schemars(with = "Value")]
    tasks: &'a RawValue,
    /// What the document has beyond the specification, such as `concurrency` and `tags`.
    #[serde(flatten)]
    #[schemars(with = "HashMap<String, Value>")]
    others: &'a BTreeMap<String, &'a RawValue>,
}

/// The fields of a Runlater document that are shown.
#[derive(Deserialize)]
pub(crate) struct DocumentFields<'a> {
    trigger: Option<String>,
    description: Option<Value>,
    cron_expression: Option<Value>,
    max_duration_seconds: Option<Value>,
    #[serde(borrow)]
    tasks: &'a RawValue,
    #[serde(skip)]
    task_count: usize,
    #[serde(skip)]
    others: BTreeMap<String, &'a RawValue>,
}

/// The fields of the specification, of documents and of responses.
const SPECIFIED: [&str; 10] = [
    "id",
    "task_count",
    "inserted_at",
    "name",
    "description",
    "trigger",
    "cron_expression",
    "max_duration_seconds",
    "enabled",
    "tasks",
];

impl<'a> DocumentFields<'a> {
    /// `None` if this is not a Runlater document.
    pub fn read(json: &'a str) -> Option<DocumentFields<'a>> {
        let mut fields: DocumentFields<'a> = serde_json::from_str(json).ok()?;
        let tasks: HashMap<String, IgnoredAny> = serde_json::from_str(fields.tasks.get()).ok()?;
        fields.task_count = tasks.len();
        fields.others = serde_json::from_str(json).ok()?;
        fields.others.retain(|name, _| !SPECIFIED.contains(&name.as_str()));
        Some(fields)
    }
}

impl<'a> WorkflowResponse<'a> {
    /// The response to creating and replacing a workflow.
    pub fn new(
        workflow: &'a Workflow,
        fields: &'a DocumentFields<'a>,
        warnings: &'a [Diagnostic],
    ) -> WorkflowResponse<'a> {
        let data = WorkflowData {
            id: workflow.uid,
            name: &workflow.id,
            trigger: fields.trigger.as_deref().unwrap_or("api"),
            task_count: fields.task_count,
            enabled: workflow.enabled,
            inserted_at: Iso(workflow.created_at),
            more: None,
        };
        WorkflowResponse { data, warnings }
    }

    /// The response to reading a workflow, with the fields of its document.
    pub fn with_document(workflow: &'a Workflow, fields: &'a DocumentFields<'a>) -> WorkflowResponse<'a> {
        let mut answer = WorkflowResponse::new(workflow, fields, &[]);
        answer.data.more = Some(More {
            description: fields.description.as_ref(),
            cron_expression: fields.cron_expression.as_ref(),
            max_duration_seconds: fields.max_duration_seconds.as_ref(),
            tasks: fields.tasks,
            others: &fields.others,
        });
        answer
    }
}
