//! Commands to a held run: pause and resume, and skipping a node that waits.
//!
//! While the run is paused, its driver starts nothing: attempts that are due are forgotten, attempts without a slot return
//! without having begun, and attempts that run continue. A resume looks at all open nodes again.

use super::{Driver, Incoming, StepError, step::Step};
use fermata_core::{AnswerRule, Fact, Kind, Output, Phase, SkippedBy, conductor};
use fermata_store::runs::{RunMessage, SkipNode};
use serde_json::Value;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

impl Driver {
    /// Whether the run is paused once these messages are decided.
    pub(super) fn is_paused_after(&self, incoming: &[Incoming]) -> bool {
        let last = incoming.iter().rev().find_map(|incoming| match incoming {
            Incoming::StoredMessage(message) => match message.message {
                RunMessage::Pause => Some(true),
                RunMessage::Resume => Some(false),
                _ => None,
            },
            _ => None,
        });
        // A run that is paused starts after its resume is decided.
        self.run.paused_at().is_some() || last.unwrap_or(false)
    }

    /// Takes note of a pause or a resume that was decided.
    pub(super) fn follow_pause(&mut self) {
        match self.run.paused_at() {
            Some(_) => {
                self.attempts.forget_unstarted();
                self.children.items.forget_touched();
                self.stopping.paused.cancel();
            }
            None if self.stopping.paused.is_cancelled() => self.stopping.paused = CancellationToken::new(),
            None => {}
        }
    }

    /// The fact of a skip. `None` if the node does not wait any more: the command came too late.
    pub(super) async fn take_skip(&mut self, command: SkipNode, step: &Step) -> Result<Option<Fact>, StepError> {
        let Some(ix) = self.compiled.plan.find(command.node.as_str()) else {
            return Ok(None);
        };
        let Phase::Open(open) = &self.run.node(ix).phase else {
            return Ok(None);
        };
        let attempt = open.attempt;
        let waits = conductor::waits(&self.run, ix, step.at) && self.run.stop().is_none();
        if !waits || (self.attempts.is_running(ix, attempt) && open.resending.is_none()) {
            return Ok(None);
        }
        if open.requested {
            self.recall_sent(ix, attempt, step).await?;
        }
        if self.is_child(ix) {
            self.cancel_child(ix, attempt, step).await?;
        }
        let value = self.shared.offload.parse(&command.outputs).await.unwrap_or_default();
        let chosen = match &self.compiled.plan.node(ix).kind {
            Kind::Request {
                answer: AnswerRule::Outcome { .. } | AnswerRule::Approval { .. },
                ..
            } => value["outcome"].as_str().map(str::to_owned),
            _ => None,
        };
        let value: Arc<Value> = Arc::new(value);
        let output = Output::of(&value, command.outputs.len());
        self.requests.keep_answer(ix, value, command.outputs);
        Ok(Some(Fact::Skip {
            node: command.node,
            output,
            chosen,
            skipped: SkippedBy {
                by: command.by,
                reason: command.reason,
            },
        }))
    }
}
