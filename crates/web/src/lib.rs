//! The HTTP API.
//!
//! [`serve`] puts the API on a socket. One file per resource stands in
//! `api`; what things look like as JSON stands in `views`, what goes wrong in `error`.
//!
//! What must stay true:
//! * Nothing is decided here. A handler reads the request, calls the engine (reads through `Engine::reads`), and writes the answer.
//!   It never uses the store itself.
//! * Every answer has an `X-Correlation-Id`; every error has the same envelope, whatever went wrong.
//! * Lists and windows are capped; no answer grows with the number of runs there are.
//! * JSON texts of the store travel as they are; they are not built into trees to be written again.
//! * The token of a callback is a secret: no log line has it, and no error sends it back.
//! * Web pages of other origins are refused (`gate`), and no CORS header is ever sent.

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

/// How the API behaves.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// Larger bodies are refused.
    pub max_body_bytes: usize,
    /// Larger payloads of callbacks are refused.
    pub max_callback_bytes: usize,
    /// A body that takes longer to arrive is refused.
    pub body_timeout: Duration,
    /// A connection on which no whole request head arrives for this long is closed.
    pub head_timeout: Duration,
    /// The longest that `?wait=` may ask for.
    pub max_wait: Duration,
    /// How long open requests may go on when the server shuts down.
    pub shutdown_grace: Duration,
    /// A client that takes nothing of its answer for this long is disconnected.
    pub write_timeout: Duration,
    /// Connections that may be open at the same time; never more than file descriptors allow.
    pub max_connections: usize,
    /// Reads that are answered at the same time.
    pub max_concurrent_reads: usize,
    /// How long a read waits for others before it is refused.
    pub read_patience: Duration,
    /// Memory for requests that are being received and handled.
    pub request_bytes: u64,
    /// Memory for answers that clients have not taken yet.
    pub answer_bytes: u64,
    /// Names of this server beside `localhost`, IP addresses and the host of the public URL.
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

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct Web {
    pub engine: Engine,
    pub config: Arc<WebConfig>,
    pub names: Arc<origin_check::HostNames>,
    pub memory: Arc<Memory>,
    /// Places for reads.
    pub reads: Arc<Semaphore>,
}

/// What requests and answers may take.
pub(crate) struct Memory {
    /// For large bodies: three quarters of what requests may take.
    pub requests: Arc<Budget>,
    /// The rest is left to small bodies, so that large ones do not keep cancels and callbacks out.
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

/// What connections are served with.
pub(crate) struct Apps {
    /// The whole API.
    pub all: Router,
    /// Health only; everything else is refused for now.
    pub health: Router,
}

/// The API of `engine`, as far as its role has one. On a loopback address every client must call it by one of its names.
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
