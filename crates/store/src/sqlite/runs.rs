//! [`RunStore`]: each method hands its work to `enqueue.rs`, `claim.rs`, `commit.rs`, `messages.rs` and `reads.rs`.

use super::{SqliteStore, claim, commit, enqueue, messages, reads, states};
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
impl RunStore for SqliteStore {
    async fn enqueue(&self, mut run: NewRun) -> Result<Enqueued> {
        let first = run.take_first_row();
        self.writer
            .write(move |tx| enqueue::enqueue(tx, &run, first.as_deref()))
            .await
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.writer.write(move |tx| claim::claim(tx, &claim)).await
    }

    async fn commit(&self, mut commit: RunCommit) -> CommitAnswer {
        if let Some(what) = commit.rejected() {
            return CommitAnswer::Rejected(what);
        }
        let text = journal_text(std::mem::take(&mut commit.events));
        let answer = self
            .writer
            .write(move |tx| commit::commit(tx, &commit, text.as_deref()))
            .await;
        answer.unwrap_or_else(CommitAnswer::of_error)
    }

    async fn deliver(&self, run: RunId, message: RunMessage, at: Timestamp) -> Result<Delivery> {
        let message = message_text(&message);
        self.writer
            .write(move |tx| messages::deliver(tx, run, &message, at))
            .await
    }

    async fn answer(&self, token: &str, payload: &str, by: Option<&str>, at: Timestamp) -> Result<Answer> {
        let (token, payload, by) = (token.to_owned(), payload.to_owned(), by.map(str::to_owned));
        self.writer
            .write(move |tx| messages::answer(tx, &token, &payload, by.as_deref(), at))
            .await
    }

    async fn load(&self, run: RunId) -> Result<Option<StoredRun>> {
        self.readers.read(move |connection| claim::load(connection, run)).await
    }

    async fn messages(&self, run: RunId, after: u64) -> Result<Vec<StoredMessage>> {
        self.readers
            .read(move |connection| reads::messages(connection, run, after))
            .await
    }

    async fn waits(&self, run: RunId) -> Result<Vec<WaitRecord>> {
        self.readers.read(move |connection| reads::waits(connection, run)).await
    }

    async fn last_attempts(&self, run: RunId, nodes: &[NodeId]) -> Result<Vec<Attempt>> {
        let nodes = nodes.to_vec();
        self.readers
            .read(move |connection| reads::last_attempts(connection, run, &nodes))
            .await
    }

    async fn cached_state(&self, run: RunId) -> Result<Option<String>> {
        self.readers.read(move |connection| states::read(connection, run)).await
    }

    async fn attempt(&self, run: RunId, node: &NodeId, attempt: u32) -> Result<Option<Attempt>> {
        let node = node.clone();
        self.readers
            .read(move |connection| reads::attempt(connection, run, &node, attempt))
            .await
    }
}
