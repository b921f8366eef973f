//! HTTP steps per second, relative to the HTTP client alone.
//!
//! Both sides send the same requests to the same server in this process, over kept connections, with the same concurrency. The raw
//! side sends requests and reads the responses. The engine runs workflows of three such steps: each request is rendered from
//! its template and sent after the commit that records it is on disk, and its response is parsed and recorded.

use super::{
    load::{Bench, Many, repeat},
    report::{HttpSteps, Latency, rounded},
};
use anyhow::ensure;
use axum::{Router, http::header::CONTENT_TYPE, routing::post, serve::ListenerExt};
use fermata_runtime::Settings;
use reqwest::{Client, redirect::Policy};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};
use tokio::net::TcpListener;

const STEPS: usize = 3;
const ANSWER: &str = r#"{"ok":true,"amount":4200,"currency":"EUR"}"#;
const COMPARED: &str = "workflows of 3 requests, each journaled; raw: the same requests by the same kind of client";

/// Runs `workflows` workflows, `concurrency` at a time, and sends as many requests without an engine.
pub(super) async fn measure(folder: &Path, workflows: usize, concurrency: usize) -> anyhow::Result<HttpSteps> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/charge", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));
    let raw = raw(&url, workflows * STEPS, concurrency).await?;

    let settings = Settings {
        max_parallel_actions: concurrency,
        ..Settings::default()
    };
    let bench = Bench::with(&folder.join("steps.db"), settings, None)?;
    let id = bench.publish(&document(&url)).await?;
    bench.many(&id, (workflows / 10).max(1), concurrency).await?;
    let mut carried = bench.many(&id, workflows, concurrency).await?;
    bench.close().await?;
    server.abort();

    let steps_per_second = carried.per_second() * STEPS as f64;
    Ok(HttpSteps {
        compared: COMPARED,
        workflows,
        concurrency,
        steps_per_second: rounded(steps_per_second),
        raw_requests_per_second: rounded(raw.per_second()),
        ratio: rounded(steps_per_second / raw.per_second()),
        latency: Latency::of(&mut carried.times),
    })
}

async fn serve(listener: TcpListener) {
    let app = Router::new().route(
        "/charge",
        post(|| async { ([(CONTENT_TYPE, "application/json")], ANSWER) }),
    );
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let _ = axum::serve(listener, app).await;
}

/// The body of every request.
fn body(order: &Value) -> Value {
    json!({ "order": order, "currency": "EUR" })
}

fn document(url: &str) -> Value {
    let step = |at: usize| {
        let next = (at + 1 < STEPS).then(|| json!({ "targetNode": format!("step-{}", at + 1) }));
        json!({
            "id": format!("step-{at}"), "actionType": "http.request",
            "parameters": { "method": "POST", "url": url, "body": body(&"{{ trigger.order ?? 7 }}".into()) },
            "edges": next.into_iter().collect::<Vec<_>>(),
        })
    };
    let nodes: Vec<Value> = (0..STEPS).map(step).collect();
    json!({ "id": "bench-steps", "displayName": "HTTP steps", "startNode": "step-0", "nodes": nodes })
}

/// The requests alone, by a client like that of the action, with the headers that the action adds.
async fn raw(url: &str, requests: usize, concurrency: usize) -> anyhow::Result<Many> {
    let client = Client::builder()
        .user_agent("fermata-bench")
        .no_proxy()
        .redirect(Policy::none())
        .build()?;
    let (url, text): (Arc<str>, Arc<str>) = (url.into(), body(&7.into()).to_string().into());
    let send = move || {
        let (client, url, text) = (client.clone(), url.clone(), text.clone());
        async move {
            let request = client
                .post(&*url)
                .header("content-type", "application/json")
                .header("idempotency-key", "0199a7c2-0000-7000-8000-000000000000:step-0")
                .header("x-correlation-id", "0199a7c2-0000-7000-8000-000000000000")
                .body(text.to_string());
            let answer = request.send().await?;
            ensure!(answer.status() == 200, "the server answered {}", answer.status());
            answer.bytes().await?;
            Ok(())
        }
    };
    repeat((requests / 10).max(1), concurrency, send.clone()).await?;
    repeat(requests, concurrency, send).await
}
