//! Callers: starts, callbacks and cancels, and the answers to them.

use super::world::{Callback, Tracked, World};
use fermata_core::{Kind, NodeId, RunId, Status};
use fermata_store::{
    RunStore,
    runs::{Answer, Delivery, RunCommit, RunMessage, WaitChange},
};

impl World {
    pub fn acknowledge(&self, tenant: &str, request: &str, run: RunId) {
        let now = self.now();
        let mut inner = self.lock();
        let key = (tenant.to_owned(), request.to_owned());
        if !inner.runs.contains_key(&run) {
            inner.violate(now, format!("{key:?} was acknowledged but is not durable"));
        }
        let other = inner
            .acknowledged
            .iter()
            .find(|(known, id)| *known == key && *id != run);
        if let Some((_, other)) = other.cloned() {
            inner.violate(now, format!("{key:?} is {run} and {other}"));
        }
        inner.acknowledged.push((key, run));
    }

    /// A caller got the end of a run.
    pub fn answered_end(&self, run: RunId, status: Status) {
        let now = self.now();
        let mut inner = self.lock();
        inner.count("end awaited");
        let durable = inner.runs.get(&run).map(Tracked::status);
        if durable != Some(status) {
            let short = inner.short(run);
            inner.violate(now, format!("{short} was said to be {status}, but it is {durable:?}"));
        }
    }

    /// The run of a request, if it is durable.
    pub fn run_of(&self, tenant: &str, request: &str) -> Option<RunId> {
        let inner = self.lock();
        let mut runs = inner.runs.iter();
        let found = runs.find(|(_, tracked)| tracked.request.0 == tenant && tracked.request.1 == request);
        found.map(|(id, _)| *id)
    }

    /// Sends a callback to the wait of a node.
    pub async fn call_back(&self, run: RunId, node: &NodeId) {
        let memory = self.lock().memory.clone();
        let waits = memory.waits(run).await.unwrap_or_default();
        // A request has one wait for each attempt.
        let of_node = waits.into_iter().filter(|wait| wait.node == *node);
        let Some(wait) = of_node.max_by_key(|wait| wait.attempt) else {
            return;
        };
        let now = self.now();
        let value = self.lock().rng.below(10);
        let payload = format!("{{\"v\":{value},\"at\":{}}}", now.0);
        let Ok(answer) = memory.answer(&wait.token, &payload, None, now).await else {
            return;
        };
        let mut inner = self.lock();
        let short = inner.short(run);
        inner.note(now, || format!("callback for {short} {node}: {}", word(&answer)));
        match answer {
            Answer::Accepted { .. } => {
                if inner
                    .callbacks
                    .iter()
                    .any(|other| other.run == run && other.node == *node)
                {
                    inner.violate(now, format!("{node} of {short} took a second callback"));
                }
                let node = node.clone();
                inner.callbacks.push(Callback {
                    run,
                    node,
                    payload,
                    at: now,
                });
            }
            Answer::Closed => inner.count("callback too late"),
            Answer::Leased | Answer::LeaseLapsed => {
                inner.violate(now, format!("the token of {node} of {short} depends on a lease"));
            }
            Answer::NotFound => inner.violate(now, format!("the token of {node} of {short} is unknown")),
        }
    }

    /// Cancels a run.
    pub async fn cancel(&self, run: RunId) {
        let memory = self.lock().memory.clone();
        let now = self.now();
        let message = RunMessage::Cancel {
            reason: "enough".to_owned(),
        };
        let delivery = memory.deliver(run, message, now).await;
        let mut inner = self.lock();
        let short = inner.short(run);
        inner.note(now, || format!("cancel of {short}: {delivery:?}"));
        if let Ok(Delivery::Delivered { .. }) = delivery {
            inner.cancels.push((run, now));
        }
    }

    /// Pauses a run, or resumes it.
    pub async fn pause(&self, run: RunId, message: RunMessage) {
        let memory = self.lock().memory.clone();
        let now = self.now();
        let delivery = memory.deliver(run, message.clone(), now).await;
        let mut inner = self.lock();
        let short = inner.short(run);
        inner.note(now, || format!("{message:?} of {short}: {delivery:?}"));
    }

    /// Sends callbacks and cancels right before or after a commit.
    pub async fn interfere(&self, commit: &RunCommit) {
        let closes = commit.waits.iter().find_map(|change| match change {
            WaitChange::Close { node } => Some(node.clone()),
            WaitChange::Open { .. } | WaitChange::Limit { .. } | WaitChange::Offer { .. } => None,
        });
        let (callback, cancel) = {
            let mut inner = self.lock();
            if !inner.rough || self.scenario.rates.interfere == 0 {
                return;
            }
            let often = if closes.is_some() {
                400
            } else {
                self.scenario.rates.interfere
            };
            (
                inner.rng.chance(often),
                inner.rng.chance(self.scenario.rates.interfere / 6),
            )
        };
        if callback {
            let node = closes.or_else(|| {
                let inner = self.lock();
                let nodes = &inner.runs.get(&commit.run)?.run.plan().nodes;
                let answered = |kind: &Kind| matches!(kind, Kind::Wait { .. } | Kind::Request { .. });
                let mut waits = nodes.iter().filter(|node| answered(&node.kind));
                waits.next().map(|node| node.id.clone())
            });
            if let Some(node) = node {
                self.call_back(commit.run, &node).await;
            }
        }
        if cancel {
            self.cancel(commit.run).await;
        }
    }
}

fn word(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted { .. } => "accepted",
        Answer::Closed => "closed",
        Answer::Leased | Answer::LeaseLapsed => "leased",
        Answer::NotFound => "not found",
    }
}
