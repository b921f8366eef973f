//! The first round trip of a batch: the rows to lock, the data to read, and how the result rows become [`Facts`].

use super::{
    columns::{get, maybe, plain, signed, text},
    error::PgError,
    facts::{Facts, RunRow},
    inbox::item_facts,
    pipeline::Query,
    sql::Statements,
    work::Work,
};
use crate::{
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
    runs: Vec<Uuid>,
    journals: Vec<Uuid>,
    links: Vec<&'a Link>,
    /// Waits to close: run, node, and the sequence number of the last run message that the run has read.
    closing: Vec<(Uuid, &'a str, i64)>,
    tokens: Vec<&'a str>,
    parents: Vec<Uuid>,
    /// Runs that get a message about ended children.
    ends: Vec<Uuid>,
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
}

impl<'a> BatchReads<'a> {
    pub(super) fn of(batch: &[&'a Work]) -> BatchReads<'a> {
        let mut reads = BatchReads::default();
        for work in batch {
            match work {
                Work::Enqueue { run, .. } => {
                    reads.new.push(run);
                    reads.parents.extend(work.leased_parent().map(|parent| parent.0));
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
        if !self.new.is_empty() {
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

    /// The distinct workflows of new runs.
    fn workflows(&self, wanted: impl Fn(&Uuid) -> bool) -> Vec<Uuid> {
        let workflows = self.new.iter().map(|run| run.workflow_uid);
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
                    };
                    let deleted_at: Option<i64> = plain(row, 5)?;
                    let workflow = deleted_at.is_none().then_some(workflow);
                    self.workflows.insert(plain(row, 0)?, workflow);
                }
                ReadKind::Requests => {
                    let existing = ExistingRun {
                        run: get(row, 2)?,
                        workflow_id: plain(row, 3)?,
                        status: get(row, 4)?,
                        workflow_uid: plain(row, 5)?,
                    };
                    self.requests.insert((plain(row, 0)?, plain(row, 1)?), existing);
                }
                ReadKind::Runs => {
                    let facts = RunFacts {
                        status: get(row, 1)?,
                        owner: plain::<Option<Uuid>>(row, 2)?.map(RunnerId),
                        epoch: get(row, 3)?,
                        takeovers: get(row, 4)?,
                        message_seq: get(row, 6)?,
                        messages_seen: get(row, 7)?,
                    };
                    let wake_at = plain(row, 5)?;
                    self.runs.insert(get(row, 0)?, RunRow { facts, wake_at });
                }
                ReadKind::Parents => {
                    let parent = ParentFacts {
                        status: get(row, 1)?,
                        owner: plain::<Option<Uuid>>(row, 2)?.map(RunnerId),
                        epoch: get(row, 3)?,
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
                    self.owners.insert(resource, get(row, 3)?);
                }
                ReadKind::UnseenAnswers => {
                    self.answered.insert((get(row, 0)?, plain(row, 1)?));
                }
                ReadKind::OpenTokens => {
                    self.open_tokens.insert(plain(row, 0)?, item_facts(row, 1)?);
                }
            }
        }
        Ok(())
    }
}
