//! The work of committers, and its results.

use crate::{
    flow::{Admission, Admit, Flow},
    runs::{Answer, CommitAnswer, Delivery, Enqueued, NewRun, RunCommit},
};
use fermata_core::{NodeId, RunId, Timestamp};
use uuid::Uuid;

/// Something that a committer writes. The caller has already serialized the texts.
#[derive(Debug)]
pub(super) enum Work {
    /// A new run; `first` is its first journal row if it starts in this process.
    Enqueue { run: Box<NewRun>, first: Option<String> },
    /// A step of a run; `text` is its journal row, if it has events.
    Commit {
        commit: Box<RunCommit>,
        text: Option<String>,
    },
    /// A held run that asks for what it needs before its first step.
    Admit(Box<Admit>),
    /// A run message for a run; `message` is its text.
    Deliver { run: RunId, message: String, at: Timestamp },
    /// An answer to a wait. The run and node of a token never change, so they were read before.
    Answer {
        token: String,
        run: RunId,
        node: NodeId,
        message: String,
        payload: String,
        by: Option<String>,
        at: Timestamp,
        /// Whether the lease of a worker is checked. Not for answers by token.
        check: Option<LeaseCheck>,
    },
}

/// The lease that an answer carries, if it comes from a worker.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseCheck {
    pub(super) lease: Option<Uuid>,
}

impl Work {
    pub(super) fn run(&self) -> RunId {
        match self {
            Work::Enqueue { run, .. } => run.id,
            Work::Commit { commit, .. } => commit.run,
            Work::Admit(admit) => admit.run,
            Work::Deliver { run, .. } | Work::Answer { run, .. } => *run,
        }
    }

    /// The run whose row a new run needs unchanged: the parent whose lease it names, or the run that it repeats.
    pub(super) fn needed_run(&self) -> Option<RunId> {
        match self {
            Work::Enqueue { run, .. } => {
                let parent = run.parent.as_ref().filter(|parent| parent.lease.is_some());
                let source = run.rerun.as_ref().map(|rerun| rerun.source.run);
                parent.map(|parent| parent.run).or(source)
            }
            _ => None,
        }
    }

    /// The flow control of a run that asks.
    pub(super) fn asks(&self) -> Option<&Flow> {
        match self {
            Work::Enqueue { run, .. } => run.flow.as_deref(),
            Work::Admit(admit) => Some(&admit.flow),
            _ => None,
        }
    }

    /// The (tenant, requestId) of a new run.
    pub(super) fn request(&self) -> Option<(&str, &str)> {
        match self {
            Work::Enqueue { run, .. } => Some((&run.tenant, &run.request_id)),
            _ => None,
        }
    }

    /// The approximate number of bytes to send.
    pub(super) fn weight(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        match self {
            Work::Enqueue { run, first } => {
                run.trigger.len()
                    + length(&run.spec)
                    + length(&run.request)
                    + length(first)
                    + run.rerun.as_ref().map_or(0, |rerun| rerun.text.len())
            }
            Work::Commit { commit, text } => {
                let attempts = commit.attempts.iter();
                let attempts = attempts.map(|one| length(&one.parameters) + length(&one.outputs) + length(&one.error));
                let status = commit.status.as_ref();
                let end = status.map_or(0, |change| length(&change.outputs) + length(&change.context_snapshot));
                length(text) + attempts.sum::<usize>() + end
            }
            Work::Admit(_) => 0,
            Work::Deliver { message, .. } => message.len(),
            Work::Answer { payload, .. } => payload.len(),
        }
    }
}

/// The result of one member of a batch.
#[derive(Debug)]
pub(super) enum MemberResult {
    /// It was decided, and written if the outcome says so.
    Done(Outcome),
    /// It was not written: another batch stored the same request or run id first.
    InsertConflict,
    /// It was not decided: another transaction has locked the run, or the workflow of a new run.
    Locked,
    /// It was not decided: another batch has locked a key of its flow control. It will be free soon.
    KeyLocked,
}

/// The answer for the caller.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Enqueued(Enqueued),
    Admitted(Admission),
    Committed(CommitAnswer),
    Delivered(Delivery),
    Answered(Answer),
}
