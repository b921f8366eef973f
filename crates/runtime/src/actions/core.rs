//! The actions of the engine itself: `core.echo`, `core.delay`, `core.fail`, `core.sometimes-fails`, `core.approval`.

use super::{ActionInfo, Call, Done, Failed, Offer, TypedAction};
use async_trait::async_trait;
use fermata_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::{Map, Number, Value};
use std::hash::{DefaultHasher, Hash, Hasher};

fn info(id: &str, display_name: &str, description: &str, tags: &[&str]) -> ActionInfo {
    ActionInfo {
        id: id.to_owned(),
        display_name: display_name.to_owned(),
        description: description.to_owned(),
        category: "Core".to_owned(),
        connector_id: "core".to_owned(),
        version: "1.0.0".to_owned(),
        parameter_schema: Value::Null,
        output_schema: Value::Null,
        is_enabled: true,
        deprecation_notice: None,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

/// Returns its parameters.
pub struct Echo;

#[async_trait]
impl TypedAction for Echo {
    type Parameters = Map<String, Value>;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info(
            "core.echo",
            "Echo",
            "Returns its parameters as its outputs.",
            &["test", "data"],
        )
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn run(&self, parameters: Self::Parameters, _: Call) -> Result<Done<Self::Outputs>, Failed> {
        Ok(parameters.into())
    }
}

/// Pauses the run. Nodes with this action compile to a durable sleep. It is in the catalog for validation and is never
/// called.
pub struct Delay;

/// The parameters of [`Delay`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DelayParameters {
    /// The duration in milliseconds.
    pub duration_ms: u64,
}

#[async_trait]
impl TypedAction for Delay {
    type Parameters = DelayParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info(
            "core.delay",
            "Delay",
            "Pauses durably for the given time. A long pause uses no memory.",
            &["time"],
        )
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn run(&self, _: Self::Parameters, _: Call) -> Result<Done<Self::Outputs>, Failed> {
        Ok(Map::new().into())
    }
}

/// Always fails.
pub struct Fail;

/// The parameters of [`Fail`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailParameters {
    /// The error message.
    #[serde(default = "default_message")]
    pub message: String,
    /// Whether the failure is retriable.
    #[serde(default)]
    pub retriable: bool,
}

fn default_message() -> String {
    "failed on purpose".to_owned()
}

#[async_trait]
impl TypedAction for Fail {
    type Parameters = FailParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info("core.fail", "Fail", "Fails with the given message.", &["test"])
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn run(&self, parameters: Self::Parameters, _: Call) -> Result<Done<Self::Outputs>, Failed> {
        let failure = match parameters.retriable {
            true => Failure::retriable("FAILED_ON_PURPOSE", parameters.message),
            false => Failure::permanent("FAILED_ON_PURPOSE", parameters.message),
        };
        Err(failure.into())
    }
}

/// Fails some attempts; which ones depends on the seed only.
pub struct SometimesFails;

/// The parameters of [`SometimesFails`]. Any others are returned unchanged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SometimesFailsParameters {
    /// The fraction of attempts that fail, from 0 to 1.
    #[serde(default = "half", deserialize_with = "double")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub failure_rate: f64,
    /// Chooses which attempts fail.
    #[serde(default)]
    pub seed: u64,
    /// Returned unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn half() -> f64 {
    0.5
}

/// A number as a double. Beside a flattened member a plain `f64` cannot be read from a number that keeps its text.
fn double<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = Number::deserialize(deserializer)?;
    number
        .as_f64()
        .ok_or_else(|| D::Error::custom(format!("{number} is too large")))
}

/// The outputs of [`SometimesFails`].
#[derive(Debug, Serialize, JsonSchema)]
pub struct SometimesFailsOutputs {
    /// The attempt that succeeded.
    pub attempt: u32,
    /// The other parameters.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

#[async_trait]
impl TypedAction for SometimesFails {
    type Parameters = SometimesFailsParameters;
    type Outputs = SometimesFailsOutputs;

    fn describe(&self) -> ActionInfo {
        let what = "Fails some attempts, chosen by the seed, with a retriable failure; returns its other parameters.";
        info("core.sometimes-fails", "Sometimes fails", what, &["test", "retry"])
    }

    fn validate(&self, parameters: &Self::Parameters) -> Result<(), String> {
        match (0.0..=1.0).contains(&parameters.failure_rate) {
            true => Ok(()),
            false => Err("failureRate must be between 0 and 1".to_owned()),
        }
    }

    fn takes_secrets(&self) -> bool {
        true
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn run(&self, parameters: Self::Parameters, call: Call) -> Result<Done<Self::Outputs>, Failed> {
        let mut hasher = DefaultHasher::new(); // its keys are fixed, so the result is the same in every process
        (parameters.seed, call.attempt).hash(&mut hasher);
        let drawn = (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64;
        if drawn < parameters.failure_rate {
            let message = format!("attempt {} fails under seed {}", call.attempt, parameters.seed);
            return Err(Failure::retriable("SOMETIMES_FAILS", message).into());
        }
        let outputs = SometimesFailsOutputs {
            attempt: call.attempt,
            rest: parameters.rest,
        };
        Ok(outputs.into())
    }
}

/// Asks a person. The request waits in the inbox.
pub struct Approval;

/// The parameters of [`Approval`].
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalParameters {
    /// What is asked, in one line.
    pub title: String,
    /// More about it.
    #[serde(default)]
    pub description: Option<String>,
    /// JSON Schema of the fields to fill in.
    #[serde(default)]
    pub fields: Option<Map<String, Value>>,
    /// The outcomes to choose from.
    #[serde(default)]
    pub outcomes: Option<Vec<String>>,
    /// How long the answer is awaited.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub deadline_ms: Option<u64>,
}

#[async_trait]
impl TypedAction for Approval {
    type Parameters = ApprovalParameters;
    type Outputs = Map<String, Value>;

    fn describe(&self) -> ActionInfo {
        info(
            "core.approval",
            "Approval",
            "Asks a person, and waits for the answer. The request is in the inbox.",
            &["approval", "human"],
        )
    }

    fn has_effects(&self) -> bool {
        false
    }

    async fn run(&self, parameters: Self::Parameters, _: Call) -> Result<Done<Self::Outputs>, Failed> {
        let mut details = Map::from_iter([("title".to_owned(), parameters.title.into())]);
        details.extend(
            parameters
                .description
                .map(|text| ("description".to_owned(), text.into())),
        );
        details.extend(parameters.fields.map(|schema| ("fields".to_owned(), schema.into())));
        let offer = Offer { queue: None, details };
        Ok(Done {
            outputs: Map::new(),
            links: Vec::new(),
            offer: Some(offer),
        })
    }
}
