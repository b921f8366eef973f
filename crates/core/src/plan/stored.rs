//! The plan as it is stored with a published version.
//!
//! The text is `{"v":1,"plan":{…}}`. Expressions stand in it as text and are parsed when the plan is loaded. The format
//! only grows: a new field has a default that means what older programs did, and `v` rises only with an upcast in
//! [`StoredPlan::decode`], so plans of every release can be loaded for ever. `tests/plans/` keeps plans of each format.
//!
//! What must stay true: nothing in a stored plan depends on the settings of the process that loads it. What a setting
//! decides is settled when the version is published.

use super::{ContextPolicy, GraphError, Language, Node, OnFailure, Plan, Scope, Templates};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format that [`StoredPlan::encode`] writes.
pub const PLAN_VERSION: u32 = 1;

/// All that a version needs to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredPlan {
    /// The id of the workflow this is a version of.
    pub workflow: String,
    /// What people call it.
    pub display_name: String,
    /// The dialect it was written in. For display: nothing here depends on it.
    pub dialect: String,
    /// The nodes, in document order.
    pub nodes: Vec<Node>,
    /// What an unhandled failure does to the run.
    pub on_failure: OnFailure,
    /// How long a run may take from its start, parked time included.
    pub timeout_ms: Option<u64>,
    /// JSON Schema of the trigger payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_schema: Option<Value>,
    /// What is kept of the context, and how large it may grow.
    pub context: ContextPolicy,
    /// What its expressions see.
    pub scope: Scope,
    /// How its expressions are written.
    pub language: Language,
    /// What its templates may do.
    pub templates: Templates,
}

/// A stored plan that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It is not in a known form.
    #[error("the stored plan cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// It was written by a later program.
    #[error("the stored plan has format {0}; this program knows up to {PLAN_VERSION}")]
    TooNew(u32),
    /// Its nodes do not make a plan.
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
    /// A plan without nodes; everything else is as the first dialect has it.
    pub fn new(workflow: &str, dialect: &str) -> StoredPlan {
        StoredPlan {
            workflow: workflow.to_owned(),
            display_name: workflow.to_owned(),
            dialect: dialect.to_owned(),
            nodes: Vec::new(),
            on_failure: OnFailure::FailFast,
            timeout_ms: None,
            trigger_schema: None,
            context: ContextPolicy::default(),
            scope: Scope::default(),
            language: Language::default(),
            templates: Templates::default(),
        }
    }

    /// The text to store.
    pub fn encode(&self) -> String {
        let writing = Writing {
            v: PLAN_VERSION,
            plan: self,
        };
        serde_json::to_string(&writing).unwrap_or_else(|error| unreachable!("plans are always JSON: {error}"))
    }

    /// The plan that was stored, in whatever format.
    pub fn decode(text: &str) -> Result<Plan, PlanError> {
        // The version is read first: the rest of a later format may look like anything.
        match serde_json::from_str::<Version>(text)?.v {
            1 => Ok(Plan::new(serde_json::from_str::<Reading>(text)?.plan)?),
            0 => Err(PlanError::Malformed(serde::de::Error::custom("format 0 never existed"))),
            later => Err(PlanError::TooNew(later)),
        }
    }
}
