//! The plan: what a document of any dialect compiles to. Immutable, and all the conductor knows.
//!
//! Nodes stand in document order and an edge is identified by its position in its node, so the
//! journal of a run stays readable by every later program as long as both orders are kept.
//! A [`Plan`] is only made by [`Plan::new`], which refuses what the conductor could not run:
//! doubled names, edges to nowhere, cycles. A node without incoming edges is a root and opens at the
//! start; whether a document may have more than one is its dialect's rule (see [`reachable`]).

use crate::{NodeId, Retry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

mod build;
mod graph;

pub use build::PlanBuilder;
pub use graph::{GraphError, find_cycle, reachable};

/// The position of a node in its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeIx(pub u32);

impl NodeIx {
    /// For indexing a slice that is parallel to [`Plan::nodes`].
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

/// A compiled workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_schema: Option<Value>,
    /// What is kept of the context, and how large it may grow.
    pub context: ContextPolicy,
    /// Which names its expressions see.
    pub scope: Scope,
    /// How its expressions are written.
    pub language: Language,
    #[serde(skip)]
    by_id: BTreeMap<NodeId, NodeIx>,
    #[serde(skip)]
    incoming: Vec<u32>,
}

/// A unit of work and what follows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name in the document.
    pub id: NodeId,
    /// What it does.
    pub kind: Kind,
    /// How its incoming edges open it.
    pub join: Join,
    /// Which of its satisfied edges are taken.
    pub route: Route,
    /// Time limit and retries.
    pub policies: Policies,
    /// Its outgoing edges, in document order.
    pub edges: Vec<Edge>,
}

/// What a node does. New kinds are rare.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Kind {
    /// Calls an action of the catalog.
    Action {
        /// The action's type, such as `http.request`.
        action: String,
        /// Its parameters; strings in it are templates.
        parameters: Value,
    },
    /// Pauses, durably.
    Sleep {
        /// The catalog name it was written as, for display.
        action: String,
        /// `{"durationMs": …}`; may be a template.
        parameters: Value,
        /// The longest that it may last: a longer sleep fails when this time is up.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Holds until a callback arrives.
    Wait {
        /// How long; without it, as long as the run may take.
        timeout_ms: Option<u64>,
    },
}

impl Kind {
    /// The catalog name under which attempts are recorded.
    pub fn action_type(&self) -> &str {
        match self {
            Kind::Action { action, .. } | Kind::Sleep { action, .. } => action,
            Kind::Wait { .. } => "core.wait",
        }
    }
}

/// How incoming edges open a node, once all of them are settled (satisfied or dead).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Join {
    /// Runs if at least one is satisfied.
    Any,
    /// Runs if all are satisfied.
    All,
    /// Runs if this condition is true, whatever became of the edges.
    Guard(String),
}

/// Which satisfied edges are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Route {
    /// All of them.
    Parallel,
    /// The first, in order; later ones are not evaluated.
    FirstMatch,
}

/// A connection to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// Where it leads.
    pub target: NodeIx,
    /// Which outcome of the node it fits.
    pub when: When,
    /// A condition that must be true as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// The outcome that an edge fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum When {
    /// The node succeeded.
    Success,
    /// The node failed.
    Failure,
    /// Either.
    Always,
    /// The node failed and no satisfied `Failure` edge took it: the document's `onFailure`.
    Unhandled,
}

/// What an unhandled failure does to its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// Stops it.
    FailFast,
    /// Kills the failed node's paths; the others go on.
    Continue,
}

/// Which names the expressions of a plan see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// `trigger`, `context.data.<node>`, `vars`, `spec`. The entry of a node is what it gave.
    #[default]
    Context,
    /// `trigger.body`, `tasks.<node>`, `wait.<node>.url`. The entry of a node is how it went: `status`, `status_code`,
    /// `body`, `headers`. Nodes that were skipped have one too.
    Tasks,
}

/// How the expressions of a plan are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Language {
    /// Conditions are JavaScript, templates a subset of Scriban.
    #[default]
    Script,
    /// Conditions compare a path with a literal, templates are paths. Names may contain `-`.
    Paths,
}

/// Time limit and retries of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// The time one attempt may take.
    pub timeout_ms: u64,
    /// How attempts are repeated.
    pub retry: Retry,
    /// Whether a repeated attempt renders its parameters anew instead of reusing the first ones.
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

/// What is kept of the context when a run ends, and how large it may grow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ContextPolicy {
    /// What the snapshot holds.
    pub mode: SnapshotMode,
    /// The nodes that `KeysOnly` keeps.
    pub keys_to_include: Vec<String>,
    /// The most that all outputs together may take, as JSON.
    pub max_context_size_bytes: u64,
    /// What happens beyond that.
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

/// What a context snapshot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotMode {
    /// All outputs.
    Full,
    /// Node ids, sizes and types.
    SummaryOnly,
    /// The outputs of the named nodes.
    KeysOnly,
}

/// What happens when the outputs outgrow the context limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overflow {
    /// The run fails.
    Fail,
    /// The snapshot leaves out the oldest outputs.
    AutoPruneOldest,
    /// The snapshot keeps only size and type of the outputs that do not fit.
    DropOversize,
}

impl Plan {
    /// Checks the graph and indexes it. `plan.nodes` must hold every node already.
    pub fn new(plan: PlanParts) -> Result<Plan, GraphError> {
        let by_id = graph::index(&plan.nodes)?;
        graph::check(&plan.nodes)?;
        let mut incoming = vec![0; plan.nodes.len()];
        for edge in plan.nodes.iter().flat_map(|node| &node.edges) {
            incoming[edge.target.at()] += 1;
        }
        Ok(Plan {
            workflow: plan.workflow,
            display_name: plan.display_name,
            dialect: plan.dialect,
            nodes: plan.nodes,
            on_failure: plan.on_failure,
            timeout_ms: plan.timeout_ms,
            trigger_schema: plan.trigger_schema,
            context: plan.context,
            scope: plan.scope,
            language: plan.language,
            by_id,
            incoming,
        })
    }

    /// The node at `ix`.
    pub fn node(&self, ix: NodeIx) -> &Node {
        &self.nodes[ix.at()]
    }

    /// The position of the node called `id`.
    pub fn find(&self, id: &str) -> Option<NodeIx> {
        self.by_id.get(id).copied()
    }

    /// How many edges lead to `ix`.
    pub fn incoming(&self, ix: NodeIx) -> u32 {
        self.incoming[ix.at()]
    }

    /// All positions, in order.
    pub fn indices(&self) -> impl Iterator<Item = NodeIx> + use<> {
        (0..self.nodes.len() as u32).map(NodeIx)
    }
}

/// What [`Plan::new`] makes a plan of.
#[derive(Debug, Clone)]
pub struct PlanParts {
    /// See [`Plan::workflow`].
    pub workflow: String,
    /// See [`Plan::display_name`].
    pub display_name: String,
    /// See [`Plan::dialect`].
    pub dialect: String,
    /// See [`Plan::nodes`].
    pub nodes: Vec<Node>,
    /// See [`Plan::on_failure`].
    pub on_failure: OnFailure,
    /// See [`Plan::timeout_ms`].
    pub timeout_ms: Option<u64>,
    /// See [`Plan::trigger_schema`].
    pub trigger_schema: Option<Value>,
    /// See [`Plan::context`].
    pub context: ContextPolicy,
    /// See [`Plan::scope`].
    pub scope: Scope,
    /// See [`Plan::language`].
    pub language: Language,
}
