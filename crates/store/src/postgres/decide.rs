//! Decides the members of a batch: which are accepted, and which rows are written for them. Pure: facts in, rows out.
//!
//! What must stay true: each member gets the same answer as from the SQLite store (`sqlite/commit.rs`, `enqueue.rs`,
//! `messages.rs`). A refused member writes no row. Members are decided in order, and a resource that an earlier member links
//! is not available to a later one.

mod flow;

use super::{
    columns::{signed, small, text},
    facts::{Facts, Owner, Resource, RunRow},
    rows::{AnsweredWait, InsertedRun, OfferedWait, RunUpdate, Writes},
    work::{LeaseCheck, MemberResult, Outcome, Work},
};
use crate::{
    flow::{
        Flow,
        rules::{Granted, KeyRows, stays_asleep},
    },
    rules::{self, ConflictFacts, LeaseChange},
    runs::{
        Answer, CHILDREN_ENDED, CachedState, CommitAnswer, Delivery, Enqueued, Link, NewRun, RunCommit, WaitChange,
        is_cancel, pauses,
    },
    usage::month_of,
};
use fermata_core::{NodeId, RunId, Timestamp};
use std::collections::HashMap;

/// The result of each member, and the rows of all members.
pub(super) fn decide<'a>(batch: &[&'a Work], facts: &Facts) -> (Vec<MemberResult>, Writes<'a>) {
    let mut deciding = Deciding {
        facts,
        keys: KeyRows::new(),
        member: 0,
        taken: HashMap::new(),
        writes: Writes::default(),
    };
    let results = batch.iter().enumerate().map(|(member, work)| {
        if facts.is_locked(work) {
            return MemberResult::Locked;
        }
        if facts.is_key_locked(work) {
            return MemberResult::KeyLocked;
        }
        deciding.member = member;
        MemberResult::Done(deciding.decide(work))
    });
    let results = results.collect();
    deciding.settle_keys();
    deciding.writes.in_order();
    (results, deciding.writes)
}

struct Deciding<'a, 'f> {
    facts: &'f Facts,
    /// Resources that members of this batch link.
    taken: HashMap<Resource, Owner>,
    /// Rows of keys that members of this batch have changed.
    keys: KeyRows,
    /// The position of the member that is decided.
    member: usize,
    writes: Writes<'a>,
}

impl<'a> Deciding<'a, '_> {
    fn decide(&mut self, work: &'a Work) -> Outcome {
        match work {
            Work::Enqueue { run, first } => Outcome::Enqueued(self.enqueue(run, first.as_deref())),
            Work::Commit { commit, text } => Outcome::Committed(self.commit(commit, text.as_deref())),
            Work::Admit(request) => Outcome::Admitted(self.admit(request)),
            Work::Deliver { run, message, at } => Outcome::Delivered(self.deliver(*run, message, *at)),
            Work::Answer {
                token,
                run,
                node,
                message,
                payload,
                by,
                at,
                check,
            } => match self.refused_answer(*run, token, *check, *at) {
                Some(refused) => Outcome::Answered(refused),
                None => {
                    self.answer(*run, token, message, (payload, by.as_deref()), *at);
                    let node = node.clone();
                    Outcome::Answered(Answer::Accepted { run: *run, node })
                }
            },
        }
    }

    fn enqueue(&mut self, run: &'a NewRun, first: Option<&'a str>) -> Enqueued {
        let request = (run.tenant.clone(), run.request_id.clone());
        let parent = run
            .parent
            .as_ref()
            .and_then(|parent| self.facts.parents.get(&parent.run));
        let source = run.rerun.as_ref();
        let source = source.and_then(|rerun| self.facts.parents.get(&rerun.source.run));
        let workflow = self.facts.workflows.get(&run.workflow_uid).and_then(Option::as_ref);
        if let Some(answer) = rules::refused_start(run, workflow, self.facts.requests.get(&request), parent, source) {
            return answer;
        }
        let paused = workflow.and_then(|workflow| workflow.pause_key(run.workflow_uid));
        let unlimited = Flow::default();
        let limits = run.flow.as_deref().or(paused.as_ref().map(|_| &unlimited));
        let limited = match limits {
            None => None,
            Some(flow) => match self.enter(run, flow, paused) {
                Ok(limited) => Some(limited),
                Err(None) => return Enqueued::Full,
                Err(Some(run)) => {
                    let status = self.status_of_owner(run);
                    return Enqueued::Existing { run, status };
                }
            },
        };
        let (granted, flow) = limited.unzip();
        let begins = granted.as_ref().is_none_or(Granted::begins);
        self.writes.runs.push(InsertedRun {
            run,
            local_start: run.local_start.as_ref().filter(|_| begins),
            wake_at: granted.as_ref().and_then(|granted| granted.wake_at(run.created_at)),
            flow,
        });
        self.writes.deliveries.extend(run.delivery.as_deref());
        if let Some(rerun) = &run.rerun {
            let copied = rerun.nodes.iter().map(|node| (run.id, rerun.source.run, node.as_str()));
            self.writes.copied.extend(copied);
        }
        self.writes.fields.extend(run.fields.iter().map(|field| (run, field)));
        if !begins {
            if let Some(at) = granted.and_then(|granted| granted.delayed_until) {
                self.writes.notifications.due(at);
            }
            return Enqueued::Waiting;
        }
        match &run.local_start {
            None => self.writes.notifications.due(run.created_at),
            Some(local_start) => {
                if let Some(first) = first {
                    self.writes.first_events.push(run.id, 1, local_start.started_at, first);
                }
                self.writes.first_waits.open(run.id, &local_start.waits, false);
                self.limit(run.id, &local_start.waits, local_start.started_at);
            }
        }
        Enqueued::Created
    }

    fn commit(&mut self, commit: &'a RunCommit, text: Option<&'a str>) -> CommitAnswer {
        let row = self.facts.runs.get(&commit.run);
        let Some(row) = row.filter(|row| !rules::is_fenced(commit, Some(&row.facts))) else {
            return CommitAnswer::Fenced;
        };
        if let Some(conflict) = rules::conflict(commit, text.is_some(), &self.conflict_facts(commit, row)) {
            return CommitAnswer::Conflict(conflict);
        }
        let terminal = commit.status.as_ref().is_some_and(|change| change.status.is_terminal());
        if let Some(text) = text {
            self.writes.events.push(commit.run, small(commit.seq), commit.at, text);
        }
        for attempt in &commit.attempts {
            self.writes.attempts.push((commit.run, attempt));
        }
        for link in &commit.links {
            let resource = resource(link);
            let owner = Owner {
                run: commit.run,
                root: row.root.unwrap_or(commit.run),
            };
            if !self.facts.owners.contains_key(&resource) && !self.taken.contains_key(&resource) {
                self.taken.insert(resource, owner);
                self.writes.links.push((commit.run, link, commit.at));
            }
        }
        let closed = rules::closed_waits(commit).map(|node| (commit.run, node.as_str()));
        self.writes.closed.extend(closed);
        self.limit(commit.run, &commit.waits, commit.at);
        self.writes.waits.open(commit.run, &commit.waits, terminal);
        self.writes
            .seen_children
            .extend(commit.children_seen.iter().map(|child| child.0));
        self.writes.dead_letters.extend(commit.dead_letter.as_deref());
        match &commit.state {
            None => {}
            Some(CachedState::Set(text)) => self.writes.states.push((commit.run, text)),
            Some(CachedState::Remove) => self.writes.removed_states.push(commit.run.0),
        }
        if let Some(usage) = &commit.usage {
            let counter = (
                super::columns::text(&usage.tenant).into_owned(),
                small(month_of(commit.at)),
            );
            *self.writes.usage.entry(counter).or_default() += i64::from(usage.steps);
        }
        self.update(commit, row);
        CommitAnswer::Committed {
            message_seq: row.facts.message_seq,
        }
    }

    /// Adds the deadlines of waits, and the waits that are put into the inbox.
    fn limit(&mut self, run: RunId, changes: &'a [WaitChange], at: Timestamp) {
        for change in changes {
            match change {
                WaitChange::Limit { node, deadline } => self.writes.limits.push((run, node.as_str(), deadline.0)),
                WaitChange::Offer { node, attempt, item } => {
                    self.writes.notifications.offered(&item.queue);
                    self.writes.offers.push(OfferedWait {
                        run,
                        node: node.as_str(),
                        attempt: *attempt,
                        item,
                        at,
                    });
                }
                WaitChange::Open { .. } | WaitChange::Close { .. } => {}
            }
        }
    }

    /// The data that shows whether the commit conflicts.
    fn conflict_facts(&self, commit: &RunCommit, row: &RunRow) -> ConflictFacts {
        let root = row.root.unwrap_or(commit.run);
        let owner = |link: &Link| {
            let resource = resource(link);
            let owner = self.facts.owners.get(&resource).or_else(|| self.taken.get(&resource));
            owner.filter(|owner| owner.root != root).map(|owner| owner.run)
        };
        let answered = |node: &&NodeId| {
            let wait = (commit.run, node.as_str().to_owned());
            self.facts.answered.contains(&wait)
        };
        ConflictFacts {
            last_seq: self.facts.last_seqs.get(&commit.run).copied().unwrap_or(0),
            link_owners: commit.links.iter().map(owner).collect(),
            answered: rules::closed_waits(commit).filter(answered).cloned().collect(),
        }
    }

    /// Writes the run's row, but only if something in it changes.
    fn update(&mut self, commit: &'a RunCommit, row: &RunRow) {
        let changed = rules::row_change(commit, &row.facts);
        if changed.messages_seen > row.facts.messages_seen {
            self.writes
                .read_messages
                .push((commit.run, signed(changed.messages_seen)));
        }
        let mut update = RunUpdate {
            change: commit.status.as_ref(),
            messages_seen: signed(changed.messages_seen),
            takeovers: small(changed.takeovers),
            ..RunUpdate::unchanged(commit.run, row)
        };
        match changed.lease {
            LeaseChange::Kept => {}
            LeaseChange::Released(due) => {
                update.released = true;
                update.wake_at = due.map(|at| at.0);
                if let Some(at) = due {
                    self.writes.notifications.due(at);
                }
            }
            LeaseChange::Ended => {
                update.released = true;
                update.wake_at = None;
                update.flow = None;
                self.writes.ended.push(commit.run.0);
                self.end_flow(commit.run, row, commit.at);
            }
        }
        if update.change.is_some() || changed.differs_from(&row.facts) {
            self.writes.updates.push(update);
        }
    }

    fn deliver(&mut self, run: RunId, message: &'a str, at: Timestamp) -> Delivery {
        let row = self.facts.runs.get(&run);
        let ends = message == CHILDREN_ENDED;
        if ends && row.is_none_or(|row| row.facts.status.is_terminal()) {
            self.writes.forgetting.push(run.0);
        }
        let Some(row) = row else {
            return Delivery::NotFound;
        };
        let status = row.facts.status;
        if status.is_terminal() {
            return Delivery::Terminal { status };
        }
        if ends && self.facts.unread_ends.contains(&run) {
            return Delivery::Delivered { status };
        }
        if let Some(pauses) = pauses(message) {
            if pauses == row.paused {
                return Delivery::Delivered { status };
            }
            self.writes.paused.push((run, pauses.then_some(at.0)));
        }
        self.put(run, row, message, at);
        Delivery::Delivered { status }
    }

    /// Adds a message for a run and wakes the run. Returns the sequence number of the message.
    fn put(&mut self, run: RunId, row: &RunRow, message: &'a str, at: Timestamp) -> i64 {
        let seq = signed(row.facts.message_seq + 1);
        self.writes.messages.push((run, seq, at, message));
        let mut update = RunUpdate {
            message_seq: seq,
            ..RunUpdate::unchanged(run, row)
        };
        self.writes
            .notifications
            .messages(run, row.facts.owner.map(|owner| owner.0));
        // A held run keeps its `wake_at`: its owner sees `message_seq` at its next commit.
        let asleep = stays_asleep(row.facts.status, row.flow.as_ref(), is_cancel(message));
        if row.facts.owner.is_none() && !asleep {
            update.wake_at = Some(row.wake_at.map_or(at.0, |wake_at| wake_at.min(at.0)));
            self.writes.notifications.due(at);
        }
        self.writes.updates.push(update);
        seq
    }

    /// The answer to an answer that is not stored.
    fn refused_answer(&self, run: RunId, token: &str, check: Option<LeaseCheck>, at: Timestamp) -> Option<Answer> {
        let row = self.facts.runs.get(&run);
        let open = row.is_some_and(|row| !row.facts.status.is_terminal());
        let Some(facts) = self.facts.open_tokens.get(token).filter(|_| open) else {
            return Some(Answer::Closed);
        };
        match check {
            Some(check) => rules::refused_answer(Some(facts), None, check.lease, at),
            None => facts
                .deadline
                .is_some_and(|deadline| deadline <= at)
                .then_some(Answer::Closed),
        }
    }

    /// Stores the answer to a wait.
    fn answer(
        &mut self,
        run: RunId,
        token: &'a str,
        message: &'a str,
        (payload, by): (&'a str, Option<&'a str>),
        at: Timestamp,
    ) {
        let Some(row) = self.facts.runs.get(&run) else {
            return;
        };
        let seq = self.put(run, row, message, at);
        self.writes.answers.push(AnsweredWait {
            token,
            payload,
            seq,
            by,
            at,
        });
    }
}

pub(super) fn resource(link: &Link) -> Resource {
    let parts = [&link.system, &link.resource_type, &link.resource_id];
    let [system, kind, id] = parts.map(|part| text(part).into_owned());
    (system, kind, id)
}
