//! Tokens: which are accepted, and the attacks that are not.

use crate::{
    harness::{Answer, Server, echo},
    provider::{AUDIENCE, ISSUER, Provider, Signer, changed, claims, issuer, now, with_auth},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use fermata_runtime::Settings;
use fermata_web::{Algorithm, JwksTimes, KeySource, Loose, SharedSecret, WebConfig};
use reqwest::Method;
use serde_json::{Value, json};
use std::{sync::atomic::Ordering, time::Duration};

const WORKFLOWS: &str = "/api/v1/workflows";

async fn start(config: WebConfig) -> Server {
    Server::with(Settings::default(), config).await
}

async fn get_with(server: &Server, token: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    server
        .send(Method::GET, WORKFLOWS, &[("authorization", bearer.as_str())], "")
        .await
}

async fn post_with(server: &Server, token: &str, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    server.send(Method::POST, path, &headers, body.to_string()).await
}

/// Refused as invalid; the response says so and does not repeat the token.
#[track_caller]
fn assert_invalid(answer: &Answer, token: &str) -> String {
    let error = answer.error(401, "INVALID_TOKEN");
    assert!(answer.header("www-authenticate").contains("error=\"invalid_token\""));
    assert!(token.len() < 10 || !answer.text.contains(token), "{}", answer.text);
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tokens_of_all_key_kinds_are_accepted() {
    let signers = [
        Signer::rsa("r", Algorithm::Rs256),
        Signer::rsa("p", Algorithm::Ps256),
        Signer::p256("e"),
        Signer::ed25519("d"),
    ];
    let provider = Provider::start(&signers.iter().collect::<Vec<_>>()).await;
    let server = start(provider.config(Loose::Refused)).await;
    for signer in &signers {
        for token in [
            claims("acme"),
            changed(claims("acme"), "aud", json!(["x", AUDIENCE])),
            changed(claims("acme"), "scope", json!(["workflows:read"])),
            changed(
                changed(claims("acme"), "scp", json!("workflows:read")),
                "scope",
                Value::Null,
            ),
            changed(
                changed(claims("acme"), "scp", json!(["workflows:read"])),
                "scope",
                Value::Null,
            ),
            changed(claims("acme"), "nbf", json!(now() + 30)),
            changed(claims("acme"), "exp", json!(now() - 30)),
            changed(claims("acme"), "exp", json!(now() as f64 + 30.5)),
        ] {
            get_with(&server, &signer.sign(&token)).await.expect(200);
        }
    }
    assert_eq!(provider.fetches(), 1, "the keys were fetched once");
}

#[tokio::test]
async fn a_token_is_needed_unless_loose() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let strict = start(provider.config(Loose::Refused)).await;
    let refused = strict.get(WORKFLOWS).await;
    refused.error(401, "UNAUTHENTICATED");
    assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"fermata\"");
    assert_eq!(strict.get("/health/live").await.status, 200);
    let loose = start(provider.config(Loose::Allowed)).await;
    loose.get(WORKFLOWS).await.expect(200);
    get_with(&loose, &signer.sign(&claims("acme"))).await.expect(200);
    // One that is sent must be valid, and is honoured.
    assert_invalid(&get_with(&loose, "x").await, "");
    let bare = changed(claims("acme"), "scope", Value::Null);
    get_with(&loose, &signer.sign(&bare))
        .await
        .error(403, "INSUFFICIENT_SCOPE");
}

#[tokio::test]
async fn invalid_claims_are_refused() {
    let signer = Signer::p256("k");
    let provider = Provider::start(&[&signer]).await;
    let server = start(provider.config(Loose::Refused)).await;
    for (claim, value, why) in [
        ("iss", json!("https://evil.example/"), "issuer"),
        ("iss", Value::Null, "issuer"),
        ("iss", json!([ISSUER]), "issuer"),
        ("aud", json!("someone"), "audience"),
        ("aud", json!(["someone", "else"]), "audience"),
        ("aud", json!([]), "audience"),
        ("aud", Value::Null, "audience"),
        ("aud", json!({ "fermata": 1 }), "audience"),
        ("exp", json!(now() - 3600), "expired"),
        ("exp", json!(0), "expired"),
        ("exp", json!(-1), "expired"),
        ("exp", Value::Null, "exp"),
        ("exp", json!((now() + 600).to_string()), "numbers"),
        ("nbf", json!(now() + 3600), "not valid yet"),
        ("nbf", json!("soon"), "numbers"),
        ("sub", Value::Null, "sub"),
        ("sub", json!(""), "sub"),
        ("sub", json!(7), "sub"),
        ("tenant_id", json!(""), "tenant"),
        ("tenant_id", json!(["acme"]), "tenant"),
        ("tenant_id", json!(0), "tenant"),
        ("tenant_id", json!("a\u{0}"), "tenant"),
    ] {
        let token = signer.sign(&changed(claims("acme"), claim, value.clone()));
        let message = assert_invalid(&get_with(&server, &token).await, &token);
        assert!(message.contains(why), "{claim} {value}: {message}");
    }
    let tenantless = signer.sign(&changed(claims("acme"), "tenant_id", Value::Null));
    get_with(&server, &tenantless).await.error(403, "TENANT_REQUIRED");
    let twice = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(signer.header().to_string()),
        URL_SAFE_NO_PAD.encode(r#"{"tenant_id":"acme","tenant_id":"other"}"#)
    );
    assert_invalid(&get_with(&server, &format!("{twice}.AAAA")).await, "");
}

#[tokio::test]
async fn the_header_does_not_choose_how_a_token_is_verified() {
    let rsa = Signer::rsa("r", Algorithm::Rs256);
    let provider = Provider::start(&[&rsa]).await;
    // The provider also publishes a symmetric key, which everyone can read.
    let leaked = Signer::secret("oct", b"0123456789abcdef0123456789abcdef");
    provider.publish(vec![rsa.jwk(), leaked.jwk()]);
    let server = start(provider.config(Loose::Refused)).await;
    let good = rsa.sign(&claims("acme"));
    get_with(&server, &good).await.expect(200);
    let parts: Vec<&str> = good.split('.').collect();
    let header = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let none = header(json!({ "alg": "none", "kid": "r" }));
    let confused = Signer::secret("r", &rsa.public_bytes());
    let pem = Signer::secret("r", rsa.jwk()["n"].as_str().unwrap().as_bytes());
    let other = Signer::ed25519("r");
    let with = |name: &str, value: Value| {
        let mut header = rsa.header();
        header[name] = value;
        rsa.sign_with(&header, &claims("acme"))
    };
    for token in [
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], &parts[2][..parts[2].len() - 4]),
        format!(
            "{}.{}.{}",
            parts[0],
            URL_SAFE_NO_PAD.encode(claims("other").to_string()),
            parts[2]
        ),
        // The public key as the secret of an HMAC.
        confused.sign(&claims("acme")),
        pem.sign(&claims("acme")),
        leaked.sign(&claims("acme")),
        // A key of the attacker, in the header.
        other.sign_with(
            &json!({ "alg": "EdDSA", "kid": "r", "jwk": other.jwk() }),
            &claims("acme"),
        ),
        other.sign_with(&json!({ "alg": "EdDSA", "jwk": other.jwk() }), &claims("acme")),
        other.sign_with(&json!({ "alg": "RS256", "kid": "r" }), &claims("acme")),
        with("alg", json!("NONE")),
        with("alg", json!("rs256")),
        with("alg", json!("RS512")),
        with("alg", json!("PS256")),
        with("alg", json!(["RS256"])),
        with("crit", json!(["exp"])),
        with("crit", json!([])),
        with("typ", json!("dpop+jwt")),
        format!("{good}=="),
        format!("{good}.{}", parts[2]),
        format!(".{good}"),
        "a.b.c".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "eyJhbGciOiJub25lIn0.e30.".to_owned(),
    ] {
        assert_invalid(&get_with(&server, &token).await, &token);
    }
    for typ in ["at+jwt", "application/at+jwt", "jwt"] {
        get_with(&server, &with("typ", json!(typ))).await.expect(200);
    }
}

#[tokio::test]
async fn only_the_algorithms_of_an_issuer_are_accepted() {
    let (rsa, p256) = (Signer::rsa("r", Algorithm::Rs256), Signer::p256("e"));
    let provider = Provider::start(&[&rsa, &p256]).await;
    let mut config = provider.config(Loose::Refused);
    config.auth.issuers[0].algorithms = vec![Algorithm::Es256];
    let server = start(config).await;
    get_with(&server, &p256.sign(&claims("acme"))).await.expect(200);
    let refused = assert_invalid(&get_with(&server, &rsa.sign(&claims("acme"))).await, "");
    assert!(refused.contains("algorithm"), "{refused}");
}

#[tokio::test]
async fn shared_secrets_are_used_only_if_configured() {
    let secret = b"0123456789abcdef0123456789abcdef".to_vec();
    let signer = Signer::secret("any", &secret);
    let keys = KeySource::Shared(SharedSecret::new(secret.clone()).unwrap());
    let server = start(with_auth(Loose::Refused, vec![issuer(keys)])).await;
    get_with(&server, &signer.sign(&claims("acme"))).await.expect(200);
    let other = Signer::secret("any", b"another secret that is long enough");
    assert_invalid(&get_with(&server, &other.sign(&claims("acme"))).await, "");
    let rsa = Signer::rsa("any", Algorithm::Rs256);
    assert_invalid(&get_with(&server, &rsa.sign(&claims("acme"))).await, "");
    let none = with_auth(Loose::Refused, Vec::new());
    assert_invalid(&get_with(&start(none).await, &signer.sign(&claims("acme"))).await, "");
}

#[tokio::test]
async fn huge_and_malformed_headers_are_refused() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = start(provider.config(Loose::Allowed)).await;
    let good = signer.sign(&claims("acme"));
    let huge = signer.sign(&changed(claims("acme"), "x", json!("x".repeat(20_000))));
    assert_invalid(&get_with(&server, &huge).await, &huge);
    let deep = format!(
        "{}.{}.AAAA",
        good.split('.').next().unwrap(),
        URL_SAFE_NO_PAD.encode("[".repeat(5000))
    );
    assert_invalid(&get_with(&server, &deep).await, &deep);
    for value in ["", "Bearer", "Basic YTpi", &format!("Token {good}"), &good] {
        let answer = server
            .send(Method::GET, WORKFLOWS, &[("authorization", value)], "")
            .await;
        assert_invalid(&answer, &good);
    }
    let bearer = format!("Bearer {good}");
    let twice = [("authorization", bearer.as_str()), ("authorization", bearer.as_str())];
    let mut request = server.client.get(format!("{}{WORKFLOWS}", server.base));
    for (name, value) in twice {
        request = request.header(name, value);
    }
    assert_eq!(request.send().await.unwrap().status().as_u16(), 401);
}

#[tokio::test]
async fn an_unknown_key_causes_one_fetch() {
    let (old, new) = (Signer::p256("old"), Signer::p256("new"));
    let provider = Provider::start(&[&old]).await;
    let mut config = provider.config(Loose::Refused);
    config.auth.jwks = JwksTimes {
        cooldown: Duration::ZERO,
        ..JwksTimes::default()
    };
    let rotating = start(config).await;
    get_with(&rotating, &old.sign(&claims("acme"))).await.expect(200);
    assert_eq!(provider.fetches(), 1);
    // The provider rotates: the new key is found with the first token that needs it, and the old one is gone.
    provider.publish(vec![new.jwk()]);
    get_with(&rotating, &new.sign(&claims("acme"))).await.expect(200);
    assert_eq!(provider.fetches(), 2);
    let another = changed(claims("acme"), "sub", json!("bob"));
    assert_invalid(&get_with(&rotating, &old.sign(&another)).await, "");
    drop(rotating);

    // Within the cooldown, any number of unknown keys causes no further fetch.
    let before = provider.fetches();
    let server = start(provider.config(Loose::Refused)).await;
    get_with(&server, &new.sign(&claims("acme"))).await.expect(200);
    for number in 0..20 {
        let unknown = Signer::p256(&format!("unknown-{number}"));
        assert_invalid(&get_with(&server, &unknown.sign(&claims("acme"))).await, "");
    }
    assert_eq!(provider.fetches(), before + 1);
}

#[tokio::test]
async fn concurrent_unknown_keys_share_one_fetch() {
    let (old, new) = (Signer::p256("old"), Signer::p256("new"));
    let provider = Provider::start(&[&old]).await;
    let mut config = provider.config(Loose::Refused);
    config.auth.jwks.cooldown = Duration::from_millis(1);
    config.auth.jwks.patience = Duration::from_secs(20);
    let server = start(config).await;
    get_with(&server, &old.sign(&claims("acme"))).await.expect(200);
    tokio::time::sleep(Duration::from_millis(5)).await; // until the cooldown is over
    provider.publish(vec![old.jwk(), new.jwk()]);
    let held = provider.state.gate.acquire_many(100).await.unwrap();
    let token = new.sign(&claims("acme"));
    let waiting = futures::future::join_all((0..10).map(|_| get_with(&server, &token)));
    let known = async {
        while provider.fetches() < 2 {
            tokio::task::yield_now().await;
        }
        // Requests whose key is known are answered while the fetch hangs.
        let known = old.sign(&changed(claims("acme"), "sub", json!("bob")));
        get_with(&server, &known).await.expect(200);
        drop(held);
    };
    let (answers, ()) = tokio::join!(waiting, known);
    answers.iter().for_each(|answer| drop(answer.expect(200)));
    assert_eq!(provider.fetches(), 2);
}

#[tokio::test]
async fn known_keys_are_used_while_the_provider_is_down() {
    let signer = Signer::p256("k");
    let provider = Provider::start(&[&signer]).await;
    provider.state.is_down.store(true, Ordering::SeqCst);
    let mut config = provider.config(Loose::Refused);
    config.auth.jwks.cooldown = Duration::ZERO;
    let server = start(config.clone()).await;
    // Nothing is known yet: it cannot be said whether the token is valid.
    let answer = get_with(&server, &signer.sign(&claims("acme"))).await;
    answer.error(503, "KEYS_UNAVAILABLE");
    assert!(!answer.header("retry-after").is_empty());
    provider.state.is_down.store(false, Ordering::SeqCst);
    get_with(&server, &signer.sign(&claims("acme"))).await.expect(200);
    // Once keys are known, they are used although the provider is down.
    provider.state.is_down.store(true, Ordering::SeqCst);
    let unknown = Signer::p256("unknown");
    assert_invalid(&get_with(&server, &unknown.sign(&claims("acme"))).await, "");
    let another = changed(claims("acme"), "sub", json!("bob"));
    get_with(&server, &signer.sign(&another)).await.expect(200);
    // But not for ever.
    config.auth.jwks.max_age = Duration::ZERO;
    provider.state.is_down.store(false, Ordering::SeqCst);
    let server = start(config).await;
    let answer = get_with(&server, &signer.sign(&claims("acme"))).await;
    answer.error(503, "KEYS_UNAVAILABLE");
}

#[tokio::test]
async fn keys_come_from_a_file_too() {
    let (old, new) = (Signer::ed25519("old"), Signer::ed25519("new"));
    let folder = std::env::temp_dir().join(format!("fermata-jwks-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("keys.json");
    let write = |signer: &Signer| std::fs::write(&path, json!({ "keys": [signer.jwk()] }).to_string()).unwrap();
    write(&old);
    let mut config = with_auth(Loose::Refused, vec![issuer(KeySource::File(path.clone()))]);
    config.auth.jwks.cooldown = Duration::ZERO;
    let server = start(config).await;
    get_with(&server, &old.sign(&claims("acme"))).await.expect(200);
    write(&new);
    get_with(&server, &new.sign(&claims("acme"))).await.expect(200);
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn the_principal_is_the_tokens() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = start(provider.config(Loose::Allowed)).await;
    server.publish(&echo("hello")).await;
    let path = format!("{WORKFLOWS}/hello/execute?wait=10s");
    let own = signer.sign(&claims("acme"));
    let requester = |run: &Value| run["principal"].clone();
    let run = post_with(&server, &own, &path, json!({})).await.expect(200);
    let ada = json!({ "userId": "ada", "displayName": "Ada", "email": "ada@example.com" });
    assert_eq!(requester(&run), ada, "{run}");
    assert_eq!(run["tenantId"], "acme");
    let same = json!({ "principal": { "userId": "ada" }, "tenantId": "acme" });
    let run = post_with(&server, &own, &path, same).await.expect(200);
    assert_eq!(requester(&run), ada);
    for forged in [
        json!({ "userId": "bob" }),
        json!({ "userId": "ada", "displayName": "Bob" }),
        json!({ "userId": "ada", "email": "bob@example.com" }),
    ] {
        let body = json!({ "principal": forged });
        post_with(&server, &own, &path, body)
            .await
            .error(403, "OTHER_PRINCIPAL");
    }
    let body = json!({ "tenantId": "other" });
    post_with(&server, &own, &path, body).await.error(403, "OTHER_TENANT");
    let scope = json!("workflows:execute workflows:on-behalf-of");
    let agent = signer.sign(&changed(claims("acme"), "scope", scope));
    let body = json!({ "principal": { "userId": "bob" } });
    let run = post_with(&server, &agent, &path, body).await.expect(200);
    assert_eq!(requester(&run)["userId"], "bob");
    let body = json!({ "tenantId": "other" });
    post_with(&server, &agent, &path, body).await.error(403, "OTHER_TENANT");
}

#[tokio::test]
async fn an_execution_may_need_a_principal() {
    let settings = Settings {
        require_principal: true,
        ..Settings::default()
    };
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(settings, provider.config(Loose::Allowed)).await;
    server.publish(&echo("hello")).await;
    let execute = format!("{WORKFLOWS}/hello/execute");
    server.post(&execute, json!({})).await.error(400, "PRINCIPAL_REQUIRED");
    let trigger = format!("{WORKFLOWS}/hello/trigger");
    server.post(&trigger, json!({})).await.error(400, "PRINCIPAL_REQUIRED");
    let named = json!({ "principal": { "userId": "ada" } });
    server.post(&execute, named).await.expect(202);
    let token = signer.sign(&claims("acme"));
    post_with(&server, &token, &trigger, json!({})).await.expect(201);
}
