//! The rules that decide whether a run may start and whether a commit may apply.
//!
//! They are pure functions over facts. Each store reads the facts in the transaction that writes, asks here, and writes
//! what it is allowed to. So all stores give the same answers.
//!
//! **May this run start?** ([`refused_start`]) The first row that matches decides.
//!
//! | run with the same (tenant, requestId) | workflow | answer |
//! | --- | --- | --- |
//! | of another workflow | any | `OtherWorkflow` |
//! | with the same run id | any | `Existing` |
//! | with another run id | missing or deleted | `Stale` |
//! | with another run id | there | `Existing` |
//! | none, and the parent is missing, over, or not held under the given lease | any | `ParentLost` |
//! | none, and the run that it repeats is missing, or has no payloads any more | any | `SourceLost` |
//! | none | missing or deleted | `Stale` |
//! | none | archived | `Stale` |
//! | none | draft, and the run is not pinned | `Stale` |
//! | none | active but disabled | `Stale` |
//! | none | the run is pinned to version 0, or to one after the newest (the engine has loaded the plan of the version, so it exists) | `Stale` |
//! | none | the run is not pinned and its version is not the current one | `Stale` |
//! | none | otherwise | the run is stored: `Created` |
//!
//! **May this commit apply?** ([`is_fenced`], then [`conflict`]) The first row that matches decides.
//!
//! | facts | answer |
//! | --- | --- |
//! | the run is missing, or its status is terminal | `Fenced` |
//! | another runner holds the lease, or its epoch is another one | `Fenced` |
//! | the commit has events, and its seq is not the one after the last journal row | `Conflict::Seq` |
//! | a link of the commit belongs to another run | `Conflict::Link` |
//! | the commit closes a wait that has an answer beyond `messages_seen` | `Conflict::Answered` |
//! | otherwise | the commit is written: `Committed` |
//!
//! **What does it do to the run's row?** ([`row_change`])
//!
//! | commit | lease and wake time | takeovers |
//! | --- | --- | --- |
//! | terminal status | released, never due | 0 |
//! | `Keep` | held | 0 |
//! | `Park` with an unseen message | released, due now | 0 |
//! | `Park` | released, due at `wake_at` | 0 |
//! | `Decline` | released, due at `wake_at` | one less |
//! | `GiveUp` with a message that is neither seen nor examined | released, due now | unchanged |
//! | `GiveUp` | released, due at `wake_at` | unchanged |

#[cfg(test)]
mod tests;

use crate::{
    definitions::Lifecycle,
    flow::paused_key,
    inbox::Heartbeat,
    runs::{Answer, Conflict, Enqueued, LocalStart, NewRun, RunCommit, Then, WaitChange},
};
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp};
use std::sync::LazyLock;
use uuid::Uuid;

/// The row of a workflow that was not deleted, as far as it decides about new runs.
#[derive(Debug, Clone)]
pub(crate) struct WorkflowFacts {
    pub(crate) status: Lifecycle,
    pub(crate) enabled: bool,
    pub(crate) current: Option<u32>,
    pub(crate) latest: Option<u32>,
    pub(crate) paused: bool,
}

/// The run that was stored for a (tenant, requestId).
#[derive(Debug, Clone)]
pub(crate) struct ExistingRun {
    pub(crate) run: RunId,
    pub(crate) workflow_uid: Uuid,
    pub(crate) workflow_id: String,
    pub(crate) status: Status,
}

/// The row of a run, as far as it decides about commits.
#[derive(Debug, Clone)]
pub(crate) struct RunFacts {
    pub(crate) status: Status,
    pub(crate) owner: Option<RunnerId>,
    pub(crate) epoch: u64,
    pub(crate) takeovers: u32,
    /// The newest message.
    pub(crate) message_seq: u64,
    /// The newest message that was consumed.
    pub(crate) messages_seen: u64,
    /// Whether it has flow control.
    pub(crate) is_limited: bool,
}

/// The row of a parent, or of a run that is repeated, as far as it decides about new runs.
#[derive(Debug, Clone)]
pub(crate) struct ParentFacts {
    pub(crate) status: Status,
    pub(crate) owner: Option<RunnerId>,
    pub(crate) epoch: u64,
    /// Whether retention has removed its payloads.
    pub(crate) emptied: bool,
}

/// What else a commit may collide with.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConflictFacts {
    /// The seq of the last journal row; 0 without one. Not needed if the commit has no events.
    pub(crate) last_seq: u32,
    /// The owner of each link of the commit, in their order. A run of the same chain of reruns counts as none.
    pub(crate) link_owners: Vec<Option<RunId>>,
    /// Nodes whose wait the commit closes, and which have an answer beyond the commit's `messages_seen`.
    pub(crate) answered: Vec<NodeId>,
}

/// What a commit makes of the row of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowChange {
    pub(crate) messages_seen: u64,
    pub(crate) takeovers: u32,
    pub(crate) lease: LeaseChange,
}

/// What becomes of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    /// The runner keeps it.
    Kept,
    /// The run is free, and due at this time; `None` if only a message can wake it.
    Released(Option<Timestamp>),
    /// The run is terminal. It is free and never due.
    Ended,
}

/// The answer to a run that must not be stored; `None` if it may start.
///
/// A run that is sent again is found even if its workflow was deleted since. Another run of a deleted workflow is
/// `Stale`, because another workflow may have the name by now: the caller looks the name up again.
pub(crate) fn refused_start(
    new: &NewRun,
    workflow: Option<&WorkflowFacts>,
    existing: Option<&ExistingRun>,
    parent: Option<&ParentFacts>,
    source: Option<&ParentFacts>,
) -> Option<Enqueued> {
    match existing {
        Some(existing) if existing.workflow_uid != new.workflow_uid => Some(Enqueued::OtherWorkflow {
            run: existing.run,
            workflow_id: existing.workflow_id.clone(),
        }),
        Some(existing) if workflow.is_none() && existing.run != new.id => Some(Enqueued::Stale),
        Some(existing) => Some(Enqueued::Existing {
            run: existing.run,
            status: existing.status,
        }),
        None if is_parent_lost(new, parent) => Some(Enqueued::ParentLost),
        None if new.rerun.is_some() && source.is_none_or(|source| source.emptied) => Some(Enqueued::SourceLost),
        None if workflow.is_some_and(|workflow| workflow.accepts(new)) => None,
        None => Some(Enqueued::Stale),
    }
}

/// Whether the parent of a new run is over or held under another lease than the given one. A child that names no lease is
/// independent of its parent.
fn is_parent_lost(new: &NewRun, parent: Option<&ParentFacts>) -> bool {
    let Some(lease) = new.parent.as_ref().and_then(|parent| parent.lease) else {
        return false;
    };
    parent.is_none_or(|parent| {
        let holds = parent.owner == Some(lease.runner) && parent.epoch == lease.epoch;
        parent.status.is_terminal() || !holds
    })
}

impl WorkflowFacts {
    /// The key that runs of this workflow wait for while it is paused.
    pub(crate) fn pause_key(&self, uid: Uuid) -> Option<String> {
        self.paused.then(|| paused_key(uid))
    }

    fn accepts(&self, new: &NewRun) -> bool {
        let version = new.workflow_version;
        let version_fits = match new.pinned {
            true => version >= 1 && self.latest.is_some_and(|latest| version <= latest),
            false => self.current == Some(version),
        };
        let status_fits = match self.status {
            Lifecycle::Draft => new.pinned,
            Lifecycle::Active => self.enabled,
            Lifecycle::Archived => false,
        };
        version_fits && status_fits
    }
}

/// The status of a run that is stored now, with this lease.
pub(crate) fn first_status(local_start: Option<&LocalStart>) -> Status {
    match local_start {
        Some(_) => Status::Running,
        None => Status::Pending,
    }
}

/// Whether a commit is refused because its runner does not hold the run under its epoch, or because the run is
/// terminal. `None`: there is no such run.
pub(crate) fn is_fenced(commit: &RunCommit, run: Option<&RunFacts>) -> bool {
    run.is_none_or(|run| {
        let holds = is_held_by(run, commit.runner, commit.epoch);
        run.status.is_terminal() || !(holds || fencing_is_off())
    })
}

/// Whether a runner holds a run under this epoch.
pub(crate) fn is_held_by(run: &RunFacts, runner: RunnerId, epoch: u64) -> bool {
    run.owner == Some(runner) && run.epoch == epoch
}

/// Whether commits under old leases are accepted. The fault rig sets this to prove that it would notice; release builds
/// ignore it.
fn fencing_is_off() -> bool {
    static OFF: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FERMATA_TEST_NO_FENCING").is_some());
    cfg!(debug_assertions) && *OFF
}

/// The row of a wait, as far as it decides about answers and heartbeats.
#[derive(Debug, Clone)]
pub(crate) struct ItemFacts {
    pub(crate) open: bool,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) lease: Option<Uuid>,
    /// 0 or `None` if no worker ever claimed it.
    pub(crate) lease_until: Option<Timestamp>,
    /// `None` if it is not in the inbox.
    pub(crate) tenant: Option<String>,
}

impl ItemFacts {
    fn is_of(&self, tenant: Option<&str>) -> bool {
        match (tenant, &self.tenant) {
            (Some(tenant), Some(own)) => tenant == own,
            _ => true,
        }
    }

    fn is_open(&self, at: Timestamp) -> bool {
        self.open && self.deadline.is_none_or(|deadline| at < deadline)
    }

    fn is_leased(&self, at: Timestamp) -> bool {
        self.lease.is_some() && self.lease_until.is_some_and(|until| at < until)
    }
}

/// The answer to an answer that must not be stored (the table is in `inbox.rs`); `None` if it may be stored.
pub(crate) fn refused_answer(
    item: Option<&ItemFacts>,
    tenant: Option<&str>,
    lease: Option<Uuid>,
    at: Timestamp,
) -> Option<Answer> {
    let Some(item) = item.filter(|item| item.is_of(tenant)) else {
        return Some(Answer::NotFound);
    };
    match lease {
        _ if !item.is_open(at) => Some(Answer::Closed),
        None => item.is_leased(at).then_some(Answer::Leased),
        Some(_) => (item.lease != lease || !item.is_leased(at)).then_some(Answer::LeaseLapsed),
    }
}

/// The answer to a heartbeat that changes nothing; `None` if it extends the lease.
pub(crate) fn refused_heartbeat(
    item: Option<&ItemFacts>,
    tenant: Option<&str>,
    lease: Uuid,
    now: Timestamp,
) -> Option<Heartbeat> {
    refused_answer(item, tenant, Some(lease), now).map(|refused| match refused {
        Answer::NotFound => Heartbeat::NotFound,
        Answer::Closed => Heartbeat::Closed,
        Answer::Leased | Answer::LeaseLapsed | Answer::Accepted { .. } => Heartbeat::LeaseLapsed,
    })
}

/// What a commit that is not fenced collides with. `journal`: whether it has a journal row.
pub(crate) fn conflict(commit: &RunCommit, journal: bool, facts: &ConflictFacts) -> Option<Conflict> {
    if journal && commit.seq != facts.last_seq.saturating_add(1) {
        return Some(Conflict::Seq);
    }
    for (link, owner) in commit.links.iter().zip(&facts.link_owners) {
        if let Some(owner) = owner.filter(|owner| *owner != commit.run) {
            let link = link.clone();
            return Some(Conflict::Link { link, owner });
        }
    }
    let node = closed_waits(commit).find(|node| facts.answered.contains(node))?;
    Some(Conflict::Answered { node: node.clone() })
}

/// The nodes whose waits a commit closes.
pub(crate) fn closed_waits(commit: &RunCommit) -> impl Iterator<Item = &NodeId> {
    commit.waits.iter().filter_map(|change| match change {
        WaitChange::Close { node } => Some(node),
        WaitChange::Open { .. } | WaitChange::Limit { .. } | WaitChange::Offer { .. } => None,
    })
}

/// What an accepted commit makes of the row of its run. A message that was not seen makes a parked run due at once, so no
/// wake-up is lost between a delivery and a release.
pub(crate) fn row_change(commit: &RunCommit, run: &RunFacts) -> RowChange {
    if commit.status.as_ref().is_some_and(|change| change.status.is_terminal()) {
        return RowChange {
            messages_seen: run.message_seq,
            takeovers: 0,
            lease: LeaseChange::Ended,
        };
    }
    // A consumed message stays consumed, and a message that has not arrived cannot be consumed.
    let seen = commit.messages_seen.min(run.message_seq).max(run.messages_seen);
    let due = |wake_at: Option<Timestamp>, known: u64| match run.message_seq > known {
        true => LeaseChange::Released(Some(commit.at)),
        false => LeaseChange::Released(wake_at),
    };
    let (lease, takeovers) = match commit.then {
        Then::Keep => (LeaseChange::Kept, 0),
        Then::Park { wake_at } => (due(wake_at, seen), 0),
        Then::Decline { wake_at } => (LeaseChange::Released(Some(wake_at)), run.takeovers.saturating_sub(1)),
        Then::GiveUp { wake_at, examined } => (due(Some(wake_at), examined.max(seen)), run.takeovers),
    };
    RowChange {
        messages_seen: seen,
        takeovers,
        lease,
    }
}

impl RowChange {
    /// Whether it differs from the row as it is.
    pub(crate) fn differs_from(&self, run: &RunFacts) -> bool {
        self.lease != LeaseChange::Kept || self.messages_seen != run.messages_seen || self.takeovers != run.takeovers
    }
}
