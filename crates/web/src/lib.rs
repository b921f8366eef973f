//! The HTTP API.
//!
//! [`router`] is the whole API as an axum router; [`serve`] puts it on a socket. One file per resource stands in
//! `api`; what things look like as JSON stands in `views`, what goes wrong in `error`.
//!
//! What must stay true:
//! * Nothing is decided here. A handler reads the request, asks the engine or the store, and writes the answer.
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
mod gate;
mod paging;
mod run_views;
mod runlater_views;
mod serve;
mod strict;
mod time;
mod views;

pub use serve::serve;

use axum::Router;
use fermata_runtime::Engine;
use std::{sync::Arc, time::Duration};

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
            allowed_hosts: Vec::new(),
        }
    }
}

/// What every handler can reach.
#[derive(Clone)]
pub(crate) struct Web {
    pub engine: Engine,
    pub config: Arc<WebConfig>,
    pub names: Arc<gate::Names>,
}

/// The API of `engine`, as far as its role has one. On a loopback address every client must call it by one of its names.
pub fn router(engine: Engine, config: WebConfig, is_loopback: bool) -> Router {
    let names = gate::Names::new(is_loopback, &config.allowed_hosts, &engine.settings().public_url);
    let web = Web {
        config: Arc::new(config),
        names: Arc::new(names),
        engine,
    };
    api::routes(web.engine.settings().role)
        .layer(axum::middleware::from_fn_with_state(web.clone(), gate::check))
        .layer(axum::middleware::from_fn(envelope::surround))
        .with_state(web)
}
