//! What workflows of the Runlater dialect look like: snake_case, below `data`. What the document does not say is left out.

use crate::time::Iso;
use fermata_dialects::Diagnostic;
use fermata_store::definitions::Workflow;
use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use std::collections::HashMap;
use uuid::Uuid;

/// The whole of an answer.
#[derive(Serialize)]
pub(crate) struct WorkflowAnswer<'a> {
    data: WorkflowData<'a>,
    /// What is odd about the document.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [Diagnostic],
}

#[derive(Serialize)]
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

/// What there is to know for whoever asks for one workflow.
#[derive(Serialize)]
struct More<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron_expression: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_duration_seconds: Option<&'a Value>,
    tasks: &'a RawValue,
}

/// What a document says. It compiled once, so its shape is known.
#[derive(Deserialize)]
pub(crate) struct Said<'a> {
    trigger: Option<String>,
    description: Option<Value>,
    cron_expression: Option<Value>,
    max_duration_seconds: Option<Value>,
    #[serde(borrow)]
    tasks: &'a RawValue,
    #[serde(skip)]
    task_count: usize,
}

impl<'a> Said<'a> {
    /// `None` if this is no Runlater document.
    pub fn read(json: &'a str) -> Option<Said<'a>> {
        let mut said: Said<'a> = serde_json::from_str(json).ok()?;
        let tasks: HashMap<String, IgnoredAny> = serde_json::from_str(said.tasks.get()).ok()?;
        said.task_count = tasks.len();
        Some(said)
    }
}

impl<'a> WorkflowAnswer<'a> {
    /// As creating and replacing answer.
    pub fn new(workflow: &'a Workflow, said: &'a Said<'a>, warnings: &'a [Diagnostic]) -> WorkflowAnswer<'a> {
        let data = WorkflowData {
            id: workflow.uid,
            name: &workflow.id,
            trigger: said.trigger.as_deref().unwrap_or("api"),
            task_count: said.task_count,
            enabled: workflow.enabled,
            inserted_at: Iso(workflow.created_at),
            more: None,
        };
        WorkflowAnswer { data, warnings }
    }

    /// With what the document says.
    pub fn with_document(workflow: &'a Workflow, said: &'a Said<'a>) -> WorkflowAnswer<'a> {
        let mut answer = WorkflowAnswer::new(workflow, said, &[]);
        answer.data.more = Some(More {
            description: said.description.as_ref(),
            cron_expression: said.cron_expression.as_ref(),
            max_duration_seconds: said.max_duration_seconds.as_ref(),
            tasks: said.tasks,
        });
        answer
    }
}
