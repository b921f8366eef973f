//! The HTTP API.
//!
//! [`serve`] serves the API on a socket. `api` has one file per resource, `views` the JSON representations, `error` the
//! errors.
//!
//! What must stay true:
//! * Handlers decide nothing. A handler reads the request, calls the engine as the caller of the request (`door`) and writes
//!   the response. It never uses the store.
//! * Every request is authenticated, and its scope is checked, before its handler is called and its body is read (`auth`,
//!   `api/scopes.rs`).
//! * Every response has an `X-Correlation-Id`, and every error has the same envelope.
//! * Lists and windows are capped: no response grows with the number of runs.
//! * Stored JSON is copied into responses as text. It is not parsed and written again.
//! * Tokens, keys and the tokens of callbacks are secrets: they are not logged and not part of any error.
//! * Requests from web pages of other origins are refused (`origin_check`), and no CORS header is ever sent.

mod api;
mod auth;
mod body;
mod door;
mod envelope;
mod error;
mod extract;
mod flow_views;
mod metrics;
mod origin_check;
mod paging;
mod peer;
mod rate_limit;
mod read_limit;
mod response_budget;
mod run_views;
mod runlater_views;
mod serve;
mod strict_json;
mod time;
mod views;
mod webhook_path;
mod write_timeout;

pub use auth::{Algorithm, AuthConfig, IssuerConfig, JwksTimes, KeySource, Loose, SharedSecret};
pub use serve::{listen, serve};

use crate::{auth::Denied, door::Web, error::ApiError, metrics::Handling, peer::Peer};
use axum::{
    Router,
    extract::{Request, State},
    http::Method,
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use fermata_runtime::{Engine, rate::Rate};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

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
    /// How many requests a token may send to this process; `None` if that is not limited.
    pub request_rate: Option<Rate>,
    /// How callers are authenticated.
    pub auth: AuthConfig,
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
            request_rate: None,
            auth: AuthConfig::default(),
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

/// The API of `engine`, according to its role. On a loopback address, `Host` is checked for every client. `closing` ends open streams.
pub(crate) fn apps(engine: Engine, config: WebConfig, is_loopback: bool, closing: CancellationToken) -> Apps {
    let web = Web::new(engine, config, is_loopback, closing);
    let with_layer = |routes: Router<Web>| {
        routes
            .layer(from_fn_with_state(web.clone(), handle))
            .with_state(web.clone())
    };
    Apps {
        all: with_layer(api::routes(&web)),
        health: with_layer(api::health_only()),
    }
}

/// Every request passes through this one layer: a layer costs allocations and copies of its state.
async fn handle(State(web): State<Web>, request: Request, next: Next) -> Response {
    let handling = web.counts().then(|| Handling::begin(&request));
    let response = envelope::wrap(request, |request| async {
        respond(&web, request, next).await.into_response()
    })
    .await;
    if let Some(handling) = handling {
        web.metrics.answered(&handling, &response);
    }
    response
}

async fn respond(web: &Web, request: Request, next: Next) -> Result<Response, ApiError> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let is_limited = is_read && api::is_limited(request.uri().path());
    let request = origin_check::check(web, request)?;
    let request = admit(web, request).await?;
    let (request, allowance) = rate_limit::count(web, request)?;
    let _permit = match is_limited {
        true => Some(read_limit::permit(web).await?),
        false => None,
    };
    let mut response = response_budget::count(web, is_read, next.run(request).await).await;
    if let Some(allowance) = allowance {
        rate_limit::tell(&mut response, allowance);
    }
    Ok(response)
}

/// The method and the path of a request, for the audit trail.
fn described(request: &Request) -> String {
    let path = envelope::without_token(request.uri().path());
    format!("{} {path}", request.method())
}

/// The request with its caller, if the caller may make it. The body of a refused request is not read.
async fn admit(web: &Web, mut request: Request) -> Result<Request, ApiError> {
    let need = api::scopes::need(web, &request);
    let Some(scope) = need else { return Ok(request) };
    let address = request.extensions().get::<Peer>().map(|peer| peer.0);
    let denied = match web.authenticate(request.headers(), address).await {
        Ok(caller) if caller.has(scope) => {
            request.extensions_mut().insert(caller);
            return Ok(request);
        }
        Ok(caller) => {
            let denied = auth::denied(Denied::Lacks(scope), Some(&caller), address, &request);
            web.record_denied(Some(&caller), address, described(&request), denied.code);
            denied
        }
        Err(denied) => {
            let is_refused = !matches!(denied, Denied::NoKeys | Denied::Busy | Denied::Unchecked(_));
            let denied = auth::denied(denied, None, address, &request);
            if is_refused {
                web.record_denied(None, address, described(&request), denied.code);
            }
            denied
        }
    };
    let (parts, body) = request.into_parts();
    body::discard(&parts.headers, body, &web.config);
    Err(denied)
}
