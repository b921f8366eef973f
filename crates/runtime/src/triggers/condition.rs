//! Activation conditions: JavaScript over the payload and the request of an occurrence.
//!
//! What must stay true: a condition that throws or exceeds a limit is false, and the delivery says so. The native evaluator is
//! tried first; only what it does not cover goes to the sandbox.

use crate::{
    engine::Shared,
    offload::LARGE,
    sandbox::{SandboxError, Source},
    scope::saw,
};
use fermata_expr::{
    Data, EvalErrorKind, Limits, ReadPath, SandboxLanguage, SyntaxKind,
    js::{Expression, scan_reads},
};
use fermata_store::triggers::Trigger;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The names that a condition sees. `payload` is another name of `trigger`.
const ROOTS: [&str; 3] = ["trigger", "payload", "request"];

/// The verdict of a condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub is_true: bool,
    /// Why it could not be evaluated.
    pub error: Option<String>,
    /// The values that it read, shortened.
    pub saw: Map<String, Value>,
}

/// The result of evaluating a condition in this process.
pub(super) enum Judged {
    Here(Verdict),
    /// Only the sandbox can evaluate it.
    Elsewhere(Question),
}

/// A condition for the sandbox, with the data that it reads.
pub(super) struct Question {
    source: String,
    data: Value,
    saw: Map<String, Value>,
}

impl Verdict {
    /// Why the delivery was filtered.
    pub fn reason(&self, condition: &str) -> String {
        match &self.error {
            None => format!("the activation condition `{condition}` is false"),
            Some(error) => format!("the activation condition `{condition}` could not be evaluated: {error}"),
        }
    }
}

/// What is wrong with a condition; `None` if nothing is.
pub(super) async fn problem(shared: &Shared, condition: &str) -> Option<String> {
    match Expression::parse(condition) {
        Ok(_) => None,
        Err(error) if error.kind == SyntaxKind::NotCovered => {
            let source = Source {
                language: SandboxLanguage::Js,
                text: condition,
            };
            match shared.sandbox.check(source).await {
                Ok(()) => None,
                Err(SandboxError::Syntax(error)) => Some(error.message),
                Err(error) => Some(format!("it could not be checked: {error}")),
            }
        }
        Err(error) => Some(error.message),
    }
}

/// Evaluates the condition of a trigger, as far as this process can. Without a condition the verdict is true.
pub(super) async fn judge(
    shared: &Shared,
    trigger: &Trigger,
    payload: &Arc<Value>,
    request: &Arc<Value>,
    bytes: usize,
) -> Judged {
    let Some(condition) = trigger.condition.clone() else {
        return Judged::Here(Verdict {
            is_true: true,
            error: None,
            saw: Map::new(),
        });
    };
    let limits = shared.settings.conditions;
    if bytes <= LARGE {
        return evaluate(condition, payload, request, &limits);
    }
    let (payload, request) = (payload.clone(), request.clone());
    let work = move || evaluate(condition, &payload, &request, &limits);
    shared.offload.elsewhere(work).await
}

fn evaluate(condition: String, payload: &Value, request: &Value, limits: &Limits) -> Judged {
    let scope = Data::object([
        ("trigger", Data::Json(payload)),
        ("payload", Data::Json(payload)),
        ("request", Data::Json(request)),
    ]);
    let (here, reads): (Option<Result<bool, String>>, Vec<ReadPath>) = match Expression::parse(&condition) {
        Ok(expression) => {
            let here = match expression.test(&scope, limits) {
                Err(error) if error.kind == EvalErrorKind::NotCovered => None,
                tested => Some(tested.map_err(|error| error.message)),
            };
            (here, expression.reads().to_vec())
        }
        Err(error) if error.kind == SyntaxKind::NotCovered => (None, scan_reads(&condition, &ROOTS)),
        Err(error) => (Some(Err(error.message)), Vec::new()),
    };
    let saw = saw(&scope, &reads);
    match here {
        Some(result) => Judged::Here(Verdict {
            error: result.as_ref().err().cloned(),
            is_true: result.unwrap_or(false),
            saw,
        }),
        None => match serde_json::to_value(scope.project(&reads)) {
            Ok(data) => Judged::Elsewhere(Question {
                source: condition,
                data,
                saw,
            }),
            Err(error) => Judged::Here(Verdict {
                is_true: false,
                error: Some(error.to_string()),
                saw,
            }),
        },
    }
}

impl Question {
    /// Evaluates the condition in the sandbox, on behalf of the tenant and the workflow of the trigger. `None` if the sandbox
    /// cannot be started now, which says nothing about the condition.
    pub async fn ask(self, shared: &Shared, trigger: &Trigger) -> Option<Verdict> {
        let sandbox = shared.sandbox.on_behalf_of(&trigger.tenant, &trigger.workflow_id);
        let source = Source {
            language: SandboxLanguage::Js,
            text: &self.source,
        };
        let (tested, took) = sandbox.test(source, &self.data, &shared.settings.conditions).await;
        shared.metrics.condition_evaluated(took);
        if let Err(error @ SandboxError::Unavailable(_)) = &tested {
            tracing::warn!(WorkflowId = trigger.workflow_id, %error, "the condition of a trigger is evaluated later");
            return None;
        }
        Some(Verdict {
            error: tested.as_ref().err().map(ToString::to_string),
            is_true: tested.unwrap_or(false),
            saw: self.saw,
        })
    }
}
