//! The client of triggers: it creates them, sends webhooks with delivery ids and publishes events, some of them twice or to two
//! processes at once. A schedule fires meanwhile.
//!
//! What must stay true: an acknowledgement is in the log before anything else is done with it. What was not acknowledged is sent
//! again under the same id, so in the end everything is acknowledged.

use super::{
    evidence::{Note, now},
    load::Load,
    rng::Rng,
    workflows::{HEARD, HOOKED, TICKED},
};
use anyhow::Context;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};

/// The type of the events.
const EVENT: &str = "rig.order";
/// So many are sent on every machine, of every kind.
const FEWEST: u64 = 6;

/// A webhook or an event.
struct Sent {
    /// Its delivery id, and the order of its runs.
    order: String,
    path: String,
    body: Value,
    /// The workflows that it starts.
    workflows: &'static [&'static str],
}

impl Load {
    /// Creates the triggers. The schedule fires once per second until `end`; after an outage it fires what it missed.
    pub async fn create_triggers(&self, end: &str) -> anyhow::Result<()> {
        // Beyond the native subset, so its deliveries are acknowledged before they are judged, by any process.
        let condition = json!("/^webhook/.test(payload.order)");
        let event = json!({ "type": EVENT });
        let schedule = json!({ "every": "1s", "endAt": end, "catchUp": { "mode": "all", "window": "1h" } });
        let mut webhooks = Vec::new();
        for (workflow, kind, config, condition) in [
            (HOOKED, "Webhook", json!({}), Value::Null),
            (HOOKED, "Webhook", json!({}), condition),
            (HOOKED, "Event", event.clone(), Value::Null),
            (HEARD, "Event", event, Value::Null),
            (TICKED, "Schedule", schedule, Value::Null),
        ] {
            let body = json!({ "workflowId": workflow, "triggerType": kind, "configJson": config,
                               "activationCondition": condition });
            let made = self.post_once("/api/v1/triggers", &body).await?;
            if kind == "Webhook" {
                let url = made["webhookUrl"].as_str();
                let path = url.and_then(|url| Some(url[url.find("/api/")?..].to_owned()));
                webhooks.push(path.with_context(|| format!("a webhook without a URL: {made}"))?);
            }
        }
        self.webhooks.set(webhooks).ok().context("the triggers exist already")
    }

    /// Sends webhooks and events until [`Load::stop`], one after the other.
    pub(super) async fn keep_triggering(self: Arc<Self>) {
        let mut rng = Rng::new(self.seed, "triggers");
        for number in 0.. {
            if self.is_over() && number >= FEWEST {
                return;
            }
            let sent = self.draw(number);
            let server = rng.roll();
            match rng.below(10) {
                0..6 => self.send(&sent, server).await,
                6..8 => {
                    self.send(&sent, server).await;
                    self.send(&sent, rng.roll()).await;
                }
                // Two clients send it to two servers.
                _ => {
                    tokio::join!(self.send(&sent, server), self.send(&sent, server.wrapping_add(1)));
                }
            }
            tokio::time::sleep(rng.millis(50, 400)).await;
        }
    }

    /// Webhooks and events in turn.
    fn draw(&self, number: u64) -> Sent {
        let webhooks = self.webhooks.get().map_or(&[][..], Vec::as_slice);
        let kind = number % (webhooks.len() as u64 + 1);
        match webhooks.get(kind as usize) {
            Some(path) => {
                let order = format!("webhook-{number}");
                Sent {
                    path: path.clone(),
                    body: json!({ "order": order }),
                    order,
                    workflows: &[HOOKED],
                }
            }
            None => {
                let order = format!("event-{number}");
                Sent {
                    path: "/api/v1/events".to_owned(),
                    body: json!({ "type": EVENT, "source": "/rig", "id": order, "data": { "order": order } }),
                    order,
                    workflows: &[HOOKED, HEARD],
                }
            }
        }
    }

    /// Sends it until it is acknowledged.
    async fn send(&self, sent: &Sent, server: u64) {
        for attempt in 0.. {
            let server = self.server(server.wrapping_add(attempt));
            match self.post(server, &sent.path, Some(&sent.order), &sent.body).await {
                Some(response) if response.status < 300 => {
                    let run = response.body["executionId"].as_str();
                    let note = Note::Occurred {
                        at: now(),
                        order: sent.order.clone(),
                        workflows: sent.workflows.iter().map(|name| (*name).to_owned()).collect(),
                        run: run.and_then(|run| run.parse().ok()),
                        by: response.by.to_owned(),
                    };
                    return self.note(&note).await;
                }
                Some(response) if response.status < 500 => {
                    let what = format!("{}: {} {}", sent.order, response.status, response.body);
                    return self.refused(what).await;
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}
