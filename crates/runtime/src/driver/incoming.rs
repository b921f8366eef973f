//! What may happen to a held run, and whether its driver continues.

use super::{attempt::Report, items::FailedItem};
use crate::slots::Slot;
use fermata_core::{Fact, NodeIx};
use fermata_store::runs::{RunMessage, StoredMessage};
use std::sync::Arc;

/// What may happen to a run while it is held.
pub(super) enum Incoming {
    Start,
    Report(Arc<Report>),
    StoredMessage(StoredMessage),
    /// The result of an evaluation that did not finish within its step.
    Verdicts(Fact),
    /// An attempt whose start must be recorded has its slot; without one the run or the process is stopping.
    Slot(NodeIx, u32, Option<Slot>),
    Tick,
    /// Child runs may have ended.
    Children,
    /// Children of items could not start.
    ItemsRefused(NodeIx, u32, Vec<FailedItem>),
    /// The workflow was archived before the run started.
    Archived,
}

impl Incoming {
    pub fn is_cancel(&self) -> bool {
        matches!(self, Incoming::StoredMessage(message) if matches!(message.message, RunMessage::Cancel { .. }))
    }

    /// The order in which what happened at the same time is decided. An answer that was accepted counts, also if its request
    /// could not be sent, so messages come before reports.
    pub fn rank(&self) -> u8 {
        match self {
            Incoming::Start | Incoming::Archived => 0,
            Incoming::StoredMessage(_) => 1,
            _ => 2,
        }
    }

    pub fn into_report(self) -> Option<Arc<Report>> {
        match self {
            Incoming::Report(report) => Some(report),
            _ => None,
        }
    }
}

/// Whether the driver continues.
pub(super) enum Next {
    Go(Vec<Incoming>),
    Leave,
}

/// Why a driver cannot continue with its run as it is in memory.
pub(super) enum StepError {
    /// The run must be loaded again; these reports must be decided again.
    Reload(Vec<Arc<Report>>),
    /// Another runner holds the run.
    Lost,
    /// This program cannot advance the run.
    Stuck(String),
    /// The store rejects the commit, and would reject it again.
    Rejected(String),
}

impl StepError {
    /// The same error, with more reports that must be decided again.
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
