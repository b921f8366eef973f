//! A small HTTP service for examples: it echoes, fails on demand, and simulates a payment provider that calls back.
//!
//! It listens on a loopback port of its own. Documents call it as [`HOST`], which `dev` and `run` resolve to that address,
//! so that examples work offline and on any port. `serve` does not have it.
//!
//! What must stay true: it calls only loopback addresses, and its memory and its pauses are bounded. An unknown query
//! parameter is refused, so that an example never succeeds because of a typing error.

mod counts;
mod echo;
mod pay;
#[cfg(test)]
mod tests;

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use counts::Counts;
use fermata_runtime::actions::HttpSettings;
use hyper::{
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use pay::Payments;
use serde_json::json;
use std::{io, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

/// The host name that documents use.
pub const HOST: &str = "playground.localhost";

/// The longest delay that a request can set.
const LONGEST: Duration = Duration::from_secs(3600);
/// Bodies beyond this are refused.
const MAX_BODY: usize = 1024 * 1024;
const BREATH: Duration = Duration::from_millis(100);

const ABOUT: &str = "\
The playground of Fermata. It is here only in `fermata dev` and `fermata run`.

ANY /echo/NAME    answers with the body that was sent
    status=402      with this status
    delay=200ms     after this time
    fail=2          only from the third request of one Idempotency-Key on; the first two are answered 503
    reset=true      not at all: the connection is closed
    broken=true     with half of it, though it says JSON
    size=300000     with this many bytes of text instead

POST /pay         takes { \"amount\": 42, \"callback_url\": \"http://127.0.0.1:…\" }, answers { \"checkout_id\": … },
                  and later POSTs { \"status\", \"payment_id\", \"amount\" } to the callback_url (loopback only)
    after=1s        after this time
    status=paid     with this status
";

/// A playground that runs until this is dropped.
pub struct Playground {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Playground {
    /// Opens it on a free port of this machine.
    pub async fn open() -> io::Result<Playground> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Playing {
            counts: Arc::default(),
            payments: Arc::new(Payments::new().map_err(io::Error::other)?),
        };
        let serving = tokio::spawn(serve(listener, router(state)));
        Ok(Playground { address, serving })
    }

    /// Resolves [`HOST`] to this service.
    pub fn stand_in(&self, http: &mut HttpSettings) {
        http.stand_ins.push((HOST.to_owned(), self.address));
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The state of its services.
#[derive(Clone)]
struct Playing {
    counts: Arc<Counts>,
    payments: Arc<Payments>,
}

/// Closes the connection instead of answering.
#[derive(Debug, Clone, Copy)]
struct NoAnswer;

/// The reason why a request is refused.
struct Refused(String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.0, "about": format!("http://{HOST}/") });
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    }
}

fn router(state: Playing) -> Router {
    Router::new()
        .route("/", get(|| async { ABOUT }))
        .route("/echo/{*name}", any(echo::echo))
        .route("/pay", post(pay::pay))
        .fallback(|| async { (StatusCode::NOT_FOUND, ABOUT) })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

async fn serve(listener: TcpListener, app: Router) {
    // The connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(hold(stream, app.clone()))),
                Err(_) => tokio::time::sleep(BREATH).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn hold(stream: TcpStream, app: Router) {
    // Small answers are sent without delay.
    let _ = stream.set_nodelay(true);
    let app = TowerToHyperService::new(app);
    let answer = service_fn(move |request| {
        let answer = app.call(request);
        async move {
            let answer = answer.await.unwrap_or_else(|never| match never {});
            match answer.extensions().get::<NoAnswer>() {
                Some(NoAnswer) => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
                None => Ok(answer),
            }
        }
    });
    // Errors of a connection are reported by the caller, or were requested.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), answer)
        .await;
}
