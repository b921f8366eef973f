//! What happens to a held run, and whether its driver goes on.

use super::attempt::Report;
use crate::slots::Slot;
use fermata_core::{Fact, NodeIx};
use fermata_store::runs::{Letter, Mail};
use std::sync::Arc;

/// What may happen to a run while it is held.
pub(super) enum Incoming {
    Start,
    Report(Arc<Report>),
    Mail(Mail),
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
        matches!(self, Incoming::Mail(mail) if matches!(mail.letter, Letter::Cancel { .. }))
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
pub(super) enum Trouble {
    /// It must be loaded again; these reports are still to be decided.
    Reload(Vec<Arc<Report>>),
    /// It is not ours any more.
    Lost,
    /// It cannot be advanced by this program.
    Stuck(String),
    /// The store refuses what it has to record, and would refuse it again.
    Rejected(String),
}

impl Trouble {
    /// The same trouble, with more reports that are still to be decided.
    pub fn with(self, more: impl IntoIterator<Item = Incoming>) -> Trouble {
        match self {
            Trouble::Reload(mut reports) => {
                reports.extend(more.into_iter().filter_map(Incoming::into_report));
                Trouble::Reload(reports)
            }
            other => other,
        }
    }
}
