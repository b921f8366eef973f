//! Runners that share a store: which are alive, what they hold, and how they stop.

use crate::support::{Bed, PATIENCE, Place, workflow};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Role, Settings,
    actions::{HttpSettings, Registry},
};
use serde_json::json;
use std::time::Duration;

fn on(store: &Place, role: Role) -> Bed {
    let settings = Settings {
        poll_interval: Duration::from_millis(20),
        lease_ttl: Duration::from_millis(600),
        role,
        ..Settings::default()
    };
    Bed::on(
        store.clone(),
        settings,
        Registry::builtin(&HttpSettings::default()).unwrap(),
    )
}

/// Role, held runs, and whether it is alive, of each runner; newest first.
async fn seen(engine: &Engine) -> Vec<(String, u64, bool)> {
    let page = engine.reads().runners(None, 10).await.unwrap();
    let each = page.items.into_iter();
    each.map(|(record, lives)| (record.runner.role, record.held, lives))
        .collect()
}

async fn eventually(engine: &Engine, expected: &[(&str, u64, bool)]) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let seen = seen(engine).await;
        let same = seen.iter().map(|(role, held, lives)| (role.as_str(), *held, *lives));
        if same.eq(expected.iter().copied()) {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{seen:?} instead of {expected:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn runners_see_each_other_and_retire() {
    let store = Place::new().await;
    let first = on(&store, Role::All);
    eventually(&first.engine, &[("all", 0, true)]).await;
    let second = on(&store, Role::Runner);
    eventually(&first.engine, &[("runner", 0, true), ("all", 0, true)]).await;
    // The pause is too short for parking, so the run stays in memory.
    let document = workflow(json!([
        { "id": "a", "actionType": "core.delay", "parameters": { "durationMs": 3000 } },
    ]));
    first.publish(&document).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let run = second.engine.start(request).await.unwrap().run;
    eventually(&first.engine, &[("runner", 1, true), ("all", 0, true)]).await;
    second.engine.stop();
    eventually(&first.engine, &[("all", 0, true)]).await;
    let ended = first.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
    let page = first.engine.reads().runners(None, 10).await.unwrap();
    let (record, _) = &page.items[0];
    assert_eq!(record.runner.pid, std::process::id());
    assert_eq!(record.runner.version, env!("CARGO_PKG_VERSION"));
    assert!(!record.runner.host.is_empty());
    assert!(record.heartbeat_at >= record.runner.started_at);
}

#[tokio::test]
async fn crashed_runner_is_dead_and_loses_its_runs() {
    let store = Place::new().await;
    let (first, second) = (on(&store, Role::All), on(&store, Role::Runner));
    eventually(&first.engine, &[("runner", 0, true), ("all", 0, true)]).await;
    let document = workflow(json!([
        { "id": "a", "actionType": "core.delay", "parameters": { "durationMs": 4000 } },
    ]));
    first.publish(&document).await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({}),
        ..Request::default()
    };
    let run = second.engine.start(request).await.unwrap().run;
    second.engine.crash();
    eventually(&first.engine, &[("runner", 0, false), ("all", 1, true)]).await;
    let ended = first.engine.wait(run, PATIENCE).await.unwrap().expect("it ends");
    assert_eq!(ended.status, Status::Succeeded);
}
