//! A run as it stands, node by node, for whoever watches it.
//!
//! What must stay true: an overview decides nothing; it reads the journal as recovery does. However large the outputs
//! of a run are, only a few of them are in memory at the same time.

mod skips;

pub use self::skips::SkipReasons;
use crate::{EngineError, entry::TRUNCATED, reads::Reads};
use fermata_core::{Failure, Kind, NodeId, Phase, Run, RunId, Timestamp, apply};
use fermata_store::reads::{ActionRecord, RunRecord};
use serde::Deserialize;

/// Outputs that are read at the same time.
const CHUNK: usize = 32;

/// A run and its nodes, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// The run.
    pub run: RunRecord,
    /// Its nodes.
    pub nodes: Vec<NodeOverview>,
    /// How many nodes failed so far. A run may succeed although this is not zero: other paths handled the failures, or
    /// its dialect lets a run continue after them.
    pub failed_nodes: usize,
}

/// How a node stands.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOverview {
    /// Its name.
    pub node: NodeId,
    /// In one word of its dialect.
    pub status: String,
    /// Whether it waits for a callback.
    pub is_waiting: bool,
    /// The attempt that is due, runs or was the last; none before it is reached and if it is skipped.
    pub attempt: Option<u32>,
    /// When its first attempt began, or the sleep or wait did.
    pub started_at: Option<Timestamp>,
    /// When its last attempt ended.
    pub ended_at: Option<Timestamp>,
    /// When a sleep is over, a wait is given up, or the next attempt begins.
    pub until: Option<Timestamp>,
    /// What a service answered to the last attempt.
    pub status_code: Option<u16>,
    /// Whether its answer was longer than is kept.
    pub is_truncated: bool,
    /// Why it failed, or why the attempt before did.
    pub failure: Option<Failure>,
    /// Why it was skipped, in words.
    pub skip_reason: Option<String>,
}

impl Reads<'_> {
    /// A run as it stands.
    pub async fn overview(&self, id: RunId) -> Result<Overview, EngineError> {
        let store = &self.engine.shared.store;
        let run = self.run(id).await?;
        let (state, skips) = self.state(&run).await?;
        let mut nodes: Vec<NodeOverview> = state.plan().indices().map(|ix| stands(&state, ix)).collect();
        for node in &mut nodes {
            node.skip_reason = skips.why(&node.node);
        }
        let tried = nodes.iter().filter(|node| node.attempt.is_some());
        let tried: Vec<NodeId> = tried.map(|node| node.node.clone()).collect();
        for chunk in tried.chunks(CHUNK) {
            for row in store.last_attempts(id, chunk).await? {
                if let Some(ix) = state.plan().find(row.node.as_str()) {
                    let is_over = matches!(state.node(ix).phase, Phase::Finished { .. });
                    nodes[ix.at()].learn(&row, is_over);
                }
            }
        }
        for node in nodes.iter_mut().filter(|node| node.attempt > Some(1)) {
            let first = store.attempt(id, &node.node, 1).await?;
            node.started_at = first.and_then(|row| row.started_at).or(node.started_at);
        }
        let failed_nodes = state
            .plan()
            .indices()
            .filter(|ix| failed(&state.node(*ix).phase))
            .count();
        Ok(Overview {
            run,
            nodes,
            failed_nodes,
        })
    }

    /// What the journal of a run adds up to, and why nodes were skipped.
    async fn state(&self, run: &RunRecord) -> Result<(Run, SkipReasons), EngineError> {
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        let mut state = Run::new(compiled.await?.plan.clone());
        let mut skips = SkipReasons::new(state.plan().clone());
        for event in self.journal(run.id).await? {
            apply(&mut state, &event).map_err(|error| EngineError::Unusable {
                workflow: run.workflow_id.clone(),
                version: run.workflow_version,
                what: format!("the journal of run {} cannot be read: {error}", run.id),
            })?;
            skips.note(&event);
        }
        Ok((state, skips))
    }
}

fn failed(phase: &Phase) -> bool {
    matches!(phase, Phase::Finished { outcome, .. } if !outcome.is_success())
}

fn stands(state: &Run, ix: fermata_core::NodeIx) -> NodeOverview {
    let (node, now) = (state.plan().node(ix), state.node(ix));
    let mut view = NodeOverview {
        node: node.id.clone(),
        status: state.plan().scope.words.of(&node.kind, &now.phase).to_owned(),
        is_waiting: matches!((&node.kind, &now.phase), (Kind::Wait { .. }, Phase::Open(_))),
        attempt: None,
        started_at: now.opened_at,
        ended_at: None,
        until: None,
        status_code: None,
        is_truncated: false,
        failure: None,
        skip_reason: None,
    };
    match &now.phase {
        Phase::Idle | Phase::Skipped => {}
        Phase::Open(open) => {
            view.attempt = Some(open.attempt);
            view.until = open.until.or((open.attempt > 1).then_some(open.due));
            view.failure = open.last_failure.clone();
        }
        Phase::Finished { attempt, .. } => view.attempt = Some(*attempt),
    }
    view
}

impl NodeOverview {
    /// Adds what the row of its last attempt says. If the node is not over, that of an earlier one tells only what was
    /// answered. If it is, its last attempt may be an earlier one than the one that was due when the run was stopped.
    fn learn(&mut self, row: &ActionRecord, is_over: bool) {
        #[derive(Deserialize)]
        struct Answered {
            status: Option<u16>,
            #[serde(default, rename = "isTruncated")]
            is_truncated: bool,
        }
        debug_assert_eq!(TRUNCATED, "isTruncated");
        let answered = row
            .outputs
            .as_deref()
            .filter(|_| row.action_type == "http.request")
            .and_then(|text| serde_json::from_str::<Answered>(text).ok());
        if let Some(answered) = answered {
            self.status_code = answered.status;
            self.is_truncated = answered.is_truncated;
        }
        if is_over || self.attempt == Some(row.attempt) {
            self.attempt = Some(row.attempt);
            self.started_at = row.started_at.or(self.started_at);
            self.ended_at = Some(row.ended_at);
            self.failure = row.error.as_deref().and_then(|text| serde_json::from_str(text).ok());
        }
    }
}
