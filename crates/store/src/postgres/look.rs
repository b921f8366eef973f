//! The first round trip of a batch: what to lock, what to ask, and how to read the answers.

use super::{
    columns::{get, maybe, plain, signed, text},
    error::PgError,
    facts::{Facts, Requested, RunFacts},
    pipeline::Query,
    sql::Statements,
    work::Work,
};
use crate::{
    definitions::WorkflowState,
    runs::{Link, NewRun, WaitChange},
};
use fermata_core::RunId;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// What the members of a batch have to know.
#[derive(Default)]
pub(super) struct Wish<'a> {
    new: Vec<&'a NewRun>,
    runs: Vec<Uuid>,
    journals: Vec<Uuid>,
    links: Vec<&'a Link>,
    /// Waits to close: the run, the node, and the letters that were seen.
    closing: Vec<(Uuid, &'a str, i64)>,
    tokens: Vec<&'a str>,
}

/// What a statement answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Workflows,
    Requests,
    Runs,
    LockedWorkflows,
    LockedRuns,
    LastSeqs,
    LinkOwners,
    UnseenAnswers,
    OpenTokens,
}

impl<'a> Wish<'a> {
    pub(super) fn of(batch: &[&'a Work]) -> Wish<'a> {
        let mut wish = Wish::default();
        for work in batch {
            match work {
                Work::Enqueue { run, .. } => {
                    wish.new.push(run);
                    continue;
                }
                Work::Commit { commit, text } => {
                    wish.journals.extend(text.is_some().then_some(commit.run.0));
                    wish.links.extend(&commit.links);
                    for change in &commit.waits {
                        if let WaitChange::Close { node } = change {
                            wish.closing
                                .push((commit.run.0, node.as_str(), signed(commit.inbox_seen)));
                        }
                    }
                }
                Work::Deliver { .. } => {}
                Work::Answer { token, .. } => wish.tokens.push(token),
            }
            wish.runs.push(work.run().0);
        }
        wish
    }

    /// What to send, in the order of locks.
    pub(super) fn queries(&self, sql: &'a Statements) -> Vec<(Query<'a>, Question)> {
        let mut queries = Vec::new();
        if !self.new.is_empty() {
            let query = Query::new(&sql.lock_workflows).bind(self.workflows(|_| true));
            queries.push((query, Question::Workflows));
        }
        if !self.runs.is_empty() {
            queries.push((Query::new(&sql.lock_runs).bind(self.runs.clone()), Question::Runs));
        }
        if !self.new.is_empty() {
            let query = Query::new(&sql.requests)
                .column(&self.new, |run| run.tenant.as_str())
                .column(&self.new, |run| run.request_id.as_str());
            queries.push((query, Question::Requests));
        }
        if !self.journals.is_empty() {
            let query = Query::new(&sql.last_seqs).bind(self.journals.clone());
            queries.push((query, Question::LastSeqs));
        }
        if !self.links.is_empty() {
            let query = Query::new(&sql.link_owners)
                .column(&self.links, |link| text(&link.system))
                .column(&self.links, |link| text(&link.resource_type))
                .column(&self.links, |link| text(&link.resource_id));
            queries.push((query, Question::LinkOwners));
        }
        if !self.closing.is_empty() {
            let query = Query::new(&sql.unseen_answers)
                .column(&self.closing, |wait| wait.0)
                .column(&self.closing, |wait| wait.1)
                .column(&self.closing, |wait| wait.2);
            queries.push((query, Question::UnseenAnswers));
        }
        if !self.tokens.is_empty() {
            let query = Query::new(&sql.open_tokens).bind(self.tokens.clone());
            queries.push((query, Question::OpenTokens));
        }
        queries
    }

    /// The workflows of new runs, each once.
    fn workflows(&self, wanted: impl Fn(&Uuid) -> bool) -> Vec<Uuid> {
        let workflows = self.new.iter().map(|run| run.workflow_uid);
        let workflows: BTreeSet<Uuid> = workflows.filter(wanted).collect();
        workflows.into_iter().collect()
    }

    /// Asks for what could not be locked.
    pub(super) fn not_locked(&self, sql: &'a Statements, facts: &Facts) -> Vec<(Query<'a>, Question)> {
        let runs = self.runs.iter().copied();
        let runs: Vec<Uuid> = runs.filter(|run| !facts.runs.contains_key(&RunId(*run))).collect();
        let workflows = self.workflows(|workflow| !facts.workflows.contains_key(workflow));
        let mut queries = Vec::new();
        if !workflows.is_empty() {
            let query = Query::new(&sql.workflows_there).bind(workflows);
            queries.push((query, Question::LockedWorkflows));
        }
        if !runs.is_empty() {
            queries.push((Query::new(&sql.runs_there).bind(runs), Question::LockedRuns));
        }
        queries
    }
}

impl Facts {
    /// Takes in the answer to a question.
    pub(super) fn learn(&mut self, question: Question, rows: &[Row]) -> Result<(), PgError> {
        for row in rows {
            match question {
                Question::Workflows => {
                    let workflow = WorkflowState {
                        status: get(row, 1)?,
                        enabled: plain(row, 2)?,
                        current: maybe(row, 3)?,
                        latest: maybe(row, 4)?,
                    };
                    let deleted_at: Option<i64> = plain(row, 5)?;
                    let workflow = deleted_at.is_none().then_some(workflow);
                    self.workflows.insert(plain(row, 0)?, workflow);
                }
                Question::Requests => {
                    let there = Requested {
                        run: get(row, 2)?,
                        workflow_id: plain(row, 3)?,
                        status: get(row, 4)?,
                        workflow_uid: plain(row, 5)?,
                    };
                    self.requests.insert((plain(row, 0)?, plain(row, 1)?), there);
                }
                Question::Runs => {
                    let run = RunFacts {
                        status: get(row, 1)?,
                        owner: plain(row, 2)?,
                        epoch: get(row, 3)?,
                        takeovers: get(row, 4)?,
                        wake_at: plain(row, 5)?,
                        inbox_seq: get(row, 6)?,
                        inbox_seen: get(row, 7)?,
                    };
                    self.runs.insert(get(row, 0)?, run);
                }
                Question::LockedWorkflows => {
                    self.locked_workflows.insert(plain(row, 0)?);
                }
                Question::LockedRuns => {
                    self.locked_runs.insert(get(row, 0)?);
                }
                Question::LastSeqs => {
                    if let Some(seq) = maybe(row, 1)? {
                        self.last_seqs.insert(get(row, 0)?, seq);
                    }
                }
                Question::LinkOwners => {
                    let resource = (plain(row, 0)?, plain(row, 1)?, plain(row, 2)?);
                    self.owners.insert(resource, get(row, 3)?);
                }
                Question::UnseenAnswers => {
                    self.answered.insert((get(row, 0)?, plain(row, 1)?));
                }
                Question::OpenTokens => {
                    self.open_tokens.insert(plain(row, 0)?, plain(row, 1)?);
                }
            }
        }
        Ok(())
    }
}
