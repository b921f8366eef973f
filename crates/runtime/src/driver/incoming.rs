//! What happens to a held run, and whether its driver goes on.

use super::attempt::Report;
use crate::slots::Slot;
use fermata_core::{Fact, NodeIx};
use fermata_store::runs::{InboxMessage, StoredMessage};
use std::sync::Arc;

/// What may happen to a run while it is held.
pub(super) enum Incoming {
    Start,
    Report(Arc<Report>),
    StoredMessage(StoredMessage),
    /// What the sandbox says of the conditions of a node.
    Verdicts(Fact),
    /// An attempt whose start must be recorded has its slot, or lost its place in the queue.
    Slot(NodeIx, u32, Option<Slot>),
    Tick,
    /// The workflow was archived before the run began.
    Archived,
}

impl Incoming {
    pub fn is_cancel(&self) -> bool {
        matches!(self, Incoming::StoredMessage(mail) if matches!(mail.message, InboxMessage::Cancel { .. }))
    }

    pub fn into_report(self) -> Option<Arc<Report>> {
        match self {
            Incoming::Report(report) => Some(report),
            _ => None,
        }
    }
}

/// Whether the driver goes on.
pub(super) enum Next {
    Go(Vec<Incoming>),
    Leave,
}

/// Why a driver cannot go on with its run as it is in memory.
pub(super) enum StepError {
    /// It must be loaded again; these reports are still to be decided.
    Reload(Vec<Arc<Report>>),
    /// It is not ours any more.
    Lost,
    /// It cannot be advanced by this program.
    Stuck(String),
    /// The store refuses what it has to record, and would refuse it again.
    Rejected(String),
}

impl StepError {
    /// The same error, with more reports that are still to be decided.
    pub fn with(self, more: impl IntoIterator<Item = Incoming>) -> StepError {
        match self {
            StepError::Reload(mut reports) => {
                reports.extend(more.into_iter().filter_map(Incoming::into_report));
                StepError::Reload(reports)
            }
            other => other,
        }
    }
}
