//! Workflows of the jsondagapi dialect: their responses, and changes of their nodes and edges. Names are in snake_case.
//!
//! Each change makes a version. `If-Match` with a version makes it only if that is the latest version.

use crate::{
    body::run_to_completion,
    door::As,
    error::{ApiError, etag},
    extract::{Name, OptionalJson, Query},
    strict_json::Strict,
};
use axum::{
    Json,
    extract::{FromRequestParts, Path},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use fermata_dialects::{Dialect, jsondagapi::intents::Intent};
use fermata_runtime::{PublishedWorkflow, Session};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Whether workflows of this dialect are shown as jsondagapi defines it.
pub(super) fn is_jsondagapi(dialect: &str) -> bool {
    Dialect::parse(dialect) == Some(Dialect::Jsondagapi)
}

/// The response for a version that was published.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ChangedView<'a> {
    workflow_id: &'a str,
    version: &'a str,
    status: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    warnings: &'a [fermata_dialects::Diagnostic],
}

/// The response for a workflow that was created or changed.
pub(super) fn changed(status: StatusCode, published: &PublishedWorkflow, document: &Value, word: &str) -> Response {
    let version = document["version"].as_str().unwrap_or_default();
    let view = ChangedView {
        workflow_id: &published.workflow.id,
        version,
        status: word,
        warnings: &published.warnings,
    };
    with_version((status, Json(view)).into_response(), version)
}

/// The response with the document itself.
pub(super) fn document_response(document: &Value) -> Response {
    let version = document["version"].as_str().unwrap_or_default();
    with_version(Json(document).into_response(), version)
}

fn with_version(mut response: Response, version: &str) -> Response {
    if let Some(etag) = etag(version) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// The version in `If-Match`; `*` and no header allow any.
pub(super) fn expected_version(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(header::IF_MATCH) else {
        return Ok(None);
    };
    let text = value.to_str().unwrap_or_default().trim();
    let version = text.trim_matches('"');
    let plain = !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match text {
        "*" => Ok(None),
        _ if plain => Ok(Some(version.to_owned())),
        _ => Err(ApiError::invalid(
            "`If-Match` must be `*`, or a version in double quotes such as \"1.2.0\"",
        )),
    }
}

/// A workflow in the path and one of its nodes.
pub(crate) struct NodeOf {
    workflow: String,
    node: String,
}

impl<S: Send + Sync> FromRequestParts<S> for NodeOf {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let Path((workflow, node)) = path.map_err(|rejection| ApiError::invalid(rejection.body_text()))?;
        Ok(NodeOf { workflow, node })
    }
}

/// Applies intents, and responds with the new version.
async fn revise(
    session: Session,
    workflow: String,
    headers: HeaderMap,
    intents: Vec<Intent>,
    status: StatusCode,
    share: Option<fermata_runtime::memory::Share>,
) -> Result<Response, ApiError> {
    let expected = expected_version(&headers)?;
    let work = async move {
        let workflows = session.workflows();
        let (published, document) = workflows.revise(&workflow, expected.as_deref(), &intents).await?;
        Ok(changed(status, &published, &document, "UPDATED"))
    };
    match share {
        Some(share) => run_to_completion(share, work).await,
        None => work.await,
    }
}

/// The JSON object of a body.
fn object(body: Option<Strict>, what: &str) -> Result<Map<String, Value>, ApiError> {
    match body.map(|body| body.0) {
        Some(Value::Object(members)) => Ok(members),
        _ => Err(ApiError::invalid(format!("the body must be {what}, a JSON object"))),
    }
}

/// `POST /api/v1/workflows/{id}/nodes`: the body is the node.
pub(crate) async fn add_node(
    As(session): As,
    Name(workflow): Name,
    headers: HeaderMap,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Response, ApiError> {
    let node = Value::Object(object(body, "the node")?);
    let intents = vec![Intent::AddNode { node }];
    revise(session, workflow, headers, intents, StatusCode::CREATED, Some(share)).await
}

/// `PUT /api/v1/workflows/{id}/nodes/{node}`: the body has the members that change; `null` removes one.
pub(crate) async fn update_node(
    As(session): As,
    NodeOf { workflow, node }: NodeOf,
    headers: HeaderMap,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Response, ApiError> {
    let intents = vec![Intent::UpdateNode {
        node_id: node,
        changes: object(body, "the changed members of the node")?,
    }];
    revise(session, workflow, headers, intents, StatusCode::OK, Some(share)).await
}

/// `DELETE /api/v1/workflows/{id}/nodes/{node}`
pub(crate) async fn remove_node(
    As(session): As,
    NodeOf { workflow, node }: NodeOf,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let intents = vec![Intent::RemoveNode { node_id: node }];
    revise(session, workflow, headers, intents, StatusCode::OK, None).await
}

/// `POST /api/v1/workflows/{id}/edges`: the body is the edge.
pub(crate) async fn add_edge(
    As(session): As,
    Name(workflow): Name,
    headers: HeaderMap,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Response, ApiError> {
    let edge = Value::Object(object(body, "the edge")?);
    let intents = vec![Intent::AddEdge { edge }];
    revise(session, workflow, headers, intents, StatusCode::CREATED, Some(share)).await
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EdgeQuery {
    from: String,
    to: String,
    outcome: Option<String>,
}

/// `DELETE /api/v1/workflows/{id}/edges?from=&to=`
pub(crate) async fn remove_edge(
    As(session): As,
    Name(workflow): Name,
    headers: HeaderMap,
    Query(EdgeQuery { from, to, outcome }): Query<EdgeQuery>,
) -> Result<Response, ApiError> {
    let intents = vec![Intent::RemoveEdge { from, to, outcome }];
    revise(session, workflow, headers, intents, StatusCode::OK, None).await
}

/// `PATCH /api/v1/workflows/{id}`: the body is a list of intents, or `{"intents": […]}`. They are applied as one.
pub(crate) async fn patch(
    As(session): As,
    Name(workflow): Name,
    headers: HeaderMap,
    OptionalJson(body, share): OptionalJson<Option<Strict>>,
) -> Result<Response, ApiError> {
    let list = match body.map(|body| body.0) {
        Some(Value::Object(mut members)) if members.len() == 1 => members.remove("intents"),
        other => other,
    };
    let intents = match list {
        Some(list @ Value::Array(_)) => serde_json::from_value::<Vec<Intent>>(list)
            .map_err(|error| ApiError::invalid(format!("invalid intents: {error}")))?,
        _ => return Err(ApiError::invalid("the body must be `{\"intents\": [...]}`")),
    };
    if intents.is_empty() {
        return Err(ApiError::invalid("the list of intents is empty"));
    }
    revise(session, workflow, headers, intents, StatusCode::OK, Some(share)).await
}
