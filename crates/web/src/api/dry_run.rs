//! Dry runs: a document or a stored workflow is executed without effects, on a virtual clock. Nothing is stored.

use crate::{body::run_to_completion, door::As, error::ApiError, extract::OptionalJson, strict_json::Strict};
use axum::Json;
use fermata_dialects::Diagnostic;
use fermata_runtime::{
    DryRunOf,
    dry_run::{DryRun, DryRunReport},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[derive(Deserialize, Default, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DryRunBody {
    /// The document: an object, or its text in JSON or YAML.
    document: Option<Strict>,
    /// A stored workflow, instead of a document.
    workflow_id: Option<String>,
    /// The version of the stored workflow: a number, or the version that its document names.
    version: Option<Value>,
    /// The trigger of the run.
    trigger: Option<Strict>,
    /// The structured payload beside the trigger.
    spec: Option<Strict>,
    /// What nodes return, by their ids.
    mocks: Option<Strict>,
}

/// How a dry run went.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DryRunView {
    #[serde(flatten)]
    report: DryRunReport,
    /// Warnings about the document.
    warnings: Vec<Diagnostic>,
}

/// `POST /api/v1/workflows/dry-run`
pub(crate) async fn run(
    As(session): As,
    OptionalJson(body, share): OptionalJson<DryRunBody>,
) -> Result<Json<DryRunView>, ApiError> {
    let (of, request) = request(body)?;
    run_to_completion(share, async move {
        let (report, warnings) = session.dry_run(of, request).await?;
        Ok(Json(DryRunView { report, warnings }))
    })
    .await
}

/// What a body asks for.
pub(crate) fn request(body: DryRunBody) -> Result<(DryRunOf, DryRun), ApiError> {
    let of = what(body.document, body.workflow_id, body.version)?;
    let given = |value: Option<Strict>| value.map_or_else(|| Value::Object(Map::new()), |value| value.0);
    let request = DryRun {
        trigger: given(body.trigger),
        spec: body.spec.map(|spec| spec.0),
        mocks: given(body.mocks),
        ..DryRun::default()
    };
    Ok((of, request))
}

fn what(document: Option<Strict>, workflow: Option<String>, version: Option<Value>) -> Result<DryRunOf, ApiError> {
    let version = version.filter(|version| !version.is_null());
    match (document, workflow) {
        (Some(_), None) if version.is_some() => Err(ApiError::invalid(
            "`version` names a version of a stored workflow; send it with `workflowId`",
        )),
        (Some(Strict(Value::String(text))), None) => Ok(DryRunOf::Document(text.into_bytes())),
        (Some(Strict(document @ Value::Object(_))), None) => Ok(DryRunOf::Document(document.to_string().into_bytes())),
        (Some(_), None) => Err(ApiError::invalid(
            "`document` must be an object, or the text of a document in JSON or YAML",
        )),
        (None, Some(reference)) => {
            let version = match version {
                None => None,
                Some(Value::String(label)) => Some(label),
                Some(Value::Number(number)) => Some(number.to_string()),
                Some(_) => return Err(ApiError::invalid("`version` must be a number or a text")),
            };
            Ok(DryRunOf::Workflow { reference, version })
        }
        (None, None) | (Some(_), Some(_)) => Err(ApiError::invalid("send either `document` or `workflowId`")),
    }
}
