//! Waiting for the end of a run, in whatever process it ends (`watch.rs`).

use super::{Accepted, Engine, Request};
use crate::{
    error::{EngineError, Refusal},
    watch::{End, Watch},
};
use fermata_core::{RunId, Status};
use fermata_store::{reads::RunRecord, runs::StatusChange};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Its final status.
    pub status: Status,
    /// Why: `action_failed`, `timeout` or another stable word, if it did not succeed; for a cancel, the reason that the caller gave.
    pub reason: Option<String>,
    /// `{"code", "message", "node"?}` as JSON, if it failed.
    pub error: Option<String>,
    /// Its outputs, as JSON.
    pub outputs: Option<String>,
}

impl Ended {
    /// What a commit tells the waiters of its run; `None` if the run has not ended.
    pub(crate) fn of(change: &StatusChange) -> Option<Ended> {
        change.status.is_terminal().then(|| Ended {
            status: change.status,
            reason: change.reason.clone(),
            error: change.error.clone(),
            outputs: change.outputs.clone(),
        })
    }
}

impl Engine {
    /// Starts a run and waits for its end, for at most `limit` and not after this engine stops. The run is durable once it is
    /// accepted, so a store that fails afterwards only ends the wait.
    pub async fn start_and_wait(
        &self,
        request: Request,
        limit: Duration,
    ) -> Result<(Accepted, Option<Arc<Ended>>), EngineError> {
        let id = request.id.unwrap_or_else(|| RunId(self.shared.ids.next()));
        let watch = Watch::new(&self.shared, id); // added before the run can end
        let accepted = self.start_as(id, request).await?;
        let deadline = Instant::now() + limit;
        let ended = match accepted.run == id && accepted.status == Status::Running {
            // It started in this process, so it had not ended before it was watched.
            true => self.end_of(watch, id, deadline).await,
            false => {
                drop(watch);
                self.wait_until(accepted.run, deadline).await
            }
        };
        let ended = ended.unwrap_or_else(|error| {
            tracing::warn!(ExecutionId = %accepted.run, %error, "a run was accepted, and its end cannot be awaited");
            None
        });
        Ok((accepted, ended))
    }

    /// Waits for a run's end, for at most `limit` and not after this engine stops. `None` if the run has not ended by then.
    pub async fn wait(&self, run: RunId, limit: Duration) -> Result<Option<Arc<Ended>>, EngineError> {
        self.wait_until(run, Instant::now() + limit).await
    }

    async fn wait_until(&self, run: RunId, deadline: Instant) -> Result<Option<Arc<Ended>>, EngineError> {
        let watch = Watch::new(&self.shared, run);
        match self.stored_end(run).await? {
            Some(ended) => Ok(Some(ended)),
            None => self.end_of(watch, run, deadline).await,
        }
    }

    /// Waits for the end of a run that is stored and had not ended when it was watched.
    async fn end_of(&self, mut watch: Watch, run: RunId, deadline: Instant) -> Result<Option<Arc<Ended>>, EngineError> {
        watch.is_stored();
        loop {
            match watch.seen().end {
                Some(End::Here(ended)) => return Ok(Some(ended)),
                Some(End::Elsewhere) => return self.stored_end(run).await,
                Some(End::Removed) => return Err(Refusal::RunNotFound(run).into()),
                None => {}
            }
            match tokio::time::timeout_at(deadline, watch.ended()).await {
                Ok(true) => {}
                Ok(false) | Err(_) => return Ok(None),
            }
        }
    }

    /// How a run ended, as it is stored.
    async fn stored_end(&self, run: RunId) -> Result<Option<Arc<Ended>>, EngineError> {
        let record = self.shared.store.recent_run(run).await?;
        let record = record.ok_or(Refusal::RunNotFound(run))?;
        let is_over = record.status.is_terminal();
        Ok(is_over.then(|| Arc::new(ended_of(record))))
    }
}

fn ended_of(record: RunRecord) -> Ended {
    Ended {
        status: record.status,
        reason: record.reason,
        error: record.error,
        outputs: record.outputs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        actions::{HttpSettings, Registry},
        clock::SystemClock,
        settings::{Role, Settings},
    };
    use fermata_store::memory::MemoryStore;

    #[tokio::test]
    async fn dropped_watch_is_removed() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let settings = Settings {
            role: Role::Api,
            ..Settings::default()
        };
        let engine = Engine::new(Arc::new(MemoryStore::new()), registry, settings, Arc::new(SystemClock));
        let watched = || engine.shared.hub.len();
        let document = r#"{ "name": "n", "tasks": { "a": { "sleep": 1 } } }"#;
        engine.workflows().add(document.as_bytes(), "n.json").await.unwrap();
        let request = Request {
            workflow_id: "n".to_owned(),
            trigger: serde_json::json!({}),
            ..Request::default()
        };
        let (accepted, ended) = engine.start_and_wait(request, Duration::ZERO).await.unwrap();
        assert_eq!(ended, None);
        let (one, other) = (
            Watch::new(&engine.shared, accepted.run),
            Watch::new(&engine.shared, accepted.run),
        );
        assert_eq!(engine.wait(accepted.run, Duration::ZERO).await.unwrap(), None);
        drop(one);
        assert_eq!(watched(), 1);
        drop(other);
        let unknown = Request::default();
        assert!(engine.start_and_wait(unknown, Duration::ZERO).await.is_err());
        assert_eq!(watched(), 0);
    }
}
