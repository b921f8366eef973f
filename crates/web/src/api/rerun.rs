//! Reruns: a new execution that repeats one that has ended.

use super::executions::{PrincipalBody, StartQuery, principal_of, run_response, set_correlation_id, wait_time};
use crate::{
    Web,
    door::{As, Credential},
    error::ApiError,
    extract::{CorrelationId, ExecutionId, OptionalJson, Query, Traceparent, name},
    strict_json::Strict,
    views::StatusUrl,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fermata_core::{NodeId, RunId, rerun::Edits};
use fermata_runtime::{RerunRequest, RerunVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RerunBody {
    /// Repeat this node and all that it reaches. Without it and without `failedOnly`, everything is repeated.
    from_node: Option<String>,
    /// Repeat the nodes that failed and all that they reach.
    failed_only: Option<bool>,
    /// Another trigger.
    trigger: Option<Strict>,
    /// Another `spec`.
    spec: Option<Strict>,
    /// Changed parameters, by node, for this execution only.
    parameters: Option<Strict>,
    /// A number, or `latest`. The version of the old execution if it is left out.
    version: Option<Value>,
    request_id: Option<String>,
    principal: Option<PrincipalBody>,
}

/// A rerun that was accepted.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RerunView {
    #[schemars(with = "uuid::Uuid")]
    execution_id: RunId,
    status: &'static str,
    /// The execution that it repeats.
    #[schemars(with = "uuid::Uuid")]
    rerun_of: RunId,
    status_url: StatusUrl,
}

/// `POST /api/v1/executions/{id}/rerun`. With `?wait=30s` it responds when the new execution ends, or after that time.
pub(crate) async fn rerun(
    State(web): State<Web>,
    As(session): As,
    ExecutionId(id): ExecutionId,
    Query(query): Query<StartQuery>,
    (CorrelationId(correlation_id), Traceparent(traceparent)): (CorrelationId, Traceparent),
    credential: Credential,
    OptionalJson(body, share): OptionalJson<RerunBody>,
) -> Result<Response, ApiError> {
    let wait = query
        .wait
        .map(|text| wait_time(&text, web.config.max_wait))
        .transpose()?;
    let has_correlation_id = correlation_id.is_some();
    let (mut request, principal) = request_of(body)?;
    request.correlation_id = correlation_id;
    request.traceparent = traceparent;
    request.memory = Some(Arc::new(share));
    let principal = principal_of(principal)?;
    let accepted = session.rerun(id, request, principal).await?;
    // The run is durable, so the response does not depend on these reads.
    let ended = match wait {
        Some(limit) => session.wait(accepted.run, limit).await.ok().flatten(),
        None => None,
    };
    let shown = match ended {
        // The credential may have been revoked while this waited.
        Some(_) if web.still_admits(&session, &credential).await.is_ok() => {
            run_response(&session, accepted.run).await.ok()
        }
        Some(_) | None => None,
    };
    let mut response = shown.unwrap_or_else(|| {
        let code = match accepted.created || wait.is_some() {
            true => StatusCode::ACCEPTED,
            false => StatusCode::OK,
        };
        let view = RerunView {
            execution_id: accepted.run,
            status: ended.map_or(accepted.status, |ended| ended.status).as_str(),
            rerun_of: id,
            status_url: StatusUrl(accepted.run),
        };
        (code, Json(view)).into_response()
    });
    if !has_correlation_id {
        set_correlation_id(&mut response, accepted.run);
    }
    Ok(response)
}

fn request_of(body: RerunBody) -> Result<(RerunRequest, Option<PrincipalBody>), ApiError> {
    if let Some(id) = &body.request_id {
        name("requestId", id)?;
    }
    if let Some(node) = &body.from_node {
        name("fromNode", node)?;
    }
    let request = RerunRequest {
        from_node: body.from_node,
        failed_only: body.failed_only.unwrap_or(false),
        trigger: body.trigger.map(|trigger| trigger.0),
        spec: body.spec.map(|spec| spec.0),
        parameters: body.parameters.map_or(Ok(Edits::new()), |given| edits(given.0))?,
        version: version(body.version)?,
        request_id: body.request_id,
        ..RerunRequest::default()
    };
    Ok((request, body.principal))
}

fn version(given: Option<Value>) -> Result<RerunVersion, ApiError> {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    match given {
        None | Some(Value::Null) => Ok(RerunVersion::Same),
        Some(Value::String(word)) if word == "latest" => Ok(RerunVersion::Latest),
        Some(value) => match number(&value).filter(|number| *number > 0) {
            Some(number) => Ok(RerunVersion::Number(number)),
            None => Err(ApiError::invalid("`version` must be a number from 1, or \"latest\"")),
        },
    }
}

fn edits(given: Value) -> Result<Edits, ApiError> {
    let wrong = || ApiError::invalid("`parameters` must be an object that has an object for each node");
    let Value::Object(nodes) = given else {
        return Err(wrong());
    };
    let edit = |(node, parameters): (String, Value)| match parameters {
        Value::Object(parameters) => Ok((NodeId::from(node.as_str()), parameters)),
        _ => Err(wrong()),
    };
    nodes.into_iter().map(edit).collect()
}
