//! Requests of web pages: only pages of this server may call the API.

use crate::harness::{Server, echo};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::json;

const WORKFLOWS: &str = "/api/v1/workflows";
const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let document = echo("evil").to_string();
    for header in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for (method, path, body) in [
            (Method::POST, WORKFLOWS, document.as_str()),
            (Method::POST, "/api/v1/workflows/hello/execute", ""),
            (Method::POST, "/api/v1/workflows/hello/archive", ""),
            (Method::DELETE, "/api/v1/admin/dead-letters?all=true", ""),
            (Method::GET, "/api/v1/executions", ""),
        ] {
            let answer = server.send(method, path, &[JSON, header], body.to_owned()).await;
            answer.error(403, "FOREIGN_ORIGIN");
            assert!(
                !answer
                    .headers
                    .keys()
                    .any(|name| name.as_str().starts_with("access-control")),
                "{:?}",
                answer.headers
            );
        }
    }
    let preflight = [
        ("origin", "https://evil.example"),
        ("access-control-request-method", "POST"),
    ];
    let answer = server.send(Method::OPTIONS, WORKFLOWS, &preflight, "").await;
    answer.error(403, "FOREIGN_ORIGIN");
    server
        .get("/api/v1/workflows/evil")
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    let runs = server.get("/api/v1/executions").await.expect(200);
    assert_eq!(runs["items"], json!([]), "nothing was started");

    let own = [
        JSON,
        ("origin", server.base.as_str()),
        ("sec-fetch-site", "same-origin"),
    ];
    server.send(Method::POST, WORKFLOWS, &own, document).await.expect(201);
}

#[tokio::test]
async fn an_unknown_host_name_is_refused() {
    let config = WebConfig {
        allowed_hosts: vec!["flows.example.com".to_owned()],
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    let rebound = server
        .send(Method::GET, WORKFLOWS, &[("host", "evil.example")], "")
        .await;
    let error = rebound.error(421, "UNKNOWN_HOST");
    assert!(
        error["message"].as_str().unwrap().contains("server.allowed_hosts"),
        "{error}"
    );
    for host in ["localhost", "flows.example.com:8443", "192.168.0.7:7070", "[::1]"] {
        server
            .send(Method::GET, WORKFLOWS, &[("host", host)], "")
            .await
            .expect(200);
    }
}

#[tokio::test]
async fn writes_need_a_media_type_that_requires_a_preflight() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let forms = [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ];
    for path in [
        WORKFLOWS,
        "/api/v1/workflows/validate",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/hello/execute",
        "/api/v1/workflows/hello/trigger",
        "/api/v1/workflows/hello/publish",
        "/api/v1/workflows/hello/disable",
    ] {
        let body = echo("evil").to_string();
        for media in forms {
            let answer = server
                .send(Method::POST, path, &[("content-type", media)], body.clone())
                .await;
            answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
        }
        let answer = server.send(Method::POST, path, &[], body).await;
        answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    server.post_nothing("/api/v1/workflows/hello/disable").await.expect(200);
}

#[tokio::test]
async fn callbacks_are_exempt_from_origin_checks() {
    let server = Server::start().await;
    let waits = json!({ "name": "waits", "tasks": { "answer": { "wait_for_webhook": { "timeout": "1h" } } } });
    server.post(WORKFLOWS, waits).await.expect(201);
    let id = server.execute("waits", json!({})).await;
    let run = fermata_core::RunId(id.parse().unwrap());
    let token = server.store.waits(run).await.unwrap().remove(0).token;
    let headers = [
        ("content-type", "text/plain"),
        ("origin", "https://forms.example"),
        ("host", "hooks.example"),
    ];
    let path = format!("/wh/{token}");
    server.send(Method::POST, &path, &headers, "yes").await.expect(200);
    server.until(&id, |run| run["status"] == "Succeeded").await;
}
