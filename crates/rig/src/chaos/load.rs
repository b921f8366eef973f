//! The load: clients that start runs, cancel them, send callbacks and log the responses. `triggers.rs` and `workers.rs` have the
//! other clients.
//!
//! What must stay true: an acknowledgement is in the log before anything else is done with it. A request that was not
//! acknowledged is sent again with the same requestId, so in the end every request is answered.

use super::{
    evidence::{Note, now},
    fleet::Member,
    ledger::Ledger,
    rng::Rng,
    service::Asked,
    workflows::{Dialect, Workflow, trigger},
};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};

/// How long a request may take before it is sent again.
const REQUEST: Duration = Duration::from_secs(10);
const WORKERS: u64 = 6;

/// The state that all clients share.
pub struct Load {
    pub workflows: Vec<Workflow>,
    /// The processes that serve requests.
    pub servers: Vec<Arc<Member>>,
    pub ledger: Arc<Ledger>,
    pub seed: u64,
    /// Starts per second of all clients together.
    pub rate: f64,
    /// The paths of the webhooks, once they exist.
    pub(super) webhooks: OnceLock<Vec<String>>,
    client: reqwest::Client,
    orders: AtomicU64,
    over: AtomicBool,
}

/// The response of a server.
pub(super) struct Response {
    pub status: u16,
    pub body: Value,
    pub by: &'static str,
}

impl Load {
    pub fn new(
        workflows: Vec<Workflow>,
        servers: Vec<Arc<Member>>,
        ledger: Arc<Ledger>,
        seed: u64,
        rate: f64,
    ) -> anyhow::Result<Load> {
        Ok(Load {
            workflows,
            servers,
            ledger,
            seed,
            rate,
            webhooks: OnceLock::new(),
            client: reqwest::Client::builder().no_proxy().timeout(REQUEST).build()?,
            orders: AtomicU64::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// Saves and publishes all workflows.
    pub async fn publish(&self) -> anyhow::Result<()> {
        for workflow in &self.workflows {
            self.post_once("/api/v1/workflows", &workflow.document).await?;
            if workflow.dialect == Dialect::DataWorkflows {
                let path = format!("/api/v1/workflows/{}/publish?autoActivate=true", workflow.name);
                self.post_once(&path, &json!({})).await?;
            }
        }
        Ok(())
    }

    /// The body of a response 2xx. For requests before the faults.
    pub(super) async fn post_once(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let response = self.post(&self.servers[0], path, None, body).await;
        let response = response.ok_or_else(|| anyhow::anyhow!("{path} is not answered"))?;
        anyhow::ensure!(response.status < 300, "{path}: {} {}", response.status, response.body);
        Ok(response.body)
    }

    /// Starts the clients. They end some time after [`Load::stop`], when all their requests are answered.
    pub fn begin(self: &Arc<Self>) -> JoinSet<()> {
        let mut workers = JoinSet::new();
        for number in 0..WORKERS {
            workers.spawn(self.clone().keep_starting(number));
        }
        workers.spawn(self.clone().keep_triggering());
        workers
    }

    /// No new runs are started.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn keep_starting(self: Arc<Self>, number: u64) {
        let mut rng = Rng::new(self.seed, &format!("client {number}"));
        let mut cancels = JoinSet::new();
        let pause = Duration::from_secs_f64(WORKERS as f64 / self.rate.max(0.1));
        while !self.is_over() || self.orders.load(Ordering::Relaxed) < self.workflows.len() as u64 {
            let begun = tokio::time::Instant::now();
            let order = self.orders.fetch_add(1, Ordering::Relaxed);
            let request = Start::draw(&self, order, &mut rng);
            if let Some(run) = self.start(&request, &mut rng).await
                && let Some(wait) = request.cancel_after
            {
                let rng = Rng::new(self.seed, &format!("cancel {order}"));
                cancels.spawn(self.clone().cancel(run, wait, rng));
            }
            tokio::time::sleep_until(begun + pause.mul_f64(0.5 + rng.below(100) as f64 / 100.0)).await;
        }
        while cancels.join_next().await.is_some() {}
    }

    /// Sends a start until it is acknowledged. Returns its run.
    async fn start(&self, start: &Start<'_>, rng: &mut Rng) -> Option<String> {
        match start.manner {
            Manner::Once => self.start_once(start, rng.roll()).await,
            Manner::Twice => {
                self.start_once(start, rng.roll()).await?;
                self.start_once(start, rng.roll()).await
            }
            // Two clients send it to two servers.
            Manner::AtOnce => {
                let first = rng.roll();
                let both = tokio::join!(self.start_once(start, first), self.start_once(start, first + 1));
                both.0.and(both.1)
            }
        }
    }

    async fn start_once(&self, start: &Start<'_>, number: u64) -> Option<String> {
        for attempt in 0.. {
            let server = self.server(number.wrapping_add(attempt));
            let triggered = start.workflow.dialect == Dialect::Runlater;
            let key = triggered.then_some(start.request.as_str());
            let response = self.post(server, &start.path, key, &start.body).await;
            let run = |response: &Response| {
                let run = response
                    .body
                    .pointer("/executionId")
                    .or(response.body.pointer("/data/run_id"));
                run.and_then(|run| run.as_str().map(str::to_owned))
            };
            match response {
                Some(response) if response.status < 300 => {
                    let Some(run) = run(&response) else {
                        self.refused(format!("a start was acknowledged without a run: {}", response.body))
                            .await;
                        return None;
                    };
                    let note = Note::Started {
                        at: now(),
                        request: start.request.clone(),
                        tenant: start.tenant.to_owned(),
                        workflow: start.workflow.name.to_owned(),
                        run: run.clone(),
                        by: response.by.to_owned(),
                    };
                    self.note(&note).await;
                    return Some(run);
                }
                Some(response) if response.status < 500 => {
                    self.refused(format!("{}: {} {}", start.request, response.status, response.body))
                        .await;
                    return None;
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        None
    }

    /// Sends a cancel until it is acknowledged.
    async fn cancel(self: Arc<Self>, run: String, wait: Duration, mut rng: Rng) {
        tokio::time::sleep(wait).await;
        self.note(&Note::Cancelling { run: run.clone() }).await;
        let path = format!("/api/v1/executions/{run}/cancel");
        loop {
            match self.post(self.server(rng.roll()), &path, None, &json!({})).await {
                Some(response) if response.status < 300 => {
                    let status = response.body["status"].as_str().unwrap_or_default().to_owned();
                    let note = Note::Cancelled { at: now(), run, status };
                    return self.note(&note).await;
                }
                Some(response) if response.status < 500 => {
                    return self
                        .refused(format!("cancel {run}: {} {}", response.status, response.body))
                        .await;
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Sends callbacks for all waits that arrive in `asked`.
    pub fn call_back(self: &Arc<Self>, mut asked: mpsc::UnboundedReceiver<Asked>) -> JoinHandle<()> {
        let load = self.clone();
        tokio::spawn(async move {
            let (mut known, mut callers) = (HashSet::new(), JoinSet::new());
            while let Some(asked) = asked.recv().await {
                // A repeated call announces the same wait again.
                if known.insert((asked.run.clone(), asked.node.clone())) {
                    let rng = Rng::new(load.seed, &format!("{} {}", asked.node, known.len()));
                    callers.spawn(load.clone().call(asked, rng));
                }
            }
            while callers.join_next().await.is_some() {}
        })
    }

    /// Sends a callback until it is accepted or refused for good, and sometimes once more.
    async fn call(self: Arc<Self>, asked: Asked, mut rng: Rng) {
        // Early, in time, or too late for a wait with a deadline.
        let wait = if rng.chance(40) {
            rng.millis(0, 50)
        } else {
            rng.millis(300, 4000)
        };
        tokio::time::sleep(wait).await;
        let mut again = rng.chance(50);
        for number in 0.. {
            // Each try has another payload, which shows the one that was accepted.
            let payload = json!({ "run": asked.run, "node": asked.node, "try": number });
            let (run, node) = (asked.run.clone(), asked.node.clone());
            self.note(&Note::Calling {
                run: run.clone(),
                node: node.clone(),
                payload: payload.clone(),
            })
            .await;
            match self.post(self.server(rng.roll()), &asked.path, None, &payload).await {
                Some(response) if response.status < 300 => {
                    let at = now();
                    self.note(&Note::Called { at, run, node, payload }).await;
                }
                // The wait has been answered, or has timed out.
                Some(response) if response.status == 409 => {}
                Some(response) if response.status < 500 => {
                    let what = format!("callback {node} of {run}: {} {}", response.status, response.body);
                    return self.refused(what).await;
                }
                _ => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            }
            if !std::mem::take(&mut again) {
                return;
            }
        }
    }

    pub(super) fn server(&self, number: u64) -> &Arc<Member> {
        &self.servers[(number % self.servers.len() as u64) as usize]
    }

    /// The response, if there is one.
    pub(super) async fn post(&self, server: &Member, path: &str, key: Option<&str>, body: &Value) -> Option<Response> {
        let url = server.url()?;
        let mut request: RequestBuilder = self.client.post(format!("{url}{path}"));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        let text = answer.text().await.ok()?;
        Some(Response {
            status,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
            by: server.name,
        })
    }

    pub(super) async fn refused(&self, what: String) {
        self.note(&Note::Refused { what }).await;
    }

    pub(super) async fn note(&self, note: &Note) {
        // Nothing can be checked without the log, so the client panics if it cannot be written.
        if let Err(error) = self.ledger.note(note).await {
            panic!("{error:#}");
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Manner {
    Once,
    Twice,
    AtOnce,
}

/// The parameters of a start.
struct Start<'a> {
    workflow: &'a Workflow,
    request: String,
    tenant: &'static str,
    path: String,
    body: Value,
    manner: Manner,
    cancel_after: Option<Duration>,
}

impl Start<'_> {
    fn workflow<'a>(load: &'a Load, rng: &mut Rng) -> &'a Workflow {
        let all: u64 = load.workflows.iter().map(|workflow| workflow.weight).sum();
        let mut drawn = rng.below(all);
        let mut workflows = load.workflows.iter();
        let workflow = workflows.find(|workflow| match drawn.checked_sub(workflow.weight) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        });
        workflow.unwrap_or(&load.workflows[0])
    }

    fn draw<'a>(load: &'a Load, order: u64, rng: &mut Rng) -> Start<'a> {
        let drawn = Start::workflow(load, rng);
        // Every workflow is started early in the run, also on a slow machine.
        let early = load.workflows.get(order as usize);
        let workflow = early.filter(|workflow| workflow.weight > 0).unwrap_or(drawn);
        let request = format!("order-{order}");
        let trigger = trigger(order, rng);
        let name = workflow.name;
        let triggered = workflow.dialect == Dialect::Runlater;
        let tenant = if triggered { "" } else { rng.pick(&["", "", "blue"]) };
        let (path, body) = match triggered {
            true => (format!("/api/v1/workflows/{name}/trigger"), trigger),
            false => {
                let mut body = json!({ "requestId": request, "trigger": trigger });
                if !tenant.is_empty() {
                    body["tenantId"] = tenant.into();
                }
                if rng.chance(20) {
                    body["priority"] = rng.between(1, 9).into();
                }
                (format!("/api/v1/workflows/{name}/execute"), body)
            }
        };
        let manner = match rng.below(10) {
            0..6 => Manner::Once,
            6..8 => Manner::Twice,
            _ => Manner::AtOnce,
        };
        // Runs that do not end by themselves are always cancelled.
        let cancels = workflow.ends.is_empty() || rng.chance(7);
        Start {
            workflow,
            request,
            tenant,
            path,
            body,
            manner,
            cancel_after: cancels.then(|| rng.millis(0, 3000)),
        }
    }
}
