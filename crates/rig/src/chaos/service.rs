//! The service that steps call. It writes each call to disk before it responds.
//!
//! `/effect` responds at once, `/flaky/N` refuses the first N calls of a node with 503, `/slow/MS` responds late, `/refuse` responds
//! with 422, `/ask` receives callback URLs, and `/wrong` is called only if the engine makes a mistake.

use super::{
    evidence::{Effect, now},
    ledger::Ledger,
};
use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};

/// A wait that can receive a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub run: String,
    pub node: String,
    /// The path of its callback URL.
    pub path: String,
}

/// The service. It ends when it is dropped.
pub struct Service {
    pub url: String,
    serving: JoinHandle<()>,
}

struct Memory {
    ledger: Arc<Ledger>,
    calls: AtomicU64,
    /// The number of calls of each node.
    keys: Mutex<HashMap<String, u64>>,
    asked: mpsc::UnboundedSender<Asked>,
}

impl Service {
    /// Starts the service. Waits whose callback URL it receives are sent to `asked`.
    pub async fn start(ledger: Arc<Ledger>, asked: mpsc::UnboundedSender<Asked>) -> io::Result<Service> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let memory = Arc::new(Memory {
            ledger,
            calls: AtomicU64::new(0),
            keys: Mutex::default(),
            asked,
        });
        let router = Router::new()
            .route("/effect", post(effect))
            .route("/flaky/{times}", post(flaky))
            .route("/slow/{millis}", post(slow))
            .route("/refuse", post(refuse))
            .route("/ask", post(ask))
            .route("/wrong", post(effect))
            .with_state(memory);
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await; // it never ends by itself
        });
        Ok(Service { url, serving })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Shared = State<Arc<Memory>>;

async fn effect(State(memory): Shared, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    memory.take(&headers, body, |_| StatusCode::OK).await
}

async fn flaky(State(memory): Shared, Path(times): Path<u64>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let status = |before: u64| match before < times {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    };
    memory.take(&headers, body, status).await
}

async fn slow(State(memory): Shared, Path(millis): Path<u64>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let answer = memory.take(&headers, body, |_| StatusCode::OK).await;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    answer
}

async fn refuse(State(memory): Shared, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    memory.take(&headers, body, |_| StatusCode::UNPROCESSABLE_ENTITY).await
}

async fn ask(State(memory): Shared, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let (run, _) = named(&key(&headers));
    for (node, url) in body["callbacks"].as_object().into_iter().flatten() {
        let path = url.as_str().and_then(|url| Some(&url[url.find("/wh/")?..]));
        if let Some(path) = path {
            let _ = memory.asked.send(Asked {
                run: run.clone(),
                node: node.clone(),
                path: path.to_owned(),
            }); // after the end no callbacks are sent
        }
    }
    memory.take(&headers, body, |_| StatusCode::OK).await
}

impl Memory {
    /// Logs a call and responds with the status for a node that was called this often before.
    async fn take(&self, headers: &HeaderMap, body: Value, status: impl FnOnce(u64) -> StatusCode) -> Response {
        let key = key(headers);
        let (run, node) = named(&key);
        let attempt = text(headers, "x-attempt").parse().unwrap_or_default();
        let before = {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            // All attempts of a node count together, whether or not their keys contain the attempt.
            let count = keys.entry(format!("{run}:{node}")).or_default();
            *count += 1;
            *count - 1
        };
        let status = status(before);
        let entry = Effect {
            call: self.calls.fetch_add(1, Ordering::Relaxed) + 1,
            at: now(),
            run,
            node,
            attempt,
            key,
            body,
            answered: status.as_u16(),
        };
        match self.ledger.note(&entry).await {
            Ok(()) => (status, Json(json!({ "call": entry.call }))).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default()
}

fn key(headers: &HeaderMap) -> String {
    text(headers, "idempotency-key").to_owned()
}

/// `run:node` or `run:node:attempt`.
fn named(key: &str) -> (String, String) {
    let mut parts = key.split(':');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_are_on_disk_before_the_response() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects.log");
        let ledger = Arc::new(Ledger::create(&path).unwrap());
        let (asked, mut asking) = mpsc::unbounded_channel();
        let service = Service::start(ledger.clone(), asked).await.unwrap();
        fermata_runtime::tls::install_provider();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = async |path: &str, key: &str, attempt: u32, body: &str| {
            let request = client
                .post(format!("{}{path}", service.url))
                .header("idempotency-key", key)
                .header("x-attempt", attempt);
            let answer = request.header("content-type", "application/json").body(body.to_owned());
            answer.send().await.unwrap().status().as_u16()
        };
        assert_eq!(call("/flaky/1", "r:n:1", 1, "{\"order\":1}").await, 503);
        assert!(std::fs::read_to_string(&path).unwrap().contains("r:n:1"));
        assert_eq!(call("/flaky/1", "r:n:2", 2, "{\"order\":1}").await, 200);
        assert_eq!(call("/refuse", "r:m", 3, "{}").await, 422);
        let urls = "{\"callbacks\":{\"w\":\"http://127.0.0.1:1/wh/t0ken\"}}";
        assert_eq!(call("/ask", "r:ask", 1, urls).await, 200);
        let (run, node, path) = ("r".to_owned(), "w".to_owned(), "/wh/t0ken".to_owned());
        assert_eq!(asking.recv().await, Some(Asked { run, node, path }));
        let effects: Vec<Effect> = ledger.close().unwrap();
        let calls: Vec<_> = effects
            .iter()
            .map(|effect| (effect.call, effect.attempt, effect.answered))
            .collect();
        assert_eq!(calls, [(1, 1, 503), (2, 2, 200), (3, 3, 422), (4, 1, 200)]);
    }
}
