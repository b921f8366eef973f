//! The roles of processes, and their runner records.

use crate::support::{Bed, PATIENCE, Place, Scripted, workflow};
use fermata_core::{RunId, Status, Timestamp};
use fermata_runtime::{
    Request, Role, Settings,
    actions::{Action, ActionInfo, Call, Failed, HttpSettings, Registry, Success},
    clock::{Clock, SystemClock},
};
use fermata_store::runners::RunnerRecord;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::Instant};

/// Each permit lets one call pass.
struct Gate(ActionInfo, Arc<Semaphore>);

#[async_trait::async_trait]
impl Action for Gate {
    fn info(&self) -> &ActionInfo {
        &self.0
    }

    async fn run(&self, _: Value, _: Call) -> Result<Success, Failed> {
        self.1.acquire().await.unwrap().forget();
        Ok(json!({}).into())
    }
}

fn one(action: &str) -> Value {
    workflow(json!([{ "id": "only", "actionType": action }]))
}

fn request() -> Request {
    Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({}),
        ..Request::default()
    }
}

fn bed(store: &Place, role: Role) -> Bed {
    let settings = Settings {
        role,
        ..Settings::default()
    };
    let registry = Registry::builtin(&HttpSettings::default()).unwrap();
    Bed::on(store.clone(), settings, registry)
}

/// Reads the runners until the condition holds.
async fn runners(store: &Place, wanted: impl Fn(&[RunnerRecord]) -> bool) -> Vec<RunnerRecord> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let runners = store.runners(None, 100).await.unwrap().items;
        if wanted(&runners) {
            return runners;
        }
        assert!(Instant::now() < deadline, "the condition never held: {runners:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn status(store: &Place, run: RunId) -> Status {
    store.run(run).await.unwrap().unwrap().status
}

#[tokio::test]
async fn api_process_leaves_runs_to_runners_and_sees_their_end() {
    let store = Place::new().await;
    let api = bed(&store, Role::Api);
    api.publish(&one("core.echo")).await;
    let accepted = api.engine.start(request()).await.unwrap();
    assert_eq!(accepted.status, Status::Pending);
    let not_yet = api.engine.wait(accepted.run, Duration::from_millis(100)).await.unwrap();
    assert_eq!((not_yet, status(&store, accepted.run).await), (None, Status::Pending));

    let runner = bed(&store, Role::Runner);
    let ended = api.engine.wait(accepted.run, PATIENCE).await.unwrap();
    assert_eq!(ended.expect("an end").status, Status::Succeeded);
    let (_, ended) = api.engine.start_and_wait(request(), PATIENCE).await.unwrap();
    assert_eq!(ended.expect("an end").status, Status::Succeeded);
    let seen = runners(&store, |runners| runners.len() == 2).await;
    let mut roles: Vec<_> = seen.iter().map(|record| record.runner.role.as_str()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["api", "runner"]);

    api.engine.stop();
    runner.engine.stop();
    runners(&store, <[_]>::is_empty).await;
}

/// Otherwise other runners would take over runs that are being released.
#[tokio::test]
async fn stopping_process_sends_heartbeats_until_its_runs_are_released() {
    let gate = Arc::new(Semaphore::new(0));
    let settings = Settings {
        lease_ttl: Duration::from_millis(30),
        ..Settings::default()
    };
    let action = Gate(
        Scripted::new("test.gate", |_, _| Ok(json!({}).into())).info().clone(),
        gate.clone(),
    );
    let bed = Bed::with(settings, |registry| registry.with_action(Arc::new(action))).await;
    bed.publish(&one("test.gate")).await;
    let run = bed.engine.start(request()).await.unwrap().run;
    runners(&bed.store, |runners| runners.iter().any(|record| record.held == 1)).await;
    bed.engine.stop();
    let stopped_at = SystemClock.now();
    let later = |at: Timestamp| at.micros_since(stopped_at) > 100_000;
    runners(&bed.store, |runners| {
        runners.iter().any(|record| later(record.heartbeat_at))
    })
    .await;
    assert_eq!(status(&bed.store, run).await, Status::Running);
    gate.add_permits(1);
    runners(&bed.store, <[_]>::is_empty).await;
    assert_eq!(status(&bed.store, run).await, Status::Succeeded);
}
