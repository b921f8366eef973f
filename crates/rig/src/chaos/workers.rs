//! Workers that share a queue of the inbox: they claim tasks, send heartbeats, answer, fail, come too late and give up.
//!
//! What must stay true: claims and answers are in the log before anything else is done with them.

use super::{
    evidence::{Note, now},
    load::Load,
    rng::Rng,
    workflows::QUEUE,
};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use uuid::Uuid;

const WORKERS: u64 = 4;

/// Longer than the accuracy with which processes know the time of the database, see `check/workers.rs`.
const LEASE: Duration = Duration::from_millis(2500);

/// A claimed task.
struct Task {
    item: Uuid,
    lease: Uuid,
    attempt: u64,
    outcomes: Vec<String>,
}

impl Load {
    /// Starts the workers. They work until they are aborted, because runs wait for them.
    pub fn begin_work(self: &Arc<Self>) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for number in 0..WORKERS {
            workers.spawn(self.clone().keep_working(number));
        }
        workers
    }

    async fn keep_working(self: Arc<Self>, number: u64) {
        let mut rng = Rng::new(self.seed, &format!("worker {number}"));
        // One of them works for a tenant only.
        let tenant = (number == 0).then(|| "blue".to_owned());
        let mut claim = json!({ "queue": QUEUE, "worker": format!("worker-{number}"), "wait": "1s",
                                "lease": format!("{}ms", LEASE.as_millis()) });
        if let Some(tenant) = &tenant {
            claim["tenantId"] = tenant.as_str().into();
        }
        loop {
            claim["limit"] = rng.between(1, 3).into();
            let response = self
                .post(self.server(rng.roll()), "/api/v1/inbox/claim", None, &claim)
                .await;
            let items = match response {
                Some(response) if response.status < 300 => response.body["items"].clone(),
                Some(response) if response.status < 500 => {
                    self.refused(format!("claim: {} {}", response.status, response.body))
                        .await;
                    return;
                }
                _ => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let mut tasks = Vec::new();
            for item in items.as_array().into_iter().flatten() {
                let id = |name: &str| item[name].as_str().and_then(|text| text.parse().ok());
                let (Some(item_id), Some(lease), Some(run)) = (id("id"), id("leaseId"), id("executionId")) else {
                    self.refused(format!("a claim returned {item}")).await;
                    continue;
                };
                let note = Note::Claimed {
                    at: now(),
                    tenant: tenant.clone(),
                    item: item_id,
                    lease,
                    run,
                };
                self.note(&note).await;
                let outcomes = item["outcomes"].as_array().into_iter().flatten();
                tasks.push(Task {
                    item: item_id,
                    lease,
                    attempt: item["attempt"].as_u64().unwrap_or(1),
                    outcomes: outcomes.filter_map(Value::as_str).map(str::to_owned).collect(),
                });
            }
            for task in tasks {
                self.work_on(&task, &mut rng).await;
            }
        }
    }

    async fn work_on(&self, task: &Task, rng: &mut Rng) {
        match rng.below(20) {
            // The lease lapses, and another worker gets the task.
            0..2 => {}
            // Too late: the answer must be refused, whether the task was claimed again or not.
            2 => {
                tokio::time::sleep(LEASE + Duration::from_millis(1500)).await;
                self.complete(task, task.answer(rng), rng.roll()).await;
            }
            // Two answers at the same time, to two servers.
            3..6 => {
                let (one, other, server) = (task.answer(rng), task.answer(rng), rng.roll());
                tokio::join!(self.complete(task, one, server), self.complete(task, other, server + 1));
            }
            6..8 if task.attempt < 4 && task.outcomes.is_empty() => {
                let error = json!({ "code": "BROKEN", "message": rng.roll().to_string(), "retriable": true });
                self.complete(task, json!({ "error": error }), rng.roll()).await;
            }
            8..12 => {
                for _ in 0..2 {
                    tokio::time::sleep(rng.millis(0, 1500)).await;
                    let beat = json!({ "leaseId": task.lease, "lease": format!("{}ms", LEASE.as_millis()),
                                       "progress": { "at": rng.roll() } });
                    let path = format!("/api/v1/inbox/{}/heartbeat", task.item);
                    let _ = self.post(self.server(rng.roll()), &path, None, &beat).await;
                }
                self.complete(task, task.answer(rng), rng.roll()).await;
            }
            _ => self.complete(task, task.answer(rng), rng.roll()).await,
        }
    }

    /// Sends an answer until it is accepted or refused.
    async fn complete(&self, task: &Task, payload: Value, server: u64) {
        let (item, lease) = (task.item, task.lease);
        let (verb, mut body) = match payload.get("error") {
            Some(error) => ("fail", json!({ "error": error })),
            None => ("complete", payload.clone()),
        };
        body["leaseId"] = lease.to_string().into();
        let path = format!("/api/v1/inbox/{item}/{verb}");
        self.note(&Note::Completing {
            item,
            lease,
            payload: payload.clone(),
        })
        .await;
        for attempt in 0.. {
            let sent = now();
            match self
                .post(self.server(server.wrapping_add(attempt)), &path, None, &body)
                .await
            {
                Some(response) if response.status < 300 => {
                    let note = Note::Completed {
                        sent,
                        item,
                        lease,
                        payload,
                    };
                    return self.note(&note).await;
                }
                // It was answered or closed, or the lease has lapsed. 404: its run has ended and is gone.
                Some(response) if matches!(response.status, 404 | 409) => return,
                Some(response) if response.status < 500 => {
                    let what = format!("answer to {item}: {} {}", response.status, response.body);
                    return self.refused(what).await;
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

impl Task {
    /// An answer with a mark of its own.
    fn answer(&self, rng: &mut Rng) -> Value {
        let mark = rng.roll().to_string();
        match self.outcomes.is_empty() {
            true => json!({ "state": { "mark": mark } }),
            false => {
                let outcome = &self.outcomes[rng.below(self.outcomes.len() as u64) as usize];
                json!({ "outcome": outcome, "metadata": { "mark": mark } })
            }
        }
    }
}
