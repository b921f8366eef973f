//! Tenants: every route is tried as another tenant.
//!
//! [`ROWS`] has a row for each route; a test fails if one is missing. A row says what another tenant gets: the same response as
//! for an id that was never used, an empty list, or a resource of its own.

use crate::{
    harness::{Answer, LONG, Server, echo},
    provider::{Provider, Signer, changed, claims},
    reference::routes,
};
use Expected::*;
use fermata_core::RunId;
use fermata_runtime::{
    Settings,
    clock::{Clock, SystemClock},
};
use fermata_store::runs::{NewRun, Principal};
use fermata_web::Loose;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::time::Instant;
use uuid::Uuid;

/// What another tenant gets.
#[derive(Clone, Copy, PartialEq)]
enum Expected {
    /// 404, the same as for an id that does not exist.
    Missing,
    /// 200 with an empty list.
    Empty,
    /// It acts on its own data: this status, and nothing of the owner changes.
    Own(u16),
    /// No data of tenants is involved.
    NoData,
    /// A page without anything of the owner.
    Page,
}

/// Method, route, path, body, what another tenant gets. `<name>` in paths and bodies is an id of the owner.
const ROWS: &[(&str, &str, &str, &str, Expected)] = &[
    ("GET", "/health/live", "/health/live", "", NoData),
    ("GET", "/health/ready", "/health/ready", "", NoData),
    ("GET", "/metrics", "/metrics", "", Missing),
    ("POST", "/wh/{token}", "/wh/none", "{}", NoData),
    ("GET", "/openapi.json", "/openapi.json", "", NoData),
    ("GET", "/docs", "/docs", "", NoData),
    ("GET", "/docs/{file}", "/docs/page.js", "", NoData),
    // Only a browser gets the page: `browser.rs` opens it as another tenant.
    ("GET", "/", "/", "", Missing),
    ("GET", "/runs/{id}", "/runs/<run>?node=ask", "", Missing),
    ("GET", "/runs/{id}/data/{part}", "/runs/<run>/data/trigger", "", Missing),
    (
        "GET",
        "/runs/{id}/nodes/{node}/attempts/{attempt}/{part}",
        "/runs/<run>/nodes/ask/attempts/1/outputs",
        "",
        Missing,
    ),
    ("GET", "/workflows", "/workflows", "", Page),
    ("GET", "/workflows/new", "/workflows/new", "", Page),
    ("POST", "/workflows/new", "/workflows/new", "<document>", NoData),
    (
        "POST",
        "/workflows/new/dry-run",
        "/workflows/new/dry-run",
        "{\"workflowId\": \"<workflow>\"}",
        NoData,
    ),
    ("GET", "/workflows/{id}", "/workflows/<workflow>", "", Missing),
    (
        "GET",
        "/workflows/{id}/difference",
        "/workflows/<workflow>/difference",
        "",
        Missing,
    ),
    ("GET", "/workflows/{id}/edit", "/workflows/<workflow>/edit", "", Missing),
    (
        "POST",
        "/workflows/{id}/edit",
        "/workflows/<workflow>/edit",
        "<document>",
        Missing,
    ),
    ("GET", "/inbox", "/inbox", "", Page),
    ("GET", "/inbox/{id}", "/inbox/<item>", "", Missing),
    ("GET", "/system", "/system", "", Page),
    ("POST", "/sign-in", "/sign-in", "{\"token\": \"none\"}", NoData),
    ("POST", "/sign-out", "/sign-out", "", NoData),
    ("GET", "/assets/{file}", "/assets/app.css", "", NoData),
    ("GET", "/api/v1/workflows", "/api/v1/workflows", "", Empty),
    (
        "POST",
        "/api/v1/workflows",
        "/api/v1/workflows",
        "<own document>",
        Own(201),
    ),
    (
        "POST",
        "/api/v1/workflows/validate",
        "/api/v1/workflows/validate",
        "<document>",
        NoData,
    ),
    (
        "GET",
        "/api/v1/workflows/validate",
        "/api/v1/workflows/validate",
        "",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/workflows/validate",
        "/api/v1/workflows/validate",
        "<document>",
        Missing,
    ),
    (
        "PATCH",
        "/api/v1/workflows/validate",
        "/api/v1/workflows/validate",
        "<intents>",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/workflows/validate",
        "/api/v1/workflows/validate",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/dry-run",
        "{\"workflowId\": \"<workflow>\"}",
        Missing,
    ),
    (
        "GET",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/dry-run",
        "",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/dry-run",
        "<document>",
        Missing,
    ),
    (
        "PATCH",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/dry-run",
        "<intents>",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/workflows/dry-run",
        "/api/v1/workflows/dry-run",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/workflows/{id}",
        "/api/v1/workflows/<workflow>",
        "",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/workflows/{id}",
        "/api/v1/workflows/<dag>",
        "<dag document>",
        Missing,
    ),
    (
        "PATCH",
        "/api/v1/workflows/{id}",
        "/api/v1/workflows/<dag>",
        "<intents>",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/workflows/{id}",
        "/api/v1/workflows/<dag>",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/nodes",
        "/api/v1/workflows/<dag>/nodes",
        "<node>",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/workflows/{id}/nodes/{node}",
        "/api/v1/workflows/<dag>/nodes/ask",
        "{\"name\": \"x\"}",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/workflows/{id}/nodes/{node}",
        "/api/v1/workflows/<dag>/nodes/ask",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/edges",
        "/api/v1/workflows/<dag>/edges",
        "{\"from\": \"ask\", \"to\": \"ask\"}",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/workflows/{id}/edges",
        "/api/v1/workflows/<dag>/edges?from=ask&to=end",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/analysis/validate",
        "/api/v1/analysis/validate",
        "<document>",
        NoData,
    ),
    (
        "POST",
        "/api/v1/analysis/inspect",
        "/api/v1/analysis/inspect",
        "<document>",
        NoData,
    ),
    (
        "GET",
        "/api/v1/workflows/{id}/versions",
        "/api/v1/workflows/<workflow>/versions",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/versions/{version}/activate",
        "/api/v1/workflows/<workflow>/versions/1/activate",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/workflows/{id}/draft",
        "/api/v1/workflows/<workflow>/draft",
        "",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/workflows/{id}/draft",
        "/api/v1/workflows/<workflow>/draft",
        "<document>",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/publish",
        "/api/v1/workflows/<workflow>/publish",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/archive",
        "/api/v1/workflows/<workflow>/archive",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/reactivate",
        "/api/v1/workflows/<workflow>/reactivate",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/enable",
        "/api/v1/workflows/<workflow>/enable",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/disable",
        "/api/v1/workflows/<workflow>/disable",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/pause",
        "/api/v1/workflows/<workflow>/pause",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/resume",
        "/api/v1/workflows/<workflow>/resume",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/execute",
        "/api/v1/workflows/<workflow>/execute",
        "{}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/trigger",
        "/api/v1/workflows/<workflow>/trigger",
        "{}",
        Missing,
    ),
    (
        "GET",
        "/api/v1/workflows/{id}/runs",
        "/api/v1/workflows/<workflow>/runs",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/workflows/{id}/runs/{run_id}",
        "/api/v1/workflows/<shared>/runs/<shared run>",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/workflows/{id}/runs/{run_id}/cancel",
        "/api/v1/workflows/<shared>/runs/<shared run>/cancel",
        "",
        Missing,
    ),
    ("GET", "/api/v1/callbacks", "/api/v1/callbacks", "", Empty),
    (
        "POST",
        "/api/v1/callbacks/register",
        "/api/v1/callbacks/register",
        "<callbacks>",
        Own(200),
    ),
    (
        "DELETE",
        "/api/v1/callbacks/{id}",
        "/api/v1/callbacks/<callback>",
        "",
        Missing,
    ),
    ("GET", "/api/v1/executions", "/api/v1/executions", "", Empty),
    (
        "POST",
        "/api/v1/executions",
        "/api/v1/executions",
        "{\"workflow_id\": \"<workflow>\"}",
        Missing,
    ),
    (
        "GET",
        "/api/v1/executions/{id}",
        "/api/v1/executions/<run>?include=actions,children,events,resources,waits",
        "",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/executions/{id}",
        "/api/v1/executions/<shared run>",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/executions/{id}/stream",
        "/api/v1/executions/<run>/stream",
        "",
        Missing,
    ),
    ("GET", "/api/v1/stats", "/api/v1/stats", "", NoData),
    ("GET", "/api/v1/stream", "/api/v1/stream?timeout=0s", "", NoData),
    (
        "GET",
        "/api/v1/executions/{id}/hierarchy",
        "/api/v1/executions/<run>/hierarchy",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/cancel",
        "/api/v1/executions/<run>/cancel",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/rerun",
        "/api/v1/executions/<run>/rerun",
        "{}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/pause",
        "/api/v1/executions/<run>/pause",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/resume",
        "/api/v1/executions/<run>/resume",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/nodes/{node}/skip",
        "/api/v1/executions/<run>/nodes/ask/skip",
        "{\"reason\": \"known\"}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/nodes/{node}/resend",
        "/api/v1/executions/<run>/nodes/ask/resend",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/nodes/{node}/callback",
        "/api/v1/executions/<run>/nodes/ask/callback",
        "{\"state\": {}}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/nodes/{node}/complete",
        "/api/v1/executions/<run>/nodes/ask/complete",
        "{\"status\": \"COMPLETED\"}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/executions/{id}/decisions/{node}",
        "/api/v1/executions/<run>/decisions/ask",
        "{\"outcome\": \"yes\"}",
        Missing,
    ),
    ("GET", "/api/v1/inbox", "/api/v1/inbox", "", Empty),
    (
        "POST",
        "/api/v1/inbox/claim",
        "/api/v1/inbox/claim",
        "{\"queue\": \"dag\", \"worker\": \"w\"}",
        Empty,
    ),
    ("GET", "/api/v1/inbox/{id}", "/api/v1/inbox/<item>", "", Missing),
    (
        "POST",
        "/api/v1/inbox/{id}/answer",
        "/api/v1/inbox/<item>/answer",
        "{\"state\": {}}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/inbox/{id}/heartbeat",
        "/api/v1/inbox/<item>/heartbeat",
        "{\"leaseId\": \"<lease>\"}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/inbox/{id}/complete",
        "/api/v1/inbox/<item>/complete",
        "{\"leaseId\": \"<lease>\", \"state\": {}}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/inbox/{id}/fail",
        "/api/v1/inbox/<item>/fail",
        "{\"leaseId\": \"<lease>\", \"error\": {\"code\": \"A\", \"message\": \"b\"}}",
        Missing,
    ),
    ("GET", "/api/v1/audit", "/api/v1/audit?target=<run>", "", Empty),
    ("GET", "/api/v1/runners", "/api/v1/runners", "", Empty),
    (
        "GET",
        "/api/v1/admin/dead-letters",
        "/api/v1/admin/dead-letters",
        "",
        Empty,
    ),
    (
        "DELETE",
        "/api/v1/admin/dead-letters",
        "/api/v1/admin/dead-letters?all=true",
        "",
        Own(200),
    ),
    (
        "GET",
        "/api/v1/admin/dead-letters/{id}",
        "/api/v1/admin/dead-letters/<letter>",
        "",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/admin/dead-letters/{id}",
        "/api/v1/admin/dead-letters/<letter>",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/admin/dead-letters/{id}/requeue",
        "/api/v1/admin/dead-letters/<letter>/requeue",
        "",
        Missing,
    ),
    ("GET", "/api/v1/triggers", "/api/v1/triggers", "", Empty),
    (
        "POST",
        "/api/v1/triggers",
        "/api/v1/triggers",
        "{\"workflowId\": \"<workflow>\", \"triggerType\": \"Manual\"}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/triggers/preview",
        "/api/v1/triggers/preview",
        "{\"configJson\": {\"every\": \"1h\"}}",
        NoData,
    ),
    (
        "GET",
        "/api/v1/triggers/{trigger}",
        "/api/v1/triggers/<trigger>",
        "",
        Missing,
    ),
    (
        "PUT",
        "/api/v1/triggers/{trigger}",
        "/api/v1/triggers/<trigger>",
        "{\"isEnabled\": false}",
        Missing,
    ),
    (
        "DELETE",
        "/api/v1/triggers/{trigger}",
        "/api/v1/triggers/<trigger>",
        "",
        Missing,
    ),
    // The URL of a webhook is its credential, whatever token comes with it.
    (
        "POST",
        "/api/v1/triggers/{trigger}",
        "/api/v1/triggers/none",
        "{}",
        NoData,
    ),
    (
        "POST",
        "/api/v1/triggers/{trigger}/enable",
        "/api/v1/triggers/<trigger>/enable",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/triggers/{trigger}/disable",
        "/api/v1/triggers/<trigger>/disable",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/triggers/{trigger}/fire",
        "/api/v1/triggers/<trigger>/fire",
        "{}",
        Missing,
    ),
    (
        "POST",
        "/api/v1/triggers/{trigger}/rotate",
        "/api/v1/triggers/<trigger>/rotate",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/triggers/{trigger}/deliveries",
        "/api/v1/triggers/<trigger>/deliveries",
        "",
        Missing,
    ),
    (
        "GET",
        "/api/v1/triggers/{trigger}/deliveries/{delivery}",
        "/api/v1/triggers/<trigger>/deliveries/<delivery>",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/triggers/{trigger}/deliveries/{delivery}/replay",
        "/api/v1/triggers/<trigger>/deliveries/<delivery>/replay",
        "",
        Missing,
    ),
    // The event matches a trigger of the owner by its type, and starts nothing there.
    (
        "POST",
        "/api/v1/events",
        "/api/v1/events",
        "{\"type\": \"order.paid\"}",
        Own(202),
    ),
    ("GET", "/api/v1/bulk", "/api/v1/bulk", "", Empty),
    (
        "POST",
        "/api/v1/bulk",
        "/api/v1/bulk",
        "{\"action\": \"cancel\", \"ids\": [\"<run>\"]}",
        Own(201),
    ),
    ("GET", "/api/v1/bulk/{id}", "/api/v1/bulk/<bulk>", "", Missing),
    (
        "GET",
        "/api/v1/bulk/{id}/items",
        "/api/v1/bulk/<bulk>/items",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/bulk/{id}/start",
        "/api/v1/bulk/<bulk>/start",
        "",
        Missing,
    ),
    (
        "POST",
        "/api/v1/bulk/{id}/cancel",
        "/api/v1/bulk/<bulk>/cancel",
        "",
        Missing,
    ),
    ("GET", "/api/v1/admin/keys", "/api/v1/admin/keys", "", Empty),
    (
        "POST",
        "/api/v1/admin/keys",
        "/api/v1/admin/keys",
        "{\"name\": \"k\", \"scopes\": [\"workflows:read\"]}",
        Own(201),
    ),
    (
        "DELETE",
        "/api/v1/admin/keys/{id}",
        "/api/v1/admin/keys/<key>",
        "",
        Missing,
    ),
];

#[test]
fn every_route_has_a_row() {
    let rows = ROWS
        .iter()
        .map(|(method, route, ..)| ((*method).to_owned(), (*route).to_owned()));
    let (mut rows, mut routes) = (rows.collect::<Vec<_>>(), routes());
    rows.sort();
    routes.sort();
    assert_eq!(rows, routes, "the rows of this test and the routes differ");
}

const ALL: &str = "workflows:read workflows:execute workflows:manage admin";

/// A server that requires tokens, with data of the tenant `acme` and one shared workflow.
struct World {
    server: Server,
    signer: Signer,
    ids: BTreeMap<&'static str, String>,
    _provider: Provider,
}

impl World {
    async fn new() -> World {
        let signer = Signer::ed25519("k");
        let provider = Provider::start(&[&signer]).await;
        let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
        let mut world = World {
            server,
            signer,
            ids: BTreeMap::new(),
            _provider: provider,
        };
        world.fill().await;
        world
    }

    fn token(&self, tenant: Option<&str>) -> String {
        let claims = changed(claims("-"), "scope", json!(ALL));
        let token = changed(claims, "tenant_id", tenant.map_or(Value::Null, Value::from));
        format!("Bearer {}", self.signer.sign(&token))
    }

    async fn send(&self, tenant: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        let token = self.token(tenant);
        let mut headers = vec![("authorization", token.as_str())];
        if !body.is_empty() {
            headers.push(("content-type", "application/json"));
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.server.send(method, path, &headers, body.to_owned()).await
    }

    async fn post(&self, tenant: Option<&str>, path: &str, body: Value) -> Answer {
        self.send(tenant, "POST", path, &body.to_string()).await
    }

    async fn fill(&mut self) {
        let acme = Some("acme");
        let mut strict = echo("orders");
        strict["triggerSchema"] = json!({ "type": "object", "required": ["say"] });
        strict["tags"] = json!(["eu"]);
        strict["searchable"] = json!(["say"]);
        for (tenant, document) in [(acme, &strict), (acme, &echo("validate")), (None, &echo("common"))] {
            self.post(tenant, "/api/v1/workflows", document.clone())
                .await
                .expect(201);
            let publish = format!("/api/v1/workflows/{}/publish", document["id"].as_str().unwrap());
            self.send(tenant, "POST", &publish, "").await.expect(200);
        }
        self.post(acme, "/api/v1/workflows", dag("dag")).await.expect(201);
        let callbacks = json!({ "service_name": "billing", "base_url": "https://billing.example",
                                "callbacks": { "billing.charge": { "path": "/" } } });
        self.post(acme, "/api/v1/callbacks/register", callbacks)
            .await
            .expect(200);
        let body = json!({ "workflow_id": "dag", "inputs": {} });
        let run = self.post(acme, "/api/v1/executions", body).await.expect(201);
        let item = self.claimed().await;
        let execute = "/api/v1/workflows/common/execute?wait=20s";
        let shared = self.post(acme, execute, json!({})).await.expect(200);
        let key = json!({ "name": "k", "scopes": ["workflows:read"] });
        let key = self.post(acme, "/api/v1/admin/keys", key).await.expect(201);
        let letter = self.dead_letter().await;
        let trigger = json!({ "workflowId": "orders", "triggerType": "Event", "configJson": { "type": "order.*" } });
        let trigger = self.post(acme, "/api/v1/triggers", trigger).await.expect(201);
        let fire = format!("/api/v1/triggers/{}/fire", trigger["id"].as_str().unwrap());
        let fired = self.post(acme, &fire, json!({ "say": "hi" })).await.expect(202);
        let bulk = json!({ "action": "cancel", "query": "workflow:*" });
        let bulk = self.post(acme, "/api/v1/bulk", bulk).await.expect(201);
        assert_ne!(bulk["total"], 0);
        let workflow = self.send(acme, "GET", "/api/v1/workflows/orders", "").await.expect(200);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.ids = BTreeMap::from([
            ("workflow", "orders".to_owned()),
            ("uid", text(&workflow["uid"])),
            ("dag", "dag".to_owned()),
            ("shared", "common".to_owned()),
            ("callback", "billing.charge".to_owned()),
            ("run", text(&run["execution_id"])),
            ("shared run", text(&shared["executionId"])),
            ("item", text(&item["id"])),
            ("lease", text(&item["leaseId"])),
            ("letter", letter),
            ("key", text(&key["id"])),
            ("bulk", text(&bulk["id"])),
            ("trigger", text(&trigger["id"])),
            ("delivery", text(&fired["deliveryId"])),
        ]);
    }

    /// The task of the run of `dag`, claimed by a worker of its tenant.
    async fn claimed(&self) -> Value {
        let body = json!({ "queue": "dag", "worker": "w", "wait": "20s", "lease": "1h" });
        let claimed = self.post(Some("acme"), "/api/v1/inbox/claim", body).await.expect(200);
        claimed["items"][0].clone()
    }

    /// A dead letter: a run with an invalid trigger, which cannot be started over the API.
    async fn dead_letter(&self) -> String {
        let store = &self.server.store;
        let workflow = store.workflow("acme", "orders").await.unwrap().unwrap();
        let run = NewRun {
            id: RunId(Uuid::now_v7()),
            workflow_uid: workflow.uid,
            workflow_id: workflow.id,
            workflow_version: 1,
            pinned: false,
            tenant: "acme".to_owned(),
            request_id: Uuid::now_v7().to_string(),
            trigger: "{}".to_owned(),
            spec: None,
            priority: None,
            correlation_id: None,
            traceparent: None,
            request: None,
            delivery: None,
            principal: Principal::default(),
            parent: None,
            created_at: SystemClock.now(),
            flow: None,
            rerun: None,
            fields: Vec::new(),
            local_start: None,
        };
        store.enqueue(run).await.unwrap();
        let deadline = Instant::now() + LONG;
        loop {
            let letters = self
                .send(Some("acme"), "GET", "/api/v1/admin/dead-letters", "")
                .await
                .expect(200);
            if let Some(id) = letters["items"][0]["id"].as_str() {
                return id.to_owned();
            }
            assert!(Instant::now() < deadline, "there is no dead letter");
            tokio::task::yield_now().await;
        }
    }

    /// A path or body with ids in place of their names.
    fn fill_in(&self, text: &str, ids: &BTreeMap<&'static str, String>) -> String {
        let document = match text {
            "<document>" => echo(&ids["workflow"]),
            "<own document>" => echo("orders"),
            "<dag document>" => dag(&ids["dag"]),
            "<node>" => dag("x")["nodes"][0].clone(),
            "<intents>" => json!([{ "intent": "remove_node", "node_id": "ask" }]),
            "<callbacks>" => json!({ "service_name": "mine", "base_url": "https://mine.example",
                                     "callbacks": { "billing.charge": { "path": "/" } } }),
            text => {
                let replace = |text: String, (name, id): (&&str, &String)| text.replace(&format!("<{name}>"), id);
                return ids.iter().fold(text.to_owned(), replace);
            }
        };
        document.to_string()
    }

    /// Everything that the owner sees.
    async fn owned(&self) -> Vec<String> {
        let mut all = Vec::new();
        for path in [
            "/api/v1/workflows",
            "/api/v1/workflows/<workflow>",
            "/api/v1/workflows/<workflow>/versions",
            "/api/v1/workflows/<dag>",
            "/api/v1/workflows/validate",
            "/api/v1/executions/<run>?include=actions,children,events,waits",
            "/api/v1/executions",
            "/api/v1/inbox",
            "/api/v1/inbox/<item>",
            "/api/v1/callbacks",
            "/api/v1/admin/dead-letters",
            "/api/v1/admin/keys",
            "/api/v1/bulk",
            "/api/v1/bulk/<bulk>/items",
            "/api/v1/triggers/<trigger>",
            "/api/v1/triggers/<trigger>/deliveries",
        ] {
            let answer = self.send(Some("acme"), "GET", &self.fill_in(path, &self.ids), "").await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            all.push(answer.text);
        }
        all
    }
}

fn dag(id: &str) -> Value {
    json!({ "workflow_id": id, "name": "Dag", "version": "1.0.0",
            "nodes": [{ "id": "ask", "type": "task", "executor": { "type": "callback", "config": {} } }], "edges": [] })
}

/// Ids that were never used, of the same form.
fn unused(ids: &BTreeMap<&'static str, String>) -> BTreeMap<&'static str, String> {
    let other = |name: &str, id: &String| match Uuid::try_parse(id) {
        Ok(_) => Uuid::now_v7().to_string(),
        Err(_) if name == "shared" => id.clone(),
        Err(_) => format!("no-{id}"),
    };
    ids.iter().map(|(name, id)| (*name, other(name, id))).collect()
}

/// The error without what names the request.
fn shape(answer: &Answer, ids: &BTreeMap<&'static str, String>) -> Value {
    let mut text = answer.text.clone();
    for (name, id) in ids {
        text = text.replace(id, name);
    }
    let mut body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let error = body["error"]
        .as_object_mut()
        .unwrap_or_else(|| panic!("{}", answer.text));
    error.retain(|member, _| !["correlationId", "timestamp"].contains(&member.as_str()));
    body
}

#[tokio::test]
async fn what_belongs_to_another_tenant_does_not_exist() {
    let world = World::new().await;
    let before = world.owned().await;
    let missing = unused(&world.ids);
    // Rows that create something come last: from then on the tenant has data of its own, also under the same names.
    let creates = |row: &&(&str, &str, &str, &str, Expected)| matches!(row.4, Own(_));
    let rows = ROWS
        .iter()
        .filter(|row| !creates(row))
        .chain(ROWS.iter().filter(creates));
    for (method, route, path, body, expected) in rows {
        let place = format!("{method} {route}");
        let send = async |ids: &BTreeMap<&'static str, String>| {
            let (path, body) = (world.fill_in(path, ids), world.fill_in(body, ids));
            world.send(Some("other"), method, &path, &body).await
        };
        let answer = send(&world.ids).await;
        for id in [
            "uid",
            "run",
            "shared run",
            "item",
            "lease",
            "letter",
            "key",
            "trigger",
            "delivery",
        ] {
            let sent = path.contains(&format!("<{id}>")) || body.contains(&format!("<{id}>"));
            assert!(
                sent || !answer.text.contains(&world.ids[id]),
                "{place}: {}",
                answer.text
            );
        }
        assert!(!answer.text.contains("acme"), "{place}: {}", answer.text);
        match expected {
            Missing => {
                assert_eq!(answer.status, 404, "{place}: {}", answer.text);
                let of_none = send(&missing).await;
                assert_eq!(of_none.status, 404, "{place}: {}", of_none.text);
                assert_eq!(shape(&answer, &world.ids), shape(&of_none, &missing), "{place}");
            }
            Empty => {
                let list = answer.expect(200);
                let items = list["items"].as_array().unwrap();
                assert!(items.iter().all(|item| item["id"] == "common"), "{place}: {list}");
                assert!(list.get("nextCursor").is_none(), "{place}: {list}");
            }
            Own(status) => assert_eq!(answer.status, *status, "{place}: {}", answer.text),
            NoData => assert!(answer.status < 500, "{place}: {}", answer.text),
            Page => assert_eq!(answer.status, 200, "{place}: {}", answer.text),
        }
    }
    assert_eq!(world.owned().await, before, "nothing of the owner has changed");
}

#[tokio::test]
async fn workflows_are_found_by_their_uid_only_by_their_tenant() {
    let world = World::new().await;
    for reference in [world.ids["uid"].clone(), format!("wf_{}", world.ids["uid"])] {
        let path = format!("/api/v1/workflows/{reference}");
        assert_eq!(world.send(Some("acme"), "GET", &path, "").await.status, 200);
        assert_eq!(world.send(None, "GET", &path, "").await.status, 200);
        world
            .send(Some("other"), "GET", &path, "")
            .await
            .error(404, "WORKFLOW_NOT_FOUND");
        let execute = format!("{path}/execute");
        world
            .post(Some("other"), &execute, json!({}))
            .await
            .error(404, "WORKFLOW_NOT_FOUND");
    }
}

#[tokio::test]
async fn shared_workflows_are_executed_by_all_and_changed_without_a_tenant() {
    let world = World::new().await;
    let path = "/api/v1/workflows/common";
    for tenant in [Some("acme"), Some("other"), None] {
        assert_eq!(world.send(tenant, "GET", path, "").await.status, 200);
        let run = world
            .post(tenant, &format!("{path}/execute?wait=20s"), json!({}))
            .await
            .expect(200);
        assert_eq!(run["tenantId"], tenant.map_or(Value::Null, Value::from));
    }
    for command in ["disable", "archive", "publish", "versions/1/activate"] {
        let command = format!("{path}/{command}");
        world
            .send(Some("other"), "POST", &command, "")
            .await
            .error(403, "SHARED_WORKFLOW");
    }
    let draft = echo("common").to_string();
    let put = format!("{path}/draft");
    world
        .send(Some("other"), "PUT", &put, &draft)
        .await
        .error(403, "SHARED_WORKFLOW");
    world
        .send(Some("other"), "DELETE", path, "")
        .await
        .error(403, "SHARED_WORKFLOW");
    world
        .send(None, "POST", &format!("{path}/disable"), "")
        .await
        .expect(200);
}

#[tokio::test]
async fn a_tenants_own_workflow_hides_a_shared_one() {
    let world = World::new().await;
    let mut own = echo("common");
    own["displayName"] = "Ours".into();
    world.post(Some("other"), "/api/v1/workflows", own).await.expect(201);
    let name = async |tenant| {
        let workflow = world
            .send(tenant, "GET", "/api/v1/workflows/common", "")
            .await
            .expect(200);
        workflow["displayName"].clone()
    };
    assert_eq!(name(Some("other")).await, "Ours");
    assert_eq!(name(Some("acme")).await, "The common");
    assert_eq!(name(None).await, "The common");
}

#[tokio::test]
async fn lists_are_filtered_by_tenant() {
    let world = World::new().await;
    for (tenant, named, sees) in [
        (None, "acme", true),
        (None, "other", false),
        (Some("acme"), "acme", true),
        (Some("acme"), "other", false),
        (Some("other"), "acme", false),
        (Some("other"), "other", false),
    ] {
        for list in ["executions", "inbox", "admin/keys", "admin/dead-letters"] {
            let path = format!("/api/v1/{list}?tenantId={named}");
            let page = world.send(tenant, "GET", &path, "").await.expect(200);
            let items = page["items"].as_array().unwrap();
            assert_eq!(!items.is_empty(), sees, "{tenant:?} {path}: {page}");
            assert!(items.iter().all(|item| item["tenantId"] == "acme"), "{page}");
        }
        let path = format!("/api/v1/workflows?tenantId={named}");
        let page = world.send(tenant, "GET", &path, "").await.expect(200);
        let items = page["items"].as_array().unwrap();
        assert_eq!(
            items.iter().any(|item| item["id"] == "orders"),
            sees,
            "{tenant:?} {path}: {page}"
        );
    }
    let all = world.send(None, "GET", "/api/v1/executions", "").await.expect(200);
    assert!(all["items"].as_array().unwrap().len() >= 3, "{all}");
}

#[tokio::test]
async fn queries_find_nothing_of_other_tenants() {
    let world = World::new().await;
    for query in [
        "<run>",
        "workflow:*",
        "workflow:<workflow>",
        "workflow:<uid>",
        "tag:eu",
        "say=hi",
        "tenant:acme",
        "trigger:<trigger>",
        "text:order",
        "since:1h",
        "status:pending status:running status:succeeded status:failed",
    ] {
        let query = world
            .fill_in(query, &world.ids)
            .replace(':', "%3A")
            .replace('=', "%3D")
            .replace(' ', "%20");
        let path = format!("/api/v1/executions?query={query}");
        let own = world.send(Some("acme"), "GET", &path, "").await.expect(200);
        assert_ne!(own["items"], json!([]), "{query}");
        let others = world.send(Some("evil"), "GET", &path, "").await.expect(200);
        assert_eq!(others, json!({ "items": [] }), "{query}");
    }
}

/// However many items a run has, another tenant finds none and no next page.
#[tokio::test]
async fn the_items_of_a_foreign_run_are_not_counted() {
    let world = World::new().await;
    let mut document = dag("many");
    let node = document["nodes"][0].clone();
    let nodes = (0..520).map(|number| {
        let mut node = node.clone();
        node["id"] = format!("ask-{number}").into();
        node
    });
    document["nodes"] = nodes.collect();
    world
        .post(Some("acme"), "/api/v1/workflows", document)
        .await
        .expect(201);
    let body = json!({ "workflow_id": "many", "inputs": {} });
    let run = world.post(Some("acme"), "/api/v1/executions", body).await.expect(201);
    let path = format!(
        "/api/v1/inbox?limit=1000&executionId={}",
        run["execution_id"].as_str().unwrap()
    );
    let deadline = Instant::now() + LONG;
    loop {
        let page = world.send(Some("acme"), "GET", &path, "").await.expect(200);
        if page["items"].as_array().unwrap().len() == 520 {
            break;
        }
        assert!(Instant::now() < deadline, "{}", page["items"].as_array().unwrap().len());
        tokio::task::yield_now().await;
    }
    let page = world.send(Some("other"), "GET", &path, "").await.expect(200);
    assert_eq!(page, json!({ "items": [] }));
    let short = path.replace("limit=1000", "limit=1");
    let page = world.send(Some("other"), "GET", &short, "").await.expect(200);
    assert_eq!(page, json!({ "items": [] }));
}

/// Two tenants may use the same request id.
#[tokio::test]
async fn request_ids_belong_to_tenants() {
    let world = World::new().await;
    let body = json!({ "requestId": "r1" });
    let path = "/api/v1/workflows/common/execute";
    let first = world.post(Some("acme"), path, body.clone()).await.expect(202);
    let second = world.post(Some("other"), path, body.clone()).await.expect(202);
    assert_ne!(first["executionId"], second["executionId"]);
    let again = world.post(Some("acme"), path, body).await.expect(200);
    assert_eq!(again["executionId"], first["executionId"]);
}

/// An answer is given in the name of the token, unless it may name others.
#[tokio::test]
async fn answers_have_the_name_of_the_caller() {
    let world = World::new().await;
    let acme = Some("acme");
    let path = world.fill_in("/api/v1/inbox/<item>/complete", &world.ids);
    let body = |by: Value| json!({ "leaseId": world.ids["lease"], "state": { "x": 1 }, "answeredBy": by });
    world
        .post(acme, &path, body(json!("bob")))
        .await
        .error(403, "OTHER_PRINCIPAL");
    world.post(acme, &path, body(Value::Null)).await.expect(200);
    let item = world
        .send(acme, "GET", &world.fill_in("/api/v1/inbox/<item>", &world.ids), "")
        .await
        .expect(200);
    assert_eq!(item["answeredBy"], "ada");
}

/// A callback URL is a credential, so only who may answer sees it.
#[tokio::test]
async fn readers_do_not_see_callback_urls() {
    let world = World::new().await;
    let path = world.fill_in("/api/v1/executions/<run>?include=waits", &world.ids);
    let waits = world.send(Some("acme"), "GET", &path, "").await.expect(200)["waits"].clone();
    assert!(waits[0]["callbackUrl"].is_string(), "{waits}");
    let reader = changed(claims("acme"), "scope", json!("workflows:read"));
    let token = format!("Bearer {}", world.signer.sign(&reader));
    let answer = world
        .server
        .send(Method::GET, &path, &[("authorization", &token)], "")
        .await;
    let waits = answer.expect(200)["waits"].clone();
    assert!(
        waits[0]["isOpen"] == true && waits[0].get("callbackUrl").is_none(),
        "{waits}"
    );
}
