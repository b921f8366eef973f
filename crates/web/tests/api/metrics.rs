//! `GET /metrics`: its format, its names, what is counted, and that labels are bounded.

use crate::{
    harness::{Server, echo, single},
    prometheus::Scrape,
    provider::{Provider, Signer, changed, claims},
    service::Service,
};
use fermata_runtime::{MetricsSettings, Settings};
use fermata_web::{Loose, WebConfig};
use reqwest::Method;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

impl Server {
    async fn scrape(&self) -> Scrape {
        let answer = self.get("/metrics").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert_eq!(
            answer.header("content-type"),
            "text/plain; version=0.0.4; charset=utf-8"
        );
        Scrape::parse(&answer.text)
    }

    /// Starts a run and waits for its end.
    async fn carry(&self, workflow: &str, trigger: Value) -> Value {
        let path = format!("/api/v1/workflows/{workflow}/execute?wait=20s");
        self.post(&path, json!({ "trigger": trigger })).await.expect(200)
    }
}

#[tokio::test]
async fn metrics_count_runs_actions_and_requests() {
    let (server, service) = (Server::start().await, Service::start().await);
    server.publish(&echo("hello")).await;
    server
        .publish(&single("broken", "core.fail", json!({ "message": "no" })))
        .await;
    let mut retried = single(
        "retried",
        "http.request",
        json!({ "method": "POST", "url": format!("{}/answer/503", service.base) }),
    );
    retried["nodes"][0]["policies"] = json!({ "retry": { "maxAttempts": 2, "baseDelayMs": 1 } });
    server.publish(&retried).await;
    let parent = json!({
        "id": "parent", "displayName": "Parent", "startNode": "ask",
        "nodes": [
            { "id": "ask", "actionType": "core.echo", "edges": [{ "targetNode": "child", "condition": "1 + 1 == 2" }] },
            { "id": "child", "nodeType": "subworkflow", "workflowId": "hello" },
        ],
    });
    server.publish(&parent).await;
    for _ in 0..3 {
        assert_eq!(server.carry("hello", json!({})).await["status"], "Succeeded");
    }
    assert_eq!(server.carry("broken", json!({})).await["status"], "Failed");
    assert_eq!(server.carry("retried", json!({})).await["status"], "Failed");
    assert_eq!(server.carry("parent", json!({})).await["status"], "Succeeded");
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let gated = server.execute("gated", json!({})).await;
    server
        .post(
            &format!("/api/v1/executions/{gated}/cancel?wait=20s"),
            json!({ "reason": "timeout" }),
        )
        .await;
    server.until(&gated, |run| run["status"] == "Cancelled").await;

    let scrape = server.scrape().await;
    let value = |name: &str, labels: &[(&str, &str)]| scrape.value(name, labels);
    assert_eq!(value("workflow_success_total", &[("workflowId", "hello")]), 4.0);
    let hello = [("workflowId", "hello"), ("status", "Succeeded")];
    assert_eq!(value("workflow_duration_seconds_count", &hello), 4.0);
    for (workflow, reason) in [("broken", "action_failed"), ("gated", "cancelled")] {
        let failed = value(
            "workflow_failure_total",
            &[("workflowId", workflow), ("reason", reason)],
        );
        assert_eq!(failed, 1.0, "{workflow} {reason}");
    }
    assert_eq!(
        value("subworkflow_invocation_total", &[("parentWorkflowId", "parent")]),
        1.0
    );
    let http = [("actionType", "http.request")];
    assert_eq!(value("action_duration_seconds_count", &http), 2.0);
    assert_eq!(value("action_retry_total", &http), 1.0);
    let retriable = [("actionType", "http.request"), ("status", "RetriableFailure")];
    assert_eq!(value("action_failure_total", &retriable), 2.0);
    assert_eq!(
        value(
            "action_failure_total",
            &[("actionType", "core.fail"), ("status", "Failed")]
        ),
        1.0
    );
    assert!(value("template_render_duration_seconds_count", &[]) >= 6.0);
    assert_eq!(value("condition_eval_duration_seconds_count", &[]), 1.0);
    assert_eq!(value("queue_depth", &[("workflowId", "hello")]), 0.0);
    assert!(scrape.samples.keys().any(|(name, _)| name == "queue_depth"));
    let starts = [
        ("method", "POST"),
        ("route", "/api/v1/workflows/{id}/execute"),
        ("status", "2xx"),
    ];
    assert_eq!(value("fermata_http_requests_total", &starts), 7.0);
    assert!(value("fermata_commits_total", &[("result", "committed")]) >= 7.0);
    assert_eq!(value("fermata_lease_gate_open", &[]), 1.0);
    assert!(value("fermata_held_runs_max", &[]) > 0.0);
    let reasons: BTreeSet<&str> = (scrape.samples.keys())
        .filter(|(name, _)| name == "workflow_failure_total")
        .map(|(_, labels)| labels["reason"].as_str())
        .collect();
    let four = ["action_failed", "cancelled", "timeout", "validation_error"];
    assert_eq!(reasons, BTreeSet::from(four));
}

#[tokio::test]
async fn labels_are_bounded_and_hold_no_ids_and_no_tenants() {
    let settings = Settings {
        metrics: MetricsSettings {
            max_workflow_labels: 2,
            ..MetricsSettings::default()
        },
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    let mut runs = Vec::new();
    for at in 0..5 {
        let id = format!("flow-{at}");
        server.publish(&echo(&id)).await;
        let path = format!("/api/v1/workflows/{id}/execute?wait=20s");
        let run = server
            .post(&path, json!({ "tenantId": "acme-tenant" }))
            .await
            .expect(200);
        runs.push(run["executionId"].as_str().unwrap().to_owned());
        server
            .get(&format!("/api/v1/executions/{}", runs[at]))
            .await
            .expect(200);
        server
            .get(&format!("/wh/secret-token-{at}"))
            .await
            .error(405, "METHOD_NOT_ALLOWED");
        server.get(&format!("/no/such/path/{at}")).await.error(404, "NOT_FOUND");
    }
    let before = server.scrape().await;
    assert_eq!(before.value("workflow_success_total", &[("workflowId", "other")]), 3.0);
    let values = before.label_values();
    let named = values.iter().filter(|value| value.starts_with("flow-")).count();
    assert_eq!(named, 2, "{values:?}");
    let unmatched = [("method", "GET"), ("route", "none"), ("status", "4xx")];
    assert_eq!(before.value("fermata_http_requests_total", &unmatched), 5.0);
    for value in &values {
        let leaks = value.contains("acme") || value.contains("secret-token") || value.contains("such");
        assert!(
            !leaks && !runs.iter().any(|run| value.contains(run.as_str())),
            "{value}"
        );
    }
    // The same work again adds no series.
    for at in 0..5 {
        server.carry(&format!("flow-{at}"), json!({})).await;
    }
    let after = server.scrape().await;
    let series = |scrape: &Scrape| scrape.samples.keys().cloned().collect::<BTreeSet<_>>();
    let new: Vec<_> = series(&after).difference(&series(&before)).cloned().collect();
    assert!(
        new.iter()
            .all(|(name, labels)| name.starts_with("fermata_http_") && labels["route"] == "/metrics"),
        "{new:?}"
    );
}

#[tokio::test]
async fn metrics_can_be_turned_off() {
    let settings = Settings {
        metrics: MetricsSettings {
            enabled: false,
            ..MetricsSettings::default()
        },
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    server.carry("hello", json!({})).await;
    server.get("/metrics").await.error(404, "NOT_FOUND");
}

/// Words that look like names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixes = [
        "fermata_",
        "workflow_",
        "action_",
        "queue_depth",
        "template_render",
        "condition_eval",
        "subworkflow_",
        "process_",
    ];
    let suffixes = ["_bucket", "_sum", "_count"];
    let base = |word: &str| {
        let base = suffixes.iter().find_map(|suffix| word.strip_suffix(suffix));
        base.unwrap_or(word).to_owned()
    };
    let is_metric = |word: &&str| {
        prefixes.iter().any(|prefix| word.starts_with(prefix))
            && ["_seconds", "_total", "queue_depth"]
                .iter()
                .any(|end| base(word).ends_with(end))
            || word.starts_with("fermata_")
    };
    words.filter(is_metric).map(base).collect()
}

#[tokio::test]
async fn documented_metrics_exist_and_all_metrics_are_documented() {
    let home = std::sync::Arc::new(fermata_store::conformance::home::Home::new(
        fermata_store::conformance::home::Kind::Sqlite,
    ));
    let server = Server::on(&home, Settings::default(), WebConfig::default()).await;
    let kinds = server.scrape().await.kinds;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| fs::read_to_string(docs.join(name)).unwrap();
    let page = read("observability.md");
    for name in [
        "observability.md",
        "observability/dashboard.json",
        "observability/alerts.yml",
    ] {
        let named = names(&read(name));
        assert!(named.len() >= 10, "{name}: {named:?}");
        let unknown: Vec<_> = named.iter().filter(|metric| !kinds.contains_key(*metric)).collect();
        assert!(
            unknown.is_empty(),
            "{name} names metrics that do not exist: {unknown:?}"
        );
    }
    let listed = names(&page);
    let missing: Vec<_> = kinds.keys().filter(|metric| !listed.contains(*metric)).collect();
    assert!(missing.is_empty(), "docs/observability.md lacks {missing:?}");
    let dashboard: Value = serde_json::from_str(&read("observability/dashboard.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
    // §14.3 of the specification.
    for metric in [
        "workflow_duration_seconds",
        "workflow_success_total",
        "workflow_failure_total",
        "action_duration_seconds",
        "action_retry_total",
        "action_failure_total",
        "queue_depth",
        "template_render_duration_seconds",
        "condition_eval_duration_seconds",
        "subworkflow_invocation_total",
    ] {
        assert!(kinds.contains_key(metric), "{metric}");
    }
}

#[tokio::test]
async fn metrics_need_the_scope_admin_and_no_tenant() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let ask = async |tenant: &str, scope: &str| {
        let claims = changed(claims(tenant), "scope", json!(scope));
        let claims = match tenant {
            "" => changed(claims, "tenant_id", Value::Null),
            _ => claims,
        };
        let token = format!("Bearer {}", signer.sign(&claims));
        server
            .send(Method::GET, "/metrics", &[("authorization", &token)], "")
            .await
    };
    server.get("/metrics").await.error(401, "UNAUTHENTICATED");
    let lesser = "workflows:read workflows:manage";
    ask("", lesser).await.error(403, "TENANT_REQUIRED");
    ask("acme", lesser).await.error(403, "INSUFFICIENT_SCOPE");
    ask("acme", "admin").await.error(404, "NOT_FOUND");
    let answer = ask("", "admin").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    Scrape::parse(&answer.text);
}
