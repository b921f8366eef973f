//! Everything the engine can do to the world, in one closed list.

use crate::{NodeId, Timestamp};

/// Something a run still needs done. [`Effect::is_pure`] ones may be done before their events are durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Evaluate the conditions of these edges, in order, and answer with [`crate::Fact::Judged`].
    Judge {
        /// The node that ended.
        node: NodeId,
        /// The edges whose conditions count.
        edges: Vec<u32>,
        /// Stop at the first edge that is satisfied, as first-match routing does.
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
    /// Call the node's action, not before `due`, and answer with [`crate::Fact::Returned`].
    Execute {
        /// The node.
        node: NodeId,
        /// The attempt's number, from 1.
        attempt: u32,
        /// Not before this.
        due: Timestamp,
    },
    /// Tell a running attempt to stop. If it is not running, answer with [`crate::Fact::Aborted`].
    Abort {
        /// The node.
        node: NodeId,
        /// The attempt.
        attempt: u32,
    },
    /// Give the run a [`crate::Fact::Tick`] at this time.
    Wake {
        /// When.
        at: Timestamp,
    },
}

impl Effect {
    /// Whether doing it leaves no trace in the world.
    pub fn is_pure(&self) -> bool {
        match self {
            Effect::Judge { .. } | Effect::Guard { .. } | Effect::Time { .. } => true,
            Effect::Execute { .. } | Effect::Abort { .. } | Effect::Wake { .. } => false,
        }
    }
}
