//! The lifecycle of published workflows: archive, reactivate, enable, disable, pause, resume, delete. The lifecycle module of
//! `fermata_runtime` has the table of allowed transitions; any other gets 409 with the transitions that are possible. `{id}`
//! is the id, or the uid with or without `wf_`.

use super::operate::CommandBody;
use crate::{
    door::As,
    error::ApiError,
    extract::{Name, OptionalJson, VersionOf},
    time::Iso,
};
use axum::{Json, http::StatusCode};
use fermata_store::definitions::Workflow;
use schemars::JsonSchema;
use serde::Serialize;

/// The state of a workflow.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StateView {
    workflow_id: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_version: Option<u32>,
    /// When it was paused, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused_at: Option<Iso>,
}

type Answer = Result<Json<StateView>, ApiError>;

fn state(workflow: Workflow, with_enabled: bool) -> Answer {
    Ok(Json(StateView {
        status: workflow.status.as_str(),
        is_enabled: with_enabled.then_some(workflow.enabled),
        current_version: None,
        paused_at: workflow.paused_at.map(Iso),
        workflow_id: workflow.id,
    }))
}

/// `POST /api/v1/workflows/{id}/archive`
pub(crate) async fn archive(As(session): As, Name(reference): Name) -> Answer {
    state(session.workflows().archive(&reference).await?, false)
}

/// `POST /api/v1/workflows/{id}/reactivate`
pub(crate) async fn reactivate(As(session): As, Name(reference): Name) -> Answer {
    state(session.workflows().reactivate(&reference).await?, false)
}

/// `POST /api/v1/workflows/{id}/enable`
pub(crate) async fn enable(As(session): As, Name(reference): Name) -> Answer {
    state(session.workflows().set_enabled(&reference, true).await?, true)
}

/// `POST /api/v1/workflows/{id}/disable`
pub(crate) async fn disable(As(session): As, Name(reference): Name) -> Answer {
    state(session.workflows().set_enabled(&reference, false).await?, true)
}

/// `POST /api/v1/workflows/{id}/pause`
pub(crate) async fn pause(
    As(session): As,
    Name(reference): Name,
    OptionalJson(body, _share): OptionalJson<CommandBody>,
) -> Answer {
    let reason = body.checked()?;
    state(session.workflows().set_paused(&reference, true, reason).await?, true)
}

/// `POST /api/v1/workflows/{id}/resume`
pub(crate) async fn resume(
    As(session): As,
    Name(reference): Name,
    OptionalJson(body, _share): OptionalJson<CommandBody>,
) -> Answer {
    let reason = body.checked()?;
    state(session.workflows().set_paused(&reference, false, reason).await?, true)
}

/// `POST /api/v1/workflows/{id}/versions/{version}/activate`
pub(crate) async fn activate(As(session): As, VersionOf { workflow, version }: VersionOf) -> Answer {
    let workflow = session.workflows().activate(&workflow, version).await?;
    let current_version = workflow.current_version;
    let Json(state) = state(workflow, true)?;
    Ok(Json(StateView {
        current_version,
        ..state
    }))
}

/// `DELETE /api/v1/workflows/{id}`
pub(crate) async fn delete(As(session): As, Name(reference): Name) -> Result<StatusCode, ApiError> {
    session.workflows().delete(&reference).await?;
    Ok(StatusCode::NO_CONTENT)
}
