//! Drafts of workflows, protected against concurrent edits by ETags, and validation of documents.
//!
//! The ETag of a draft is the checksum of its content, so comments and the order of keys do not change it.

use super::workflows;
use crate::{
    Web,
    body::run_to_completion,
    door::As,
    error::{ApiError, etag},
    extract::{DocumentBytes, Name},
};
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::Response,
};
use fermata_core::Plan;
use fermata_dialects::Diagnostic;
use fermata_store::definitions::DraftGuard;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// `PUT /api/v1/workflows/{id}/draft`: the body is the document itself.
pub(crate) async fn put(
    As(session): As,
    Name(reference): Name,
    headers: HeaderMap,
    DocumentBytes(source, share): DocumentBytes,
) -> Result<Response, ApiError> {
    let guard = guard(&headers)?;
    run_to_completion(share, async move {
        let workflows = session.workflows();
        let saved = workflows.save_draft(&reference, &source, "request", guard).await?;
        Ok(workflows::saved_response(StatusCode::OK, saved))
    })
    .await
}

/// The condition in `If-Match` or `If-None-Match`.
pub(super) fn guard(headers: &HeaderMap) -> Result<Option<DraftGuard>, ApiError> {
    let (matches, differs) = (
        header_list(headers, header::IF_MATCH)?,
        header_list(headers, header::IF_NONE_MATCH)?,
    );
    match (matches.as_deref(), differs.as_deref()) {
        (None, None) => Ok(None),
        (Some("*"), None) => Ok(Some(DraftGuard::Present)),
        (Some(list), None) => {
            let tags = list.split(',').map(|tag| checksum(tag.trim()));
            let tags = tags.collect::<Option<Vec<_>>>().ok_or_else(|| {
                let message =
                    "`If-Match` must be `*`, or the ETag of the draft in double quotes, as GET and PUT return it";
                ApiError::invalid(message)
            })?;
            Ok(Some(DraftGuard::Is(tags)))
        }
        (None, Some("*")) => Ok(Some(DraftGuard::Absent)),
        (None, Some(_)) => Err(ApiError::invalid(
            "`If-None-Match` must be `*`, which means that there is no draft yet",
        )),
        (Some(_), Some(_)) => Err(ApiError::invalid("send `If-Match` or `If-None-Match`, not both")),
    }
}

/// The values of a header as one list.
fn header_list(headers: &HeaderMap, name: HeaderName) -> Result<Option<String>, ApiError> {
    let lines = headers.get_all(&name).iter().map(|value| value.to_str());
    let lines: Vec<&str> = lines
        .collect::<Result<_, _>>()
        .map_err(|_| ApiError::invalid(format!("the header {name} is not ASCII text")))?;
    Ok((!lines.is_empty()).then(|| lines.join(",").trim().to_owned()))
}

/// The checksum in an ETag. A weak ETag never matches.
fn checksum(tag: &str) -> Option<String> {
    let (weak, tag) = match tag.strip_prefix("W/") {
        Some(tag) => (true, tag),
        None => (false, tag),
    };
    let text = tag.strip_prefix('"')?.strip_suffix('"')?;
    let text = if weak { format!("W/{text}") } else { text.to_owned() };
    (!text.contains('"')).then_some(text)
}

/// `GET /api/v1/workflows/{id}/draft`
pub(crate) async fn get(State(web): State<Web>, As(session): As, Name(reference): Name) -> Result<Response, ApiError> {
    let reads = session.reads();
    let workflow = reads.workflow(&reference).await?;
    let draft = reads.draft(&workflow).await?;
    let draft = draft.ok_or_else(|| {
        let message = format!("workflow `{}` has no draft; create one with PUT", workflow.id);
        ApiError::not_found("NO_DRAFT", message)
    })?;
    let mut response = workflows::definition_response(&web, &workflow, None, &draft.source, &draft.checksum)?;
    if let Some(etag) = etag(&draft.checksum) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

/// The result of a validation.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ValidatedView {
    /// Whether it could be published.
    valid: bool,
    /// Errors and warnings; see `severity`.
    problems: Vec<Diagnostic>,
    /// How many problems are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_problems: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<PlanView>,
}

/// A summary of a plan.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PlanView {
    workflow_id: String,
    display_name: String,
    dialect: String,
    checksum: String,
    nodes: usize,
    edges: usize,
    /// The actions that its nodes use.
    action_types: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    has_trigger_schema: bool,
}

impl PlanView {
    fn new(plan: Plan, checksum: String) -> PlanView {
        PlanView {
            nodes: plan.nodes.len(),
            edges: plan.nodes.iter().map(|node| node.edges.len()).sum(),
            action_types: plan
                .nodes
                .iter()
                .map(|node| node.kind.action_type().to_owned())
                .collect(),
            timeout_ms: plan.timeout_ms,
            has_trigger_schema: plan.trigger_schema.is_some(),
            workflow_id: plan.workflow.clone(),
            display_name: plan.display_name.clone(),
            dialect: plan.dialect.clone(),
            checksum,
        }
    }
}

/// `POST /api/v1/workflows/validate`: the checks of publishing, without storing anything.
pub(crate) async fn validate(
    As(session): As,
    DocumentBytes(source, _share): DocumentBytes,
) -> Result<Json<ValidatedView>, ApiError> {
    let validated = session.workflows().validate(&source, "request").await?;
    Ok(Json(match validated.outcome {
        Ok((plan, checksum)) => ValidatedView {
            valid: true,
            problems: validated.warnings,
            more_problems: None,
            plan: Some(PlanView::new(plan, checksum)),
        },
        Err(problems) => ValidatedView {
            valid: false,
            more_problems: Some(problems.more()).filter(|more| *more > 0),
            problems: problems.into_list(),
            plan: None,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditional_headers_are_parsed_or_refused() {
        let read = |name: &'static str, text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, text.parse().unwrap());
            guard(&headers).map_err(|error| error.code)
        };
        let is = |tags: &[&str]| Ok(Some(DraftGuard::Is(tags.iter().map(|tag| (*tag).to_owned()).collect())));
        assert_eq!(guard(&HeaderMap::new()).unwrap(), None);
        assert_eq!(read("if-match", "\"ab\""), is(&["ab"]));
        assert_eq!(read("if-match", "\"a\" , W/\"b\""), is(&["a", "W/b"]));
        assert_eq!(read("if-match", " * "), Ok(Some(DraftGuard::Present)));
        assert_eq!(read("if-none-match", "*"), Ok(Some(DraftGuard::Absent)));
        for bad in ["", "ab", "\"", "\"a\"b\"", "\"a\",", "*,\"a\""] {
            assert_eq!(read("if-match", bad), Err("INVALID_REQUEST"), "{bad}");
        }
        assert_eq!(read("if-none-match", "\"ab\""), Err("INVALID_REQUEST"));
    }
}
