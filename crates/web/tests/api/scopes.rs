//! Scopes: every route without a token, with one that lacks the scope, and tricks with paths.

use crate::{
    harness::Server,
    provider::{Provider, Signer, changed, claims},
    reference::routes,
};
use fermata_runtime::{Scope, Settings};
use fermata_web::Loose;
use reqwest::Method;
use serde_json::json;
use std::collections::BTreeSet;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Routes that need no token.
const PUBLIC: [&str; 6] = [
    "/health/live",
    "/health/ready",
    "/wh/{token}",
    "/openapi.json",
    "/docs",
    "/docs/{file}",
];

/// A path of a route, with ids in place of the parameters.
fn path(route: &str) -> String {
    let id = "0199a7c2-0000-7000-8000-000000000000";
    let mut path = String::new();
    for part in route.split_inclusive('/') {
        match part.starts_with('{') {
            true if part.starts_with("{version}") => path.push_str(&part.replace("{version}", "1")),
            true => path.push_str(&format!("{id}{}", if part.ends_with('/') { "/" } else { "" })),
            false => path.push_str(part),
        }
    }
    // It would stay open.
    if path.ends_with("/stream") {
        path.push_str("?timeout=0s");
    }
    path
}

async fn server(signer: &Signer) -> (Provider, Server) {
    let provider = Provider::start(&[signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    (provider, server)
}

#[tokio::test]
async fn every_route_needs_a_token_with_its_scope() {
    let signer = Signer::ed25519("k");
    let (_provider, server) = server(&signer).await;
    let token = |scopes: &str| {
        format!(
            "Bearer {}",
            signer.sign(&changed(claims("acme"), "scope", json!(scopes)))
        )
    };
    let mut seen = BTreeSet::new();
    for (method, route) in routes() {
        let (method, path) = (Method::from_bytes(method.as_bytes()).unwrap(), path(&route));
        let send = async |token: Option<&str>| {
            let mut headers = vec![("content-type", "application/json")];
            headers.extend(token.map(|token| ("authorization", token)));
            let body = if method == Method::GET { "" } else { "{}" };
            server.send(method.clone(), &path, &headers, body).await
        };
        let is_webhook = method == Method::POST && route == "/api/v1/triggers/{trigger}";
        if PUBLIC.contains(&route.as_str()) || is_webhook {
            assert_ne!(send(None).await.status, 401, "{method} {route}");
            continue;
        }
        send(None).await.error(401, "UNAUTHENTICATED");
        let refused = send(Some(&token("openid"))).await;
        refused.error(403, "INSUFFICIENT_SCOPE");
        let needed = refused.header("www-authenticate").rsplit("scope=\"").next().unwrap();
        let needed = Scope::parse(needed.trim_end_matches('"')).unwrap();
        seen.insert(needed.as_str());
        // All others are not enough, and this one is.
        let others = Scope::ALL.into_iter().filter(|scope| *scope != needed);
        let others: Vec<&str> = others.map(Scope::as_str).collect();
        let refused = send(Some(&token(&others.join(" ")))).await;
        refused.error(403, "INSUFFICIENT_SCOPE");
        let passed = send(Some(&token(needed.as_str()))).await;
        assert!(
            passed.status != 403 || !passed.text.contains("INSUFFICIENT_SCOPE"),
            "{method} {route}: {}",
            passed.text
        );
        assert_ne!(passed.status, 401, "{method} {route}: {}", passed.text);
    }
    let expected = ["admin", "workflows:execute", "workflows:manage", "workflows:read"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), expected);
}

/// Sends a request line as it is. The client would normalise it.
async fn raw(server: &Server, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server.base.strip_prefix("http://").unwrap())
        .await
        .unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn no_spelling_of_a_path_avoids_the_token() {
    let signer = Signer::ed25519("k");
    let (_provider, server) = server(&signer).await;
    for path in [
        "/api/v1/workflows",
        "/api/v1/workflows/",
        "//api/v1/workflows",
        "/api//v1/workflows",
        "/api/v1//workflows",
        "/api/v1/./workflows",
        "/health/../api/v1/workflows",
        "/health/live/../../api/v1/workflows",
        "/health%2f..%2fapi/v1/workflows",
        "/api%2fv1%2fworkflows",
        "/api/v1%2fworkflows",
        "/%61pi/v1/workflows",
        "/API/V1/WORKFLOWS",
        "/api/v1/Workflows",
        "/api/v1/workflows;x=1",
        "/api/v1/workflows%00",
        "/api/v1/workflows?x=/health/live",
        "/api/v1/workflows#/health/live",
        "/wh/../api/v1/workflows",
        "/wh/x/api/v1/workflows",
        "http://localhost/api/v1/workflows",
        "http://localhost//health/live",
        "/api/v1/executions/..%2fworkflows",
        "/api/v1/workflows/%2e%2e",
        "*",
    ] {
        for method in ["GET", "HEAD", "POST", "OPTIONS", "TRACE", "get", "Get", "X"] {
            let response = raw(&server, method, path).await;
            let status = response.split(' ').nth(1).unwrap_or_default();
            assert!(
                ["400", "401", "404", "405", "415", "421"].contains(&status),
                "{method} {path}: {response}"
            );
            assert!(!response.contains("items"), "{method} {path}: {response}");
        }
    }
    // HEAD is answered by the handler of GET, so it needs the same scope.
    let response = raw(&server, "HEAD", "/api/v1/workflows").await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
}
