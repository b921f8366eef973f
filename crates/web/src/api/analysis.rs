//! Analysis of documents of every dialect: nothing is stored. Names are in snake_case.

use crate::{body::run_to_completion, door::As, error::ApiError, extract::DocumentBytes};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use fermata_dialects::{Diagnostic, Severity, inspect::inspect};
use fermata_runtime::Refusal;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
pub(crate) struct AnalysisView {
    /// Whether it could be published.
    valid: bool,
    errors: Vec<ProblemView>,
    warnings: Vec<ProblemView>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AnalysisProblem")]
struct ProblemView {
    code: &'static str,
    message: String,
    pointer: String,
    line: usize,
    column: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
}

impl From<Diagnostic> for ProblemView {
    fn from(problem: Diagnostic) -> ProblemView {
        ProblemView {
            code: problem.code,
            message: problem.message,
            pointer: problem.pointer,
            line: problem.line,
            column: problem.column,
            suggestion: problem.suggestion,
        }
    }
}

/// `POST /api/v1/analysis/validate`: the body is the document itself.
pub(crate) async fn validate(
    As(session): As,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Response, ApiError> {
    run_to_completion(share, async move {
        let checked = session.workflows().validate(&source, "request").await?;
        let (valid, problems) = match checked.outcome {
            Ok(_) => (true, checked.warnings),
            Err(problems) => (false, problems.into_list()),
        };
        let (errors, warnings): (Vec<_>, Vec<_>) = problems
            .into_iter()
            .partition(|problem| problem.severity == Severity::Error);
        let views = |list: Vec<Diagnostic>| list.into_iter().map(ProblemView::from).collect();
        let view = AnalysisView {
            valid,
            errors: views(errors),
            warnings: views(warnings),
        };
        Ok(Json(view).into_response())
    })
    .await
}

/// `POST /api/v1/analysis/inspect`: the body is the document itself.
pub(crate) async fn inspected(
    As(session): As,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Response, ApiError> {
    run_to_completion(share, async move {
        let checked = session.workflows().validate(&source, "request").await?;
        let (plan, _) = checked.outcome.map_err(Refusal::InvalidDocument)?;
        Ok(Json(inspect(&plan)).into_response())
    })
    .await
}
