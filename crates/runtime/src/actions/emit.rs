//! `core.emit`: publishes an event, which starts the workflows whose triggers it matches.
//!
//! What must stay true: the id of the event is made of run and node, so a repeated attempt publishes the same event, which is
//! stored once.

use super::{ActionInfo, Call, Done, Failed, TypedAction};
use async_trait::async_trait;
use fermata_core::{Failure, code};
use fermata_triggers::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Publishes an event.
pub struct Emit;

/// The parameters of [`Emit`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EmitParameters {
    /// The type of the event, such as `order.paid`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Its data.
    #[serde(default)]
    pub data: Value,
    /// Where it comes from; `/workflows/{id}` by default.
    #[serde(default)]
    pub source: Option<String>,
    /// What it is about.
    #[serde(default)]
    pub subject: Option<String>,
    /// Its id, unique for its source; made of the execution and the node by default.
    #[serde(default)]
    pub id: Option<String>,
}

/// The outputs of [`Emit`].
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Emitted {
    /// The id of the event.
    pub id: String,
    /// Its source.
    pub source: String,
    /// How many triggers it matched; 0 if it was published before.
    pub matched: u32,
    /// Whether it was published before.
    pub is_duplicate: bool,
}

#[async_trait]
impl TypedAction for Emit {
    type Parameters = EmitParameters;
    type Outputs = Emitted;

    fn describe(&self) -> ActionInfo {
        ActionInfo {
            id: "core.emit".to_owned(),
            display_name: "Emit".to_owned(),
            description: "Publishes an event, which starts the workflows whose triggers it matches.".to_owned(),
            category: "Core".to_owned(),
            connector_id: "core".to_owned(),
            version: "1.0.0".to_owned(),
            parameter_schema: Value::Null,
            output_schema: Value::Null,
            is_enabled: true,
            deprecation_notice: None,
            tags: ["event", "trigger"].map(str::to_owned).to_vec(),
        }
    }

    fn validate(&self, parameters: &EmitParameters) -> Result<(), String> {
        match parameters.event_type.is_empty() {
            true => Err("`type` must not be empty".to_owned()),
            false => Ok(()),
        }
    }

    async fn run(&self, parameters: EmitParameters, call: Call) -> Result<Done<Emitted>, Failed> {
        let Some(publisher) = &call.events else {
            let message = "events need an engine with a store";
            return Err(Failure::permanent(code::INVALID_PARAMETERS, message).into());
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let id = given(parameters.id).unwrap_or_else(|| format!("{}/{}", call.run, call.node));
        let source = given(parameters.source).unwrap_or_else(|| format!("/workflows/{}", call.workflow));
        let mut attributes = Map::new();
        for (name, value) in [
            ("specversion", Some("1.0")),
            ("id", Some(id.as_str())),
            ("source", Some(source.as_str())),
            ("type", Some(parameters.event_type.as_str())),
            ("subject", parameters.subject.as_deref()),
        ] {
            attributes.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        let event = Event {
            id,
            source,
            event_type: parameters.event_type,
            attributes,
            data: parameters.data,
        };
        let answer = publisher.publish(event).await?;
        Ok(Emitted {
            id: answer.id,
            source: answer.source,
            matched: answer.matched,
            is_duplicate: answer.is_duplicate,
        }
        .into())
    }
}
