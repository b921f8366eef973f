//! A server for each test, and the checks that every response must pass.
//!
//! Data is in memory; `FERMATA_TEST_DATABASE=postgres` (or `sqlite`) runs all tests on that database.

use async_trait::async_trait;
use fermata_core::{Failure, Timestamp};
use fermata_runtime::{
    Engine, Settings,
    actions::{Action, ActionInfo, Call, Failed, HttpSettings, Registry, ResourceLink, Success},
    clock::{Clock, SystemClock},
};
use fermata_store::{
    Store,
    conformance::home::{Home, Kind},
};
use fermata_web::WebConfig;
use reqwest::{Client, Method, header::HeaderMap};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::Instant,
};

/// The timeout of every wait, also on a slow machine.
pub const LONG: Duration = Duration::from_secs(20);

pub struct Server {
    pub base: String,
    pub client: Client,
    pub engine: Engine,
    pub store: Arc<dyn Store>,
    /// Each permit lets one `test.gate` action complete.
    pub gate: Arc<Semaphore>,
    pub clock: Arc<BrokenClock>,
    pub shutdown: Option<oneshot::Sender<()>>,
    pub serving: JoinHandle<std::io::Result<()>>,
    /// Completes when the engine has stopped.
    pub working: JoinHandle<()>,
    /// Dropped last.
    _home: Arc<Home>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(Settings::default(), WebConfig::default()).await
    }

    pub async fn with(settings: Settings, config: WebConfig) -> Server {
        Server::on(&Arc::new(Home::new(Kind::Memory)), settings, config).await
    }

    pub async fn on(home: &Arc<Home>, settings: Settings, config: WebConfig) -> Server {
        Server::at("127.0.0.1:0", home, settings, config).await
    }

    /// A server at an address: that of an earlier one, to replace it.
    pub async fn at(address: &str, home: &Arc<Home>, settings: Settings, config: WebConfig) -> Server {
        let store = home.store().await;
        let gate = Arc::new(Semaphore::new(0));
        let http = HttpSettings {
            allow_private_networks: true,
            ..HttpSettings::default()
        };
        let registry = Registry::builtin(&http)
            .unwrap()
            .with_action(Arc::new(Gate(info("test.gate"), gate.clone())))
            .with_action(Arc::new(Linker(info("test.link"))));
        let clock = Arc::new(BrokenClock::default());
        let engine = Engine::new(store.clone(), registry, settings, clock.clone());
        let working = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run().await }
        });
        if engine.settings().role.works() {
            engine.ready().await; // so that runs start where they are accepted
        }
        let listener = TcpListener::bind(address).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (shutdown, stop) = oneshot::channel::<()>();
        let serving = tokio::spawn(fermata_web::serve(listener, engine.clone(), config, async {
            let _ = stop.await;
        }));
        fermata_runtime::tls::install_provider();
        // Each request has a connection of its own: the server may close an idle one in the moment in which it is used again.
        let client = Client::builder().no_proxy().timeout(LONG).pool_max_idle_per_host(0);
        let client = client.build().unwrap();
        Server {
            base,
            client,
            engine,
            store,
            gate,
            clock,
            shutdown: Some(shutdown),
            serving,
            working,
            _home: home.clone(),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Vec::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, path, &headers, body.to_string()).await
    }

    pub async fn post_nothing(&self, path: &str) -> Answer {
        self.send(Method::POST, path, &[], Vec::new()).await
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let mut request = self.client.request(method, format!("{}{path}", self.base)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let ids = headers.get_all("x-correlation-id").iter().count();
        assert_eq!(ids, 1, "{path}: {headers:?}");
        let text = response.text().await.unwrap();
        Answer { status, headers, text }
    }

    /// Saves and publishes.
    pub async fn publish(&self, document: &Value) {
        self.post("/api/v1/workflows", document.clone()).await.expect(201);
        let id = document["id"].as_str().unwrap();
        let path = format!("/api/v1/workflows/{id}/publish");
        self.post_nothing(&path).await.expect(200);
    }

    /// Starts a run and returns its id.
    pub async fn execute(&self, workflow: &str, body: Value) -> String {
        let path = format!("/api/v1/workflows/{workflow}/execute");
        let accepted = self.post(&path, body).await.expect(202);
        accepted["executionId"].as_str().unwrap().to_owned()
    }

    /// Reads a run until the condition holds.
    pub async fn until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            let run = self.get(&format!("/api/v1/executions/{id}")).await.expect(200);
            if wanted(&run) {
                return run;
            }
            assert!(Instant::now() < deadline, "the condition never held: {run}");
            tokio::task::yield_now().await;
        }
    }
}

/// A response of the server.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    /// The body. Panics if the status is another one.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The error in the envelope. Panics if status or code differ. The shape of the envelope is checked only here.
    #[track_caller]
    pub fn error(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        let error = body["error"].as_object().unwrap();
        assert_eq!(error["code"], code, "{body}");
        assert!(!error["message"].as_str().unwrap().is_empty());
        assert_eq!(error["correlationId"], self.header("x-correlation-id"));
        assert_time(&error["timestamp"]);
        let known = ["code", "message", "correlationId", "timestamp", "details"];
        assert!(error.keys().all(|key| known.contains(&key.as_str())), "{body}");
        let details = error.get("details").map(|details| details.as_array().unwrap());
        assert!(details.is_none_or(|details| !details.is_empty()), "{body}");
        body["error"].clone()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// `2026-11-15T10:30:00.123Z`
#[track_caller]
pub fn assert_time(value: &Value) {
    let text = value.as_str().unwrap_or_default();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000Z", "{value}");
}

/// A workflow of one node.
pub fn single(id: &str, action: &str, parameters: Value) -> Value {
    let node = json!({ "id": "only", "actionType": action, "parameters": parameters });
    json!({ "id": id, "displayName": format!("The {id}"), "startNode": "only", "nodes": [node] })
}

/// A workflow that echoes `say` of its trigger.
pub fn echo(id: &str) -> Value {
    single(id, "core.echo", json!({ "said": "{{ trigger.say ?? 'nothing' }}" }))
}

/// A clock that can be made to panic, to simulate a bug in a handler.
#[derive(Default)]
pub struct BrokenClock(pub AtomicBool);

impl Clock for BrokenClock {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Ordering::Relaxed), "the clock is broken");
        SystemClock.now()
    }

    fn since_boot(&self) -> i64 {
        SystemClock.since_boot()
    }
}

fn info(id: &str) -> ActionInfo {
    ActionInfo {
        id: id.to_owned(),
        display_name: id.to_owned(),
        description: id.to_owned(),
        category: "Test".to_owned(),
        connector_id: "test".to_owned(),
        version: "1.0.0".to_owned(),
        parameter_schema: json!({}),
        output_schema: json!({}),
        is_enabled: true,
        deprecation_notice: None,
        tags: Vec::new(),
    }
}

/// Waits for a permit. With `obeys`, it also ends when it is cancelled.
struct Gate(ActionInfo, Arc<Semaphore>);

#[async_trait]
impl Action for Gate {
    fn info(&self) -> &ActionInfo {
        &self.0
    }

    async fn run(&self, parameters: Value, call: Call) -> Result<Success, Failed> {
        let obeys = parameters["obeys"] == true;
        tokio::select! {
            permit = self.1.acquire() => permit.unwrap().forget(),
            () = call.cancelled.cancelled(), if obeys => return Err(Failure::permanent("CANCELLED", "cancelled by the run").into()),
        }
        Ok(json!({}).into())
    }
}

/// Fails once, then links a resource.
struct Linker(ActionInfo);

#[async_trait]
impl Action for Linker {
    fn info(&self) -> &ActionInfo {
        &self.0
    }

    async fn run(&self, _: Value, call: Call) -> Result<Success, Failed> {
        if call.attempt == 1 {
            return Err(Failure::retriable("BUSY", "busy, retry").into());
        }
        Ok(Success {
            outputs: json!({ "linked": true }),
            links: vec![ResourceLink {
                system: "slack".to_owned(),
                resource_type: "message".to_owned(),
                resource_id: call.run.to_string(),
                url: Some("https://example.com/m".to_owned()),
            }],
            offer: None,
        })
    }
}
