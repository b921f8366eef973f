//! Commands on executions in flight: pause and resume, skip a node that waits, send a request again.

use super::executions::run_response;
use crate::{
    door::As,
    error::ApiError,
    extract::{ExecutionId, ExecutionNode, OptionalJson, name},
    strict_json::Strict,
    views::AcceptedView,
};
use axum::{Json, http::StatusCode, response::Response};
use fermata_core::RunId;
use fermata_runtime::Session;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// Why; it is recorded in the audit trail.
    reason: Option<String>,
}

impl CommandBody {
    pub(super) fn checked(&self) -> Result<Option<&str>, ApiError> {
        if let Some(reason) = &self.reason {
            name("reason", reason)?;
        }
        Ok(self.reason.as_deref())
    }
}

/// `POST /api/v1/executions/{id}/pause`
pub(crate) async fn pause(
    As(session): As,
    ExecutionId(id): ExecutionId,
    OptionalJson(body, _share): OptionalJson<CommandBody>,
) -> Result<Response, ApiError> {
    session.pause(id, body.checked()?).await?;
    run_response(&session, id).await
}

/// `POST /api/v1/executions/{id}/resume`
pub(crate) async fn resume(
    As(session): As,
    ExecutionId(id): ExecutionId,
    OptionalJson(body, _share): OptionalJson<CommandBody>,
) -> Result<Response, ApiError> {
    session.resume(id, body.checked()?).await?;
    run_response(&session, id).await
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipBody {
    /// The outputs that the node has instead: an object, `{}` by default. Of a decision it has the member `outcome`.
    #[serde(default)]
    outputs: Option<Strict>,
    /// Why; it is recorded in the journal and the audit trail.
    #[serde(default)]
    reason: Option<String>,
}

/// `POST /api/v1/executions/{id}/nodes/{node}/skip`
pub(crate) async fn skip(
    As(session): As,
    place: ExecutionNode,
    OptionalJson(body, _share): OptionalJson<SkipBody>,
) -> Result<(StatusCode, Json<AcceptedView>), ApiError> {
    let Some(reason) = body.reason else {
        return Err(ApiError::invalid("`reason` is missing: say why the node is skipped"));
    };
    name("reason", &reason)?;
    let outputs = match body.outputs.map(|outputs| outputs.0) {
        None => Map::new(),
        Some(Value::Object(outputs)) => outputs,
        Some(_) => return Err(ApiError::invalid("`outputs` must be an object")),
    };
    session.skip(place.run, &place.node, outputs, &reason).await?;
    accepted(&session, place.run).await
}

/// `POST /api/v1/executions/{id}/nodes/{node}/resend`
pub(crate) async fn resend(
    As(session): As,
    place: ExecutionNode,
    OptionalJson(body, _share): OptionalJson<CommandBody>,
) -> Result<(StatusCode, Json<AcceptedView>), ApiError> {
    session.resend(place.run, &place.node, body.checked()?).await?;
    accepted(&session, place.run).await
}

/// The command is durable; the runner that holds the run decides it.
async fn accepted(session: &Session, id: RunId) -> Result<(StatusCode, Json<AcceptedView>), ApiError> {
    let run = session.reads().run(id).await?;
    Ok((StatusCode::ACCEPTED, Json(AcceptedView::new(id, run.status))))
}
