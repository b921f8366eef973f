//! All effects that the engine can have outside of a run's state, in one closed enum.

use crate::{NodeId, Timestamp};

/// Something that the runner has to do for a run. Effects with [`Effect::is_pure`] may be performed before the events that
/// caused them are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Evaluate the conditions of these edges, in order, and answer with [`crate::Fact::Judged`].
    Judge {
        /// The node that ended.
        node: NodeId,
        /// The edges whose conditions are needed.
        edges: Vec<u32>,
        /// Whether to stop at the first condition that is true (first-match routing).
        first_only: bool,
    },
    /// Evaluate the node's guard and answer with [`crate::Fact::Guarded`].
    Guard {
        /// The node.
        node: NodeId,
    },
    /// Render the duration of a sleep and answer with [`crate::Fact::Timed`].
    Time {
        /// The node.
        node: NodeId,
    },
    /// Call the node's action, not before `due`, and answer with [`crate::Fact::Returned`]. A node with one child for each item
    /// of a list renders the list and answers with [`crate::Fact::Listed`].
    Execute {
        /// The node.
        node: NodeId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The earliest time of the call.
        due: Timestamp,
    },
    /// Make sure that the children of these items are started, and answer with [`crate::Fact::ItemsEnded`] for items whose
    /// child cannot start.
    StartItems {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
        /// The items.
        items: Vec<u32>,
    },
    /// Read the outputs of the children of all items and answer with [`crate::Fact::Answered`].
    Collect {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// Stop a running attempt. If it is not running, answer with [`crate::Fact::Aborted`].
    Abort {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// Give the run a [`crate::Fact::Tick`] at this time.
    Wake {
        /// The time.
        at: Timestamp,
    },
}

impl Effect {
    /// Whether it has no effect outside of this process.
    pub fn is_pure(&self) -> bool {
        match self {
            Effect::Judge { .. } | Effect::Guard { .. } | Effect::Time { .. } | Effect::Collect { .. } => true,
            Effect::Execute { .. } | Effect::StartItems { .. } | Effect::Abort { .. } | Effect::Wake { .. } => false,
        }
    }
}
