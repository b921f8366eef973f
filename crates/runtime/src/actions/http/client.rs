//! The client of `http.request`: connections to permitted addresses, kept for later requests if that is safe.
//!
//! It is composed of parts of `hyper`, because its connections are wrapped ([`Framed`]).

use super::{
    framing::Framed,
    guard::{GuardedResolver, Refused},
    redirect::origin,
    request::Request,
};
use bytes::Bytes;
use fermata_core::{Failure, code};
use futures::future::BoxFuture;
use http::Uri;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{Client as Pool, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::{ClientConfig, crypto::ring::default_provider};
use rustls_platform_verifier::Verifier;
use std::{
    error::Error,
    io,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::TcpStream;
use tower_http::decompression::{Decompression, DecompressionBody};
use tower_service::Service;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
const KEEPALIVE: Duration = Duration::from_secs(15);

type BoxError = Box<dyn Error + Send + Sync>;

/// A response whose body is decompressed as it is read.
pub(super) type Response = http::Response<DecompressionBody<Incoming>>;

/// Sends requests. A client belongs to one guard: each kept connection has passed it.
#[derive(Clone)]
pub(super) struct Client(Decompression<Pool<Connector, Full<Bytes>>>);

impl Client {
    pub(super) fn new(resolver: GuardedResolver) -> Result<Client, rustls::Error> {
        let provider = Arc::new(default_provider());
        let verifier = Verifier::new(provider.clone())?;
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        let mut http = HttpConnector::new_with_resolver(resolver);
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_keepalive(Some(KEEPALIVE));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        let pool = Pool::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(Connector(https));
        Ok(Client(Decompression::new(pool)))
    }

    /// Sends a request and reads the head of the response.
    pub(super) async fn send(&self, request: &Request) -> Result<Response, Failure> {
        let uri = Uri::try_from(request.url.as_str())
            .map_err(|error| Failure::permanent(code::INVALID_PARAMETERS, error.to_string()))?;
        let mut sent = http::Request::new(Full::new(request.body.clone().unwrap_or_default()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = uri;
        *sent.headers_mut() = request.headers.clone();
        // The client is always ready: connections are opened as they are needed.
        let response = self.0.clone().call(sent).await;
        response.map_err(|error| match connection_failure(&error) {
            refused if !refused.retriable => refused,
            failure => Failure {
                message: format!("the request to `{}` failed: {}", origin(&request.url), failure.message),
                ..failure
            },
        })
    }
}

/// Opens connections.
#[derive(Clone)]
struct Connector(HttpsConnector<HttpConnector<GuardedResolver>>);

impl Service<http::Uri> for Connector {
    type Response = Framed<MaybeHttpsStream<TokioIo<TcpStream>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, to: http::Uri) -> Self::Future {
        let connecting = self.0.call(to);
        Box::pin(async move {
            match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
                Ok(stream) => Ok(Framed::new(stream?)),
                Err(_) => {
                    Err(io::Error::new(io::ErrorKind::TimedOut, "the connection was not established in time").into())
                }
            }
        })
    }
}

/// A failure between this process and the service.
pub(super) fn connection_failure(error: &(dyn Error + 'static)) -> Failure {
    let mut message = String::new();
    let mut timed_out = false;
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(refused) = cause.downcast_ref::<Refused>() {
            return Failure::permanent("ADDRESS_REFUSED", refused.to_string());
        }
        let io = cause.downcast_ref::<io::Error>();
        timed_out |= io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
        let separator = if message.is_empty() { "" } else { ": " };
        message = format!("{message}{separator}{cause}");
        next = cause.source();
    }
    match timed_out {
        true => Failure::retriable(code::TIMEOUT, message),
        false => Failure::retriable("CONNECTION_FAILED", message),
    }
}
