//! An identity provider on loopback: signs tokens, and publishes its keys.

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use fermata_web::{Algorithm, AuthConfig, IssuerConfig, JwksTimes, KeySource, Loose, WebConfig};
use reqwest::StatusCode;
use ring::{
    hmac,
    rand::SystemRandom,
    rsa::KeyPair as RsaKeyPair,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    },
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinHandle};

pub const ISSUER: &str = "https://login.example.com/";
pub const AUDIENCE: &str = "fermata";

/// An RSA key for tests only, as PKCS#8 in base64.
const RSA: &str = include_str!("rsa_test_key.txt");

/// Stops when it is dropped.
pub struct Provider {
    pub url: String,
    pub state: Published,
    serving: JoinHandle<()>,
}

#[derive(Clone)]
pub struct Published {
    keys: Arc<Mutex<Vec<Value>>>,
    /// How often the keys were fetched.
    fetches: Arc<AtomicUsize>,
    /// Whether fetches fail.
    pub is_down: Arc<AtomicBool>,
    /// Each fetch takes a permit, and gives it back.
    pub gate: Arc<Semaphore>,
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn keys(State(state): State<Published>) -> impl IntoResponse {
    state.fetches.fetch_add(1, Ordering::SeqCst);
    let _permit = state.gate.acquire().await.unwrap();
    if state.is_down.load(Ordering::SeqCst) {
        return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
    }
    let set = json!({ "keys": *state.keys.lock().unwrap() });
    (StatusCode::OK, set.to_string())
}

impl Provider {
    pub async fn start(keys_of: &[&Signer]) -> Provider {
        let state = Published {
            keys: Arc::new(Mutex::new(keys_of.iter().map(|signer| signer.jwk()).collect())),
            fetches: Arc::default(),
            is_down: Arc::default(),
            gate: Arc::new(Semaphore::new(100)),
        };
        let app = Router::new().route("/keys", get(keys)).with_state(state.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Provider { url, state, serving }
    }

    pub fn publish(&self, keys: Vec<Value>) {
        *self.state.keys.lock().unwrap() = keys;
    }

    pub fn fetches(&self) -> usize {
        self.state.fetches.load(Ordering::SeqCst)
    }

    /// A server that accepts tokens of this provider.
    pub fn config(&self, loose: Loose) -> WebConfig {
        with_auth(loose, vec![issuer(KeySource::url(&self.url).unwrap())])
    }
}

pub fn issuer(keys: KeySource) -> IssuerConfig {
    IssuerConfig {
        issuer: ISSUER.to_owned(),
        audiences: vec![AUDIENCE.to_owned(), "other".to_owned()],
        algorithms: keys.algorithms().to_vec(),
        keys,
        tenant_claim: "tenant_id".to_owned(),
        leeway: Duration::from_secs(60),
    }
}

pub fn with_auth(allow_loose: Loose, issuers: Vec<IssuerConfig>) -> WebConfig {
    WebConfig {
        auth: AuthConfig {
            allow_loose,
            issuers,
            jwks: JwksTimes::default(),
        },
        ..WebConfig::default()
    }
}

/// A private key.
pub struct Signer {
    kid: String,
    key: Private,
}

enum Private {
    Rsa(RsaKeyPair, Algorithm),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Secret(Vec<u8>),
}

impl Signer {
    /// The same key each time: RSA keys cannot be made here.
    pub fn rsa(kid: &str, algorithm: Algorithm) -> Signer {
        let der = STANDARD.decode(RSA.replace('\n', "")).unwrap();
        Signer {
            kid: kid.to_owned(),
            key: Private::Rsa(RsaKeyPair::from_pkcs8(&der).unwrap(), algorithm),
        }
    }

    pub fn p256(kid: &str) -> Signer {
        let (curve, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let der = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        Signer {
            kid: kid.to_owned(),
            key: Private::P256(EcdsaKeyPair::from_pkcs8(curve, der.as_ref(), &random).unwrap()),
        }
    }

    pub fn ed25519(kid: &str) -> Signer {
        let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer {
            kid: kid.to_owned(),
            key: Private::Ed25519(Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap()),
        }
    }

    pub fn secret(kid: &str, secret: &[u8]) -> Signer {
        Signer {
            kid: kid.to_owned(),
            key: Private::Secret(secret.to_vec()),
        }
    }

    fn algorithm(&self) -> &'static str {
        match &self.key {
            Private::Rsa(_, algorithm) => algorithm.as_str(),
            Private::P256(_) => "ES256",
            Private::Ed25519(_) => "EdDSA",
            Private::Secret(_) => "HS256",
        }
    }

    /// The public key, as it is published.
    pub fn jwk(&self) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let kid = &self.kid;
        match &self.key {
            Private::Rsa(key, _) => {
                let public: ring::rsa::PublicKeyComponents<Vec<u8>> = key.public_key().into();
                json!({ "kty": "RSA", "kid": kid, "use": "sig", "n": text(&public.n), "e": text(&public.e) })
            }
            Private::P256(key) => {
                let point = key.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "kid": kid, "x": text(&point[1..33]), "y": text(&point[33..]) })
            }
            Private::Ed25519(key) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": text(key.public_key().as_ref()) })
            }
            Private::Secret(secret) => json!({ "kty": "oct", "kid": kid, "k": text(secret) }),
        }
    }

    /// The bytes of an RSA public key, as an attacker would use them as a secret.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.key {
            Private::Rsa(key, _) => key.public_key().as_ref().to_vec(),
            _ => unreachable!("only RSA"),
        }
    }

    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm(), "kid": self.kid, "typ": "JWT" })
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.sign_with(&self.header(), claims)
    }

    /// Signs whatever the header says.
    pub fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.signature(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Private::Rsa(key, algorithm) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let with: &dyn ring::signature::RsaEncoding = match algorithm {
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                key.sign(with, &random, message, &mut signature).unwrap();
                signature
            }
            Private::P256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Private::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Private::Secret(secret) => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
                hmac::sign(&key, message).as_ref().to_vec()
            }
        }
    }
}

pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// Claims that are valid now, with all scopes of workflows.
pub fn claims(tenant: &str) -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "name": "Ada", "email": "ada@example.com", "exp": now() + 600,
        "tenant_id": tenant, "scope": "openid workflows:read workflows:execute workflows:manage",
    })
}

/// The claims with one of them changed; null removes it.
pub fn changed(mut claims: Value, name: &str, value: Value) -> Value {
    match value.is_null() {
        true => claims.as_object_mut().unwrap().remove(name),
        false => claims.as_object_mut().unwrap().insert(name.to_owned(), value),
    };
    claims
}
