//! API keys over HTTP: create, use, list, revoke.

use crate::{
    harness::{Answer, Server, echo},
    provider::{Provider, Signer, changed, claims, with_auth},
    service::keys as members,
};
use fermata_runtime::Settings;
use fermata_store::conformance::home::{Home, Kind};
use fermata_web::Loose;
use reqwest::Method;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

const KEYS: &str = "/api/v1/admin/keys";
const WORKFLOWS: &str = "/api/v1/workflows";

pub(crate) async fn send(server: &Server, key: &str, method: Method, path: &str, body: Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let mut headers = vec![("authorization", bearer.as_str())];
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    server.send(method, path, &headers, body).await
}

pub(crate) async fn create(server: &Server, key: &str, body: Value) -> Answer {
    send(server, key, Method::POST, KEYS, body).await
}

pub(crate) fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

/// A loose server makes the first key; a strict one on the same data takes it.
pub(crate) async fn servers() -> (Server, Server, String) {
    let home = Arc::new(Home::new(Kind::Memory));
    let loose = Server::on(&home, Settings::default(), with_auth(Loose::Allowed, Vec::new())).await;
    let body =
        json!({ "name": "root", "scopes": ["admin", "workflows:read", "workflows:manage", "workflows:execute"] });
    let root = loose.post(KEYS, body).await.expect(201);
    let settings = Settings {
        role: fermata_runtime::Role::Api,
        ..Settings::default()
    };
    let strict = Server::on(&home, settings, with_auth(Loose::Refused, Vec::new())).await;
    (loose, strict, text(&root, "key"))
}

#[tokio::test]
async fn keys_are_created_used_listed_and_revoked() {
    let (_loose, server, root) = servers().await;
    let body = json!({ "name": "ci", "scopes": ["workflows:execute", "workflows:read"], "tenantId": "acme", "expiresIn": "90d" });
    let created = create(&server, &root, body).await.expect(201);
    let expected = [
        "id",
        "name",
        "tenantId",
        "scopes",
        "createdAt",
        "createdBy",
        "expiresAt",
        "key",
    ];
    assert_eq!(members(&created), expected);
    assert_eq!(created["createdBy"], "key:root");
    let ci = text(&created, "key");
    assert!(ci.starts_with("fk_") && ci.len() == 100, "{ci}");
    send(&server, &ci, Method::GET, WORKFLOWS, Value::Null)
        .await
        .expect(200);
    send(&server, &ci, Method::POST, WORKFLOWS, echo("hello"))
        .await
        .error(403, "INSUFFICIENT_SCOPE");
    send(&server, &ci, Method::GET, KEYS, Value::Null)
        .await
        .error(403, "INSUFFICIENT_SCOPE");

    let list = send(&server, &root, Method::GET, KEYS, Value::Null).await;
    assert!(!list.text.contains(&ci) && !list.text.contains("hash"), "{}", list.text);
    let list = list.expect(200);
    assert_eq!(
        (&list["items"][0]["name"], &list["items"][1]["name"]),
        (&json!("ci"), &json!("root"))
    );
    let of = |tenant: &str| format!("{KEYS}?tenantId={tenant}");
    let acme = send(&server, &root, Method::GET, &of("acme"), Value::Null)
        .await
        .expect(200);
    assert_eq!(acme["items"].as_array().unwrap().len(), 1);

    let path = format!("{KEYS}/{}", text(&created, "id"));
    assert_eq!(
        send(&server, &root, Method::DELETE, &path, Value::Null).await.status,
        204
    );
    assert_eq!(
        send(&server, &root, Method::DELETE, &path, Value::Null).await.status,
        204
    );
    let list = send(&server, &root, Method::GET, &of("acme"), Value::Null)
        .await
        .expect(200);
    assert!(list["items"][0]["revokedAt"].is_string(), "{list}");
    let missing = format!("{KEYS}/{}", uuid::Uuid::now_v7());
    send(&server, &root, Method::DELETE, &missing, Value::Null)
        .await
        .error(404, "KEY_NOT_FOUND");
}

/// The other process has accepted the key a moment before. It may use what it knows for a few seconds, and no longer.
#[tokio::test]
async fn a_revoked_key_is_refused_by_every_process() {
    let (loose, strict, root) = servers().await;
    let body = json!({ "name": "ci", "scopes": ["workflows:read"], "tenantId": "acme" });
    let created = create(&strict, &root, body).await.expect(201);
    let ci = text(&created, "key");
    for server in [&loose, &strict] {
        send(server, &ci, Method::GET, WORKFLOWS, Value::Null).await.expect(200);
    }
    let path = format!("{KEYS}/{}", text(&created, "id"));
    assert_eq!(
        send(&strict, &root, Method::DELETE, &path, Value::Null).await.status,
        204
    );
    let revoked = Instant::now();
    for server in [&loose, &strict] {
        loop {
            let began = revoked.elapsed();
            let answer = send(server, &ci, Method::GET, WORKFLOWS, Value::Null).await;
            if answer.status == 401 {
                answer.error(401, "INVALID_TOKEN");
                break;
            }
            assert!(began < Duration::from_secs(5), "it is accepted after {began:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Requests that wait: a claim gets no task, and a start does not show how the run ended.
#[tokio::test]
async fn a_key_that_is_revoked_while_it_waits_gets_nothing() {
    let (loose, strict, root) = servers().await;
    let gate = json!({ "id": "gate", "displayName": "Gate", "startNode": "a",
                       "nodes": [{ "id": "a", "actionType": "test.gate" }] });
    loose.publish(&gate).await;
    let body = json!({ "name": "worker", "scopes": ["workflows:execute", "workflows:read"], "tenantId": "acme" });
    let created = create(&strict, &root, body).await.expect(201);
    let worker = text(&created, "key");
    let claim = json!({ "queue": "q", "worker": "w", "wait": "18s" });
    let claimed = send(&strict, &worker, Method::POST, "/api/v1/inbox/claim", claim);
    let path = format!("{WORKFLOWS}/gate/execute?wait=18s");
    let started = send(&loose, &worker, Method::POST, &path, json!({}));
    let revoked = async {
        let runs = async || {
            loose.get("/api/v1/executions").await.expect(200)["items"]
                .as_array()
                .unwrap()
                .len()
        };
        while runs().await == 0 {
            tokio::task::yield_now().await;
        }
        let path = format!("{KEYS}/{}", text(&created, "id"));
        let answer = send(&strict, &root, Method::DELETE, &path, Value::Null).await;
        assert_eq!(answer.status, 204, "{}", answer.text);
        while send(&loose, &worker, Method::GET, WORKFLOWS, Value::Null).await.status != 401 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        loose.gate.add_permits(1);
    };
    let (claimed, started, ()) = tokio::join!(claimed, started, revoked);
    claimed.error(401, "INVALID_TOKEN");
    let started = started.expect(202);
    assert!(started.get("outputs").is_none(), "{started}");
}

#[tokio::test]
async fn wrong_keys_are_refused() {
    let (_loose, server, root) = servers().await;
    let body = json!({ "name": "ci", "scopes": ["workflows:read"], "tenantId": "acme" });
    let created = create(&server, &root, body).await.expect(201);
    let key = text(&created, "key");
    let (start, end) = key.split_at(key.len() - 1);
    let flipped = format!("{start}{}", if end == "0" { "1" } else { "0" });
    let other = key.replace(&key[3..35], &uuid::Uuid::now_v7().simple().to_string());
    for wrong in [
        flipped,
        other,
        key.to_uppercase(),
        format!("{key}0"),
        start.to_owned(),
        "fk_".to_owned(),
        "fk__".to_owned(),
    ] {
        let answer = send(&server, &wrong, Method::GET, WORKFLOWS, Value::Null).await;
        answer.error(401, "INVALID_TOKEN");
        assert!(
            !answer.text.contains(&wrong[3..]) || wrong.len() < 10,
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_key_grants_no_more_than_its_creator_has() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let scope = json!("admin workflows:read");
    let admin = signer.sign(&changed(claims("acme"), "scope", scope));
    let new = |scopes: &[&str], tenant: Value| json!({ "name": "k", "scopes": scopes, "tenantId": tenant });
    let created = create(&server, &admin, new(&["workflows:read"], Value::Null))
        .await
        .expect(201);
    assert_eq!(created["tenantId"], "acme", "the tenant is the creator's");
    let body = new(&["workflows:manage"], Value::Null);
    create(&server, &admin, body).await.error(403, "FORBIDDEN");
    let body = new(&["workflows:read"], json!("other"));
    create(&server, &admin, body).await.error(403, "OTHER_TENANT");
    let none = signer.sign(&changed(
        changed(claims("acme"), "scope", json!("admin")),
        "tenant_id",
        Value::Null,
    ));
    let body = json!({ "name": "o", "scopes": ["admin"], "tenantId": "other" });
    let other = create(&server, &none, body).await.expect(201);
    // What belongs to another tenant does not exist.
    let path = format!("{KEYS}/{}", text(&other, "id"));
    send(&server, &admin, Method::DELETE, &path, Value::Null)
        .await
        .error(404, "KEY_NOT_FOUND");
    let list = send(&server, &admin, Method::GET, KEYS, Value::Null).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let foreign = format!("{KEYS}?tenantId=other");
    let list = send(&server, &admin, Method::GET, &foreign, Value::Null)
        .await
        .expect(200);
    assert_eq!(list, json!({ "items": [] }));
}

#[tokio::test]
async fn invalid_keys_are_not_created() {
    let (_loose, server, root) = servers().await;
    for (body, why) in [
        (json!({}), "name"),
        (json!({ "name": "a" }), "scopes"),
        (json!({ "name": "a", "scopes": ["workflows:read"] }), "tenant"),
        (
            json!({ "name": "a", "scopes": ["read"], "tenantId": "acme" }),
            "`read` is not a scope",
        ),
        (json!({ "name": "a", "scopes": ["admin"], "tenantId": "a\n" }), "tenant"),
        (json!({ "name": "a\n", "scopes": ["admin"] }), "name"),
        (
            json!({ "name": "a", "scopes": ["admin"], "expiresIn": "soon" }),
            "expiresIn",
        ),
        (
            json!({ "name": "a", "scopes": ["admin"], "expiresIn": "0s" }),
            "expired",
        ),
        (json!({ "name": "a", "scopes": ["admin"], "key": "mine" }), "key"),
    ] {
        let error = create(&server, &root, body.clone()).await.error(400, "INVALID_REQUEST");
        assert!(error["message"].as_str().unwrap().contains(why), "{body}: {error}");
    }
}
