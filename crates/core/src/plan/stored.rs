//! The plan as it is stored with a published version.
//!
//! The text is `{"v":1,"plan":{…}}`. Expressions are stored as text and parsed when the plan is loaded. The format is only
//! extended: a new field has a default with the behaviour of older releases, and `v` increases only together with an upcast
//! in [`StoredPlan::decode`]. So plans of every release can always be loaded. `tests/plans/` contains plans of each format.
//!
//! What must stay true: nothing in a stored plan depends on the settings of the process that loads it. Settings that
//! affect a plan are applied when the version is published.

use super::{ContextPolicy, FlowControl, GraphError, Language, Node, OnFailure, Plan, RunOutputs, Scope, Templates};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The format that [`StoredPlan::encode`] writes.
pub const PLAN_VERSION: u32 = 1;

/// Everything that is needed to run a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredPlan {
    /// The id of the workflow.
    pub workflow: String,
    /// The display name of the workflow.
    pub display_name: String,
    /// The dialect of the document. For display only: nothing here depends on it.
    pub dialect: String,
    /// The nodes, in document order.
    pub nodes: Vec<Node>,
    /// The effect of an unhandled failure on the run.
    pub on_failure: OnFailure,
    /// The timeout of a run, counted from its start. It includes the time of sleeps and waits.
    pub timeout_ms: Option<u64>,
    /// JSON Schema of the trigger payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_schema: Option<Value>,
    /// Members that the trigger has if it is given without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_defaults: Option<Map<String, Value>>,
    /// The contents of the context snapshot, and the size limit of the context.
    pub context: ContextPolicy,
    /// The values that expressions can read.
    pub scope: Scope,
    /// The language of the expressions.
    pub language: Language,
    /// Options of templates.
    pub templates: Templates,
    /// The outputs of a run.
    #[serde(default, skip_serializing_if = "RunOutputs::is_leaves")]
    pub outputs: RunOutputs,
    /// The triggers that the document declares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<DeclaredTrigger>,
    /// Whether the trigger of a scheduled run is empty. Otherwise it is the fire time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty_schedule_payload: bool,
    /// How many runs at once and how often, if the document says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowControl>,
    /// The tags of the document: lists of runs can be limited to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Paths into the trigger, such as `order.id`, whose values runs can be found by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub searchable: Vec<String>,
}

/// A trigger that a document declares. Publishing creates and changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeclaredTrigger {
    /// Its name, unique in the document: a trigger keeps its id over versions by it.
    pub name: String,
    /// `Webhook`, `Schedule`, `Event` or `Manual`.
    pub kind: String,
    /// Whether it starts runs.
    pub enabled: bool,
    /// Its configuration.
    pub config: Value,
    /// JavaScript that must be true for an occurrence to start a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// A stored plan that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not a valid plan.
    #[error("the stored plan cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A newer version of Fermata wrote it.
    #[error("the stored plan has format {0}, but this version of Fermata reads only up to format {PLAN_VERSION}")]
    TooNew(u32),
    /// Its nodes are not a valid graph.
    #[error("the stored plan is damaged: {0}")]
    Graph(#[from] GraphError),
}

#[derive(Serialize)]
struct Writing<'a> {
    v: u32,
    plan: &'a StoredPlan,
}

#[derive(Deserialize)]
struct Reading {
    plan: StoredPlan,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

impl StoredPlan {
    /// The text to store.
    pub fn encode(&self) -> String {
        let writing = Writing {
            v: PLAN_VERSION,
            plan: self,
        };
        serde_json::to_string(&writing).unwrap_or_else(|error| unreachable!("plans are always JSON: {error}"))
    }

    /// Loads a stored plan of any supported format.
    pub fn decode(text: &str) -> Result<Plan, PlanError> {
        // The version is read first: the rest of a newer format may have any structure.
        match serde_json::from_str::<Version>(text)?.v {
            1 => Ok(Plan::new(serde_json::from_str::<Reading>(text)?.plan)?),
            0 => Err(PlanError::Malformed(serde::de::Error::custom("format 0 never existed"))),
            later => Err(PlanError::TooNew(later)),
        }
    }
}
