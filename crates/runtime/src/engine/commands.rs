//! Messages to runs: callbacks and cancels.

use super::Engine;
use crate::error::{EngineError, Refusal};
use fermata_core::{RunId, Status};
use fermata_store::runs::{Answer, Delivery, RunMessage};

impl Engine {
    /// Answers the wait of a callback's token. The answer is durable when this returns, and the run is woken at once.
    pub async fn answer(&self, token: &str, payload: &str) -> Result<Answer, EngineError> {
        let now = self.shared.clock.now();
        Ok(self.shared.store.answer(token, payload, None, now).await?)
    }

    /// Requests that a run stops. A terminal run is not changed. Returns the status of the run.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<Status, EngineError> {
        let message = RunMessage::Cancel {
            reason: reason.to_owned(),
        };
        match self.shared.store.deliver(run, message, self.shared.clock.now()).await? {
            Delivery::NotFound => Err(Refusal::RunNotFound(run).into()),
            Delivery::Terminal { status } | Delivery::Delivered { status } => Ok(status),
        }
    }
}
