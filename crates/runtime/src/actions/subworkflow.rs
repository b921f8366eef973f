//! `core.subworkflow`: starts a child run. The node ends with the child, or at once if it does not wait.

use super::{ActionInfo, Call, Done, Failed, TypedAction};
use async_trait::async_trait;
use fermata_core::{Failure, code};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The action.
pub struct Subworkflow;

/// The parameters of [`Subworkflow`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubworkflowParameters {
    /// The workflow to run.
    pub workflow_id: String,
    /// Its version: a number, or the version that its document names. The current one by default.
    #[serde(default)]
    pub workflow_version: Option<Value>,
    /// The trigger of the child; the state of this run by default.
    #[serde(default)]
    pub trigger: Option<Value>,
}

impl SubworkflowParameters {
    /// The version as a text.
    pub(crate) fn version(&self) -> Result<Option<String>, Failure> {
        match &self.workflow_version {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(label)) => Ok(Some(label.clone())),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(other) => {
                let message = format!("`workflowVersion` must be a number or a text, not {other}");
                Err(Failure::permanent(code::INVALID_PARAMETERS, message))
            }
        }
    }
}

#[async_trait]
impl TypedAction for Subworkflow {
    type Parameters = SubworkflowParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        ActionInfo {
            id: "core.subworkflow".to_owned(),
            display_name: "Subworkflow".to_owned(),
            description: "Runs another workflow.".to_owned(),
            category: "Core".to_owned(),
            connector_id: "core".to_owned(),
            version: "1.0.0".to_owned(),
            parameter_schema: Value::Null,
            output_schema: Value::Null,
            is_enabled: true,
            deprecation_notice: None,
            tags: vec!["workflow".to_owned()],
        }
    }

    fn starts_children(&self) -> bool {
        true
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        parameters.get("trigger").is_none()
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        let version = parameters.version()?;
        let Some(children) = call.children else {
            let message = "this node cannot start child runs";
            return Err(Failure::permanent(code::CHILD_REFUSED, message).into());
        };
        let trigger = parameters.trigger.unwrap_or_else(|| (*call.state).clone());
        let run = children
            .start(&parameters.workflow_id, version.as_deref(), trigger)
            .await?;
        Ok(Map::from_iter([("executionId".to_owned(), json!(run.to_string()))]).into())
    }
}
