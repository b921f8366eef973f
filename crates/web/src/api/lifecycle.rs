//! The steps of a workflow's life after it is published, and its end. Which are allowed is written at
//! `fermata_runtime`'s lifecycle; a step that is not gets 409 and says what is possible. `{id}` is the id, or the uid with
//! or without `wf_`.

use crate::{Web, error::ApiError, extract::Name};
use axum::{Json, extract::State, http::StatusCode};
use fermata_store::definitions::Workflow;
use serde::Serialize;

/// Where a workflow stands.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StandingView {
    workflow_id: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_enabled: Option<bool>,
}

type Answer = Result<Json<StandingView>, ApiError>;

fn standing(workflow: Workflow, tells_enabled: bool) -> Answer {
    Ok(Json(StandingView {
        status: workflow.status.as_str(),
        is_enabled: tells_enabled.then_some(workflow.enabled),
        workflow_id: workflow.id,
    }))
}

/// `POST /api/v1/workflows/{id}/archive`
pub(crate) async fn archive(State(web): State<Web>, Name(reference): Name) -> Answer {
    standing(web.engine.workflows().archive(&reference).await?, false)
}

/// `POST /api/v1/workflows/{id}/reactivate`
pub(crate) async fn reactivate(State(web): State<Web>, Name(reference): Name) -> Answer {
    standing(web.engine.workflows().reactivate(&reference).await?, false)
}

/// `POST /api/v1/workflows/{id}/enable`
pub(crate) async fn enable(State(web): State<Web>, Name(reference): Name) -> Answer {
    standing(web.engine.workflows().set_enabled(&reference, true).await?, true)
}

/// `POST /api/v1/workflows/{id}/disable`
pub(crate) async fn disable(State(web): State<Web>, Name(reference): Name) -> Answer {
    standing(web.engine.workflows().set_enabled(&reference, false).await?, true)
}

/// `DELETE /api/v1/workflows/{id}`
pub(crate) async fn delete(State(web): State<Web>, Name(reference): Name) -> Result<StatusCode, ApiError> {
    web.engine.workflows().delete(&reference).await?;
    Ok(StatusCode::NO_CONTENT)
}
