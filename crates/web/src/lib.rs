//! The HTTP API.
//!
//! [`serve`] serves the API on a socket. `api` has one file per resource, `views` the JSON representations, `error` the
//! errors.
//!
//! What must stay true:
//! * Handlers decide nothing. A handler reads the request, calls the engine (reads go through `Engine::reads`) and writes
//!   the response. It never uses the store.
//! * Every response has an `X-Correlation-Id`, and every error has the same envelope.
//! * Lists and windows are capped: no response grows with the number of runs.
//! * Stored JSON is copied into responses as text. It is not parsed and written again.
//! * The token of a callback is a secret: it is not logged and not part of any error.
//! * Requests from web pages of other origins are refused (`origin_check`), and no CORS header is ever sent.

mod api;
mod body;
mod envelope;
mod error;
mod extract;
mod origin_check;
mod paging;
mod read_limit;
mod response_budget;
mod run_views;
mod runlater_views;
mod serve;
mod strict_json;
mod time;
mod views;
mod write_timeout;

pub use serve::{listen, serve};

use axum::{
    Router,
    middleware::{from_fn, from_fn_with_state},
};
use fermata_runtime::{Engine, memory::Budget};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// Limits and timeouts of the API.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// Larger bodies are refused.
    pub max_body_bytes: usize,
    /// Larger callback payloads are refused.
    pub max_callback_bytes: usize,
    /// A request whose body takes longer to arrive is refused.
    pub body_timeout: Duration,
    /// A connection that does not send a complete request head within this time is closed.
    pub head_timeout: Duration,
    /// The longest `?wait=`.
    pub max_wait: Duration,
    /// How long open requests may take to finish when the server shuts down.
    pub shutdown_grace: Duration,
    /// A client that reads nothing of its response for this long is disconnected.
    pub write_timeout: Duration,
    /// The most open connections. File descriptors may lower it.
    pub max_connections: usize,
    /// The most reads that are served at the same time.
    pub max_concurrent_reads: usize,
    /// How long a read above that limit waits before it is refused.
    pub read_patience: Duration,
    /// Memory for requests in progress.
    pub request_bytes: u64,
    /// Memory for responses that clients have not read yet.
    pub answer_bytes: u64,
    /// Host names of this server, in addition to `localhost`, IP addresses and the host of the public URL.
    pub allowed_hosts: Vec<String>,
}

impl Default for WebConfig {
    fn default() -> Self {
        WebConfig {
            max_body_bytes: 5 * 1024 * 1024,
            max_callback_bytes: 256 * 1024,
            body_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(60),
            max_wait: Duration::from_secs(5 * 60),
            shutdown_grace: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            max_connections: 4096,
            max_concurrent_reads: 6,
            read_patience: Duration::from_secs(1),
            request_bytes: 256 << 20,
            answer_bytes: 128 << 20,
            allowed_hosts: Vec::new(),
        }
    }
}

/// The state of every handler.
#[derive(Clone)]
pub(crate) struct Web {
    pub engine: Engine,
    pub config: Arc<WebConfig>,
    pub names: Arc<origin_check::HostNames>,
    pub memory: Arc<Memory>,
    /// One permit per concurrent read.
    pub reads: Arc<Semaphore>,
}

/// Memory budgets of requests and responses.
pub(crate) struct Memory {
    /// For large bodies: three quarters of the budget of requests.
    pub requests: Arc<Budget>,
    /// The rest is for small bodies, so that large requests cannot block cancels and callbacks.
    pub small_requests: Arc<Budget>,
    pub answers: Arc<Budget>,
}

impl Memory {
    fn new(config: &WebConfig) -> Memory {
        let small = config.request_bytes / 4;
        Memory {
            requests: Budget::new(config.request_bytes - small),
            small_requests: Budget::new(small),
            answers: Budget::new(config.answer_bytes),
        }
    }
}

/// The services for connections.
pub(crate) struct Apps {
    /// The whole API.
    pub all: Router,
    /// Health checks only; everything else is refused. For connections above the limit.
    pub health: Router,
}

/// The API of `engine`, according to its role. On a loopback address, `Host` is checked for every client.
pub(crate) fn apps(engine: Engine, config: WebConfig, is_loopback: bool) -> Apps {
    let names = origin_check::HostNames::new(is_loopback, &config.allowed_hosts, &engine.settings().public_url);
    let web = Web {
        names: Arc::new(names),
        memory: Arc::new(Memory::new(&config)),
        reads: Arc::new(Semaphore::new(config.max_concurrent_reads)),
        config: Arc::new(config),
        engine,
    };
    let with_layers = |routes: Router<Web>| {
        routes
            .layer(from_fn_with_state(web.clone(), origin_check::check))
            .layer(from_fn_with_state(web.clone(), response_budget::count))
            .layer(from_fn(envelope::wrap))
            .with_state(web.clone())
    };
    Apps {
        all: with_layers(api::routes(&web)),
        health: with_layers(api::health_only()),
    }
}
