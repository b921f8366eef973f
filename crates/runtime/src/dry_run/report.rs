//! The report of a dry run: the route it took, and why.
//!
//! Values are masked as in every read of stored data.

use super::mocks::Mocks;
use crate::{
    EngineError,
    engine::Engine,
    mask::Mask,
    overview::{NodeOverview, SkipReasons},
};
use fermata_core::{Event, Join, Kind, Node, NodeId, Plan, RunId, Timestamp, Verdict, plan::When};
use fermata_expr::logic::shown;
use fermata_store::{
    reads::Window,
    runs::{Attempt, AttemptStatus},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::{collections::HashMap, sync::Arc};

/// Attempts read at once.
const PAGE: u32 = 500;

/// How a dry run went. Times are virtual, in milliseconds after the start of the run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunReport {
    /// The workflow.
    pub workflow_id: String,
    /// `Succeeded`, `Failed` or `Cancelled`.
    pub status: String,
    /// Why it did not succeed, as a stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it failed: `code`, `message`, `node`, `attempt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// Its outputs.
    pub outputs: Value,
    /// How long a real run would have taken if its actions took no time.
    pub virtual_duration_ms: u64,
    /// The nodes, in the order in which the run reached them; those that it did not reach are last.
    pub nodes: Vec<DryRunNode>,
}

/// A node of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunNode {
    /// The node.
    pub node_id: String,
    /// Its action.
    pub action_type: String,
    /// Its status, in the words of the dialect.
    pub status: String,
    /// Where its result comes from, if it is not that of the action itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mock: Option<Made>,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_after_ms: Option<u64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_after_ms: Option<u64>,
    /// The rendered parameters of its last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// The outputs of its last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Value>,
    /// Why it failed: `code`, `message`, `retriable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// The condition of the node itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<DryRunGuard>,
    /// Its attempts, if it was retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempt_history: Vec<DryRunAttempt>,
    /// Its edges, if it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<DryRunEdge>,
}

/// Where the result of a node comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Made {
    /// From the mocks.
    Given,
    /// It was made from a schema.
    Made,
}

/// One of several attempts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct DryRunAttempt {
    pub attempt: u32,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_after_ms: Option<u64>,
    pub ended_after_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
}

/// The condition of a node.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunGuard {
    /// The condition.
    pub condition: String,
    /// Whether it was true.
    pub verdict: bool,
    /// Why it could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The values that it read, by path.
    pub values: Map<String, Value>,
}

/// An edge of a node that ended.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DryRunEdge {
    /// Its target.
    pub to: String,
    /// `success`, `failure`, `always` or `onFailure`.
    pub when: &'static str,
    /// The outcome for which it is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Its condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Whether it was taken.
    pub taken: bool,
    /// Whether the condition was true; absent if it was not evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<bool>,
    /// Why the condition could not be evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The values that the condition read, by path.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// Why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The report of a run that ended.
pub(super) async fn of(engine: &Engine, run: RunId, plan: &Plan, mocks: &Mocks) -> Result<DryRunReport, EngineError> {
    let reads = engine.reads();
    let overview = reads.overview(run).await?;
    let journal = reads.journal(run).await?;
    let mut attempts: HashMap<NodeId, Vec<Attempt>> = HashMap::new();
    let mut known = 0;
    loop {
        let window = Window {
            limit: PAGE,
            offset: known,
        };
        let (page, total) = reads.actions(run, window).await?;
        known += page.len() as u32;
        let is_last = page.is_empty() || u64::from(known) >= total;
        for row in page.into_iter().filter(|row| row.status != AttemptStatus::Skipped) {
            attempts.entry(row.node.clone()).or_default().push(row);
        }
        if is_last {
            break;
        }
    }
    let record = &overview.run;
    let mask = &engine.settings().mask;
    let route = Route::of(&journal, plan, mask);
    let begin = record.started_at.unwrap_or(record.created_at);
    let view = |node: &NodeOverview| {
        let planned = plan.node(plan.find(node.node.as_str())?);
        let rows = attempts.get(&node.node).map_or(&[][..], Vec::as_slice);
        let mock = made(planned, node, engine, mocks);
        Some(node_view(planned, node, rows, mock, begin, &route, mask))
    };
    let mut nodes: Vec<(usize, DryRunNode)> = Vec::new();
    for node in &overview.nodes {
        let position = route.order.get(&node.node).copied().unwrap_or(usize::MAX);
        nodes.extend(view(node).map(|view| (position, view)));
    }
    nodes.sort_by_key(|(position, _)| *position);
    Ok(DryRunReport {
        workflow_id: record.workflow_id.clone(),
        status: record.status.as_str().to_owned(),
        reason: record.reason.clone(),
        error: parsed(record.error.as_deref()),
        outputs: parsed(record.outputs.as_deref()).unwrap_or_default(),
        virtual_duration_ms: record.ended_at.map_or(0, |end| millis(begin, end)),
        nodes: nodes.into_iter().map(|(_, view)| view).collect(),
    })
}

/// What the journal says about the route.
struct Route {
    /// The position of the first event of each node.
    order: HashMap<NodeId, usize>,
    taken: HashMap<NodeId, (Vec<u32>, Vec<Verdict>)>,
    guards: HashMap<NodeId, Verdict>,
    reasons: SkipReasons,
    names: Vec<NodeId>,
}

impl Route {
    fn of(journal: &[Event], plan: &Plan, mask: &Mask) -> Route {
        let mut route = Route {
            order: HashMap::new(),
            taken: HashMap::new(),
            guards: HashMap::new(),
            reasons: SkipReasons::new(Arc::new(plan.clone()), mask.clone()),
            names: plan.nodes.iter().map(|node| node.id.clone()).collect(),
        };
        for (position, event) in journal.iter().enumerate() {
            route.reasons.note(event);
            if let Some(node) = event.node() {
                route.order.entry(node.clone()).or_insert(position);
            }
            match event {
                Event::Routed { node, taken, verdicts } => {
                    route.taken.insert(node.clone(), (taken.clone(), verdicts.clone()));
                }
                Event::Opened {
                    node,
                    verdict: Some(verdict),
                    ..
                }
                | Event::Skipped {
                    node,
                    verdict: Some(verdict),
                    ..
                } => {
                    route.guards.insert(node.clone(), verdict.clone());
                }
                _ => {}
            }
        }
        route
    }

    fn target(&self, edge: &fermata_core::Edge) -> String {
        self.names
            .get(edge.target.at())
            .map(NodeId::to_string)
            .unwrap_or_default()
    }
}

/// Where the result of a node comes from.
fn made(planned: &Node, node: &NodeOverview, engine: &Engine, mocks: &Mocks) -> Option<Made> {
    node.attempt?;
    if mocks.has(&node.node) {
        return Some(Made::Given);
    }
    let is_made = match &planned.kind {
        Kind::Wait { .. } | Kind::Request { .. } => true,
        Kind::Action { action, .. } => engine.registry().get(action).is_some_and(|action| action.has_effects()),
        Kind::Sleep { .. } | Kind::Pass => false,
    };
    is_made.then_some(Made::Made)
}

fn node_view(
    planned: &Node,
    node: &NodeOverview,
    rows: &[Attempt],
    mock: Option<Made>,
    begin: Timestamp,
    route: &Route,
    mask: &Mask,
) -> DryRunNode {
    let last = rows.last();
    let after = |at: Option<Timestamp>| at.map(|at| millis(begin, at));
    let history = |row: &Attempt| DryRunAttempt {
        attempt: row.attempt,
        status: row.status.as_str().to_owned(),
        started_after_ms: after(row.started_at),
        ended_after_ms: millis(begin, row.ended_at),
        error: parsed(row.error.as_deref()),
    };
    let guard = match (&planned.join, route.guards.get(&node.node)) {
        (Join::Guard(condition), Some(verdict)) => Some(DryRunGuard {
            condition: shown(condition).into_owned(),
            verdict: verdict.holds(),
            error: verdict.error.clone(),
            values: mask.of_reads(&verdict.saw),
        }),
        _ => None,
    };
    DryRunNode {
        node_id: node.node.to_string(),
        action_type: planned.kind.action_type().to_owned(),
        status: node.status.clone(),
        mock,
        attempts: node.attempt.unwrap_or(0),
        started_after_ms: after(node.started_at).filter(|_| node.attempt.is_some()),
        ended_after_ms: after(node.ended_at),
        parameters: last.and_then(|row| parsed(row.parameters.as_deref())),
        outputs: last.and_then(|row| parsed(row.outputs.as_deref())),
        error: last.and_then(|row| parsed(row.error.as_deref())),
        skip_reason: node.skip_reason.clone(),
        guard,
        attempt_history: match rows.len() > 1 {
            true => rows.iter().map(history).collect(),
            false => Vec::new(),
        },
        edges: match node.ended_at {
            Some(_) => edges(planned, route, mask),
            None => Vec::new(),
        },
    }
}

fn edges(planned: &Node, route: &Route, mask: &Mask) -> Vec<DryRunEdge> {
    let none = (Vec::new(), Vec::new());
    let (taken, verdicts) = route.taken.get(&planned.id).unwrap_or(&none);
    let edge = |(position, edge): (usize, &fermata_core::Edge)| {
        let verdict = verdicts.iter().find(|verdict| verdict.edge as usize == position);
        let taken = taken.iter().any(|edge| *edge as usize == position);
        DryRunEdge {
            to: route.target(edge),
            when: when(edge.when),
            outcome: edge.outcome.clone(),
            condition: edge.condition.as_deref().map(|source| shown(source).into_owned()),
            taken,
            verdict: verdict.map(Verdict::holds),
            error: verdict.and_then(|verdict| verdict.error.clone()),
            values: verdict.map(|verdict| mask.of_reads(&verdict.saw)).unwrap_or_default(),
            reason: match taken {
                true => None,
                false => route.reasons.why_not(&planned.id, position),
            },
        }
    };
    planned.edges.iter().enumerate().map(edge).collect()
}

fn when(when: When) -> &'static str {
    match when {
        When::Success => "success",
        When::Failure => "failure",
        When::Always => "always",
        When::Unhandled => "onFailure",
    }
}

fn millis(begin: Timestamp, at: Timestamp) -> u64 {
    at.micros_since(begin) / 1000
}

fn parsed(text: Option<&str>) -> Option<Value> {
    text.and_then(|text| serde_json::from_str(text).ok())
}
