//! Child runs: runs that a node of another run started.
//!
//! The end of an awaited child reaches its parent exactly once, through any crash, and without a transaction that spans two
//! active runs:
//! * A child whose parent waits for it is stored with a mark, [`Parent::waits`].
//! * A child that has ended and still has the mark is an end that its parent has not seen, however the child ended.
//! * The parent reads such ends ([`ChildStore::ended_children`]) and removes their marks in the commit that records them
//!   ([`RunCommit::children_seen`](crate::runs::RunCommit)).
//! * [`RunMessage::ChildrenEnded`](crate::runs::RunMessage) wakes the parent. It is added only if none is unread, so a reader
//!   must read ended children again after the commit that consumed the message. A sweep over
//!   [`ChildStore::parents_of_ended_children`] repairs lost messages. Delivered to a run that is over, the message removes
//!   the marks of its ended children.

use crate::Result;
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Status};
use uuid::Uuid;

/// The run that starts a child run, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// The parent.
    pub run: RunId,
    /// The node that starts the child.
    pub node: Option<NodeId>,
    /// The attempt of that node.
    pub attempt: u32,
    /// The index of the item, if the node starts one child for each item of a list.
    pub item: Option<u32>,
    /// Whether the parent waits for the end of the child.
    pub waits: bool,
    /// The lease under which the parent starts it. If the parent is over, or another lease holds it, the answer is
    /// `ParentLost`.
    pub lease: Option<ParentLease>,
    /// The depth of the child. A run without a parent has depth 0.
    pub depth: u32,
    /// The workflows of the parent, its parent and so on.
    pub lineage: Vec<Uuid>,
}

/// The lease of a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct ParentLease {
    pub runner: RunnerId,
    pub epoch: u64,
}

impl Parent {
    /// A parent that does not wait, without a node and a lease.
    pub fn of(run: RunId) -> Parent {
        Parent {
            run,
            node: None,
            attempt: 1,
            item: None,
            waits: false,
            lease: None,
            depth: 1,
            lineage: Vec::new(),
        }
    }

    /// The stored form of the lineage.
    pub(crate) fn lineage_text(&self) -> String {
        serde_json::to_string(&self.lineage).unwrap_or_else(|error| unreachable!("ids are always JSON: {error}"))
    }
}

/// Reads the stored form of a lineage. Runs without a parent have none.
pub(crate) fn parse_lineage(text: Option<&str>) -> serde_json::Result<Vec<Uuid>> {
    text.map_or(Ok(Vec::new()), serde_json::from_str)
}

/// An awaited child that has ended, and whose end its parent has not seen.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedChild {
    /// The child.
    pub run: RunId,
    /// The node of the parent that started it.
    pub node: NodeId,
    /// The attempt of that node.
    pub attempt: u32,
    /// The index of the item, if the node starts one child for each item of a list.
    pub item: Option<u32>,
    /// How it ended.
    pub status: Status,
    /// Its outputs, as JSON. Not read for the children of items (see [`ChildStore::item_results`]).
    pub outputs: Option<String>,
    /// Why it failed, as JSON.
    pub error: Option<String>,
}

/// An awaited child that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwaitedChild {
    /// The child.
    pub run: RunId,
    /// The node of the parent that started it.
    pub node: NodeId,
    /// The attempt of that node.
    pub attempt: u32,
    /// The index of the item, if the node starts one child for each item of a list.
    pub item: Option<u32>,
}

/// An attempt of a node of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodeAttempt {
    pub run: RunId,
    pub node: NodeId,
    pub attempt: u32,
}

/// Child runs, as their parents see them.
#[async_trait]
pub trait ChildStore: Send + Sync {
    /// Awaited children of a run that have ended and that the run has not seen, by id.
    async fn ended_children(&self, parent: RunId, limit: u32) -> Result<Vec<EndedChild>>;

    /// Awaited children of a run that have not ended, by id, after `after`.
    async fn awaited_children(&self, parent: RunId, after: Option<RunId>, limit: u32) -> Result<Vec<AwaitedChild>>;

    /// The children that an attempt started for items of a list, with their outputs, by id, after `after`.
    async fn item_results(&self, of: &NodeAttempt, after: Option<RunId>, limit: u32) -> Result<Vec<EndedChild>>;

    /// Runs with ended children that they have not seen, by id, after `after`.
    async fn parents_of_ended_children(&self, after: Option<RunId>, limit: u32) -> Result<Vec<RunId>>;
}

pub(crate) const ENDED_CHILDREN: &str = "SELECT id, parent_node_id, parent_attempt, parent_item, status,
    CASE WHEN parent_item IS NULL THEN outputs_json END, error_json FROM workflow_executions
    WHERE parent_execution_id = ?1 AND parent_waits AND end_time IS NOT NULL ORDER BY id LIMIT ?2";

/// Repeated, this visits each parent once, independent of the number of its children.
pub(crate) const NEXT_PARENT: &str = "SELECT parent_execution_id FROM workflow_executions
    WHERE parent_execution_id > ?1 AND parent_waits AND end_time IS NOT NULL ORDER BY parent_execution_id LIMIT 1";

/// Whether a run is a child whose parent has not ended and has not seen its end, or reads its outputs later. Such a run must
/// not be deleted.
pub(crate) const IS_AWAITED: &str =
    "SELECT COALESCE((c.parent_waits OR c.parent_item IS NOT NULL) AND (SELECT p.status FROM workflow_executions p
    WHERE p.id = c.parent_execution_id) NOT IN ('Succeeded', 'Failed', 'Cancelled'), false)
    FROM workflow_executions c WHERE c.id = ?1";
