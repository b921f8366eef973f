//! Waiting for the end of a run, in whatever process it ends.
//!
//! A driver of this process notifies the waiters of a run when it commits the end. A run that ends in another process is found
//! by polling the store: after a short pause at first, since most runs are short, then with longer pauses up to
//! `poll_interval`.
//!
//! What must stay true: a waiter removes itself from the map when it is dropped.

use super::{Accepted, Engine, Request, Shared, lock};
use crate::error::{EngineError, Refusal};
use fermata_core::{RunId, Status};
use fermata_store::{reads::RunRecord, runs::StatusChange};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// The pause between the first and the second read of a run that this process does not hold.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

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

/// The callers that wait for the end of a run, by run.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<HashMap<RunId, Vec<oneshot::Sender<Arc<Ended>>>>>);

impl Waiters {
    /// Notifies all waiters of a run that ended.
    pub fn notify(&self, run: RunId, ended: Ended) {
        let Some(waiters) = lock(&self.0).remove(&run) else {
            return;
        };
        let ended = Arc::new(ended);
        for waiter in waiters {
            let _ = waiter.send(ended.clone());
        }
    }

    fn add(&self, run: RunId) -> oneshot::Receiver<Arc<Ended>> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).entry(run).or_default().push(sender);
        receiver
    }

    fn remove_closed(&self, run: RunId) {
        let mut waiters = lock(&self.0);
        if let Some(list) = waiters.get_mut(&run) {
            list.retain(|waiter| !waiter.is_closed());
            if list.is_empty() {
                waiters.remove(&run);
            }
        }
    }
}

/// One caller that waits for a run.
struct Waiter {
    shared: Arc<Shared>,
    run: RunId,
    ended: oneshot::Receiver<Arc<Ended>>,
}

impl Waiter {
    fn new(shared: &Arc<Shared>, run: RunId) -> Waiter {
        Waiter {
            ended: shared.waiters.add(run),
            shared: shared.clone(),
            run,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.ended.close();
        self.shared.waiters.remove_closed(self.run);
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
        let mut waiter = Waiter::new(&self.shared, id); // added before the run can end
        let accepted = self.start_as(id, request).await?;
        let deadline = Instant::now() + limit;
        if accepted.run != id {
            waiter = Waiter::new(&self.shared, accepted.run);
        } else if accepted.status == Status::Running {
            // It started in this process: its driver notifies, unless another process takes the run over.
            let ended = self.notified(&mut waiter, deadline.min(self.next_poll())).await;
            if ended.is_some() {
                return Ok((accepted, ended));
            }
        }
        let ended = match self.poll_for_end(waiter, deadline).await {
            Ok(ended) => ended,
            Err(error) => {
                tracing::warn!(ExecutionId = %accepted.run, %error, "a run was accepted, and its end cannot be awaited");
                None
            }
        };
        Ok((accepted, ended))
    }

    /// Waits for a run's end, for at most `limit` and not after this engine stops. `None` if the run has not ended by then.
    pub async fn wait(&self, run: RunId, limit: Duration) -> Result<Option<Arc<Ended>>, EngineError> {
        let deadline = Instant::now() + limit;
        self.poll_for_end(Waiter::new(&self.shared, run), deadline).await
    }

    async fn poll_for_end(&self, mut waiter: Waiter, deadline: Instant) -> Result<Option<Arc<Ended>>, EngineError> {
        let (shared, run) = (&self.shared, waiter.run);
        let mut pause = FIRST_PAUSE.min(shared.settings.poll_interval);
        loop {
            let record = shared.store.run(run).await?.ok_or(Refusal::RunNotFound(run))?;
            if record.status.is_terminal() {
                return Ok(Some(Arc::new(ended_of(record))));
            }
            let next_read = match shared.held.contains(run) {
                true => self.next_poll(),
                false => Instant::now() + pause,
            };
            pause = (pause * 2).min(shared.settings.poll_interval);
            if let Some(ended) = self.notified(&mut waiter, deadline.min(next_read)).await {
                return Ok(Some(ended));
            }
            if shared.shutdown.is_stopping() || Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// Waits for the notification of a driver of this process, until `until`.
    async fn notified(&self, waiter: &mut Waiter, until: Instant) -> Option<Arc<Ended>> {
        tokio::select! {
            biased;
            Ok(ended) = &mut waiter.ended => Some(ended),
            () = self.shared.shutdown.stopping.cancelled() => None,
            () = tokio::time::sleep_until(until) => None,
        }
    }

    fn next_poll(&self) -> Instant {
        Instant::now() + self.shared.settings.poll_interval
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
    async fn dropped_waiter_is_removed() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let settings = Settings {
            role: Role::Api,
            ..Settings::default()
        };
        let engine = Engine::new(Arc::new(MemoryStore::new()), registry, settings, Arc::new(SystemClock));
        let waiters = || lock(&engine.shared.waiters.0).len();
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
            Waiter::new(&engine.shared, accepted.run),
            Waiter::new(&engine.shared, accepted.run),
        );
        assert_eq!(engine.wait(accepted.run, Duration::ZERO).await.unwrap(), None);
        drop(one);
        assert_eq!(waiters(), 1);
        drop(other);
        let unknown = Request::default();
        assert!(engine.start_and_wait(unknown, Duration::ZERO).await.is_err());
        assert_eq!(waiters(), 0);
    }
}
