//! Nodes that run other workflows, of all dialects.
//!
//! The parameters of the action `core.subworkflow`:
//!
//! | parameter | |
//! | --- | --- |
//! | `workflowId` | the workflow to run |
//! | `workflowVersion` | its version: a number, or the version of a jsondagapi document; the current one by default |
//! | `trigger` | the trigger of the child run; the state of this run by default |

use crate::compile::Stage;
use crate::diagnostics::{Diagnostic, Severity, quote};
use crate::document::Document;
use fermata_core::{AnswerRule, Each, Kind, Plan, code};
use serde_json::{Map, Value, json};

/// The action that starts child runs.
pub(crate) const CHILD: &str = "core.subworkflow";

/// A node that runs another workflow.
pub(crate) struct Child<'a> {
    pub(crate) workflow: &'a str,
    pub(crate) version: Option<Value>,
    /// The trigger of the child, with templates; the state of the run by default.
    pub(crate) trigger: Option<Value>,
    /// One child for each item of a list.
    pub(crate) each: Option<Each>,
}

impl Child<'_> {
    fn parameters(self) -> Value {
        let mut parameters = Map::from_iter([("workflowId".to_owned(), json!(self.workflow))]);
        parameters.extend(self.version.map(|version| ("workflowVersion".to_owned(), version)));
        parameters.extend(self.trigger.map(|trigger| ("trigger".to_owned(), trigger)));
        Value::Object(parameters)
    }

    /// The node ends when the child ends, or all children.
    pub(crate) fn awaited(mut self, timeout_ms: Option<u64>) -> Kind {
        let each = self.each.take();
        Kind::Request {
            action: CHILD.to_owned(),
            parameters: self.parameters(),
            answer: each.map_or(AnswerRule::Child, AnswerRule::Children),
            timeout_ms,
            retry_on_timeout: false,
            timeout_code: code::TIMEOUT.to_owned(),
        }
    }

    /// The node ends when the child is started.
    pub(crate) fn started(self) -> Kind {
        Kind::Action {
            action: CHILD.to_owned(),
            parameters: self.parameters(),
        }
    }
}

/// A reference from a plan to another workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildReference {
    /// The node that starts it.
    pub node: String,
    /// The workflow.
    pub workflow: String,
    /// The version, if it is pinned: a number, or the version of a jsondagapi document.
    pub version: Option<String>,
    /// The position of the node in the plan and in the document.
    at: usize,
}

/// The workflows that a plan starts.
pub fn children(plan: &Plan) -> Vec<ChildReference> {
    let child = |(at, node): (usize, &fermata_core::Node)| {
        let (Kind::Request { action, parameters, .. } | Kind::Action { action, parameters }) = &node.kind else {
            return None;
        };
        let workflow = parameters.get("workflowId").and_then(Value::as_str);
        let version = parameters.get("workflowVersion").map(|version| match version {
            Value::String(version) => version.clone(),
            version => version.to_string(),
        });
        Some(ChildReference {
            node: node.id.to_string(),
            workflow: workflow.filter(|_| action == CHILD)?.to_owned(),
            version,
            at,
        })
    };
    plan.nodes.iter().enumerate().filter_map(child).collect()
}

impl ChildReference {
    /// The diagnostic if the workflow, or its version, does not exist yet.
    pub fn unknown(&self, document: &Document) -> Diagnostic {
        let version = self.version.as_ref().map(|version| format!(" version {version}"));
        let message = format!(
            "node {} starts the workflow {}{}, which does not exist yet",
            quote(&self.node),
            quote(&self.workflow),
            version.unwrap_or_default()
        );
        self.diagnostic(document, Severity::Warning, "UNKNOWN_WORKFLOW", message)
            .help("publish it before this workflow runs, or the node fails")
    }

    /// The diagnostic if the workflow leads back to the one of this document. `path` has the workflows in between.
    pub fn recursive(&self, document: &Document, stage: Stage, path: &[String]) -> Diagnostic {
        let message = format!(
            "node {} starts workflows that start this one again: {}",
            quote(&self.node),
            path.join(" → ")
        );
        self.diagnostic(document, stage.readiness(), "RECURSIVE_WORKFLOW", message)
            .help("workflows cannot start each other in a circle unless `subworkflows.allow_recursion` is set")
    }

    fn diagnostic(&self, document: &Document, severity: Severity, code: &'static str, message: String) -> Diagnostic {
        let fields = ["workflowId", "subgraph_ref"].map(|field| format!("/nodes/{}/{field}", self.at));
        let pointer = fields
            .into_iter()
            .find(|pointer| document.value().pointer(pointer).is_some());
        let pointer = pointer.unwrap_or_else(|| format!("/nodes/{}", self.at));
        Diagnostic::new(severity, code, document.locate(&pointer), message).at(pointer)
    }
}
