//! A run as it stands, node by node, for whoever watches it.
//!
//! What must stay true: an overview decides nothing; it reads the journal as recovery does. However large the outputs
//! of a run are, only a few of them are in memory at the same time.

use crate::{Engine, EngineError, Refusal, entry::TRUNCATED, task_status};
use fermata_core::{Failure, NodeId, Phase, Run, RunId, Timestamp, apply, decode};
use fermata_store::reads::{ActionRecord, RunRecord};
use serde::Deserialize;
use std::collections::HashMap;

/// Outputs that are read at the same time.
const CHUNK: usize = 32;

/// A run and its nodes, in the order of the document.
#[derive(Debug, Clone, PartialEq)]
pub struct Overview {
    /// The run.
    pub run: RunRecord,
    /// Its nodes.
    pub nodes: Vec<NodeOverview>,
}

/// How a node stands.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOverview {
    /// Its name.
    pub node: NodeId,
    /// In one word; see [`task_status`].
    pub status: &'static str,
    /// The attempt that is due, runs or was the last; none before it is reached and if it is skipped.
    pub attempt: Option<u32>,
    /// When that attempt began, or when the sleep or wait did.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a sleep is over, a wait is given up, or the next attempt begins.
    pub until: Option<Timestamp>,
    /// What a service answered.
    pub status_code: Option<u16>,
    /// Whether its answer was longer than is kept.
    pub is_truncated: bool,
    /// Why it failed, or why the attempt before did.
    pub failure: Option<Failure>,
}

impl Engine {
    /// A run as it stands.
    pub async fn overview(&self, id: RunId) -> Result<Overview, EngineError> {
        let store = self.store();
        let run = store.run(id).await?.ok_or(Refusal::RunNotFound(id))?;
        let state = self.state(&run).await?;
        let mut nodes: Vec<NodeOverview> = state.plan().indices().map(|ix| stands(&state, ix)).collect();
        let tried = nodes.iter().filter(|node| node.attempt.is_some());
        let tried: Vec<NodeId> = tried.map(|node| node.node.clone()).collect();
        let at: HashMap<NodeId, usize> = (0..).zip(&nodes).map(|(at, node)| (node.node.clone(), at)).collect();
        for chunk in tried.chunks(CHUNK) {
            for row in store.last_attempts(id, chunk).await? {
                if let Some(at) = at.get(&row.node) {
                    nodes[*at].learn(&row);
                }
            }
        }
        Ok(Overview { run, nodes })
    }

    async fn state(&self, run: &RunRecord) -> Result<Run, EngineError> {
        let compiled = self
            .workflows()
            .compiled(run.workflow_uid, &run.workflow_id, run.workflow_version);
        let mut state = Run::new(compiled.await?.plan.clone());
        let unusable = |what: String| EngineError::Unusable {
            workflow: run.workflow_id.clone(),
            version: run.workflow_version,
            what: format!("the journal of run {} cannot be read: {what}", run.id),
        };
        let journal = self.store().load(run.id).await?.map(|stored| stored.journal);
        for row in journal.unwrap_or_default() {
            for event in decode(&row).map_err(|error| unusable(error.to_string()))? {
                apply(&mut state, &event).map_err(|error| unusable(error.to_string()))?;
            }
        }
        Ok(state)
    }
}

fn stands(state: &Run, ix: fermata_core::NodeIx) -> NodeOverview {
    let (node, now) = (state.plan().node(ix), state.node(ix));
    let mut view = NodeOverview {
        node: node.id.clone(),
        status: task_status(&node.kind, &now.phase),
        attempt: None,
        started_at: now.opened_at,
        ended_at: None,
        until: None,
        status_code: None,
        is_truncated: false,
        failure: None,
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
    /// Adds what the row of its last attempt says. That of an earlier one tells only what was answered.
    fn learn(&mut self, row: &ActionRecord) {
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
        if self.attempt == Some(row.attempt) {
            self.started_at = row.started_at.or(self.started_at);
            self.ended_at = Some(row.ended_at);
            self.failure = row.error.as_deref().and_then(|text| serde_json::from_str(text).ok());
        }
    }
}
