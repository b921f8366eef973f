//! Waiting for the end of a run, whoever works on it.
//!
//! A driver of this process tells when it ends a run. What others end is found by looking: soon at first, since most
//! runs are short, then as often as the store is asked for anything.
//!
//! What must stay true: nobody who stopped waiting leaves anything behind.

use super::{Accepted, Engine, Request, Shared, lock};
use crate::error::{EngineError, Refusal};
use fermata_core::{RunId, Status};
use fermata_store::reads::RunRecord;
use std::{sync::Arc, time::Duration};
use tokio::{sync::oneshot, time::Instant};

/// After this a run that is worked on elsewhere is looked at for the second time.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How a run ended, as its driver knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// Its final status.
    pub status: Status,
    /// A stable word, if it did not succeed.
    pub reason: Option<String>,
    /// `{"code", "message", "node"?}` as JSON, if it failed.
    pub error: Option<String>,
    /// Its outputs, as JSON.
    pub outputs: Option<String>,
}

/// Somebody who waits for a run, for as long as this lives.
struct Waiter {
    shared: Arc<Shared>,
    run: RunId,
    told: oneshot::Receiver<Arc<Ended>>,
}

impl Waiter {
    fn new(shared: &Arc<Shared>, run: RunId) -> Waiter {
        let (tell, told) = oneshot::channel();
        lock(&shared.waiters).entry(run).or_default().push(tell);
        Waiter {
            shared: shared.clone(),
            run,
            told,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.told.close();
        let mut waiters = lock(&self.shared.waiters);
        if let Some(list) = waiters.get_mut(&self.run) {
            list.retain(|waiter| !waiter.is_closed());
            if list.is_empty() {
                waiters.remove(&self.run);
            }
        }
    }
}

impl Engine {
    /// Starts a run and waits for its end, for at most `limit` and not beyond this engine's own.
    pub async fn start_and_wait(
        &self,
        request: Request,
        limit: Duration,
    ) -> Result<(Accepted, Option<Arc<Ended>>), EngineError> {
        let id = request.id.unwrap_or_else(|| RunId(self.shared.new_id()));
        let mut waiter = Waiter::new(&self.shared, id); // before it can end
        let accepted = self.start_as(id, request).await?;
        let deadline = Instant::now() + limit;
        if accepted.run != id {
            waiter = Waiter::new(&self.shared, accepted.run);
        } else if accepted.status == Status::Running {
            // Born here: its driver tells, unless others take over.
            let ended = self.told(&mut waiter, deadline.min(self.next_poll())).await;
            if ended.is_some() {
                return Ok((accepted, ended));
            }
        }
        let ended = self.look_for_end(waiter, deadline).await?;
        Ok((accepted, ended))
    }

    /// Waits for a run's end, for at most `limit` and not beyond this engine's own. `None` if it is not over by then.
    pub async fn wait(&self, run: RunId, limit: Duration) -> Result<Option<Arc<Ended>>, EngineError> {
        let deadline = Instant::now() + limit;
        self.look_for_end(Waiter::new(&self.shared, run), deadline).await
    }

    async fn look_for_end(&self, mut waiter: Waiter, deadline: Instant) -> Result<Option<Arc<Ended>>, EngineError> {
        let (shared, run) = (&self.shared, waiter.run);
        let mut pause = FIRST_PAUSE.min(shared.settings.poll_interval);
        loop {
            let record = shared.store.run(run).await?.ok_or(Refusal::RunNotFound(run))?;
            if record.status.is_terminal() {
                return Ok(Some(Arc::new(ended_of(record))));
            }
            let look_again = match shared.holds(run) {
                true => self.next_poll(),
                false => Instant::now() + pause,
            };
            pause = (pause * 2).min(shared.settings.poll_interval);
            if let Some(ended) = self.told(&mut waiter, deadline.min(look_again)).await {
                return Ok(Some(ended));
            }
            if shared.stopping.is_cancelled() || Instant::now() >= deadline {
                return Ok(None);
            }
        }
    }

    /// What a driver of this process says until then.
    async fn told(&self, waiter: &mut Waiter, until: Instant) -> Option<Arc<Ended>> {
        tokio::select! {
            biased;
            Ok(ended) = &mut waiter.told => Some(ended),
            () = self.shared.stopping.cancelled() => None,
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

impl Shared {
    /// Tells everyone who waits for this run.
    pub fn tell_end(&self, run: RunId, ended: Ended) {
        let waiters = lock(&self.waiters).remove(&run);
        let ended = Arc::new(ended);
        for waiter in waiters.into_iter().flatten() {
            let _ = waiter.send(ended.clone());
        }
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
    async fn who_stopped_waiting_leaves_nothing_behind() {
        let registry = Registry::builtin(&HttpSettings::default()).unwrap();
        let settings = Settings {
            role: Role::Api,
            ..Settings::default()
        };
        let engine = Engine::new(Arc::new(MemoryStore::new()), registry, settings, Arc::new(SystemClock));
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
        assert_eq!(lock(&engine.shared.waiters).len(), 1);
        drop(other);
        let unknown = Request::default();
        assert!(engine.start_and_wait(unknown, Duration::ZERO).await.is_err());
        assert!(lock(&engine.shared.waiters).is_empty());
    }
}
