//! Stored JSON texts as files: what is too large for a page.

use super::rerun;
use crate::{door::As, error::ApiError, extract::run_id};
use axum::{
    extract::Path,
    http::header,
    response::{IntoResponse, Response},
};
use fermata_core::NodeId;

/// `GET /runs/{id}/data/{part}`
pub(crate) async fn of_run(As(session): As, Path((id, part)): Path<(String, String)>) -> Result<Response, ApiError> {
    let run = session.reads().run(run_id(&id)?).await?;
    let text = match part.as_str() {
        "trigger" => Some(run.trigger),
        "spec" => run.spec,
        "request" => run.request,
        "outputs" => run.outputs,
        "error" => run.error,
        _ => None,
    };
    file(text, &format!("{id}-{part}"))
}

/// `GET /runs/{id}/nodes/{node}/attempts/{attempt}/{part}`
pub(crate) async fn of_attempt(
    As(session): As,
    Path((id, node, attempt, part)): Path<(String, String, u32, String)>,
) -> Result<Response, ApiError> {
    let run = run_id(&id)?;
    let node = NodeId::from(node);
    let found = session.reads().attempt_of(run, &node, attempt).await?;
    let text = match part.as_str() {
        "parameters" => found.parameters,
        "outputs" => found.outputs,
        "error" => found.error,
        _ => None,
    };
    file(text, &format!("{id}-{attempt}-{part}"))
}

/// `GET /runs/{id}/nodes/{node}/parameters`: the parameters of a node as the document has them, indented.
pub(crate) async fn of_node(As(session): As, Path((id, node)): Path<(String, String)>) -> Result<Response, ApiError> {
    let run = session.reads().run(run_id(&id)?).await?;
    let progress = session.reads().progress(&run).await?;
    let found = progress.as_ref().and_then(|progress| {
        let node = progress.plan.node(progress.plan.find(&node)?);
        rerun::parameters(&node.kind)
    });
    let text = found.and_then(|parameters| serde_json::to_string_pretty(parameters).ok());
    file(text, &format!("{id}-parameters"))
}

fn file(text: Option<String>, name: &str) -> Result<Response, ApiError> {
    let text = text.ok_or_else(|| ApiError::not_found("NOT_FOUND", "there is no such text".to_owned()))?;
    let safe = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let name: String = name.chars().filter(|letter| safe(*letter)).collect();
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.json\""),
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, text).into_response())
}
