//! Authentication: from the `Authorization` header to an [`Identity`].
//!
//! | token | is accepted if |
//! | --- | --- |
//! | `fk_…` | it is an API key of this installation (`fermata_runtime::keys`) |
//! | `header.claims.signature` | it is a JWT of a configured issuer ([`jwt`]) |
//! | none | `allow_loose` is set: the caller may do everything |
//!
//! What must stay true:
//! * A token that is sent must be valid, also where none is needed.
//! * How a token is verified depends on the configuration of its issuer, never on the token.
//! * A token is never logged, and never part of an error. What is remembered is its digest.
//! * A revoked key is refused within [`KEY_HARD`]; a token is verified again at least every [`TOKEN_LIFE`].
//! * Requests whose key is known never wait for an identity provider.

mod claims;
mod issuer;
mod jwk;
mod jwks;
mod jwt;
mod known;

pub use issuer::{IssuerConfig, KeySource, SharedSecret};
pub use jwk::Algorithm;
pub use jwks::JwksTimes;

use crate::error::ApiError;
use axum::{
    extract::{MatchedPath, Request},
    http::{HeaderMap, HeaderValue, StatusCode, header},
};
use fermata_core::Timestamp;
use fermata_runtime::{
    Caller, Engine, EngineError, Identity, Scope,
    keys::{self, KeyOwner},
};
use issuer::Issuer;
use known::{Accepted, Digest, Known::*, KnownTokens, digest};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

/// Longer tokens are refused without being read.
const MAX_TOKEN: usize = 8 * 1024;

/// How long a key is accepted after it was read: then one request reads it again, and others use it meanwhile.
const KEY_SOFT: Duration = Duration::from_secs(2);
/// How long a key is accepted after it was read, at most. A read that takes longer counts as failed.
const KEY_HARD: Duration = Duration::from_millis(4500);
/// How long a JWT is accepted after it was verified, at most.
const TOKEN_LIFE: Duration = Duration::from_secs(60);

/// The most unknown keys, and the most known ones, that are read from the database at the same time, and how long a request waits
/// for its turn.
const MAX_LOOKUPS: usize = 4;
const LOOKUP_PATIENCE: Duration = Duration::from_secs(2);

/// How callers are authenticated.
#[derive(Debug, Clone, Default)]
pub struct AuthConfig {
    /// Whether requests without a token are accepted.
    pub allow_loose: Loose,
    /// Whose JWTs are accepted.
    pub issuers: Vec<IssuerConfig>,
    /// How the keys of issuers are fetched.
    pub jwks: JwksTimes,
}

/// Whether requests without a token are accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Loose {
    /// They are. The caller may do everything.
    #[default]
    Allowed,
    /// They are not, and a token without a tenant needs the scope `admin`.
    Refused,
}

/// Why a request is denied.
#[derive(Debug)]
pub(crate) enum Denied {
    /// It has no token.
    NoToken,
    /// Its token is not accepted.
    Invalid(&'static str),
    /// Its token has neither a tenant nor the scope `admin`.
    NoTenant,
    /// Its token lacks this scope.
    Lacks(Scope),
    /// The keys of its issuer could not be fetched, so it is not known whether the token is valid.
    NoKeys,
    /// The key could not be read in time: too many others are being read, or the database is slow.
    Busy,
    /// The database could not be read, so it is not known whether the key is valid.
    Unchecked(EngineError),
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> ApiError {
        let bearer = |text: &str| HeaderValue::try_from(format!("Bearer realm=\"fermata\"{text}")).ok();
        let refused = |status, code, message: String, how: &str| ApiError {
            header: bearer(how).map(|how| Box::new((header::WWW_AUTHENTICATE, how))),
            ..ApiError::new(status, code, message)
        };
        match denied {
            Denied::NoToken => refused(
                StatusCode::UNAUTHORIZED,
                "UNAUTHENTICATED",
                "this request needs a token: send the header `Authorization: Bearer …` with an API key or a JWT"
                    .to_owned(),
                "",
            ),
            Denied::Invalid(why) => refused(
                StatusCode::UNAUTHORIZED,
                "INVALID_TOKEN",
                format!("the token is not accepted: {why}"),
                ", error=\"invalid_token\"",
            ),
            Denied::NoTenant => refused(
                StatusCode::FORBIDDEN,
                "TENANT_REQUIRED",
                "the token has no tenant; only tokens with the scope `admin` need none".to_owned(),
                ", error=\"insufficient_scope\", scope=\"admin\"",
            ),
            Denied::Lacks(scope) => refused(
                StatusCode::FORBIDDEN,
                "INSUFFICIENT_SCOPE",
                format!("this request needs a token with the scope `{}`", scope.as_str()),
                &format!(", error=\"insufficient_scope\", scope=\"{}\"", scope.as_str()),
            ),
            Denied::NoKeys => ApiError {
                retry_after: Some(5),
                ..ApiError::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "KEYS_UNAVAILABLE",
                    "the token could not be verified: the keys of its issuer could not be fetched. Retry after a moment",
                )
            },
            Denied::Busy => ApiError::busy("the API key could not be checked in time"),
            Denied::Unchecked(error) => error.into(),
        }
    }
}

/// The response to a request that is denied. The one place where denied attempts are recorded.
pub(crate) fn denied(denied: Denied, caller: Option<&Caller>, address: Option<IpAddr>, request: &Request) -> ApiError {
    let credential = caller.map(|caller| caller.identity().credential.as_str());
    let tenant = caller.and_then(Caller::tenant);
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let error = ApiError::from(denied);
    tracing::debug!(
        code = error.code, why = %error.message, credential, tenant, address = ?address, method = %request.method(), route,
        "a request was denied"
    );
    error
}

/// Finds out who makes a request.
pub(crate) struct Authenticator {
    loose: Loose,
    issuers: Vec<Issuer>,
    anonymous: Arc<Identity>,
    known: KnownTokens,
    /// One permit per concurrent read of an unknown key, so that they cannot take all connections to the database.
    lookups: Semaphore,
    /// The same for keys that were accepted a moment ago. They do not wait behind unknown ones.
    renewals: Semaphore,
}

impl Authenticator {
    pub fn new(config: &AuthConfig) -> Authenticator {
        let issuers = config.issuers.iter().map(|issuer| Issuer::new(issuer, config.jwks));
        Authenticator {
            loose: config.allow_loose,
            issuers: issuers.collect(),
            anonymous: Arc::new(Identity::anonymous()),
            known: KnownTokens::default(),
            lookups: Semaphore::new(MAX_LOOKUPS),
            renewals: Semaphore::new(MAX_LOOKUPS),
        }
    }

    /// The identity that the headers prove.
    pub async fn identify(&self, headers: &HeaderMap, engine: &Engine) -> Result<Arc<Identity>, Denied> {
        let Some(token) = bearer(headers)? else {
            return match self.loose {
                Loose::Allowed => Ok(self.anonymous.clone()),
                Loose::Refused => Err(Denied::NoToken),
            };
        };
        let identity = match token.starts_with(keys::PREFIX) {
            true => self.key_owner(token, engine).await?,
            false => self.subject(token, engine).await?,
        };
        let needs_tenant = self.loose == Loose::Refused && !identity.scopes.has(Scope::Admin);
        if needs_tenant && identity.tenant().is_none() {
            return Err(Denied::NoTenant);
        }
        Ok(identity)
    }

    async fn key_owner(&self, token: &str, engine: &Engine) -> Result<Arc<Identity>, Denied> {
        let digest = digest(token);
        let stale = match self.known.find(&digest, engine.now()) {
            Fresh(identity) => return Ok(identity),
            Stale(accepted) => Some(accepted),
            Unknown => None,
        };
        self.read_key(digest, stale, engine.key_owner(token)).await
    }

    /// The owner of a key, as `read` finds it. While it cannot be read, a key that was accepted a moment ago is accepted until that
    /// is too long ago.
    async fn read_key(
        &self,
        digest: Digest,
        stale: Option<Accepted>,
        read: impl Future<Output = Result<Option<KeyOwner>, EngineError>>,
    ) -> Result<Arc<Identity>, Denied> {
        let turns = if stale.is_some() { &self.renewals } else { &self.lookups };
        let permit = timeout(LOOKUP_PATIENCE, turns.acquire()).await;
        // Counted from before the read: it may see the key a moment before it is revoked.
        let began = Instant::now();
        let found = match permit {
            Ok(Ok(_permit)) => timeout(KEY_HARD, read).await,
            _ => return stale.and_then(Accepted::still).ok_or(Denied::Busy),
        };
        match found {
            Ok(Ok(Some(owner))) => {
                let identity = Arc::new(owner.identity);
                let entry = (identity.clone(), owner.expires_at);
                self.known.add(digest, entry, began + KEY_SOFT, began + KEY_HARD);
                Ok(identity)
            }
            Ok(Ok(None)) => {
                self.known.remove(&digest);
                Err(Denied::Invalid("the API key is unknown, revoked or expired"))
            }
            Ok(Err(error)) => stale.and_then(Accepted::still).ok_or(Denied::Unchecked(error)),
            Err(_) => stale.and_then(Accepted::still).ok_or(Denied::Busy),
        }
    }

    async fn subject(&self, token: &str, engine: &Engine) -> Result<Arc<Identity>, Denied> {
        let digest = digest(token);
        match self.known.find(&digest, engine.now()) {
            Fresh(identity) | Stale(Accepted { identity, .. }) => return Ok(identity),
            Unknown => {}
        }
        let (identity, until) = jwt::verify(token, &self.issuers, engine.now()).await?;
        let identity = Arc::new(identity);
        let last = Instant::now() + TOKEN_LIFE;
        self.known.add(digest, (identity.clone(), Some(until)), last, last);
        Ok(identity)
    }
}

/// The token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Denied::Invalid("the request has several `Authorization` headers"));
    }
    if value.len() > MAX_TOKEN {
        return Err(Denied::Invalid("it is longer than 8 KiB"));
    }
    let text = value.to_str().unwrap_or_default();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    let token = token.trim_matches(' ');
    match scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains([' ', ',']) {
        true => Ok(Some(token)),
        false => Err(Denied::Invalid("the header must be `Authorization: Bearer …`")),
    }
}

/// Seconds since 1970 of a time of the engine.
fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A revoked key is refused after five seconds, also while the database is slow or cannot be read.
    #[tokio::test(start_paused = true)]
    async fn a_key_that_cannot_be_read_again_is_refused_in_time() {
        let auth = Authenticator::new(&AuthConfig::default());
        let now = Timestamp(0);
        let stale = async |name: &str| {
            let (key, began) = (digest(name), Instant::now());
            let entry = (Arc::new(Identity::anonymous()), None);
            auth.known.add(key, entry, began + KEY_SOFT, began + KEY_HARD);
            tokio::time::advance(KEY_SOFT).await;
            match auth.known.find(&key, now) {
                Stale(accepted) => (key, Some(accepted), began),
                Fresh(_) | Unknown => panic!("it is to be read again"),
            }
        };
        let failing = async |after: Duration| {
            tokio::time::sleep(after).await;
            Err(EngineError::Stopping)
        };
        // A read that fails soon: the key is used a little longer.
        let (key, accepted, _) = stale("soon").await;
        assert!(
            auth.read_key(key, accepted, failing(Duration::from_secs(1)))
                .await
                .is_ok()
        );
        // One that fails late, one that hangs, and one that waits for its turn.
        let (key, accepted, _) = stale("late").await;
        let late = auth.read_key(key, accepted, failing(Duration::from_secs(4))).await;
        assert!(matches!(late, Err(Denied::Unchecked(_))), "{late:?}");
        let (key, accepted, _) = stale("hangs").await;
        let hangs = auth.read_key(key, accepted, std::future::pending()).await;
        assert!(matches!(hangs, Err(Denied::Busy)), "{hangs:?}");
        let (key, accepted, began) = stale("waits").await;
        tokio::time::advance(Duration::from_secs(1)).await;
        let _all = auth.renewals.acquire_many(MAX_LOOKUPS as u32).await.unwrap();
        let waits = auth.read_key(key, accepted, failing(Duration::ZERO)).await;
        assert!(
            matches!(waits, Err(Denied::Busy)),
            "{waits:?} after {:?}",
            began.elapsed()
        );
        // Unknown keys have turns of their own.
        let unknown = auth.read_key(digest("unknown"), None, async { Ok(None) }).await;
        assert!(matches!(unknown, Err(Denied::Invalid(_))), "{unknown:?}");
    }

    #[test]
    fn one_bearer_token_is_read() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(|token| token.map(str::to_owned)).map_err(drop)
        };
        assert_eq!(read(&[]), Ok(None));
        for text in ["Bearer abc", "bearer abc", "BEARER  abc "] {
            assert_eq!(read(&[text]), Ok(Some("abc".to_owned())), "{text}");
        }
        let long = format!("Bearer {}", "a".repeat(9000));
        for wrong in [
            "",
            "abc",
            "Bearer",
            "Bearer ",
            "Basic abc",
            "Bearer a b",
            "Bearer a,b",
            "Token abc",
            &long,
        ] {
            assert_eq!(read(&[wrong]), Err(()), "{wrong}");
        }
        assert_eq!(read(&["Bearer a", "Bearer a"]), Err(()));
    }
}
