//! Actions: what a node can do. One trait, one file for each action, one list (`registry.rs`).
//!
//! An action is called at least once for each node that opens, with a stable idempotency key; its result is recorded once. It
//! gets rendered and checked parameters. It decides itself whether a failure is retriable.

mod callback;
mod core;
mod emit;
mod http;
mod registry;
mod subworkflow;
mod typed;

pub use self::core::{Approval, Delay, Echo, Fail, SometimesFails};
pub use callback::{Callback, CloudEvent, HttpTask, SigningKey};
pub use emit::Emit;
pub use http::{Fetcher, HttpRequest, HttpSettings, MAX_BODY};
pub use registry::{Connector, Registry};
pub use subworkflow::{Subworkflow, SubworkflowParameters};
pub use typed::{Done, Typed, TypedAction};

/// [`MAX_BODY`] for people.
pub(crate) const MAX_BODY_KB: usize = MAX_BODY / 1024;

pub use crate::{callbacks::CallbackAddresses, engine::Children, triggers::EventPublisher};
use crate::{memory::Reserved, trace::TraceContext};
use async_trait::async_trait;
use fermata_core::{Failure, NodeId, RunId};
use fermata_store::runs::Principal;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Reusable logic that a node can call by name.
#[async_trait]
pub trait Action: Send + Sync + 'static {
    /// Its catalog entry.
    fn info(&self) -> &ActionInfo;

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

    /// Whether a call can change anything outside the run, or depends on anything outside. A dry run calls only actions that
    /// say no.
    fn has_effects(&self) -> bool {
        true
    }

    /// Checks rendered parameters as a call does, without executing anything.
    ///
    /// # Errors
    /// The failure of a call with these parameters.
    fn check(&self, parameters: &Value) -> Result<(), Failure> {
        let _ = parameters;
        Ok(())
    }

    /// Executes it once.
    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed>;
}

/// The catalog entry of an action.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActionInfo {
    /// `connector.action`, such as `http.request`.
    pub id: String,
    /// Its name for people.
    pub display_name: String,
    /// What it does.
    pub description: String,
    /// Such as `Data` or `Communication`.
    pub category: String,
    /// The connector it belongs to.
    pub connector_id: String,
    /// `MAJOR.MINOR.PATCH`.
    pub version: String,
    /// JSON Schema of its parameters.
    pub parameter_schema: Value,
    /// JSON Schema of its outputs.
    pub output_schema: Value,
    /// Whether workflows may use it.
    pub is_enabled: bool,
    /// What to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_notice: Option<String>,
    /// Words for searching.
    pub tags: Vec<String>,
}

/// The context of a call.
#[derive(Debug, Clone)]
pub struct Call {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeId,
    /// Counted from 1.
    pub attempt: u32,
    /// The same for all repetitions with the same parameters.
    pub idempotency_key: String,
    /// For tracing across systems.
    pub correlation_id: Arc<str>,
    /// The position in the trace of the run, for services that are called.
    pub traceparent: Option<TraceContext>,
    /// On whose behalf the run was started.
    pub principal: Arc<Principal>,
    /// The workflow of the run.
    pub workflow: Arc<str>,
    /// How the request is answered; `None` if the node does not wait for an answer.
    pub answer: Option<AnswerTo>,
    /// Starts the child run of this attempt.
    pub children: Option<Children>,
    /// Finds the addresses of registered callbacks; `None` if the action runs without an engine.
    pub callbacks: Option<CallbackAddresses>,
    /// Publishes events; `None` if the action runs without an engine.
    pub events: Option<EventPublisher>,
    /// The state of the run as of the opening of the node; `null` unless [`Action::reads_state`].
    pub state: Arc<Value>,
    /// Set when the run is stopping. After a cancel and at the run's deadline the action's future is dropped at once, after a
    /// failure elsewhere when the grace period is over.
    pub cancelled: CancellationToken,
    /// An action reserves memory here before it reads the response of a service.
    pub memory: Reserved,
}

/// How a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerTo {
    /// The address for the answer of this attempt.
    pub callback_url: String,
    /// The outcomes to choose from; empty if the answer is not a choice.
    pub outcomes: Vec<String>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Success {
    /// What later nodes see. For a request it has no meaning: the answer is its output.
    pub outputs: Value,
    /// External resources it created.
    pub links: Vec<ResourceLink>,
    /// For a request: what people and workers see in the inbox. Without it, the request is not in the inbox.
    pub offer: Option<Offer>,
}

/// A request that people or workers answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// The queue that workers claim from; the workflow by default.
    pub queue: Option<String>,
    /// `title`, `description`, `fields`. The driver adds `outcomes` and the position of the state.
    pub details: Map<String, Value>,
}

impl From<Value> for Success {
    fn from(outputs: Value) -> Self {
        Success {
            outputs,
            links: Vec::new(),
            offer: None,
        }
    }
}

/// Why an action failed, with its output if there is one: the response of a service that refused, for example.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// In the form of its outputs. Recorded with the attempt; not part of the journal.
    pub outputs: Option<Value>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Failed { failure, outputs: None }
    }
}

/// An external resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceLink {
    /// Such as `slack`.
    pub system: String,
    /// Such as `message`.
    pub resource_type: String,
    /// Its id in that system.
    pub resource_id: String,
    /// Its address for people.
    pub url: Option<String>,
}
