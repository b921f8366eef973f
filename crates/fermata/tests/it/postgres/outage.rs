//! The database is away for longer than a lease lasts. Nobody died, so nothing is taken over or called again.

use super::{
    PUBLIC_URL,
    hand_over::{NOTHING_WAS_TAKEN, WITNESS},
};
use crate::{
    runlater::service::{Answer, Service},
    support::{Server, eventually},
};
use fermata_store::{
    cluster::{Cluster, Stop},
    conformance::cluster::execute,
};
use serde_json::json;
use std::{collections::BTreeSet, time::Duration};

const RUNS: usize = 24;
/// As long as the leases of tests last.
const LEASE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_dead_because_the_database_was_away() {
    let cluster = Cluster::start(true, &[]);
    let url = cluster.url("postgres");
    let role = |role| Server::start_with(&["--database", &url, "--role", role], &[PUBLIC_URL]);
    let service = Service::start().await;
    service.script("/slow", [Answer::ok(&json!({})).held()]);
    let api = role("api");
    execute(&url, WITNESS).await;
    let _runners = [role("runner"), role("runner"), role("runner")];
    let slow = json!({ "url": service.at("/slow"), "retries": 0, "timeout": "10m" });
    let document = json!({ "name": "long", "tasks": { "slow": slow } });
    api.add(&document).await;
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(api.trigger("long", &json!({ "n": number })).await);
    }
    service.call("/slow", RUNS).await;

    for _ in 0..2 {
        cluster.stop(Stop::Fast);
        tokio::time::sleep(LEASE + LEASE / 2).await;
        cluster.start_again();
        eventually("a database that takes writes", || async {
            (api.get("/health/ready").await.0 == 200).then_some(())
        })
        .await;
        // Whoever takes others for dead does it by now.
        tokio::time::sleep(LEASE).await;
    }
    execute(&url, NOTHING_WAS_TAKEN).await;

    (0..RUNS).for_each(|_| service.release("/slow"));
    for run in &runs {
        assert_eq!(api.over(run).await["status"], "completed", "{run:?}");
    }
    let calls = service.calls();
    let keys: BTreeSet<_> = calls.iter().map(|call| call.key()).collect();
    assert_eq!((calls.len(), keys.len()), (RUNS, RUNS));
}
