//! The tree of a run: its ancestors up to the root, and all descendants of the root.
//!
//! What must stay true: the number of runs and of reads is bounded, no payload is read, and a response that is not complete
//! says so (`truncated`).

use crate::{door::As, error::ApiError, extract::ExecutionId};
use axum::Json;
use fermata_core::RunId;
use fermata_runtime::Refusal;
use fermata_store::reads::RunRecord;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The most levels above the requested run, and below the root.
const MAX_LEVELS: usize = 32;

/// The most runs in one response.
const MAX_RUNS: u32 = 1000;

/// The most runs whose children are read.
const MAX_PARENTS: usize = 200;

/// A run with the runs it started.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeView {
    #[schemars(with = "uuid::Uuid")]
    execution_id: RunId,
    workflow_id: String,
    status: &'static str,
    /// The node of the parent that started it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_node_id: Option<String>,
    /// The index of its item, if that node has one child for each item of a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    item_index: Option<u32>,
    children: Vec<TreeView>,
    /// Whether there may be children that are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
}

/// `GET /api/v1/executions/{id}/hierarchy`
pub(crate) async fn get(As(session): As, ExecutionId(id): ExecutionId) -> Result<Json<TreeView>, ApiError> {
    let reads = session.reads();
    let mut root = reads.run_row(id).await?.ok_or(Refusal::RunNotFound(id))?;
    for _ in 0..MAX_LEVELS {
        let Some(parent) = root.parent else { break };
        match reads.run_row(parent).await? {
            Some(parent) => root = parent,
            None => break,
        }
    }
    let mut children: BTreeMap<RunId, (Vec<RunRecord>, bool)> = BTreeMap::new();
    let mut open = VecDeque::from([(root.id, 1)]);
    let mut room = MAX_RUNS - 1;
    while let Some((run, level)) = open.pop_front() {
        if children.len() >= MAX_PARENTS {
            children.insert(run, (Vec::new(), true));
            continue;
        }
        // A limit of 0 still returns whether there are children.
        let most = if level < MAX_LEVELS { room } else { 0 };
        let page = reads.children(run, None, most).await?;
        room -= u32::try_from(page.items.len()).unwrap_or(room).min(room);
        open.extend(page.items.iter().map(|child| (child.id, level + 1)));
        children.insert(run, (page.items, page.more));
    }
    Ok(Json(tree(root, &mut children)))
}

/// Recursion is bounded by [`MAX_LEVELS`].
fn tree(run: RunRecord, children: &mut BTreeMap<RunId, (Vec<RunRecord>, bool)>) -> TreeView {
    let (below, more) = children.remove(&run.id).unwrap_or_default();
    TreeView {
        execution_id: run.id,
        parent_node_id: run.parent_node.as_ref().map(|node| node.as_str().to_owned()),
        item_index: run.parent_item,
        status: run.status.as_str(),
        workflow_id: run.workflow_id,
        children: below.into_iter().map(|child| tree(child, children)).collect(),
        truncated: more.then_some(true),
    }
}
