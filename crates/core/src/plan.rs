//! The plan: what a document of any dialect compiles to. Immutable, and all the conductor knows.
//!
//! Nodes stand in document order and an edge is identified by its position in its node, so the
//! journal of a run stays readable by every later program as long as both orders are kept.
//! Publishing stores the plan ([`StoredPlan`]), and runs follow what was stored: all policies are settled in it.
//! A [`Plan`] is only made by [`Plan::new`], which refuses what the conductor could not run:
//! doubled names, edges to nowhere, cycles. A node without incoming edges is a root and opens at the
//! start; whether a document may have more than one is its dialect's rule (see [`reachable`]).

use crate::{NodeId, Retry};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, ops::Deref};

mod build;
mod graph;
mod scope;
mod stored;

pub use build::PlanBuilder;
pub use graph::{GraphError, find_cycle, reachable};
pub use scope::{Entries, Form, Member, Name, Scope, Source, Words};
pub use stored::{PLAN_VERSION, PlanError, StoredPlan};

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

/// A compiled workflow: what is stored of it, indexed.
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

/// A unit of work and what follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    #[serde(default)]
    pub edges: Vec<Edge>,
}

/// What a node does. New kinds are rare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    },
    /// Holds until a callback arrives.
    Wait {
        /// How long; without it, as long as the run may take.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Route {
    /// All of them.
    Parallel,
    /// The first, in order; later ones are not evaluated.
    FirstMatch,
}

/// A connection to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Edge {
    /// Where it leads.
    pub target: NodeIx,
    /// Which outcome of the node it fits.
    pub when: When,
    /// A condition that must be true as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

/// The outcome that an edge fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnFailure {
    /// Stops it.
    FailFast,
    /// Kills the failed node's paths; the others go on.
    Continue,
}

/// How the expressions of a plan are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Language {
    /// Conditions are JavaScript, templates a subset of Scriban.
    #[default]
    Script,
    /// Conditions compare a path with a literal, templates are paths. Names may contain `-`.
    Paths,
}

/// What templates may do. The runner's limits of time and size are not part of it: they protect the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Templates {
    /// Whether reading what is not there is an error; otherwise it is `null`.
    pub strict: bool,
    /// What `null` becomes inside longer text.
    pub null_text: String,
    /// Whether the blocks `if` and `for` are allowed.
    pub loops: bool,
    /// Whether functions and pipes are allowed.
    pub functions: bool,
    /// Parameters whose templates take only some values. Nodes of other actions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
}

/// A parameter that stands where not every value fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// The action that takes it.
    pub action: String,
    /// JSON pointer to it; it is meant with everything below.
    pub parameter: String,
    /// What fits.
    pub takes: Takes,
}

/// What the templates of a parameter take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Takes {
    /// Texts, numbers and booleans.
    Text,
    /// The same, encoded for the part of a URL that they stand in.
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
        }
    }
}

/// Time limit and retries of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// Checks the graph and indexes it.
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
