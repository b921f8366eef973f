//! Traces, as a collector on loopback receives them from the real binary.

use crate::{
    runlater::service::{Answer, Service},
    support::{Server, Signal, eventually, http_client, shared_home},
};
use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::any_value::Value as AnyValue,
    trace::v1::{Span, span::SpanKind, status::StatusCode as SpanStatus},
};
use prost::Message;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinHandle};

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PUBLIC_URL: (&str, &str) = ("FERMATA_SERVER__PUBLIC_URL", "http://fermata.example");

/// A span, and the `service.instance.id` of the process that sent it.
type Received = (String, Span);

/// Accepts spans.
struct Collector {
    url: String,
    received: Arc<Mutex<Vec<Received>>>,
    serving: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Collector {
    async fn start() -> Collector {
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let app = Router::new()
            .route("/v1/traces", post(accept))
            .with_state(received.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Collector { url, received, serving }
    }

    fn environment(&self) -> (&str, &str) {
        ("FERMATA_TELEMETRY__OTLP_ENDPOINT", &self.url)
    }

    fn spans(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// All spans, once one with this name is among them.
    async fn until(&self, name: &str) -> Vec<Received> {
        eventually(&format!("the span `{name}`"), || async {
            let spans = self.spans();
            spans.iter().any(|(_, span)| span.name == name).then_some(spans)
        })
        .await
    }
}

async fn accept(State(received): State<Arc<Mutex<Vec<Received>>>>, body: Bytes) -> StatusCode {
    let request = ExportTraceServiceRequest::decode(body).expect("the body is a valid message");
    for resource_spans in request.resource_spans {
        let of: BTreeMap<_, _> = (resource_spans.resource.expect("a resource").attributes.into_iter())
            .map(|pair| (pair.key, pair.value.and_then(|value| value.value)))
            .collect();
        assert_eq!(of["service.name"], Some(AnyValue::StringValue("fermata".to_owned())));
        let Some(AnyValue::StringValue(instance)) = of["service.instance.id"].clone() else {
            panic!("{of:?}");
        };
        for scope_spans in resource_spans.scope_spans {
            assert_eq!(scope_spans.scope.expect("a scope").name, "fermata");
            let spans = scope_spans.spans.into_iter().map(|span| (instance.clone(), span));
            received.lock().unwrap().extend(spans);
        }
    }
    StatusCode::OK
}

fn named<'a>(spans: &'a [Received], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|(_, span)| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:?}");
    &found[0].1
}

fn number(span: &Span, name: &str) -> i64 {
    let found = span.attributes.iter().find(|pair| pair.key == name);
    match found.and_then(|pair| pair.value.clone()).and_then(|value| value.value) {
        Some(AnyValue::IntValue(number)) => number,
        other => panic!("{name}: {other:?} of {span:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that every span has a parent among the spans, except for those whose parent is `caller`.
fn assert_connected(spans: &[Received], trace: &str, caller: &str) {
    let ids: BTreeSet<&[u8]> = spans.iter().map(|(_, span)| span.span_id.as_slice()).collect();
    for (_, span) in spans {
        assert_eq!(hex(&span.trace_id), trace, "{span:?}");
        let parent = hex(&span.parent_span_id);
        assert!(
            parent == caller || ids.contains(span.parent_span_id.as_slice()),
            "{span:?}"
        );
        assert!(
            span.start_time_unix_nano > 0 && span.start_time_unix_nano <= span.end_time_unix_nano,
            "{span:?}"
        );
    }
    assert_eq!(ids.len(), spans.len(), "no id is used twice");
}

#[tokio::test]
async fn run_over_two_processes_with_an_http_step_and_a_retry_is_one_trace() {
    let (collector, service, home) = (Collector::start().await, Service::start().await, shared_home());
    let environment = [PUBLIC_URL, collector.environment()];
    let api = Server::on(&home, &["--role", "api"], &environment);
    let mut first = Server::on(&home, &["--role", "runner"], &environment);
    service.script("/flaky", [Answer::status(503), Answer::ok(&json!({}))]);
    service.script("/held", [Answer::never(), Answer::ok(&json!({}))]);
    let call = |path: &str| json!({ "method": "POST", "url": service.at(path), "body": {} });
    api.publish(&json!({
        "id": "traced", "displayName": "Traced", "startNode": "flaky",
        "nodes": [
            { "id": "flaky", "actionType": "http.request", "parameters": call("/flaky"),
              "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1 } }, "edges": [{ "targetNode": "held" }] },
            { "id": "held", "actionType": "http.request", "parameters": call("/held") },
        ],
    }))
    .await;
    let request = http_client().post(format!("{}/api/v1/workflows/traced/execute", api.url));
    let accepted: Value = request
        .header("traceparent", CALLER)
        .json(&json!({}))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let id = accepted["executionId"].as_str().unwrap();
    // The first runner dies in the second step, after it has sent the spans of the first one.
    service.call("/held", 1).await;
    collector.until("node flaky").await;
    first.kill9();
    let _second = Server::on(&home, &["--role", "runner"], &environment);
    assert_eq!(api.ended(id).await["status"], "Succeeded");

    let spans = collector.until("execution traced").await;
    let (trace, caller) = (&CALLER[3..35], &CALLER[36..52]);
    assert_connected(&spans, trace, caller);
    let instances: BTreeSet<&String> = spans.iter().map(|(instance, _)| instance).collect();
    assert_eq!(instances.len(), 2, "{spans:?}");
    let execution = named(&spans, "execution traced");
    assert_eq!(hex(&execution.parent_span_id), caller);
    let mut calls: Vec<&Span> = spans
        .iter()
        .map(|(_, span)| span)
        .filter(|span| span.name == "http.request")
        .collect();
    calls.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(calls.len(), 3, "{spans:?}");
    assert_eq!(spans.len(), 6, "{spans:?}");
    let statuses: Vec<_> = calls.iter().map(|span| span.status.as_ref().unwrap().code()).collect();
    assert_eq!(statuses, [SpanStatus::Error, SpanStatus::Ok, SpanStatus::Ok]);
    assert!(calls.iter().all(|span| span.kind() == SpanKind::Client));
    let attempts: Vec<_> = calls.iter().map(|span| number(span, "fermata.attempt")).collect();
    assert_eq!(attempts, [1, 2, 1]);
    for (node, call) in [("flaky", calls[0]), ("flaky", calls[1]), ("held", calls[2])] {
        let node = named(&spans, &format!("node {node}"));
        assert_eq!(
            (&call.parent_span_id, &node.parent_span_id),
            (&node.span_id, &execution.span_id)
        );
    }
    // The service was told the span of each attempt. The attempt that was repeated after the kill has the same one.
    let header = |path: &str, number: usize| service.calls_of(path)[number].header("traceparent").to_owned();
    let of = |span: &Span| format!("00-{trace}-{}-01", hex(&span.span_id));
    assert_eq!([header("/flaky", 0), header("/flaky", 1)], [of(calls[0]), of(calls[1])]);
    assert_eq!([header("/held", 0), header("/held", 1)], [of(calls[2]), of(calls[2])]);
}

#[tokio::test]
async fn child_runs_are_linked_and_callback_requests_carry_the_trace() {
    let (collector, service) = (Collector::start().await, Service::start().await);
    service.script("/ask", [Answer::ok(&json!({}))]);
    let mut server = Server::start_with(&[], &[collector.environment()]);
    server
        .publish(&json!({ "id": "child", "displayName": "Child", "startNode": "say",
            "nodes": [{ "id": "say", "actionType": "core.echo" }] }))
        .await;
    server
        .publish(&json!({
            "id": "parent", "displayName": "Parent", "startNode": "invoke",
            "nodes": [{ "id": "invoke", "nodeType": "subworkflow", "workflowId": "child" }],
        }))
        .await;
    let run = server.execute("parent", &json!({})).await;
    assert_eq!(server.ended(&run).await["status"], "Succeeded");
    let spans = collector.until("execution parent").await;
    let trace = run.replace('-', "");
    assert_connected(&spans, &trace, "");
    let (parent, child) = (named(&spans, "execution parent"), named(&spans, "execution child"));
    assert!(parent.parent_span_id.is_empty() && parent.links.is_empty());
    let invocation = named(&spans, "core.subworkflow");
    assert_eq!(child.parent_span_id, invocation.span_id);
    assert_eq!(child.links.len(), 1, "{child:?}");
    let link = &child.links[0];
    assert_eq!((&link.trace_id, &link.span_id), (&parent.trace_id, &invocation.span_id));

    let (status, added) = server
        .post(
            "/api/v1/workflows",
            &json!({
                "workflow_id": "asks", "name": "Asks", "version": "1.0.0",
                "nodes": [{ "id": "ask", "type": "task", "executor": { "type": "callback", "config": { "url": service.at("/ask") } } }],
                "edges": [],
            }),
        )
        .await;
    assert!(status < 300, "{added}");
    let (_, started) = server
        .post("/api/v1/executions", &json!({ "workflow_id": "asks" }))
        .await;
    let asks = started["execution_id"].as_str().expect("an id").replace('-', "");
    let call = service.call("/ask", 1).await;
    assert!(
        call.header("traceparent").starts_with(&format!("00-{asks}-")),
        "{call:?}"
    );
    assert_eq!(server.stop(), Some(0));
}

// `stop` blocks its thread, and the collector needs another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_spans_are_sent_when_the_process_stops() {
    let collector = Collector::start().await;
    let mut server = Server::start_with(&[], &[collector.environment()]);
    server
        .publish(&json!({ "id": "quick", "displayName": "Quick", "startNode": "say",
            "nodes": [{ "id": "say", "actionType": "core.echo" }] }))
        .await;
    let (status, run) = server
        .post("/api/v1/workflows/quick/execute?wait=30s", &json!({}))
        .await;
    assert_eq!((status, &run["status"]), (200, &json!("Succeeded")));
    assert_eq!(server.stop(), Some(0));
    named(&collector.spans(), "execution quick");
}

#[tokio::test]
async fn dead_collector_delays_nothing_and_lost_spans_are_counted() {
    // Nothing listens there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let headers = ("FERMATA_TELEMETRY__OTLP_HEADERS", "authorization=Bearer very-secret");
    let mut server = Server::start_with(&[], &[("FERMATA_TELEMETRY__OTLP_ENDPOINT", url.as_str()), headers]);
    server
        .publish(&json!({ "id": "quick", "displayName": "Quick", "startNode": "say",
            "nodes": [{ "id": "say", "actionType": "core.echo" }] }))
        .await;
    for _ in 0..20 {
        let (status, run) = server
            .post("/api/v1/workflows/quick/execute?wait=30s", &json!({}))
            .await;
        assert_eq!((status, &run["status"]), (200, &json!("Succeeded")));
    }
    eventually("the count of lost spans", || async {
        let (_, text) = server.get("/metrics").await;
        let text = text.as_str().unwrap_or_default().to_owned();
        let line = text
            .lines()
            .find(|line| line.starts_with("fermata_trace_spans_total{result=\"failed\"}"));
        line.filter(|line| !line.ends_with(" 0")).map(drop)
    })
    .await;
    server.process().signal(Signal::TERM);
    assert_eq!(server.wait(), Some(0));
    let log = server.process().log();
    assert_eq!(log.matches("spans are lost").count(), 1, "{log}");
    assert!(!log.contains("very-secret"), "{log}");
}
