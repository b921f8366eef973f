//! A service on loopback that tasks call, and the workflows that call it.

use crate::harness::{Answer, LONG, Server};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinHandle,
    time::{Duration, Instant},
};

/// Stops when it is dropped.
pub struct Service {
    pub base: String,
    pub state: Called,
    serving: JoinHandle<()>,
}

#[derive(Clone)]
pub struct Called {
    /// The received bodies, in the order in which they arrived.
    bodies: Arc<Mutex<Vec<Value>>>,
    /// Each permit lets one request to `/held` complete.
    pub gate: Arc<Semaphore>,
    /// Until `/busy` is called.
    is_busy: Arc<AtomicBool>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    /// `/answer/{code}` responds at once, `/held` when there is a permit, `/busy` first with 503 and then like `/held`,
    /// `/big` with a body that is larger than what is stored.
    pub async fn start() -> Service {
        let state = Called {
            bodies: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            is_busy: Arc::new(AtomicBool::new(true)),
        };
        let app = Router::new()
            .route("/answer/{code}", post(answer))
            .route("/held", post(held))
            .route("/busy", post(busy))
            .route("/big", post(async || "x".repeat(300 * 1024)))
            .with_state(state.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Service { base, state, serving }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn bodies(&self) -> Vec<Value> {
        self.state.bodies.lock().unwrap().clone()
    }

    /// Creates a checkout and waits for the callback of the payment provider.
    pub fn checkout(&self, first: &str) -> Value {
        json!({
            "name": "checkout", "trigger": "api",
            "tasks": {
                "create-checkout": { "url": self.url(first), "body": { "callback_url": "{{wait.payment-result.url}}" } },
                "payment-result": { "needs": ["create-checkout"], "wait_for_webhook": { "timeout": "1h" } },
                "fulfill-order": {
                    "needs": ["payment-result"], "if": "tasks.payment-result.body.status == 'paid'",
                    "url": self.url("/answer/200"), "body": { "payment": "{{tasks.payment-result.body}}" }
                },
                "handle-timeout": {
                    "needs": ["payment-result"], "if": "tasks.payment-result.status == 'timeout'",
                    "url": self.url("/answer/200")
                }
            }
        })
    }

    /// The path of the callback URL in a request; the first request is 0.
    pub async fn callback(&self, call: usize) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(body) = self.bodies().get(call) {
                let url = body["callback_url"].as_str().unwrap().to_owned();
                let (public, path) = url.split_at(url.find("/wh/").unwrap());
                assert_eq!(public, "http://127.0.0.1:7070", "the public url");
                assert!(path.len() >= "/wh/".len() + 32, "at least 128 bits");
                return path.to_owned();
            }
            assert!(Instant::now() < deadline, "the service was never called");
            pause().await;
        }
    }
}

pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

async fn answer(State(called): State<Called>, Path(code): Path<u16>, body: String) -> (StatusCode, Json<Value>) {
    let body = serde_json::from_str(&body).unwrap_or_default();
    called.bodies.lock().unwrap().push(body);
    (StatusCode::from_u16(code).unwrap(), Json(json!({ "code": code })))
}

async fn held(State(called): State<Called>, body: String) -> (StatusCode, Json<Value>) {
    let gate = called.gate.clone();
    let answer = answer(State(called), Path(200), body).await;
    gate.acquire().await.unwrap().forget();
    answer
}

async fn busy(called: State<Called>, body: String) -> (StatusCode, Json<Value>) {
    match called.is_busy.swap(false, Ordering::Relaxed) {
        true => answer(called, Path(503), body).await,
        false => held(called, body).await,
    }
}

impl Server {
    /// Creates a workflow of tasks and returns its UUID.
    pub async fn create(&self, document: &Value) -> String {
        let created = self.post("/api/v1/workflows", document.clone()).await.expect(201);
        created["data"]["id"].as_str().unwrap().to_owned()
    }

    /// Triggers a run and returns its path.
    pub async fn trigger(&self, workflow: &str, body: Value) -> String {
        let path = format!("/api/v1/workflows/{workflow}/trigger");
        let run = self.post(&path, body).await.expect(201);
        format!(
            "/api/v1/workflows/{workflow}/runs/{}",
            run["data"]["run_id"].as_str().unwrap()
        )
    }

    /// Reads a run until the condition holds.
    pub async fn until_run(&self, place: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            let run = self.get(place).await.expect(200)["data"].clone();
            if wanted(&run) {
                return run;
            }
            assert!(Instant::now() < deadline, "the condition never held: {run}");
            pause().await;
        }
    }

    pub async fn until_task(&self, place: &str, task: &str, status: &str) -> Value {
        self.until_run(place, |run| run["tasks"][task]["status"] == status)
            .await
    }

    pub async fn until_over(&self, place: &str) -> Value {
        self.until_run(place, |run| run["status"] != "running").await
    }

    pub async fn call_back(&self, path: &str, payload: Value) -> Answer {
        self.post(path, payload).await
    }
}

/// The keys of an object, in their order.
pub fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}
