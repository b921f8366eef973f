//! The database is unreachable for longer than `lease_ttl`. All runners are alive, so no run is taken over and no call
//! is repeated.

use super::{
    PUBLIC_URL,
    hand_over::{ASSERT_NO_TAKEOVERS, RECORD_TAKEOVERS},
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
/// The `lease_ttl` of test servers.
const LEASE_TTL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_lease_expires_while_the_database_is_unreachable() {
    let cluster = Cluster::start(true, &[]);
    let url = cluster.url("postgres");
    let role = |role| Server::start_with(&["--database", &url, "--role", role], &[PUBLIC_URL]);
    let service = Service::start().await;
    service.script("/slow", [Answer::ok(&json!({})).held()]);
    let api = role("api");
    execute(&url, RECORD_TAKEOVERS).await;
    let runners = [role("runner"), role("runner"), role("runner")];
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
        tokio::time::sleep(LEASE_TTL + LEASE_TTL / 2).await;
        cluster.start_again();
        eventually("a database that accepts writes", || async {
            (api.get("/health/ready").await.0 == 200).then_some(())
        })
        .await;
        // A runner that wrongly treats others as dead has taken over their runs by now.
        tokio::time::sleep(LEASE_TTL).await;
    }
    execute(&url, ASSERT_NO_TAKEOVERS).await;
    for process in runners.iter().chain([&api]) {
        let log = process.process().log();
        for line in [
            "the database cannot be reached: ",
            "the database can be reached again after ",
        ] {
            assert_eq!(log.matches(line).count(), 2, "once for each outage: {line}\n{log}");
        }
    }

    (0..RUNS).for_each(|_| service.release("/slow"));
    for run in &runs {
        assert_eq!(api.over(run).await["status"], "completed", "{run:?}");
    }
    let calls = service.calls();
    let keys: BTreeSet<_> = calls.iter().map(|call| call.key()).collect();
    assert_eq!((calls.len(), keys.len()), (RUNS, RUNS));
}
