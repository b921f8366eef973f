//! The issuers whose tokens are accepted, each with its keys and rules.

use super::{
    Denied,
    jwk::{Algorithm, Key, KeySet},
    jwks::{JwksTimes, Keys},
};
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};
use url::{Host, Url};

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// One of these must be in the claim `aud`.
    pub audiences: Vec<String>,
    /// Where its keys come from.
    pub keys: KeySource,
    /// The algorithms that its tokens may be signed with.
    pub algorithms: Vec<Algorithm>,
    /// The claim with the tenant.
    pub tenant_claim: String,
    /// How far the clocks may differ.
    pub leeway: Duration,
}

/// Where the keys of an issuer come from.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// A JWK set that is fetched periodically.
    Url(Url),
    /// A JWK set in a file, which is read periodically.
    File(PathBuf),
    /// A secret that the issuer has too.
    Shared(SharedSecret),
}

/// A secret that an issuer and this server share. It is not shown in debug output.
#[derive(Clone)]
pub struct SharedSecret(Vec<u8>);

/// The least length of a shared secret, in bytes (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;

impl SharedSecret {
    /// A secret of at least 32 bytes.
    ///
    /// # Errors
    /// If it is shorter.
    pub fn new(bytes: Vec<u8>) -> Result<SharedSecret, String> {
        match bytes.len() {
            ..MIN_SECRET => Err(format!("a shared secret must have at least {MIN_SECRET} bytes")),
            _ => Ok(SharedSecret(bytes)),
        }
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl KeySource {
    /// The address of a JWK set: over TLS, or on this machine.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn url(text: &str) -> Result<KeySource, String> {
        let url = Url::parse(text).map_err(|error| format!("it is not a URL: {error}"))?;
        let is_here = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        match url.scheme() {
            _ if !url.username().is_empty() || url.password().is_some() => {
                Err("it must not contain a user or a password".to_owned())
            }
            "https" => Ok(KeySource::Url(url)),
            "http" if is_here => Ok(KeySource::Url(url)),
            _ => Err("it must begin with `https://`, or with `http://` on a loopback address: otherwise the keys could be replaced on the way".to_owned()),
        }
    }

    /// The algorithms that fit these keys.
    pub fn algorithms(&self) -> &'static [Algorithm] {
        match self {
            KeySource::Url(_) | KeySource::File(_) => &Algorithm::PUBLIC,
            KeySource::Shared(_) => &Algorithm::SHARED,
        }
    }
}

/// An issuer with its loaded keys.
pub(super) struct Issuer {
    config: IssuerConfig,
    keys: Keys,
}

impl Issuer {
    pub(super) fn new(config: &IssuerConfig, times: JwksTimes) -> Issuer {
        let keys = match &config.keys {
            KeySource::Shared(secret) => Keys::fixed(KeySet::one(Key::shared(&secret.0))),
            source => Keys::refreshed(source.clone(), config.issuer.clone(), times),
        };
        Issuer {
            config: config.clone(),
            keys,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.config.issuer
    }

    pub(super) fn accepts(&self, audience: &str) -> bool {
        self.config.audiences.iter().any(|accepted| accepted == audience)
    }

    pub(super) fn leeway(&self) -> Duration {
        self.config.leeway
    }

    pub(super) fn tenant_claim(&self) -> &str {
        &self.config.tenant_claim
    }

    /// The algorithm of this name, if tokens of this issuer may be signed with it and its keys fit.
    pub(super) fn algorithm(&self, name: &str) -> Option<Algorithm> {
        let algorithm = Algorithm::parse(name)?;
        let is_allowed = self.config.algorithms.contains(&algorithm);
        let fits = self.config.keys.algorithms().contains(&algorithm);
        (is_allowed && fits).then_some(algorithm)
    }

    /// A set of keys that has one for this token.
    pub(super) async fn keys(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<Arc<KeySet>, Denied> {
        self.keys.with(kid, algorithm).await
    }
}
