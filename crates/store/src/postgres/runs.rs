//! [`RunStore`]: each method calls `committer.rs`, `claim.rs` or `reads.rs`.

use super::{
    PostgresStore, claim,
    columns::storable,
    error::PgError,
    mistaken, reads,
    sessions::patiently,
    work::{Outcome, Work},
};
use crate::{
    Result,
    runs::{
        Answer, Attempt, Claim, Claimed, CommitAnswer, Delivery, Enqueued, NewRun, RunCommit, RunMessage, RunStore,
        StoredMessage, StoredRun, WaitRecord, journal_text, message_text,
    },
};
use async_trait::async_trait;
use fermata_core::{NodeId, RunId, Timestamp};

#[async_trait]
impl RunStore for PostgresStore {
    async fn enqueue(&self, mut run: NewRun) -> Result<Enqueued> {
        let first = run.take_first_row();
        let run = Box::new(run);
        match self.write(Work::Enqueue { run, first }).await? {
            Outcome::Enqueued(answer) => Ok(answer),
            other => Err(mistaken(&other)),
        }
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        let dead_before = claim.dead_before.map(|at| self.clock.theirs(at));
        patiently!(self.sessions, |session| claim::claim(
            &mut session,
            &claim,
            dead_before,
            &self.walked
        ))
    }

    async fn commit(&self, mut commit: RunCommit) -> CommitAnswer {
        if let Some(what) = commit.rejected() {
            return CommitAnswer::Rejected(what);
        }
        let text = journal_text(std::mem::take(&mut commit.events));
        let commit = Box::new(commit);
        match self.write(Work::Commit { commit, text }).await {
            Ok(Outcome::Committed(answer)) => answer,
            Ok(other) => CommitAnswer::Unknown(mistaken(&other).to_string()),
            Err(error) => CommitAnswer::of_error(error),
        }
    }

    async fn deliver(&self, run: RunId, message: RunMessage, at: Timestamp) -> Result<Delivery> {
        let message = message_text(&message);
        self.record_request().await?;
        match self.write(Work::Deliver { run, message, at }).await? {
            Outcome::Delivered(answer) => Ok(answer),
            other => Err(mistaken(&other)),
        }
    }

    async fn answer(&self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Result<Answer> {
        if !storable(token) {
            return Ok(Answer::NotFound);
        }
        let Some((run, node, attempt)) = patiently!(self.sessions, |session| reads::token(&session, token))? else {
            return Ok(Answer::NotFound);
        };
        self.record_request().await?;
        let work = Work::Answer {
            token: token.to_owned(),
            run,
            message: message_text(&RunMessage::Callback {
                node: node.clone(),
                attempt,
            }),
            node,
            payload: payload.to_owned(),
            by: by.map(str::to_owned),
            at,
            check: None,
        };
        match self.write(work).await? {
            Outcome::Answered(answer) => Ok(answer),
            other => Err(mistaken(&other)),
        }
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        patiently!(self.sessions, |session| claim::load(&session, run))
    }

    async fn messages(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        patiently!(self.sessions, |session| reads::messages(&session, run, after))
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        patiently!(self.sessions, |session| reads::waits(&session, run))
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<Attempt>> {
        patiently!(self.sessions, |session| reads::last_attempts(&session, run, nodes))
    }

    async fn cached_state(&self, run: RunId) -> Result<Option<String>> {
        patiently!(self.sessions, |session| reads::cached_state(&session, run))
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<Attempt>> {
        if !storable(node.as_str()) {
            return Ok(None);
        }
        patiently!(self.sessions, |session| reads::attempt(&session, run, node, attempt))
    }
}
