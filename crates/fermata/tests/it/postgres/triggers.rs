//! Three processes are killed at random and started again while webhooks, events and a schedule arrive.
//!
//! What must stay true: each acknowledged occurrence starts one run and each instant fires once, whichever process received it,
//! judged it, started its run or died meanwhile.

use super::process;
use crate::{
    crash::throw,
    support::{PATIENCE, Server, eventually, http_client, shared_home},
    triggers::{executions, path_of, trigger, workflow},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Determines what is sent where, and which processes are killed after how many acknowledgements.
const SEED: u64 = 20_261_117;
/// How long processes are killed, in seconds.
const LENGTH: i64 = 15;
/// How many occurrences are sent at the same time.
const BATCH: u64 = 12;
/// The pause before something is sent again.
const AGAIN: Duration = Duration::from_millis(20);

/// A webhook or an event.
#[derive(Clone)]
struct Sent {
    path: String,
    body: Value,
}

/// What all clients share.
struct Clients {
    /// The processes that run.
    urls: Mutex<Vec<String>>,
    client: reqwest::Client,
}

impl Clients {
    fn use_all(&self, servers: &[Server], without: &[usize]) {
        let running = servers.iter().enumerate().filter(|(place, _)| !without.contains(place));
        *self.urls.lock().unwrap() = running.map(|(_, server)| server.url.clone()).collect();
    }

    /// Sends it to one process after the other until it is acknowledged.
    async fn send(self: Arc<Self>, sent: Sent, first: usize) {
        let deadline = Instant::now() + PATIENCE;
        for attempt in first.. {
            let url = {
                let urls = self.urls.lock().unwrap();
                urls[attempt % urls.len()].clone()
            };
            let request = self.client.post(format!("{url}{}", sent.path)).json(&sent.body);
            let status = request.send().await.map(|response| response.status().as_u16());
            if matches!(status, Ok(202)) {
                return;
            }
            assert!(Instant::now() < deadline, "{}: {status:?}", sent.body);
            tokio::time::sleep(AGAIN).await;
        }
    }
}

/// Waits until every delivery of a workflow's trigger is settled.
async fn settled(server: &Server, workflow: &str) {
    let id = trigger(server, workflow).await["id"].as_str().unwrap().to_owned();
    eventually(&format!("the end of the deliveries of {workflow}"), || async {
        let path = format!("/api/v1/triggers/{id}/deliveries?state=pending");
        let (status, page) = server.get(&path).await;
        assert_eq!(status, 200, "{page}");
        page["items"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
}

/// This member of the trigger of every run of a workflow. Fails if two runs have the same.
async fn marks(server: &Server, workflow: &str, member: &str) -> BTreeSet<String> {
    let mut marks = BTreeSet::new();
    for run in executions(server, workflow).await {
        let run = server.ended(run["id"].as_str().unwrap()).await;
        let mark = run["outputs"]["trigger"][member].as_str();
        let mark = mark.unwrap_or_else(|| panic!("{run}")).to_owned();
        assert!(marks.insert(mark.clone()), "{mark} started two runs of {workflow}");
    }
    marks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn occurrences_start_one_run_each_while_processes_are_killed() {
    let home = shared_home();
    let mut servers: Vec<Server> = (0..3).map(|_| process(&home, "all", &[])).collect();
    let end = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + LENGTH).expect("a time");
    let by_id = json!({ "dedupe": "trigger.id" });
    // The condition needs the sandbox, so these are acknowledged before they are judged.
    let condition = "/^judged/.test(payload.id)";
    let every = json!({ "every": "1s", "endAt": end.to_string(), "catchUp": { "mode": "all", "window": "1h" } });
    for (name, declared) in [
        ("plain", json!({ "name": "in", "type": "webhook", "config": by_id })),
        (
            "judged",
            json!({ "name": "in", "type": "webhook", "config": by_id, "condition": condition }),
        ),
        (
            "paid",
            json!({ "name": "in", "type": "event", "config": { "type": "order.paid" } }),
        ),
        ("tick", json!({ "name": "in", "type": "schedule", "config": every })),
    ] {
        servers[0].publish(&workflow(name, json!([declared]))).await;
    }
    let plain = path_of(&trigger(&servers[0], "plain").await);
    let judged = path_of(&trigger(&servers[0], "judged").await);

    let clients = Arc::new(Clients {
        urls: Mutex::default(),
        client: http_client(),
    });
    clients.use_all(&servers, &[]);
    let mut expected: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let (mut rng, mut number) = (SEED, 0_u64);
    while jiff::Timestamp::now() < end {
        let mut sending = JoinSet::new();
        for _ in 0..BATCH {
            number += 1;
            let name = ["plain", "judged", "paid"][number as usize % 3];
            let id = format!("{name}-{number}");
            let payload = json!({ "id": id });
            let (path, body) = match name {
                "plain" => (plain.clone(), payload),
                "judged" => (judged.clone(), payload),
                _ => {
                    let event = json!({ "type": "order.paid", "source": "/shop", "id": id, "data": payload });
                    ("/api/v1/events".to_owned(), event)
                }
            };
            expected.entry(name).or_default().insert(id);
            let (sent, first) = (Sent { path, body }, throw(&mut rng) as usize);
            // Some are sent to two processes.
            for copy in 0..=usize::from(throw(&mut rng).is_multiple_of(3)) {
                sending.spawn(clients.clone().send(sent.clone(), first + copy));
            }
        }
        // Then some are acknowledged, and others are in flight.
        for _ in 0..throw(&mut rng) % BATCH {
            sending
                .join_next()
                .await
                .expect("a client")
                .expect("it is acknowledged");
        }
        let victim = (throw(&mut rng) % 3) as usize;
        let mut victims = vec![victim];
        if throw(&mut rng).is_multiple_of(4) {
            victims.push((victim + 1) % 3);
        }
        for place in &victims {
            servers[*place].kill9();
        }
        clients.use_all(&servers, &victims);
        while let Some(sent) = sending.join_next().await {
            sent.expect("it is acknowledged");
        }
        for place in &victims {
            servers[*place].restart();
        }
        clients.use_all(&servers, &[]);
    }

    let server = &servers[0];
    for (name, ids) in &expected {
        settled(server, name).await;
        assert_eq!(marks(server, name, "id").await, *ids, "{name}");
    }
    eventually("the end of the schedule", || async {
        trigger(server, "tick").await.get("nextFireAt").is_none().then_some(())
    })
    .await;
    settled(server, "tick").await;
    let instants = marks(server, "tick", "scheduledAt").await;
    let first: jiff::Timestamp = instants.first().expect("an instant").parse().expect("a time");
    let all = (first.as_second()..=end.as_second()).map(|second| jiff::Timestamp::from_second(second).expect("a time"));
    assert_eq!(
        instants,
        all.map(|instant| instant.to_string()).collect::<BTreeSet<_>>()
    );
}
