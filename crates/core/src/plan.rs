//! The plan: the result of compiling a document of any dialect. It is immutable, and the conductor knows nothing else of
//! the document.
//!
//! Nodes are in document order, and an edge is identified by its position in its node. Journals refer to these positions,
//! so both orders must never change. Publishing stores the plan ([`StoredPlan`]), and runs follow the stored plan, which
//! contains all policies without defaults. A [`Plan`] is created only by [`Plan::new`], which refuses plans that the
//! conductor cannot run: duplicate names, edges to missing nodes, cycles. A node without incoming edges is a root and is
//! opened at the start. Whether a document may have several roots is a rule of its dialect (see [`reachable`]).

use crate::{
    AnswerRule, Each, NodeId, Retry, code,
    rerun::{Edits, RerunError},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, ops::Deref};

mod build;
mod flow;
mod graph;
mod scope;
mod stored;

pub use build::PlanBuilder;
pub use flow::{Concurrency, DebounceRule, FlowControl, RateLimit, UniqueRule};
pub use graph::{GraphError, find_cycle, reachable};
pub use scope::{Entries, Form, Member, Name, Scope, Source, Words};
pub use stored::{DeclaredTrigger, PLAN_VERSION, PlanError, StoredPlan};

/// The position of a node in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIx(pub u32);

impl NodeIx {
    /// The index into a slice that is parallel to [`Plan::nodes`].
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// A compiled workflow: the stored plan with indexes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Plan {
    stored: StoredPlan,
    #[serde(skip)]
    by_id: BTreeMap<NodeId, NodeIx>,
    #[serde(skip)]
    incoming: Vec<u32>,
}

impl Deref for Plan {
    type Target = StoredPlan;

    fn deref(&self) -> &StoredPlan {
        &self.stored
    }
}

/// A step of a workflow and its outgoing edges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name in the document.
    pub id: NodeId,
    /// What it does.
    pub kind: Kind,
    /// When its incoming edges open it.
    pub join: Join,
    /// Which of its satisfied edges are taken.
    pub route: Route,
    /// Timeout and retries.
    pub policies: Policies,
    /// Its outgoing edges, in document order.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// Whether the members of its output are merged into the state of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merges_into_state: bool,
    /// A name for display.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Kind {
    /// Calls an action of the catalog.
    Action {
        /// The type of the action, such as `http.request`.
        action: String,
        /// The parameters; strings in them are templates.
        parameters: Value,
    },
    /// Waits for a duration. The timer is durable.
    Sleep {
        /// The name of the action in the document, for display.
        action: String,
        /// `{"durationMs": …}`; may be a template.
        parameters: Value,
        /// A sleep that is longer than this fails after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Waits for a callback.
    Wait {
        /// The timeout. Without it, only the deadline of the run applies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Sends a request with an action, then waits for its answer. Each attempt has its own request and answer.
    Request {
        /// The type of the action that sends the request, such as `callback`.
        action: String,
        /// The parameters of the action; strings in them are templates.
        parameters: Value,
        /// What counts as an answer.
        answer: AnswerRule,
        /// The time for the answer, from the moment the request was sent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        /// Whether a request that was not answered in time is retried.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retry_on_timeout: bool,
        /// The failure code of a request that was not answered in time.
        #[serde(default = "timeout_code")]
        timeout_code: String,
    },
    /// Does nothing and succeeds at once. Its edges decide: a decision made by expressions.
    Pass,
}

fn timeout_code() -> String {
    code::TIMEOUT.to_owned()
}

impl Kind {
    /// The catalog name under which attempts are recorded.
    pub fn action_type(&self) -> &str {
        match self {
            Kind::Action { action, .. } | Kind::Sleep { action, .. } | Kind::Request { action, .. } => action,
            Kind::Wait { .. } => "core.wait",
            Kind::Pass => "core.pass",
        }
    }

    /// Whether the node waits for child runs.
    pub fn awaits_children(&self) -> bool {
        matches!(self, Kind::Request { answer, .. } if answer.is_child())
    }

    /// How the node runs one child for each item of a list, if it does.
    pub fn each(&self) -> Option<&Each> {
        match self {
            Kind::Request {
                answer: AnswerRule::Children(each),
                ..
            } => Some(each),
            _ => None,
        }
    }
}

/// When a node runs, once all its incoming edges are settled (satisfied or dead).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Join {
    /// Runs if at least one is satisfied.
    Any,
    /// Runs if all are satisfied.
    All,
    /// Runs if this condition is true, whether the edges are satisfied or dead.
    Guard(String),
}

/// Which satisfied edges are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Route {
    /// All of them.
    Parallel,
    /// The first in document order; the conditions of later edges are not evaluated.
    FirstMatch,
    /// After a success, the one edge with the outcome that the answer chose. The run fails unless there is exactly one.
    Outcome,
    /// After a success, the one edge whose condition is true. All conditions are evaluated. The run fails unless exactly
    /// one is true and none has an error.
    ExactlyOne,
}

/// A connection to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// The target node.
    pub target: NodeIx,
    /// The outcome of the node for which the edge applies.
    pub when: When,
    /// A condition that must also be true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// With [`Route::Outcome`]: the outcome for which the edge is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// The outcome for which an edge applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// The node succeeded.
    Success,
    /// The node failed.
    Failure,
    /// Both.
    Always,
    /// The node failed and no `Failure` edge is satisfied: `onFailure` of the document.
    Unhandled,
}

/// The effect of an unhandled failure on its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// The run stops.
    FailFast,
    /// The paths after the failed node are dead; other paths continue.
    Continue,
}

/// The language of the expressions of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Language {
    /// Conditions are JavaScript, templates a subset of Scriban.
    #[default]
    Script,
    /// Conditions compare a path with a literal, templates are paths. Names may contain `-`.
    Paths,
    /// A condition is the JSON text `{"language": "jsonlogic" | "cel", "expression": …}`, templates are a subset of Scriban.
    Logic,
}

/// Options of templates. The runner's limits for time and size are not part of the plan, because they protect the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Templates {
    /// Whether reading a missing value is an error; otherwise it is `null`.
    pub strict: bool,
    /// The text for `null` inside a longer text.
    pub null_text: String,
    /// Whether the blocks `if` and `for` are allowed.
    pub loops: bool,
    /// Whether functions and pipes are allowed.
    pub functions: bool,
    /// Parameters whose templates accept only some types of values. Nodes of other actions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// The names of the secrets that templates insert, sorted. Without any, `secrets` is a name like any other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A parameter that accepts only some types of values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The action.
    pub action: String,
    /// JSON pointer to the parameter; it includes everything below.
    pub parameter: String,
    /// The accepted values.
    pub takes: Takes,
}

/// The values that the templates of a parameter accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Takes {
    /// Texts, numbers and booleans.
    Text,
    /// The same, percent-encoded for the part of the URL in which they are.
    Url,
}

impl Default for Templates {
    fn default() -> Self {
        Templates {
            strict: true,
            null_text: String::new(),
            loops: false,
            functions: false,
            places: Vec::new(),
            secrets: Vec::new(),
        }
    }
}

/// Timeout and retries of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// The timeout of one attempt.
    pub timeout_ms: u64,
    /// The retry policy.
    pub retry: Retry,
    /// Whether a retry renders its parameters again, with the context at that time.
    pub rerender_on_retry: bool,
}

impl Default for Policies {
    fn default() -> Self {
        Policies {
            timeout_ms: 300_000,
            retry: Retry {
                max_attempts: 4,
                base_delay_ms: 2000,
                backoff_factor: 2.0,
                jitter: true,
            },
            rerender_on_retry: false,
        }
    }
}

/// What the outputs of a run are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunOutputs {
    /// The outputs of the nodes without a following node, merged in document order ([`crate::Run::result_nodes`]).
    #[default]
    Leaves,
    /// The members of the state that nodes set. Members that only the trigger set are not included.
    Changed,
    /// Values of the state. A missing one is `null`.
    Selected(Vec<Selection>),
}

impl RunOutputs {
    fn is_leaves(&self) -> bool {
        *self == RunOutputs::Leaves
    }
}

/// A value of the state that is an output of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    /// The name of the output.
    pub name: String,
    /// The path of the value in the state.
    pub from: Vec<String>,
}

/// What the context snapshot contains when a run ends, and the size limit of the context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContextPolicy {
    /// What the snapshot contains.
    pub mode: SnapshotMode,
    /// The nodes whose outputs `KeysOnly` includes.
    pub keys_to_include: Vec<String>,
    /// The largest total size of all outputs, as JSON.
    pub max_context_size_bytes: u64,
    /// What happens if the limit is exceeded.
    pub overflow_behavior: Overflow,
}

impl Default for ContextPolicy {
    fn default() -> Self {
        ContextPolicy {
            mode: SnapshotMode::SummaryOnly,
            keys_to_include: Vec::new(),
            max_context_size_bytes: 10 * 1024 * 1024,
            overflow_behavior: Overflow::Fail,
        }
    }
}

/// What a context snapshot contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotMode {
    /// All outputs.
    Full,
    /// Node ids, sizes and types.
    SummaryOnly,
    /// The outputs of the named nodes.
    KeysOnly,
}

/// What happens if the outputs exceed the context limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overflow {
    /// The run fails.
    Fail,
    /// The snapshot leaves out the oldest outputs.
    AutoPruneOldest,
    /// The snapshot contains only size and type of the outputs that do not fit.
    DropOversize,
}

impl Plan {
    /// Checks the graph and builds the indexes.
    pub fn new(stored: StoredPlan) -> Result<Plan, GraphError> {
        let by_id = graph::index(&stored.nodes)?;
        graph::check(&stored.nodes)?;
        let mut incoming = vec![0; stored.nodes.len()];
        for edge in stored.nodes.iter().flat_map(|node| &node.edges) {
            incoming[edge.target.at()] += 1;
        }
        Ok(Plan {
            stored,
            by_id,
            incoming,
        })
    }

    /// The same plan, whose templates insert these secrets.
    pub fn with_secrets(mut self, names: impl IntoIterator<Item = String>) -> Plan {
        let secrets = &mut self.stored.templates.secrets;
        secrets.extend(names);
        secrets.sort();
        secrets.dedup();
        self
    }

    /// The same plan with changed parameters: a member replaces the parameter of this name.
    pub fn with_parameters(&self, edits: &Edits) -> Result<Plan, RerunError> {
        let mut plan = self.clone();
        for (id, edit) in edits {
            let none = || RerunError::NoParameters(id.to_string());
            let ix = self.find(id.as_str()).ok_or_else(none)?;
            match &mut plan.stored.nodes[ix.at()].kind {
                Kind::Action { parameters, .. } | Kind::Sleep { parameters, .. } | Kind::Request { parameters, .. } => {
                    let Value::Object(parameters) = parameters else {
                        return Err(none());
                    };
                    parameters.extend(edit.clone());
                }
                Kind::Wait { .. } | Kind::Pass => return Err(none()),
            }
        }
        Ok(plan)
    }

    /// The node at `ix`.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix.at()]
    }

    /// The position of the node with this id.
    pub fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    /// The number of edges to `ix`.
    pub fn incoming(&self, ix: NodeIx) -> u32 {
        self.incoming[ix.at()]
    }

    /// All positions, in order.
    pub fn indices(&self) -> impl Iterator<Item = NodeIx> + use<> {
        (0..self.nodes.len() as u32).map(NodeIx)
    }
}
