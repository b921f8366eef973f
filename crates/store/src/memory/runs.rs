//! Runs in memory: enqueue, commit, deliver, answer. `queue.rs` claims, `rules.rs` decides.

use super::{MemoryStore, State};
use crate::{
    ChangeHint, Result,
    flow::{RunFlow, rules::stays_asleep},
    inbox::{InboxItem, ItemLease, queue_number},
    reads::{EventRecord, LinkRecord, RunRecord},
    rules::{self, ConflictFacts, ExistingRun, LeaseChange, ParentFacts, RunFacts, WorkflowFacts},
    runs::{
        Answer, Attempt, CachedState, Claim, Claimed, CommitAnswer, Delivery, Enqueued, Link, NewRun, RunCommit,
        RunMessage, RunStore, StatusChange, StoredMessage, StoredRun, WaitChange, WaitRecord,
    },
    usage::month_of,
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, RunnerId, Status, Timestamp, encode};
use std::collections::{BTreeMap, BTreeSet};

#[async_trait]
impl RunStore for MemoryStore {
    async fn enqueue(&self, run: NewRun) -> Result<Enqueued> {
        let local_start = run
            .local_start
            .as_ref()
            .filter(|local_start| !local_start.events.is_empty());
        let first = local_start.map(|local_start| encode(&local_start.events));
        self.with(|state| state.enqueue(run, first))
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.with(|state| state.claim(&claim))
    }

    async fn commit(&self, commit: RunCommit) -> CommitAnswer {
        if let Some(what) = commit.rejected() {
            return CommitAnswer::Rejected(what);
        }
        let text = (!commit.events.is_empty()).then(|| encode(&commit.events));
        let answer = self.with(|state| state.commit(commit, text));
        answer.unwrap_or_else(CommitAnswer::of_error)
    }

    async fn deliver(&self, run: RunId, message: RunMessage, at: Timestamp) -> Result<Delivery> {
        self.change(
            |state| state.deliver(run, message, at),
            |delivery| matches!(delivery, Delivery::Delivered { .. }),
        )
    }

    async fn answer(&self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Result<Answer> {
        self.change(
            |state| state.answer(token, payload, by, at),
            |answer| matches!(answer, Answer::Accepted { .. }),
        )
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        self.with(|state| state.runs.get(&run).map(Entry::stored))
    }

    async fn messages(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        self.with(|state| state.messages(run, after))
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        self.with(|state| state.waits(run))
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<Attempt>> {
        self.with(|state| state.last_attempts(run, nodes))
    }

    async fn cached_state(&self, run: RunId) -> Result<Option<String>> {
        self.with(|state| state.runs.get(&run).and_then(|entry| entry.cached_state.clone()))
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<Attempt>> {
        self.with(|state| {
            state
                .runs
                .get(&run)
                .and_then(|run| run.attempts.get(&(node.clone(), attempt)).cloned())
        })
    }
}

/// A run with everything that belongs to it.
pub(super) struct Entry {
    pub(super) new: NewRun,
    pub(super) status: Status,
    pub(super) lease_owner: Option<RunnerId>,
    pub(super) epoch: u64,
    pub(super) takeovers: u32,
    pub(super) wake_at: Option<Timestamp>,
    pub(super) message_seq: u64,
    pub(super) messages_seen: u64,
    started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    reason: Option<String>,
    error: Option<String>,
    outputs: Option<String>,
    context_snapshot: Option<String>,
    pub(super) journal: Vec<EventRecord>,
    pub(super) attempts: BTreeMap<(NodeId, u32), Attempt>,
    pub(super) links: Vec<LinkRecord>,
    pub(super) waits: Vec<Wait>,
    pub(super) messages: Vec<StoredMessage>,
    pub(super) flow: Option<Box<RunFlow>>,
    pub(super) cached_state: Option<String>,
    paused_at: Option<Timestamp>,
}

/// A wait, and the seq of the message with its answer.
pub(super) struct Wait {
    pub(super) record: WaitRecord,
    answer_seq: Option<u64>,
    /// Answers are refused from this time on.
    pub(super) deadline: Option<Timestamp>,
    /// What people and workers see, and when it was put into the inbox.
    pub(super) item: Option<(InboxItem, Timestamp)>,
    pub(super) lease: Option<ItemLease>,
    pub(super) progress: Option<String>,
}

impl State {
    pub(super) fn enqueue(&mut self, mut new: NewRun, first: Option<String>) -> Enqueued {
        let request = (new.tenant.clone(), new.request_id.clone());
        let existing = self.requests.get(&request).or_else(|| {
            let merges = new.flow.as_ref().is_some_and(|flow| flow.merges());
            self.merged_requests
                .get(&request)
                .filter(|_| merges)
                .map(|(run, _)| run)
        });
        let existing = existing.and_then(|id| self.runs.get(id));
        let existing = existing.map(Entry::existing);
        let parent = new.parent.as_ref().and_then(|parent| self.runs.get(&parent.run));
        let parent = parent.map(Entry::parent_facts);
        let source = new.rerun.as_ref().and_then(|rerun| self.runs.get(&rerun.source.run));
        let facts = source.map(Entry::parent_facts);
        let workflow = self.workflow_facts(&new);
        let existing = existing.as_ref();
        if let Some(answer) = rules::refused_start(&new, workflow.as_ref(), existing, parent.as_ref(), facts.as_ref()) {
            return answer;
        }
        let attempts = source.map(|source| source.kept_by(&new)).unwrap_or_default();
        let paused = workflow.and_then(|workflow| workflow.pause_key(new.workflow_uid));
        let limits = new.flow.take().or_else(|| paused.as_ref().map(|_| Box::default()));
        let limited = match limits {
            None => None,
            Some(flow) => match self.enter(&new, &flow, paused) {
                Ok((granted, rows)) => Some((flow, granted, rows)),
                Err(answer) => return answer,
            },
        };
        let begins = limited.as_ref().is_none_or(|(_, granted, _)| granted.begins());
        let (id, created_at) = (new.id, new.created_at);
        let local_start = new.local_start.take().filter(|_| begins);
        let status = rules::first_status(local_start.as_ref());
        if let Some(delivery) = new.delivery.take() {
            self.triggers.started(&delivery);
        }
        self.requests.insert(request, id);
        self.by_workflow.entry(new.workflow_uid).or_default().insert(id);
        if let Some(parent) = &new.parent {
            self.children.entry(parent.run).or_default().insert(id);
        }
        let mut entry = Entry::new(new);
        entry.attempts = attempts;
        self.runs.insert(id, entry);
        if let Some((flow, granted, rows)) = limited {
            let (delayed_until, wake_at) = (granted.delayed_until, granted.wake_at(created_at));
            self.set_flow(id, Some(Box::new(granted.of(*flow))));
            if !begins {
                self.place(id, None, wake_at);
                self.hints.extend(delayed_until.map(ChangeHint::Due));
            }
            self.put_keys(rows, created_at);
            if !begins {
                return Enqueued::Waiting;
            }
        }
        match local_start {
            None => {
                self.place(id, None, Some(created_at));
                self.hints.push(ChangeHint::Due(created_at));
            }
            Some(local_start) => {
                self.place(id, Some(local_start.runner), Some(created_at));
                if let Some(entry) = self.runs.get_mut(&id) {
                    entry.status = status;
                    entry.epoch = 1;
                    entry.started_at = Some(local_start.started_at);
                    entry.write(1, local_start.started_at, first);
                }
                for change in local_start.waits {
                    self.change_wait(id, change, local_start.started_at);
                }
            }
        }
        Enqueued::Created
    }

    /// The workflow of a new run, unless it was deleted.
    fn workflow_facts(&self, new: &NewRun) -> Option<WorkflowFacts> {
        let row = &self.live(new.workflow_uid)?.row;
        Some(WorkflowFacts {
            status: row.status,
            enabled: row.enabled,
            current: row.current_version,
            latest: row.latest_version,
            paused: row.paused_at.is_some(),
        })
    }

    pub(super) fn commit(&mut self, commit: RunCommit, text: Option<String>) -> CommitAnswer {
        let entry = self.runs.get(&commit.run);
        let facts = entry.map(Entry::facts);
        let (Some(entry), Some(facts)) = (entry, facts.filter(|facts| !rules::is_fenced(&commit, Some(facts)))) else {
            return CommitAnswer::Fenced;
        };
        if let Some(conflict) = rules::conflict(&commit, text.is_some(), &self.conflict_facts(entry, &commit)) {
            return CommitAnswer::Conflict(conflict);
        }
        let row = rules::row_change(&commit, &facts);
        let (id, at) = (commit.run, commit.at);
        if let Some(usage) = commit.usage {
            *self.usage.entry((usage.tenant, month_of(at))).or_default() += u64::from(usage.steps);
        }
        for link in commit.links {
            self.link(id, link, at);
        }
        for change in commit.waits {
            self.change_wait(id, change, at);
        }
        let Some(entry) = self.runs.get_mut(&id) else {
            return CommitAnswer::Fenced;
        };
        entry.write(commit.seq, at, text);
        for attempt in commit.attempts {
            entry.record_attempt(attempt);
        }
        match commit.state {
            None => {}
            Some(CachedState::Set(text)) => entry.cached_state = Some(text),
            Some(CachedState::Remove) => entry.cached_state = None,
        }
        if let Some(change) = commit.status {
            entry.change_status(change);
        }
        entry.takeovers = row.takeovers;
        entry.messages_seen = row.messages_seen;
        entry.messages.retain(|message| message.seq > row.messages_seen);
        match row.lease {
            LeaseChange::Kept => {}
            LeaseChange::Released(wake_at) => {
                self.place(id, None, wake_at);
                self.hints.extend(wake_at.map(ChangeHint::Due));
            }
            LeaseChange::Ended => {
                entry.waits.iter_mut().for_each(|wait| wait.record.open = false);
                let parent = entry.new.parent.as_ref().filter(|parent| parent.waits);
                self.ended_children.extend(parent.map(|parent| (parent.run, id)));
                self.place(id, None, None);
                self.end_flow(id, at);
            }
        }
        commit.children_seen.into_iter().for_each(|child| self.see_child(child));
        if let Some(dead_letter) = commit.dead_letter {
            self.dead_letters.insert(dead_letter.id, *dead_letter);
        }
        CommitAnswer::Committed {
            message_seq: facts.message_seq,
        }
    }

    /// What the commit may conflict with.
    fn conflict_facts(&self, entry: &Entry, commit: &RunCommit) -> ConflictFacts {
        let unseen = |node: &&NodeId| {
            let mut waits = entry.waits.iter().filter(|wait| wait.record.node == **node);
            waits.any(|wait| wait.answer_seq > Some(commit.messages_seen))
        };
        ConflictFacts {
            last_seq: entry.journal.last().map_or(0, |row| row.seq),
            link_owners: commit
                .links
                .iter()
                .map(|link| self.links.get(&link_key(link)).copied())
                .map(|owner| owner.filter(|owner| self.root_of(*owner) != entry.root()))
                .collect(),
            answered: rules::closed_waits(commit).filter(unseen).cloned().collect(),
        }
    }

    fn root_of(&self, run: RunId) -> RunId {
        self.runs.get(&run).map_or(run, Entry::root)
    }

    fn link(&mut self, run: RunId, link: Link, at: Timestamp) {
        let key = link_key(&link);
        if self.links.contains_key(&key) {
            return;
        }
        self.links.insert(key, run);
        if let Some(entry) = self.runs.get_mut(&run) {
            entry.links.push(LinkRecord {
                node: link.node,
                attempt: link.attempt,
                system: link.system,
                resource_type: link.resource_type,
                resource_id: link.resource_id,
                url: link.url,
                created_at: at,
            });
        }
    }

    fn change_wait(&mut self, run: RunId, change: WaitChange, at: Timestamp) {
        let Some(entry) = self.runs.get_mut(&run) else {
            return;
        };
        match change {
            WaitChange::Open { node, attempt, token } => {
                if self.tokens.contains_key(&token) {
                    return;
                }
                self.tokens.insert(token.clone(), run);
                let record = WaitRecord {
                    node,
                    attempt,
                    token,
                    open: true,
                    payload: None,
                    answered_by: None,
                    answered_at: None,
                };
                entry.waits.push(Wait {
                    record,
                    answer_seq: None,
                    deadline: None,
                    item: None,
                    lease: None,
                    progress: None,
                });
            }
            WaitChange::Offer { node, attempt, item } => {
                let mut waits = entry.waits.iter_mut();
                let offered = waits.find(|wait| {
                    let record = &wait.record;
                    record.open && record.node == node && record.attempt == attempt && wait.item.is_none()
                });
                if let Some(wait) = offered {
                    self.items.insert(item.id, wait.record.token.clone());
                    self.queues.insert((item.queue.clone(), Timestamp(0), item.id));
                    self.hints.push(ChangeHint::Inbox(queue_number(&item.queue)));
                    wait.item = Some((item, at));
                }
            }
            WaitChange::Limit { node, deadline } => {
                let same = entry.waits.iter_mut().filter(|wait| wait.record.node == node);
                let open = same.filter(|wait| wait.record.open);
                open.for_each(|wait| wait.deadline = Some(deadline));
            }
            WaitChange::Close { node } => {
                let same = entry.waits.iter_mut().filter(|wait| wait.record.node == node);
                same.for_each(|wait| wait.record.open = false);
            }
        }
    }

    pub(super) fn deliver(&mut self, run: RunId, message: RunMessage, at: Timestamp) -> Delivery {
        let ends = message == RunMessage::ChildrenEnded;
        let status = self.runs.get(&run).map(|entry| entry.status);
        if ends && status.is_none_or(Status::is_terminal) {
            self.forget_ended(run);
        }
        let (Some(entry), Some(status)) = (self.runs.get_mut(&run), status) else {
            return Delivery::NotFound;
        };
        if status.is_terminal() {
            return Delivery::Terminal { status };
        }
        if ends && entry.messages.iter().any(|unread| unread.message == message) {
            return Delivery::Delivered { status };
        }
        if let Some(pauses) = message.pauses() {
            if pauses == entry.paused_at.is_some() {
                return Delivery::Delivered { status };
            }
            entry.paused_at = pauses.then_some(at);
        }
        let is_cancel = matches!(message, RunMessage::Cancel { .. });
        entry.message_seq += 1;
        entry.messages.push(StoredMessage {
            seq: entry.message_seq,
            at,
            message,
        });
        let free = entry.lease_owner.is_none() && !stays_asleep(status, entry.flow.as_ref(), is_cancel);
        let wake_at = entry.wake_at.map_or(at, |wake_at| wake_at.min(at));
        self.hints.push(ChangeHint::Messages(run));
        if free {
            self.place(run, None, Some(wake_at));
            self.hints.push(ChangeHint::Due(at));
        }
        Delivery::Delivered { status }
    }

    pub(super) fn answer(&mut self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Answer {
        let Some((run, entry)) = self
            .tokens
            .get(token)
            .and_then(|run| Some((*run, self.runs.get_mut(run)?)))
        else {
            return Answer::NotFound;
        };
        let terminal = entry.status.is_terminal();
        let seq = entry.message_seq + 1;
        let Some(wait) = entry.waits.iter_mut().find(|wait| wait.record.token == token) else {
            return Answer::NotFound;
        };
        let is_over = wait.deadline.is_some_and(|deadline| deadline <= at);
        if terminal || is_over || !wait.record.open {
            return Answer::Closed;
        }
        wait.record.open = false;
        wait.record.payload = Some(payload.to_owned());
        wait.record.answered_by = by.map(str::to_owned);
        wait.record.answered_at = Some(at);
        wait.answer_seq = Some(seq);
        let (node, attempt) = (wait.record.node.clone(), wait.record.attempt);
        let message = RunMessage::Callback {
            node: node.clone(),
            attempt,
        };
        self.deliver(run, message, at);
        Answer::Accepted { run, node }
    }
}

fn link_key(link: &Link) -> (String, String, String) {
    (
        link.system.clone(),
        link.resource_type.clone(),
        link.resource_id.clone(),
    )
}

impl Entry {
    fn new(new: NewRun) -> Entry {
        Entry {
            new,
            status: Status::Pending,
            lease_owner: None,
            epoch: 0,
            takeovers: 0,
            wake_at: None,
            message_seq: 0,
            messages_seen: 0,
            started_at: None,
            ended_at: None,
            reason: None,
            error: None,
            outputs: None,
            context_snapshot: None,
            journal: Vec::new(),
            attempts: BTreeMap::new(),
            links: Vec::new(),
            waits: Vec::new(),
            messages: Vec::new(),
            flow: None,
            cached_state: None,
            paused_at: None,
        }
    }

    fn existing(&self) -> ExistingRun {
        ExistingRun {
            run: self.new.id,
            workflow_uid: self.new.workflow_uid,
            workflow_id: self.new.workflow_id.clone(),
            status: self.status,
        }
    }

    /// Whether its parent waits for its end, or has not seen it.
    pub(super) fn is_awaited(&self) -> bool {
        self.new.parent.as_ref().is_some_and(|parent| parent.waits)
    }

    fn parent_facts(&self) -> ParentFacts {
        ParentFacts {
            status: self.status,
            owner: self.lease_owner,
            epoch: self.epoch,
            emptied: self.new.trigger.is_empty(),
        }
    }

    /// The first run of its chain of reruns.
    fn root(&self) -> RunId {
        self.new.rerun.as_ref().map_or(self.new.id, |rerun| rerun.source.root)
    }

    /// The attempts that a new run keeps of this one.
    fn kept_by(&self, new: &NewRun) -> BTreeMap<(NodeId, u32), Attempt> {
        let nodes = new.rerun.iter().flat_map(|rerun| &rerun.nodes);
        let nodes: BTreeSet<&NodeId> = nodes.collect();
        let kept = self.attempts.iter().filter(|((node, _), _)| nodes.contains(node));
        let kept = kept.map(|(key, attempt)| {
            let attempt = Attempt {
                reused_from: attempt.reused_from.or(Some(self.new.id)),
                ..attempt.clone()
            };
            (key.clone(), attempt)
        });
        kept.collect()
    }

    fn facts(&self) -> RunFacts {
        RunFacts {
            status: self.status,
            owner: self.lease_owner,
            epoch: self.epoch,
            takeovers: self.takeovers,
            message_seq: self.message_seq,
            messages_seen: self.messages_seen,
            is_limited: self.flow.is_some(),
        }
    }

    /// Leaves only what the row of a run has without its payloads.
    pub(super) fn empty(&mut self) {
        self.new.trigger = String::new();
        (self.new.spec, self.outputs, self.context_snapshot, self.error) = (None, None, None, None);
        (self.new.correlation_id, self.new.principal.email) = (None, None);
        (self.new.principal.display_name, self.new.traceparent, self.new.request) = (None, None, None);
        self.reason.take_if(|_| self.status == Status::Cancelled);
        (self.journal, self.attempts) = (Vec::new(), BTreeMap::new());
        (self.links, self.waits, self.messages) = (Vec::new(), Vec::new(), Vec::new());
        self.cached_state = None;
        if let Some(rerun) = &mut self.new.rerun {
            rerun.text = String::new();
        }
    }

    fn write(&mut self, seq: u32, at: Timestamp, text: Option<String>) {
        self.journal.extend(text.map(|data| EventRecord { seq, at, data }));
    }

    /// Records an attempt, unless it was recorded before.
    fn record_attempt(&mut self, attempt: Attempt) {
        self.attempts
            .entry((attempt.node.clone(), attempt.attempt))
            .or_insert(attempt);
    }

    fn change_status(&mut self, change: StatusChange) {
        self.status = change.status;
        self.started_at = change.started_at.or(self.started_at);
        self.ended_at = change.ended_at.or(self.ended_at);
        self.reason = change.reason.or(self.reason.take());
        self.error = change.error.or(self.error.take());
        self.outputs = change.outputs.or(self.outputs.take());
        self.context_snapshot = change.context_snapshot.or(self.context_snapshot.take());
    }

    /// The run as a runner needs it.
    pub(super) fn stored(&self) -> StoredRun {
        StoredRun {
            id: self.new.id,
            workflow_uid: self.new.workflow_uid,
            workflow_id: self.new.workflow_id.clone(),
            workflow_version: self.new.workflow_version,
            tenant: self.new.tenant.clone(),
            status: self.status,
            trigger: self.new.trigger.clone(),
            spec: self.new.spec.clone(),
            correlation_id: self.new.correlation_id.clone(),
            traceparent: self.new.traceparent.clone(),
            request: self.new.request.clone(),
            principal: self.new.principal.clone(),
            epoch: self.epoch,
            owner: self.lease_owner,
            takeovers: self.takeovers,
            message_seq: self.message_seq,
            messages_seen: self.messages_seen,
            priority: self.new.priority,
            parent: self.new.parent.as_ref().map(|parent| parent.run),
            parent_waits: self.is_awaited(),
            depth: self.new.parent.as_ref().map_or(0, |parent| parent.depth),
            lineage: self
                .new
                .parent
                .as_ref()
                .map_or(Vec::new(), |parent| parent.lineage.clone()),
            flow: self.flow.clone(),
            rerun: self.new.rerun.as_ref().map(|rerun| rerun.text.clone()),
            journal: self.journal.iter().map(|row| row.data.clone()).collect(),
        }
    }

    /// The run as reads return it.
    pub(super) fn record(&self) -> RunRecord {
        RunRecord {
            id: self.new.id,
            workflow_uid: self.new.workflow_uid,
            workflow_id: self.new.workflow_id.clone(),
            workflow_version: self.new.workflow_version,
            request_id: self.new.request_id.clone(),
            tenant: self.new.tenant.clone(),
            status: self.status,
            reason: self.reason.clone(),
            error: self.error.clone(),
            priority: self.new.priority,
            correlation_id: self.new.correlation_id.clone(),
            traceparent: self.new.traceparent.clone(),
            request: self.new.request.clone(),
            principal: self.new.principal.clone(),
            parent: self.new.parent.as_ref().map(|parent| parent.run),
            parent_node: self.new.parent.as_ref().and_then(|parent| parent.node.clone()),
            parent_item: self.new.parent.as_ref().and_then(|parent| parent.item),
            depth: self.new.parent.as_ref().map_or(0, |parent| parent.depth),
            rerun_of: self.new.rerun.as_ref().map(|rerun| rerun.source),
            trigger: self.new.trigger.clone(),
            spec: self.new.spec.clone(),
            outputs: self.outputs.clone(),
            context_snapshot: self.context_snapshot.clone(),
            created_at: self.new.created_at,
            started_at: self.started_at,
            ended_at: self.ended_at,
            wake_at: self.wake_at,
            runner: self.lease_owner,
            paused_at: self.paused_at.filter(|_| !self.status.is_terminal()),
            flow: self.flow.clone(),
        }
    }
}
