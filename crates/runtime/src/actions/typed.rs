//! Typed actions: parameters are bound to a Rust type, and the JSON Schemas come from the types.

use super::{Action, ActionInfo, Call, Failed, Offer, ResourceLink, Success};
use async_trait::async_trait;
use fermata_core::{Failure, code};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::sync::Arc;

/// An action with typed parameters and outputs.
#[async_trait]
pub trait TypedAction: Send + Sync + 'static {
    /// The parameters.
    type Parameters: DeserializeOwned + JsonSchema + Send;
    /// The outputs.
    type Outputs: Serialize + JsonSchema + Send;

    /// Its name, description and tags. Schemas are filled in from the types.
    fn describe(&self) -> ActionInfo;

    /// Checks what the types of the parameters cannot express.
    fn validate(&self, parameters: &Self::Parameters) -> Result<(), String> {
        let _ = parameters;
        Ok(())
    }

    /// Whether it starts child runs.
    fn starts_children(&self) -> bool {
        false
    }

    /// Whether it needs the state of the run, with these parameters before they are rendered.
    fn reads_state(&self, parameters: &Value) -> bool {
        let _ = parameters;
        false
    }

    /// Whether its parameters may contain secrets. It must not record them, nor pass them to anything that does.
    fn takes_secrets(&self) -> bool {
        false
    }

    /// Whether it sends an HTTP request, with these parameters before they are rendered. Such steps are limited for tenants.
    fn sends_http(&self, parameters: &Value) -> bool {
        let _ = parameters;
        false
    }

    /// Whether a call can change anything outside the run, or depends on anything outside.
    fn has_effects(&self) -> bool {
        true
    }

    /// Executes it once.
    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed>;
}

/// The result of a typed action.
#[derive(Debug)]
pub struct Done<T> {
    /// What later nodes see.
    pub outputs: T,
    /// External resources it created.
    pub links: Vec<ResourceLink>,
    /// For a request: what people and workers see in the inbox.
    pub offer: Option<Offer>,
}

impl<T> From<T> for Done<T> {
    fn from(outputs: T) -> Self {
        Done {
            outputs,
            links: Vec::new(),
            offer: None,
        }
    }
}

/// An action that is part of other actions too.
#[async_trait]
impl<A: TypedAction> TypedAction for Arc<A> {
    type Parameters = A::Parameters;
    type Outputs = A::Outputs;

    fn describe(&self) -> ActionInfo {
        A::describe(self)
    }

    fn validate(&self, parameters: &Self::Parameters) -> Result<(), String> {
        A::validate(self, parameters)
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        A::reads_state(self, parameters)
    }

    fn takes_secrets(&self) -> bool {
        A::takes_secrets(self)
    }

    fn sends_http(&self, parameters: &Value) -> bool {
        A::sends_http(self, parameters)
    }

    fn has_effects(&self) -> bool {
        A::has_effects(self)
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        A::run(self, parameters, call).await
    }
}

/// Makes a typed action callable with JSON.
pub struct Typed<A> {
    action: A,
    info: ActionInfo,
}

impl<A: TypedAction> Typed<A> {
    /// Wraps `action`.
    pub fn new(action: A) -> Self {
        let info = ActionInfo {
            parameter_schema: schema_of::<A::Parameters>(),
            output_schema: schema_of::<A::Outputs>(),
            ..action.describe()
        };
        Typed { action, info }
    }

    fn parse(&self, parameters: Value) -> Result<A::Parameters, Failure> {
        let refuse = |what: String| {
            let message = format!("the parameters of {} are invalid: {what}", self.info.id);
            Failure::permanent(code::INVALID_PARAMETERS, message)
        };
        let parameters: A::Parameters =
            serde_json::from_value(parameters).map_err(|error| refuse(error.to_string()))?;
        self.action.validate(&parameters).map_err(refuse)?;
        Ok(parameters)
    }
}

fn schema_of<T: JsonSchema>() -> Value {
    SchemaSettings::draft07()
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

#[async_trait]
impl<A: TypedAction> Action for Typed<A> {
    fn info(&self) -> &ActionInfo {
        &self.info
    }

    fn starts_children(&self) -> bool {
        self.action.starts_children()
    }

    fn reads_state(&self, parameters: &Value) -> bool {
        self.action.reads_state(parameters)
    }

    fn takes_secrets(&self) -> bool {
        self.action.takes_secrets()
    }

    fn sends_http(&self, parameters: &Value) -> bool {
        self.action.sends_http(parameters)
    }

    fn has_effects(&self) -> bool {
        self.action.has_effects()
    }

    fn check(&self, parameters: &Value) -> Result<(), Failure> {
        self.parse(parameters.clone()).map(drop)
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        let parameters = self.parse(parameters)?;
        let done = self.action.run(parameters, call).await?;
        let outputs = serde_json::to_value(done.outputs).map_err(|error| {
            Failure::permanent(
                "INVALID_OUTPUTS",
                format!("{} returned outputs that are not JSON: {error}", self.info.id),
            )
        })?;
        Ok(Success {
            outputs,
            links: done.links,
            offer: done.offer,
        })
    }
}
