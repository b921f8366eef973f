//! The first round trip of a batch: the rows to lock, the data to read, and how the result rows become [`Facts`].

use super::{
    columns::{flow, get, maybe, plain, signed, text},
    error::PgError,
    facts::{Facts, Owner, RunRow},
    inbox::item_facts,
    pipeline::Query,
    sql::Statements,
    work::Work,
};
use crate::{
    flow::rules::KeyRow,
    rules::{ExistingRun, ParentFacts, RunFacts, WorkflowFacts},
    runs::{CHILDREN_ENDED, Link, NewRun, WaitChange},
};
use fermata_core::{RunId, RunnerId};
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// The rows that the members of a batch need.
#[derive(Default)]
pub(super) struct BatchReads<'a> {
    new: Vec<&'a NewRun>,
    /// The workflows of runs that ask for what they need.
    admitting: Vec<Uuid>,
    runs: Vec<Uuid>,
    journals: Vec<Uuid>,
    links: Vec<&'a Link>,
    /// Waits to close: run, node, and the sequence number of the last run message that the run has read.
    closing: Vec<(Uuid, &'a str, i64)>,
    tokens: Vec<&'a str>,
    parents: Vec<Uuid>,
    /// Runs that get a message about ended children.
    ends: Vec<Uuid>,
    /// New runs that may be answered with another run.
    merging: Vec<&'a NewRun>,
}

/// Which data a statement reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadKind {
    Workflows,
    Requests,
    Runs,
    LockedWorkflows,
    LockedRuns,
    LastSeqs,
    LinkOwners,
    UnseenAnswers,
    OpenTokens,
    Parents,
    UnreadEnds,
    MergedRequests,
    CreatedKeys,
    Keys,
}

impl<'a> BatchReads<'a> {
    pub(super) fn of(batch: &[&'a Work]) -> BatchReads<'a> {
        let mut reads = BatchReads::default();
        for work in batch {
            match work {
                Work::Enqueue { run, .. } => {
                    reads.new.push(run);
                    reads
                        .merging
                        .extend(run.flow.as_ref().filter(|flow| flow.merges()).map(|_| &**run));
                    reads.parents.extend(work.needed_run().map(|parent| parent.0));
                    continue;
                }
                Work::Commit { commit, text } => {
                    reads.journals.extend(text.is_some().then_some(commit.run.0));
                    reads.links.extend(&commit.links);
                    for change in &commit.waits {
                        if let WaitChange::Close { node } = change {
                            reads
                                .closing
                                .push((commit.run.0, node.as_str(), signed(commit.messages_seen)));
                        }
                    }
                }
                Work::Admit(admit) => reads.admitting.push(admit.workflow),
                Work::Deliver { run, message, .. } => {
                    reads.ends.extend((message == CHILDREN_ENDED).then_some(run.0));
                }
                Work::Answer { token, .. } => reads.tokens.push(token),
            }
            reads.runs.push(work.run().0);
        }
        reads
    }

    /// The statements to send, in the order in which locks are taken.
    pub(super) fn queries(&self, sql: &'a Statements) -> Vec<(Query<'a>, ReadKind)> {
        let mut queries = Vec::new();
        if !self.new.is_empty() || !self.admitting.is_empty() {
            let query = Query::new(&sql.lock_workflows).bind(self.workflows(|_| true));
            queries.push((query, ReadKind::Workflows));
        }
        if !self.runs.is_empty() {
            queries.push((Query::new(&sql.lock_runs).bind(self.runs.clone()), ReadKind::Runs));
        }
        if !self.parents.is_empty() {
            queries.push((
                Query::new(&sql.lock_parents).bind(self.parents.clone()),
                ReadKind::Parents,
            ));
        }
        if !self.ends.is_empty() {
            queries.push((
                Query::new(&sql.unread_ends).bind(self.ends.clone()),
                ReadKind::UnreadEnds,
            ));
        }
        if !self.new.is_empty() {
            let query = Query::new(&sql.requests)
                .column(&self.new, |run| run.tenant.as_str())
                .column(&self.new, |run| run.request_id.as_str());
            queries.push((query, ReadKind::Requests));
        }
        if !self.merging.is_empty() {
            let query = Query::new(&sql.merged_requests)
                .column(&self.merging, |run| run.tenant.as_str())
                .column(&self.merging, |run| run.request_id.as_str());
            queries.push((query, ReadKind::MergedRequests));
        }
        if !self.journals.is_empty() {
            let query = Query::new(&sql.last_seqs).bind(self.journals.clone());
            queries.push((query, ReadKind::LastSeqs));
        }
        if !self.links.is_empty() {
            let query = Query::new(&sql.link_owners)
                .column(&self.links, |link| text(&link.system))
                .column(&self.links, |link| text(&link.resource_type))
                .column(&self.links, |link| text(&link.resource_id));
            queries.push((query, ReadKind::LinkOwners));
        }
        if !self.closing.is_empty() {
            let query = Query::new(&sql.unseen_answers)
                .column(&self.closing, |wait| wait.0)
                .column(&self.closing, |wait| wait.1)
                .column(&self.closing, |wait| wait.2);
            queries.push((query, ReadKind::UnseenAnswers));
        }
        if !self.tokens.is_empty() {
            let query = Query::new(&sql.open_tokens).bind(self.tokens.clone());
            queries.push((query, ReadKind::OpenTokens));
        }
        queries
    }

    /// Statements that lock the keys of the batch, in the order of the keys; none if it needs no keys.
    pub(super) fn key_queries(batch: &[&'a Work], facts: &Facts, sql: &'a Statements) -> Vec<(Query<'a>, ReadKind)> {
        let members = batch.iter().filter(|work| !facts.is_locked(work));
        let keys: BTreeSet<&str> = members.flat_map(|work| facts.keys_of(work)).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
        vec![
            (Query::new(&sql.create_keys).bind(keys.clone()), ReadKind::CreatedKeys),
            (Query::new(&sql.lock_keys).bind(keys), ReadKind::Keys),
        ]
    }

    /// The distinct workflows of new runs and of runs that ask for what they need.
    fn workflows(&self, wanted: impl Fn(&Uuid) -> bool) -> Vec<Uuid> {
        let workflows = self.new.iter().map(|run| run.workflow_uid);
        let workflows = workflows.chain(self.admitting.iter().copied());
        let workflows: BTreeSet<Uuid> = workflows.filter(wanted).collect();
        workflows.into_iter().collect()
    }

    /// Statements that find out which of the rows that could not be locked exist. Those are locked by another
    /// transaction; the others do not exist.
    pub(super) fn existence_queries(&self, sql: &'a Statements, facts: &Facts) -> Vec<(Query<'a>, ReadKind)> {
        let runs = self.runs.iter().copied();
        let runs = runs.filter(|run| !facts.runs.contains_key(&RunId(*run)));
        let parents = self.parents.iter().copied();
        let parents = parents.filter(|parent| !facts.parents.contains_key(&RunId(*parent)));
        let runs: Vec<Uuid> = runs.chain(parents).collect();
        let workflows = self.workflows(|workflow| !facts.workflows.contains_key(workflow));
        let mut queries = Vec::new();
        if !workflows.is_empty() {
            let query = Query::new(&sql.existing_workflows).bind(workflows);
            queries.push((query, ReadKind::LockedWorkflows));
        }
        if !runs.is_empty() {
            queries.push((Query::new(&sql.existing_runs).bind(runs), ReadKind::LockedRuns));
        }
        queries
    }
}

impl Facts {
    /// Adds the rows that a statement returned.
    pub(super) fn add(&mut self, kind: ReadKind, rows: &[Row]) -> Result<(), PgError> {
        for row in rows {
            match kind {
                ReadKind::Workflows => {
                    let workflow = WorkflowFacts {
                        status: get(row, 1)?,
                        enabled: plain(row, 2)?,
                        current: maybe(row, 3)?,
                        latest: maybe(row, 4)?,
                        paused: plain::<Option<i64>>(row, 6)?.is_some(),
                    };
                    let deleted_at: Option<i64> = plain(row, 5)?;
                    let workflow = deleted_at.is_none().then_some(workflow);
                    self.workflows.insert(plain(row, 0)?, workflow);
                }
                ReadKind::Requests | ReadKind::MergedRequests => {
                    let existing = ExistingRun {
                        run: get(row, 2)?,
                        workflow_id: plain(row, 3)?,
                        status: get(row, 4)?,
                        workflow_uid: plain(row, 5)?,
                    };
                    self.requests
                        .entry((plain(row, 0)?, plain(row, 1)?))
                        .or_insert(existing);
                }
                ReadKind::Runs => {
                    let facts = RunFacts {
                        status: get(row, 1)?,
                        owner: plain::<Option<Uuid>>(row, 2)?.map(RunnerId),
                        epoch: get(row, 3)?,
                        takeovers: get(row, 4)?,
                        message_seq: get(row, 6)?,
                        messages_seen: get(row, 7)?,
                        is_limited: plain::<Option<&str>>(row, 9)?.is_some(),
                    };
                    let wake_at = plain(row, 5)?;
                    let flow = flow(row, 8)?;
                    let root = maybe(row, 12)?;
                    let paused = plain::<Option<i64>>(row, 13)?.is_some();
                    let row_of_run = RunRow {
                        facts,
                        wake_at,
                        flow,
                        root,
                        paused,
                    };
                    self.runs.insert(get(row, 0)?, row_of_run);
                }
                ReadKind::Parents => {
                    let parent = ParentFacts {
                        status: get(row, 1)?,
                        owner: plain::<Option<Uuid>>(row, 2)?.map(RunnerId),
                        epoch: get(row, 3)?,
                        emptied: plain(row, 4)?,
                    };
                    self.parents.insert(get(row, 0)?, parent);
                }
                ReadKind::UnreadEnds => {
                    self.unread_ends.insert(get(row, 0)?);
                }
                ReadKind::LockedWorkflows => {
                    self.locked_workflows.insert(plain(row, 0)?);
                }
                ReadKind::LockedRuns => {
                    self.locked_runs.insert(get(row, 0)?);
                }
                ReadKind::LastSeqs => {
                    if let Some(seq) = maybe(row, 1)? {
                        self.last_seqs.insert(get(row, 0)?, seq);
                    }
                }
                ReadKind::LinkOwners => {
                    let resource = (plain(row, 0)?, plain(row, 1)?, plain(row, 2)?);
                    let (run, root) = (get(row, 3)?, get(row, 4)?);
                    self.owners.insert(resource, Owner { run, root });
                }
                ReadKind::UnseenAnswers => {
                    self.answered.insert((get(row, 0)?, plain(row, 1)?));
                }
                ReadKind::CreatedKeys => {}
                ReadKind::Keys => {
                    let mut key = KeyRow {
                        held: get(row, 1)?,
                        most: get(row, 2)?,
                        version: get(row, 3)?,
                        run: maybe(row, 4)?,
                        begin: maybe(row, 5)?,
                        counted: get(row, 6)?,
                        expires_at: maybe(row, 7)?,
                        has_waiters: plain(row, 8)?,
                    };
                    let name: String = plain(row, 0)?;
                    self.owner_statuses.extend(key.run.zip(maybe(row, 9)?));
                    // A debounced run that has begun takes no further payload.
                    if key.begin.is_some() && key.run.is_some() && plain::<Option<bool>>(row, 10)? != Some(true) {
                        (key.run, key.begin) = (None, None);
                    }
                    self.keys.insert(name, key);
                }
                ReadKind::OpenTokens => {
                    self.open_tokens.insert(plain(row, 0)?, item_facts(row, 1)?);
                }
            }
        }
        Ok(())
    }
}
