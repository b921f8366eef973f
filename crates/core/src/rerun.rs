//! Repeating a run in part: which nodes of an earlier run a new run keeps. Pure.
//!
//! | node of the earlier run | in the new run |
//! | --- | --- |
//! | a chosen node, and everything that it reaches | repeated |
//! | ended, and its edges were settled | kept: outcome, route and order |
//! | succeeded while the run was stopping | kept; its edges are settled now |
//! | skipped by its join or guard | kept |
//! | ended or skipped by the stop of its run, or not reached | repeated: it opens when its join fires |
//! | changed in the plan of the new run, or after such a node | repeated |
//!
//! What must stay true: nothing before a chosen node is repeated ([`RerunError::Changed`], [`RerunError::Unfinished`]). What is
//! kept is closed: if a node is kept, so is everything before it. The events of kept nodes are the original ones, so
//! [`crate::apply`] leaves these nodes as they were, and [`crate::decide`] never opens them again.

use crate::{
    Event, Fact, Failure, Illegal, Input, Join, Node, NodeId, NodeIx, Phase, Plan, Run, RunId, SkipReason, Status,
    Timestamp, advance, apply,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc};

/// What a run keeps of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reused {
    /// The earlier run.
    pub of: RunId,
    /// The events of the nodes that it keeps, in their order.
    pub events: Vec<Event>,
    /// The failure that stopped the earlier run, if its node is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<KeptFailure>,
}

/// A failure that no edge handled, of a node that is not repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptFailure {
    /// The node.
    pub node: NodeId,
    /// Why the earlier run stopped, as a stable word.
    pub reason: String,
    /// The failure.
    pub failure: Failure,
}

/// What a run that repeats another one has besides its plan and payloads. It is stored with the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rerun {
    /// What it keeps; `None` if everything is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused: Option<Box<Reused>>,
    /// Parameters of single nodes, for this run only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: Edits,
}

/// Changed parameters, by node. A member replaces the parameter of this name; the others stay.
pub type Edits = BTreeMap<NodeId, Map<String, Value>>;

/// Which nodes of a run are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat<'a> {
    /// All.
    All,
    /// This one, and all that it reaches.
    From(&'a str),
    /// Those that failed, and all that they reach.
    Failed,
}

/// Why a run cannot be repeated like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RerunError {
    /// The plan has no such node.
    #[error("the workflow has no node `{0}`")]
    UnknownNode(String),
    /// No path led to the node.
    #[error("node `{0}` was not reached: no path led to it, and none would now. Repeat from a node before it")]
    NotReached(String),
    /// A node before the chosen one has not ended.
    #[error(
        "node `{upstream}`, which is before `{node}`, was not finished, so it has no output to reuse. \
         Repeat from `{upstream}`, or from a node before it"
    )]
    Unfinished {
        /// The chosen node.
        node: String,
        /// A node before it.
        upstream: String,
    },
    /// A node before the chosen one is another one in the plan of the new run.
    #[error(
        "node `{upstream}`, which is before `{node}`, is not the same in the version of the new execution, so its output \
         cannot be reused. Repeat from `{upstream}`, or use the version of the old execution"
    )]
    Changed {
        /// The chosen node.
        node: String,
        /// A node before it.
        upstream: String,
    },
    /// The parameters of a node are changed that is not repeated.
    #[error("node `{0}` is not repeated, so its parameters cannot be changed")]
    NotRepeated(String),
    /// The parameters of a node are changed that has none.
    #[error("node `{0}` has no parameters")]
    NoParameters(String),
    /// The new run would end at once.
    #[error("nothing is left to repeat: no node failed, and all have ended")]
    NothingLeft,
    /// The journal of the earlier run does not fit its plan.
    #[error("the journal of the execution cannot be used: {0}")]
    Unreadable(#[from] Illegal),
}

impl Reused {
    /// The nodes that are kept, in the order in which they ended.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.ends().filter_map(Event::node)
    }

    /// The last event of each node before its edges were settled: how it ended, or that it was skipped.
    pub fn ends(&self) -> impl Iterator<Item = &Event> {
        let is_end = |event: &&Event| matches!(event, Event::Finished { .. } | Event::Skipped { .. });
        self.events.iter().filter(is_end)
    }
}

/// What a run of `plan` keeps of the run `of` with this plan and these events, and that a run with it does something. `None` if
/// it keeps nothing.
pub fn reused(
    of: RunId,
    source: &Arc<Plan>,
    events: &[Event],
    plan: &Arc<Plan>,
    repeat: Repeat<'_>,
) -> Result<Option<Box<Reused>>, RerunError> {
    let old = Old::replay(source, events)?;
    let chosen: BTreeSet<NodeIx> = match repeat {
        Repeat::All => return Ok(None),
        Repeat::From(id) => {
            let ix = plan.find(id);
            BTreeSet::from([ix.ok_or_else(|| RerunError::UnknownNode(id.to_owned()))?])
        }
        Repeat::Failed => old.failed().filter_map(|id| plan.find(id.as_str())).collect(),
    };
    let graph = Graph::of(plan);
    let is_same = |ix: &NodeIx| same_as_in(source, plan, *ix);
    let is_settled = |ix: &NodeIx| old.is_settled(&plan.node(*ix).id);
    let unfinished = graph.after(plan.indices().filter(|ix| !is_settled(ix)));
    let changed = graph.after(plan.indices().filter(|ix| !is_same(ix)));
    let wanted = graph.after(chosen.iter().copied());
    for ix in &chosen {
        let name = |ix: NodeIx| plan.node(ix).id.to_string();
        for before in graph.before(*ix).into_iter().filter(|before| !chosen.contains(before)) {
            let (node, upstream) = (name(*ix), name(before));
            // With several chosen nodes, one may be before another, and the nodes between them are repeated.
            if wanted.contains(&before) {
                continue;
            }
            if changed.contains(&before) {
                return Err(RerunError::Changed { node, upstream });
            }
            if unfinished.contains(&before) {
                return Err(RerunError::Unfinished { node, upstream });
            }
        }
    }
    let repeated: BTreeSet<NodeIx> = wanted.into_iter().chain(unfinished).chain(changed).collect();
    let is_kept = |node: &NodeId| plan.find(node.as_str()).is_some_and(|ix| !repeated.contains(&ix));
    let kept = old.events.iter().filter(|event| event.node().is_some_and(is_kept));
    let reused = Reused {
        of,
        events: kept.map(|event| (*event).clone()).collect(),
        failure: old.failure().filter(|failure| is_kept(&failure.node)),
    };
    let reused = Some(Box::new(reused)).filter(|reused| !reused.events.is_empty());
    try_out(plan, reused.clone(), repeat)?;
    Ok(reused)
}

/// Starts a run that keeps this: it must do something, and a chosen node must be able to run.
fn try_out(plan: &Arc<Plan>, reused: Option<Box<Reused>>, repeat: Repeat<'_>) -> Result<(), RerunError> {
    let at = Timestamp::default();
    let start = Input::new(
        at,
        Fact::Start {
            vars: Value::Null,
            timeout_ms: None,
            reused,
        },
    );
    let mut run = Run::new(plan.clone());
    for event in crate::decide(&run, &start) {
        apply(&mut run, &event)?;
    }
    if let Repeat::From(id) = repeat
        && let Some(ix) = plan.find(id)
        && !may_run(&run, ix)
    {
        return Err(RerunError::NotReached(id.to_owned()));
    }
    advance(&mut run, Input::new(at, Fact::Settle))?;
    match run.status().is_terminal() {
        true => Err(RerunError::NothingLeft),
        false => Ok(()),
    }
}

/// Whether the join of a node can fire.
fn may_run(run: &Run, ix: NodeIx) -> bool {
    let (state, incoming) = (run.node(ix), run.plan().incoming(ix));
    let dead = state.settled - state.satisfied;
    match run.plan().node(ix).join {
        Join::Any => incoming == 0 || dead < incoming,
        Join::All => dead == 0,
        Join::Guard(_) => true,
    }
}

/// An earlier run.
struct Old<'a> {
    run: Run,
    /// The events of its nodes, also of those that it kept of a run before it.
    events: Vec<&'a Event>,
    /// Nodes whose edges were settled, with the edges taken.
    routed: BTreeMap<&'a NodeId, &'a [u32]>,
    /// Nodes that were skipped because the run was stopping.
    stopped: BTreeSet<&'a NodeId>,
}

impl<'a> Old<'a> {
    fn replay(plan: &Arc<Plan>, journal: &'a [Event]) -> Result<Old<'a>, RerunError> {
        let mut old = Old {
            run: Run::new(plan.clone()),
            events: Vec::new(),
            routed: BTreeMap::new(),
            stopped: BTreeSet::new(),
        };
        for event in journal {
            apply(&mut old.run, event)?;
            match event {
                Event::Reused(reused) => old.events.extend(&reused.events),
                event if event.is_of_node() => old.events.push(event),
                _ => {}
            }
        }
        for event in &old.events {
            match event {
                Event::Routed { node, taken, .. } => {
                    old.routed.insert(node, taken);
                }
                Event::Skipped {
                    node,
                    reason: SkipReason::Stopped,
                    ..
                } => {
                    old.stopped.insert(node);
                }
                _ => {}
            }
        }
        Ok(old)
    }

    fn phase(&self, node: &NodeId) -> Option<&Phase> {
        let ix = self.run.plan().find(node.as_str())?;
        Some(&self.run.node(ix).phase)
    }

    /// Whether a node ended by itself, not by the stop of its run.
    fn is_settled(&self, node: &NodeId) -> bool {
        match self.phase(node) {
            Some(Phase::Finished { outcome, routed, .. }) => *routed || outcome.is_success(),
            Some(Phase::Skipped) => !self.stopped.contains(node),
            Some(Phase::Idle | Phase::Open(_)) | None => false,
        }
    }

    /// The failure that stopped the run and that no edge handled.
    fn failure(&self) -> Option<KeptFailure> {
        let stop = self.run.stop().filter(|stop| stop.status == Status::Failed);
        let stopped = stop.and_then(|stop| {
            let (node, failure) = stop.node.as_ref().zip(stop.failure.as_ref())?;
            let taken = self.routed.get(node)?;
            taken.is_empty().then(|| KeptFailure {
                node: node.clone(),
                reason: stop.reason.clone(),
                failure: failure.clone(),
            })
        });
        stopped.or_else(|| self.run.kept_failure().cloned())
    }

    /// The nodes that failed, and the node that made the run fail.
    fn failed(&self) -> impl Iterator<Item = NodeId> + '_ {
        let plan = self.run.plan();
        let failed = plan.indices().filter_map(|ix| match &self.run.node(ix).phase {
            Phase::Finished { outcome, .. } if !outcome.is_success() => Some(plan.node(ix).id.clone()),
            _ => None,
        });
        let stop = self.run.stop().filter(|stop| stop.status == Status::Failed);
        let kept = self.run.kept_failure().map(|failure| failure.node.clone());
        failed.chain(stop.and_then(|stop| stop.node.clone())).chain(kept)
    }
}

/// Whether a node, its edges and the number of edges to it are the same in both plans. What is before it is compared by itself.
fn same_as_in(source: &Plan, plan: &Plan, ix: NodeIx) -> bool {
    let Some(old) = source.find(plan.node(ix).id.as_str()) else {
        return false;
    };
    let same_language = source.language == plan.language && {
        let (mut one, mut other) = (source.templates.clone(), plan.templates.clone());
        (one.secrets, other.secrets) = (Vec::new(), Vec::new());
        one == other
    };
    let targets = |plan: &Plan, node: &Node| -> Vec<NodeId> {
        let targets = node.edges.iter().map(|edge| plan.node(edge.target).id.clone());
        targets.collect()
    };
    let plain = |node: &Node| {
        let mut node = node.clone();
        node.title = None;
        node.edges.iter_mut().for_each(|edge| edge.target = NodeIx(0));
        node
    };
    let (one, other) = (source.node(old), plan.node(ix));
    same_language
        && source.incoming(old) == plan.incoming(ix)
        && targets(source, one) == targets(plan, other)
        && plain(one) == plain(other)
}

/// The edges of a plan in both directions.
struct Graph<'a> {
    plan: &'a Plan,
    sources: Vec<Vec<NodeIx>>,
}

impl Graph<'_> {
    fn of(plan: &Plan) -> Graph<'_> {
        let mut sources = vec![Vec::new(); plan.nodes.len()];
        for ix in plan.indices() {
            for edge in &plan.node(ix).edges {
                sources[edge.target.at()].push(ix);
            }
        }
        Graph { plan, sources }
    }

    /// These nodes and everything that they reach.
    fn after(&self, nodes: impl Iterator<Item = NodeIx>) -> BTreeSet<NodeIx> {
        let next = |ix: NodeIx| self.plan.node(ix).edges.iter().map(|edge| edge.target).collect();
        closure(nodes.collect(), next)
    }

    /// Everything before a node.
    fn before(&self, node: NodeIx) -> BTreeSet<NodeIx> {
        let next = |ix: NodeIx| self.sources[ix.at()].clone();
        closure(next(node), next)
    }
}

fn closure(mut open: Vec<NodeIx>, next: impl Fn(NodeIx) -> Vec<NodeIx>) -> BTreeSet<NodeIx> {
    let mut found = BTreeSet::new();
    while let Some(ix) = open.pop() {
        if found.insert(ix) {
            open.extend(next(ix));
        }
    }
    found
}

/// The plan with changed parameters. Each of these nodes must be one that is repeated.
pub fn edited(plan: &Plan, edits: &Edits, reused: Option<&Reused>) -> Result<Plan, RerunError> {
    let kept: BTreeSet<&NodeId> = reused.iter().flat_map(|reused| reused.nodes()).collect();
    for node in edits.keys() {
        if plan.find(node.as_str()).is_none() {
            return Err(RerunError::UnknownNode(node.to_string()));
        }
        if kept.contains(node) {
            return Err(RerunError::NotRepeated(node.to_string()));
        }
    }
    plan.with_parameters(edits)
}
