//! The spans of runs.

use crate::support::{Bed, PATIENCE, Scripted, workflow};
use fermata_core::{Failure, Status};
use fermata_runtime::{
    Request, Settings,
    trace::{Attribute, Span, TraceContext, Tracer},
};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::Receiver;

const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn traced(capacity: usize) -> (Bed, Receiver<Span>, Arc<Mutex<Vec<Option<TraceContext>>>>) {
    let (tracer, spans) = Tracer::new(capacity, 1.0);
    let settings = Settings {
        tracer: Some(tracer),
        ..Settings::default()
    };
    let sent = Arc::new(Mutex::new(Vec::new()));
    let seen = sent.clone();
    let flaky = Scripted::new("test.flaky", move |_, call| {
        seen.lock().unwrap().push(call.traceparent);
        match call.attempt {
            1 => Err(Failure::retriable("BUSY", "card 4111-1111 is busy")),
            _ => Ok(json!({ "secret": "4111-1111" }).into()),
        }
    });
    let bed = Bed::with(settings, |registry| registry.with_action(Arc::new(flaky))).await;
    (bed, spans, sent)
}

fn received(spans: &mut Receiver<Span>) -> Vec<Span> {
    std::iter::from_fn(|| spans.try_recv().ok()).collect()
}

fn find<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {spans:?}");
    found[0]
}

fn number(span: &Span, name: &str) -> i64 {
    match span.attributes.iter().find(|(of, _)| *of == name) {
        Some((_, Attribute::Number(number))) => *number,
        other => panic!("{name}: {other:?}"),
    }
}

#[tokio::test]
async fn spans_of_a_run_form_one_tree_below_the_caller() {
    let (bed, mut spans, sent) = traced(100).await;
    let retry = json!({ "retry": { "maxAttempts": 2, "baseDelayMs": 1 } });
    let nodes = json!([
        { "id": "call", "actionType": "test.flaky", "policies": retry, "edges": [{ "targetNode": "rest" }] },
        { "id": "rest", "actionType": "core.delay", "parameters": { "durationMs": 1 }, "edges": [{ "targetNode": "fail" }] },
        { "id": "fail", "actionType": "core.fail", "parameters": { "message": "4111-1111" } },
    ]);
    bed.publish(&workflow(nodes)).await;
    let caller: TraceContext = CALLER.parse().unwrap();
    let request = Request {
        workflow_id: "under-test".to_owned(),
        trigger: json!({ "card": "4111-1111" }),
        traceparent: Some(caller),
        ..Request::default()
    };
    let (_, ended) = bed.engine.start_and_wait(request, PATIENCE).await.unwrap();
    assert_eq!(ended.unwrap().status, Status::Failed);
    let spans = received(&mut spans);
    assert!(
        spans
            .iter()
            .all(|span| span.trace == caller.trace && span.start <= span.end)
    );
    let execution = find(&spans, "execution under-test");
    assert_eq!((execution.parent, execution.link), (Some(caller.span), None));
    assert!(execution.failure.is_some());
    for node in ["call", "rest", "fail"] {
        assert_eq!(find(&spans, &format!("node {node}")).parent, Some(execution.id));
    }
    let node = find(&spans, "node call");
    assert_eq!((number(node, "fermata.attempts"), &node.failure), (2, &None));
    let mut calls: Vec<_> = spans.iter().filter(|span| span.name == "test.flaky").collect();
    calls.sort_by_key(|span| number(span, "fermata.attempt"));
    assert_eq!(calls.len(), 2, "{spans:?}");
    assert_eq!(
        [&calls[0].failure, &calls[1].failure],
        [&Some("BUSY".to_owned()), &None]
    );
    assert!(calls.iter().all(|span| span.parent == Some(node.id)));
    assert_eq!(find(&spans, "core.fail").parent, Some(find(&spans, "node fail").id));
    assert_eq!(spans.len(), 7, "a sleep has no action: {spans:?}");
    // What services get leads to the span of their attempt.
    let sent: Vec<_> = sent.lock().unwrap().iter().map(|context| context.unwrap()).collect();
    let expected = calls.iter().map(|span| TraceContext {
        trace: caller.trace,
        span: span.id,
        sampled: true,
    });
    assert_eq!(sent, expected.collect::<Vec<_>>());
    assert!(
        !format!("{spans:?}").contains("4111"),
        "spans contain no payloads: {spans:?}"
    );
}

#[tokio::test]
async fn trace_of_a_run_without_a_caller_has_the_id_of_the_run() {
    let (bed, mut spans, _) = traced(100).await;
    let left = bed
        .carry(workflow(json!([{ "id": "a", "actionType": "core.echo" }])), json!({}))
        .await;
    let spans = received(&mut spans);
    assert_eq!(spans.len(), 3, "{spans:?}");
    assert!(spans.iter().all(|span| span.trace == *left.run.0.as_bytes()));
    assert_eq!(find(&spans, "execution under-test").parent, None);
}

#[tokio::test]
async fn unsampled_traces_have_no_spans_and_are_passed_on() {
    let (bed, mut spans, sent) = traced(100).await;
    bed.publish(&workflow(json!([{ "id": "a", "actionType": "test.flaky" }])))
        .await;
    let request = Request {
        workflow_id: "under-test".to_owned(),
        traceparent: Some(CALLER.replace("-01", "-00").parse().unwrap()),
        ..Request::default()
    };
    bed.engine.start_and_wait(request, PATIENCE).await.unwrap();
    assert_eq!(received(&mut spans), []);
    let sent = sent.lock().unwrap()[0].unwrap();
    assert!(!sent.sampled && sent.to_string().starts_with(&CALLER[..36]), "{sent}");
}

#[tokio::test]
async fn full_queue_drops_spans_and_delays_nothing() {
    let (bed, mut spans, _) = traced(2).await;
    let mut document = workflow(json!([{ "id": "a", "actionType": "core.echo" }]));
    for name in ["one", "two", "three", "four", "five"] {
        document["id"] = json!(name);
        let left = bed.carry(document.clone(), json!({})).await;
        assert_eq!(left.status(), Status::Succeeded);
    }
    assert_eq!(received(&mut spans).len(), 2);
    let text = bed.engine.metrics().await.into_string();
    assert!(
        text.contains("fermata_trace_spans_total{result=\"dropped\"} 13\n"),
        "{text}"
    );
}
