//! The state of every handler, and the only way from a handler to the engine.
//!
//! What must stay true: the engine is private here. A handler takes [`As`], the engine as the caller of the request sees it,
//! so a handler without a caller cannot reach any data. What needs no caller has a method of its own: health checks, and
//! callbacks and webhooks, whose URLs are credentials.

use crate::{
    WebConfig,
    auth::{Authenticator, Denied},
    body::run_to_completion,
    error::ApiError,
    metrics::HttpMetrics,
    origin_check::HostNames,
    rate_limit::RequestRate,
    webhook_path::WebhookPath,
};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header::AUTHORIZATION, request::Parts},
};
use fermata_runtime::{
    Caller, Engine, EngineError, Session, Settings,
    inbox::{Given, Reply},
    memory::{Budget, Share},
    offload::Offload,
    triggers::{Received, WebhookRequest},
};
use fermata_store::{StoreError, inbox::WaitRef};
use serde_json::Value;
use std::{
    convert::Infallible,
    net::IpAddr,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The state of every handler. It is cloned several times per request, so it is one pointer.
#[derive(Clone)]
pub(crate) struct Web(Arc<Shared>);

pub(crate) struct Shared {
    engine: Engine,
    auth: Authenticator,
    pub config: WebConfig,
    pub names: HostNames,
    pub webhooks: WebhookPath,
    pub memory: Memory,
    /// One permit per concurrent read.
    pub reads: Semaphore,
    denials: Denials,
    pub metrics: HttpMetrics,
    pub request_rate: Option<RequestRate>,
    /// Set when the server shuts down: open streams end.
    pub closing: CancellationToken,
}

impl Deref for Web {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// The most refused requests that are recorded in one second. A flood of them must not fill the database.
const MAX_DENIALS: u32 = 20;

/// Counts refused requests.
#[derive(Default)]
struct Denials(Mutex<Option<(Instant, u32)>>);

impl Denials {
    /// Whether one more may be recorded in this second.
    fn take(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (since, count) = state
            .filter(|(since, _)| now - *since < Duration::from_secs(1))
            .unwrap_or((now, 0));
        *state = Some((since, count + 1));
        if count == MAX_DENIALS {
            tracing::warn!(
                "more than {MAX_DENIALS} requests were refused in one second; the audit trail has only the first"
            );
        }
        count < MAX_DENIALS
    }
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

impl Web {
    /// On a loopback address, `Host` is checked for every client.
    pub fn new(engine: Engine, config: WebConfig, is_loopback: bool, closing: CancellationToken) -> Web {
        Web(Arc::new(Shared {
            names: HostNames::new(is_loopback, &config.allowed_hosts, &engine.settings().public_url),
            webhooks: WebhookPath::new(&engine.settings().triggers.webhook_base_path),
            memory: Memory::new(&config),
            reads: Semaphore::new(config.max_concurrent_reads),
            metrics: HttpMetrics::default(),
            request_rate: config.request_rate.map(RequestRate::new),
            auth: Authenticator::new(&config.auth),
            denials: Denials::default(),
            closing,
            config,
            engine,
        }))
    }

    /// The caller that the headers of a request name.
    pub async fn authenticate(&self, headers: &HeaderMap, address: Option<IpAddr>) -> Result<Caller, Denied> {
        let identity = self.auth.identify(headers, &self.engine).await?;
        Ok(Caller::new(identity, address))
    }

    /// Whether a request that has waited would still be admitted: its credential may have been revoked or have expired meanwhile.
    pub async fn still_admits(&self, session: &Session, credential: &Credential) -> Result<(), ApiError> {
        let caller = session.caller();
        let headers = credential.0.iter().map(|value| (AUTHORIZATION, value.clone()));
        let again = self.authenticate(&headers.collect(), caller.address()).await?;
        match again.identity() == caller.identity() {
            true => Ok(()),
            false => Err(Denied::Invalid("it now has another owner or other scopes").into()),
        }
    }

    /// Records a request that was refused because of its credential or scopes, if not too many were refused in this second. The
    /// response does not wait for it.
    pub fn record_denied(&self, caller: Option<&Caller>, address: Option<IpAddr>, request: String, code: &'static str) {
        if !self.denials.take() {
            return;
        }
        let (engine, caller) = (self.engine.clone(), caller.cloned());
        tokio::spawn(async move {
            let recorded = engine.record_denied(caller.as_ref(), address, &request, code).await;
            if let Err(error) = recorded {
                tracing::warn!(%error, "a refused request could not be recorded in the audit trail");
            }
        });
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        self.engine.settings()
    }

    /// The threads for large work.
    pub fn offload(&self) -> &Offload {
        self.engine.offload()
    }

    /// Whether the database can write.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.engine.ping().await
    }

    /// Whether the server stops.
    pub fn is_stopping(&self) -> bool {
        self.engine.is_stopping()
    }

    /// Whether requests are counted.
    pub fn counts(&self) -> bool {
        self.engine.counts()
    }

    /// Whether attempts and runs may start in this process.
    pub fn may_start(&self) -> bool {
        self.engine.may_start()
    }

    /// Whether there are actions.
    pub fn has_actions(&self) -> bool {
        self.engine.registry().infos().next().is_some()
    }

    /// Gives the answer to the wait of a callback's token, which is the credential. It is stored even if the client goes away
    /// meanwhile.
    pub async fn deliver(
        &self,
        token: String,
        payload: Value,
        is_json: bool,
        share: Share,
    ) -> Result<Given, EngineError> {
        let engine = self.engine.clone();
        let reply = Reply {
            of: WaitRef::Token(token),
            lease: None,
            tenant: None,
            payload,
            is_json,
            by: None,
        };
        run_to_completion(share, async move { engine.inbox().answer(reply).await }).await
    }

    /// Takes a request to a webhook, whose path segment and signature are the credential. It is stored even if the client goes
    /// away meanwhile.
    pub async fn receive_webhook(
        &self,
        segment: String,
        request: WebhookRequest,
        share: Share,
    ) -> Result<Received, EngineError> {
        let engine = self.engine.clone();
        run_to_completion(share, async move { engine.receive_webhook(&segment, request).await }).await
    }
}

/// The credential of a request, for one that may wait longer than a credential is accepted.
pub(crate) struct Credential(Option<HeaderValue>);

impl Credential {
    /// Whether the request has one.
    pub fn is_given(&self) -> bool {
        self.0.is_some()
    }
}

impl FromRequestParts<Web> for Credential {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Web) -> Result<Self, Infallible> {
        Ok(Credential(parts.headers.get(AUTHORIZATION).cloned()))
    }
}

/// The engine as the caller of the request sees it.
pub(crate) struct As(pub Session);

impl FromRequestParts<Web> for As {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, web: &Web) -> Result<Self, ApiError> {
        // The layer that every request passes through has put it there, unless the route is public.
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| ApiError::internal("INTERNAL"))?;
        Ok(As(web.engine.as_caller(caller)))
    }
}
