//! Who survives in a batch, and what is written for it. Pure: facts in, rows out.
//!
//! What must stay true: each member gets the answer that SQLite's store gives it (`sqlite/commit.rs`, `enqueue.rs`,
//! `inbox.rs`); a member that is refused leaves no row. Members are decided in their order, and what an earlier one
//! takes is not there for a later one.

use super::{
    columns::{signed, small, text},
    facts::{Facts, Resource, RunFacts},
    rows::{RunUpdate, Writes},
    work::{Fate, Outcome, Work},
};
use crate::runs::{Answer, CommitAnswer, Conflict, Delivery, Enqueued, Link, NewRun, RunCommit, WaitChange};
use fermata_core::{RunId, Status, Timestamp};
use std::{collections::HashMap, sync::LazyLock};

/// What becomes of each member, and all rows together.
pub(super) fn decide<'a>(batch: &[&'a Work], facts: &Facts) -> (Vec<Fate>, Writes<'a>) {
    let mut deciding = Deciding {
        facts,
        taken: HashMap::new(),
        writes: Writes::default(),
    };
    let fates = batch.iter().map(|work| match facts.is_locked(work) {
        true => Fate::Locked,
        false => Fate::Done(deciding.decide(work)),
    });
    let fates = fates.collect();
    deciding.writes.in_order();
    (fates, deciding.writes)
}

struct Deciding<'a, 'f> {
    facts: &'f Facts,
    /// Resources that members of this batch take.
    taken: HashMap<Resource, RunId>,
    writes: Writes<'a>,
}

impl<'a> Deciding<'a, '_> {
    fn decide(&mut self, work: &'a Work) -> Outcome {
        match work {
            Work::Enqueue { run, first } => Outcome::Enqueued(self.enqueue(run, first.as_deref())),
            Work::Commit { commit, text } => Outcome::Committed(self.commit(commit, text.as_deref())),
            Work::Deliver { run, letter, at } => Outcome::Delivered(self.deliver(*run, letter, *at)),
            Work::Answer {
                token,
                run,
                node,
                letter,
                payload,
                at,
            } => match self.answer(*run, token, letter, payload, *at) {
                true => Outcome::Answered(Answer::Accepted {
                    run: *run,
                    node: node.clone(),
                }),
                false => Outcome::Answered(Answer::Closed),
            },
        }
    }

    fn enqueue(&mut self, run: &'a NewRun, first: Option<&'a str>) -> Enqueued {
        let request = (run.tenant.clone(), run.request_id.clone());
        let workflow = self.facts.workflows.get(&run.workflow_uid).and_then(Option::as_ref);
        if let Some(there) = self.facts.requests.get(&request) {
            if there.workflow_uid != run.workflow_uid {
                let workflow_id = there.workflow_id.clone();
                return Enqueued::OtherWorkflow {
                    run: there.run,
                    workflow_id,
                };
            }
            let existing = Enqueued::Existing {
                run: there.run,
                status: there.status,
            };
            return existing.seen_by(run, workflow.is_some());
        }
        if !workflow.is_some_and(|workflow| workflow.takes(run)) {
            return Enqueued::Stale;
        }
        self.writes.runs.push(run);
        match &run.local_start {
            None => self.writes.tidings.due(run.created_at),
            Some(local_start) => {
                if let Some(first) = first {
                    self.writes.first_events.push(run.id, 1, local_start.started_at, first);
                }
                self.writes.first_waits.open(run.id, &local_start.waits, false);
                self.limit(run.id, &local_start.waits);
            }
        }
        Enqueued::Created
    }

    fn commit(&mut self, commit: &'a RunCommit, text: Option<&'a str>) -> CommitAnswer {
        let Some(run) = self.facts.runs.get(&commit.run) else {
            return CommitAnswer::Fenced;
        };
        let holds = run.owner == Some(commit.runner.0) && run.epoch == commit.epoch;
        if !(holds || fencing_is_off()) || run.status.is_terminal() {
            return CommitAnswer::Fenced;
        }
        if let Some(conflict) = self.conflict(commit, text.is_some()) {
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
            if !self.facts.owners.contains_key(&resource) && self.taken.insert(resource, commit.run).is_none() {
                self.writes.links.push((commit.run, link, commit.at));
            }
        }
        for change in &commit.waits {
            if let WaitChange::Close { node } = change {
                self.writes.closed.push((commit.run, node.as_str()));
            }
        }
        self.limit(commit.run, &commit.waits);
        self.writes.waits.open(commit.run, &commit.waits, terminal);
        self.writes.dead_letters.extend(commit.dead_letter.as_deref());
        self.update(commit, run, terminal);
        CommitAnswer::Committed {
            inbox_seq: run.inbox_seq,
        }
    }

    /// Notes from when on waits take no answer.
    fn limit(&mut self, run: RunId, changes: &'a [WaitChange]) {
        let limits = changes.iter().filter_map(|change| match change {
            WaitChange::Limit { node, deadline } => Some((run, node.as_str(), deadline.0)),
            WaitChange::Open { .. } | WaitChange::Close { .. } => None,
        });
        self.writes.limits.extend(limits);
    }

    /// What the commit collides with, if anything.
    fn conflict(&self, commit: &RunCommit, journal: bool) -> Option<Conflict> {
        let last = self.facts.last_seqs.get(&commit.run).copied().unwrap_or(0);
        if journal && commit.seq != last.saturating_add(1) {
            return Some(Conflict::Seq);
        }
        for link in &commit.links {
            let resource = resource(link);
            let owner = self.facts.owners.get(&resource).or_else(|| self.taken.get(&resource));
            if let Some(owner) = owner.filter(|owner| **owner != commit.run) {
                return Some(Conflict::Link {
                    link: link.clone(),
                    owner: *owner,
                });
            }
        }
        commit.waits.iter().find_map(|change| match change {
            WaitChange::Close { node } => {
                let answered = self.facts.answered.contains(&(commit.run, node.as_str().to_owned()));
                answered.then(|| Conflict::Answered { node: node.clone() })
            }
            WaitChange::Open { .. } | WaitChange::Limit { .. } => None,
        })
    }

    /// Touches the run's row, but only if something in it changes.
    fn update(&mut self, commit: &'a RunCommit, run: &RunFacts, terminal: bool) {
        // What was consumed never becomes unread again, and what has not come yet cannot have been read.
        let seen = match terminal {
            true => run.inbox_seq,
            false => commit.inbox_seen.min(run.inbox_seq).max(run.inbox_seen),
        };
        if seen > run.inbox_seen {
            self.writes.read_messages.push((commit.run, signed(seen)));
        }
        let mut update = RunUpdate {
            inbox_seen: signed(seen),
            takeovers: 0,
            ..RunUpdate::unchanged(commit.run, run)
        };
        update.change = commit.status.as_ref();
        if terminal {
            update.released = true;
            update.wake_at = None;
            self.writes.ended.push(commit.run.0);
        } else if let Some(due) = commit.then.released(commit.at, run.inbox_seq, seen) {
            update.released = true;
            update.wake_at = due.map(|at| at.0);
            update.takeovers = small(commit.then.takeovers(run.takeovers));
            if let Some(at) = due {
                self.writes.tidings.due(at);
            }
        }
        let touched = update.released || update.change.is_some() || seen > run.inbox_seen || run.takeovers > 0;
        if touched {
            self.writes.updates.push(update);
        }
    }

    fn deliver(&mut self, run: RunId, letter: &'a str, at: Timestamp) -> Delivery {
        let Some(facts) = self.facts.runs.get(&run) else {
            return Delivery::NotFound;
        };
        let status = facts.status;
        if status.is_terminal() {
            return Delivery::Terminal { status };
        }
        self.put(run, facts, letter, at);
        Delivery::Delivered { status }
    }

    /// Puts a letter into an inbox and wakes the run; gives the letter's place.
    fn put(&mut self, run: RunId, facts: &RunFacts, letter: &'a str, at: Timestamp) -> i64 {
        let seq = signed(facts.inbox_seq + 1);
        self.writes.letters.push((run, seq, at, letter));
        let mut update = RunUpdate {
            inbox_seq: seq,
            ..RunUpdate::unchanged(run, facts)
        };
        self.writes.tidings.mail(run, facts.owner);
        // A held run keeps its `wake_at`: its owner sees `inbox_seq` at its next commit.
        if facts.owner.is_none() {
            update.wake_at = Some(facts.wake_at.map_or(at.0, |wake_at| wake_at.min(at.0)));
            self.writes.tidings.due(at);
        }
        self.writes.updates.push(update);
        seq
    }

    /// Whether the wait could be answered.
    fn answer(&mut self, run: RunId, token: &'a str, letter: &'a str, payload: &'a str, at: Timestamp) -> bool {
        let facts = self.facts.runs.get(&run);
        let Some(facts) = facts.filter(|facts| !facts.status.is_terminal()) else {
            return false;
        };
        let open = self.facts.open_tokens.get(token);
        if open.is_none_or(|deadline| deadline.is_some_and(|deadline| deadline <= at.0)) {
            return false;
        }
        let seq = self.put(run, facts, letter, at);
        self.writes.answers.push((token, payload, seq));
        true
    }
}

/// Whether commits under old leases are taken, so that the fault rig can show that it would notice. Only builds for tests
/// can be told to.
fn fencing_is_off() -> bool {
    static OFF: LazyLock<bool> = LazyLock::new(|| std::env::var_os("FERMATA_TEST_NO_FENCING").is_some());
    cfg!(debug_assertions) && *OFF
}

pub(super) fn resource(link: &Link) -> Resource {
    let parts = [&link.system, &link.resource_type, &link.resource_id];
    let [system, kind, id] = parts.map(|part| text(part).into_owned());
    (system, kind, id)
}

/// The status of a run that is stored now.
pub(super) fn first_status(run: &NewRun) -> Status {
    match run.local_start {
        Some(_) => Status::Running,
        None => Status::Pending,
    }
}
