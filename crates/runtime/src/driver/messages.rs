//! The messages of a held run: callbacks, cancels and other commands.

use super::{Driver, Incoming, StepError, step::Step};
use crate::wait_rows::takes_answer;
use fermata_core::{Fact, NodeIx, Output};
use fermata_store::runs::{RunMessage, StoredMessage};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// The pause after a read of messages that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Messages {
    /// The newest message that is recorded as consumed.
    pub seen: u64,
    /// Whether messages were pending when the run was claimed.
    pub pending: bool,
    /// Notified when there are new messages.
    pub wake: Arc<Notify>,
    /// Whether a cancel was among the messages.
    pub cancelled: bool,
    /// Payloads of callbacks that were read, with their texts.
    answers: BTreeMap<NodeIx, (Arc<Value>, String)>,
}

impl Driver {
    /// Reads new messages.
    pub(super) async fn fetch_messages(&mut self) -> Vec<Incoming> {
        match self.shared.store.messages(self.meta.id, self.messages.seen).await {
            Ok(messages) => messages.into_iter().map(Incoming::StoredMessage).collect(),
            Err(error) => {
                let health = &self.shared.health;
                health.retried(
                    Some(self.meta.id),
                    &error,
                    "the messages of a run cannot be read; trying again",
                );
                self.messages.wake.notify_one();
                tokio::time::sleep(RETRY_PAUSE).await;
                Vec::new()
            }
        }
    }

    /// The fact that a message stands for. `None` if it was consumed before or its node is not in the plan.
    pub(super) async fn take_message(
        &mut self,
        message: StoredMessage,
        step: &mut Step,
    ) -> Result<Option<Fact>, StepError> {
        if message.seq <= step.messages_seen {
            return Ok(None);
        }
        step.messages_seen = message.seq;
        step.read_messages = true;
        Ok(match message.message {
            RunMessage::Cancel { reason } => {
                self.messages.cancelled = true;
                Some(Fact::Cancel { reason })
            }
            RunMessage::Pause => Some(Fact::Pause { at: message.at }),
            RunMessage::Resume => Some(Fact::Resume { at: message.at }),
            RunMessage::Skip(command) => self.take_skip(command, step).await?,
            RunMessage::Resend { node, attempt } => Some(Fact::Resend {
                node,
                attempt,
                at: message.at,
            }),
            RunMessage::ChildrenEnded => {
                self.children.read_again = true;
                self.take_ended_children(step).await?;
                None
            }
            RunMessage::Callback { node, attempt } => match self.compiled.plan.find(node.as_str()) {
                None => None,
                Some(ix) if takes_answer(&self.compiled.plan, &node) => {
                    self.request_answered(ix, attempt, step).await?
                }
                Some(ix) => {
                    let (payload, text) = self.answer_of(ix, step).await?;
                    let output = Output::of(&payload, text.len());
                    Some(Fact::Callback { node, output })
                }
            },
        })
    }

    /// The payload of the callback that answered a wait, and its text.
    pub(super) async fn answer_of(&mut self, ix: NodeIx, step: &Step) -> Result<(Arc<Value>, String), StepError> {
        if let Some(answer) = self.messages.answers.get(&ix) {
            return Ok(answer.clone());
        }
        let waits = self.shared.store.waits(self.meta.id).await;
        let waits = waits.map_err(|error| self.read_failed(&error, step))?;
        let id = &self.compiled.plan.node(ix).id;
        let text = waits
            .into_iter()
            .find(|wait| wait.node == *id)
            .and_then(|wait| wait.payload);
        let offload = self.shared.offload.clone();
        let payload = match text {
            Some(text) => offload.parse(&text).await.unwrap_or_default(),
            None => Value::Null,
        };
        let payload = Arc::new(payload);
        let answer = (payload.clone(), offload.to_text(payload).await);
        self.messages.answers.insert(ix, answer.clone());
        Ok(answer)
    }
}
