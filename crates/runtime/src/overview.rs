//! The state of a run and its nodes, for display.
//!
//! What must stay true: an overview decides nothing; it replays the journal as recovery does. However large the outputs of a
//! run are, only a few of them are in memory at the same time.

mod skips;

pub use self::skips::SkipReasons;
use crate::{EngineError, Refusal, entry::TRUNCATED, reads::Reads};
use fermata_core::{Failure, Items, Kind, NodeId, Phase, Run, RunId, Timestamp, apply};
use fermata_store::{reads::RunRecord, runs::Attempt};
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

/// The state of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOverview {
    /// Its name.
    pub node: NodeId,
    /// Its status in the words of its dialect.
    pub status: String,
    /// Whether it waits for a callback.
    pub is_waiting: bool,
    /// The attempt that is due, executes or was the last; `None` if the node was not reached or was skipped.
    pub attempt: Option<u32>,
    /// When its first attempt, sleep or wait began.
    pub started_at: Option<Timestamp>,
    /// When its last attempt ended.
    pub ended_at: Option<Timestamp>,
    /// When a sleep ends, a wait times out, or the next attempt is due.
    pub until: Option<Timestamp>,
    /// The HTTP status of the response to the last attempt.
    pub status_code: Option<u16>,
    /// Whether the body of that response was truncated.
    pub is_truncated: bool,
    /// Why it failed, or why its last attempt failed.
    pub failure: Option<Failure>,
    /// Why it was skipped.
    pub skip_reason: Option<String>,
    /// The progress of its items, if it runs one child for each item of a list.
    pub items: Option<ItemProgress>,
}

/// How many items of a list have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ItemProgress {
    pub total: u32,
    pub succeeded: u32,
    pub failed: u32,
}

impl From<&Items> for ItemProgress {
    fn from(items: &Items) -> ItemProgress {
        ItemProgress {
            total: items.count,
            succeeded: items.succeeded.len(),
            failed: items.failed.len(),
        }
    }
}

impl Reads<'_> {
    /// The state of a run and its nodes.
    pub async fn overview(&self, id: RunId) -> Result<Overview, EngineError> {
        let store = &self.engine.shared.store;
        let run = self.run(id).await?;
        let (state, skips) = self.state(&run).await?;
        let mut nodes: Vec<NodeOverview> = state.plan().indices().map(|ix| view_of(&state, ix)).collect();
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

    /// The progress of the nodes of a run with one child for each item of a list. Nodes that have not started have none.
    pub async fn items(&self, id: RunId) -> Result<Vec<(NodeId, ItemProgress)>, EngineError> {
        let run = self.run_row(id).await?.ok_or(Refusal::RunNotFound(id))?;
        if run.workflow_version == 0 {
            return Ok(Vec::new()); // it has no plan yet
        }
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        if !compiled.await?.plan.nodes.iter().any(|node| node.kind.each().is_some()) {
            return Ok(Vec::new());
        }
        let (state, _) = self.state(&run).await?;
        let progress = |ix| {
            let items = state.node(ix).items.as_deref()?;
            Some((state.plan().node(ix).id.clone(), items.into()))
        };
        Ok(state.plan().indices().filter_map(progress).collect())
    }

    /// Replays the journal of a run; also returns why nodes were skipped.
    pub(crate) async fn state(&self, run: &RunRecord) -> Result<(Run, SkipReasons), EngineError> {
        let workflows = self.engine.workflows();
        let compiled = workflows.compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        let mut state = Run::new(compiled.await?.plan.clone());
        let mut skips = SkipReasons::new(state.plan().clone(), self.engine.settings().mask.clone());
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

fn view_of(state: &Run, ix: fermata_core::NodeIx) -> NodeOverview {
    let (node, now) = (state.plan().node(ix), state.node(ix));
    let mut view = NodeOverview {
        node: node.id.clone(),
        status: state.plan().scope.words.of(&node.kind, &now.phase).to_owned(),
        is_waiting: match (&node.kind, &now.phase) {
            (Kind::Wait { .. }, Phase::Open(_)) => true,
            (Kind::Request { .. }, Phase::Open(open)) => open.requested,
            _ => false,
        },
        attempt: None,
        started_at: now.opened_at,
        ended_at: None,
        until: None,
        status_code: None,
        is_truncated: false,
        failure: None,
        skip_reason: None,
        items: now.items.as_deref().map(ItemProgress::from),
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
    /// Adds the row of the last recorded attempt. While the node is open, a row of an earlier attempt adds only the response.
    /// If the node has ended, the last recorded attempt may be earlier than the one that was due when the run stopped.
    fn learn(&mut self, row: &Attempt, is_over: bool) {
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
