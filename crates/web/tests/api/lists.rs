//! Lists of executions, hierarchies, and the order in which executions start.

use crate::harness::{Server, echo, single};
use fermata_core::{RunId, Timestamp};
use fermata_runtime::Settings;
use fermata_store::{
    children::Parent,
    runs::{Enqueued, NewRun, Principal},
};
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

const EXECUTIONS: &str = "/api/v1/executions";

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

async fn found(server: &Server, query: &str) -> Vec<String> {
    ids(&server.get(&format!("{EXECUTIONS}?{query}")).await.expect(200))
}

#[tokio::test]
async fn executions_are_found_by_each_filter() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server.publish(&single("broken", "core.fail", json!({}))).await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let start = async |workflow: &str, body: Value, correlation: &str| {
        let path = format!("/api/v1/workflows/{workflow}/execute");
        let mut headers = vec![("content-type", "application/json")];
        headers.extend((!correlation.is_empty()).then_some(("x-correlation-id", correlation)));
        let answer = server.send(Method::POST, &path, &headers, body.to_string()).await;
        answer.expect(202)["executionId"].as_str().unwrap().to_owned()
    };
    let one = start(
        "hello",
        json!({ "requestId": "Order-1", "tenantId": "acme" }),
        "trace-7",
    )
    .await;
    let two = start("hello", json!({ "requestId": "Order-1" }), "").await;
    let three = start("broken", json!({ "requestId": "order-2" }), "trace-7").await;
    let four = start("gated", json!({}), "").await;
    for (id, status) in [
        (&one, "Succeeded"),
        (&two, "Succeeded"),
        (&three, "Failed"),
        (&four, "Running"),
    ] {
        server.until(id, |run| run["status"] == status).await;
    }
    let list = async |query: &str| found(&server, query).await;
    assert_eq!(list("").await, [&four, &three, &two, &one].map(String::clone));
    assert_eq!(list("order=asc").await, [&one, &two, &three, &four].map(String::clone));
    assert_eq!(list("status=Failed,running").await, [&four, &three].map(String::clone));
    assert_eq!(
        list("status=Failed,Succeeded&order=asc").await,
        [&one, &two, &three].map(String::clone)
    );
    assert_eq!(list("correlationId=trace-7").await, [&three, &one].map(String::clone));
    assert_eq!(list(&format!("correlationId={two}")).await, [&two].map(String::clone));
    assert_eq!(list("requestId=Order-1").await, [&two, &one].map(String::clone));
    assert_eq!(list("requestId=Order-1&tenantId=acme").await, [&one].map(String::clone));
    assert_eq!(list("search=ORDER").await, [&three, &two, &one].map(String::clone));
    assert_eq!(list("search=race&workflowId=hello").await, [&one].map(String::clone));
    assert_eq!(list("search=gat").await, [&four].map(String::clone));
    assert_eq!(list("search=%25").await, Vec::<String>::new(), "nothing is a wildcard");

    let millis = |id: &str| (id.parse::<Uuid>().unwrap().as_u128() >> 80) as u64;
    let (first, last) = (millis(&one), millis(&four));
    assert_eq!(
        list(&format!("createdAfter={first}&createdBefore={}", last + 1))
            .await
            .len(),
        4
    );
    assert_eq!(list(&format!("createdBefore={first}")).await.len(), 0);
    assert_eq!(list(&format!("createdAfter={}", last + 1)).await.len(), 0);
    assert_eq!(list("createdAfter=2020-01-01T00:00:00Z").await.len(), 4);
    assert_eq!(list("createdBefore=2020-01-01T00:00:00%2B02:00").await.len(), 0);

    for order in ["asc", "desc"] {
        let whole = list(&format!("order={order}&status=Succeeded,Failed")).await;
        let mut seen = Vec::new();
        let mut cursor = String::new();
        for _ in 0..whole.len() {
            let path = format!("{EXECUTIONS}?order={order}&status=Succeeded,Failed&limit=1{cursor}");
            let page = server.get(&path).await.expect(200);
            seen.extend(ids(&page));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, whole, "{order}");
    }
    for bad in [
        "order=up",
        "createdAfter=yesterday",
        "createdBefore=2026-11-15",
        "status=Failed,Done",
        "createdAfter=-5",
    ] {
        server
            .get(&format!("{EXECUTIONS}?{bad}"))
            .await
            .error(400, "INVALID_PARAMETER");
    }
    let long = "x".repeat(300);
    server
        .get(&format!("{EXECUTIONS}?search={long}"))
        .await
        .error(400, "INVALID_REQUEST");
    server.gate.add_permits(1);
}

#[tokio::test]
async fn workflows_are_found_by_each_filter() {
    let server = Server::start().await;
    server.publish(&echo("a")).await;
    server.publish(&echo("b")).await;
    server.post_nothing("/api/v1/workflows/b/disable").await.expect(200);
    server.post("/api/v1/workflows", echo("c")).await.expect(201);
    let list = async |query: &str| ids(&server.get(&format!("/api/v1/workflows?{query}")).await.expect(200));
    assert_eq!(
        list("tenantId=acme").await,
        ["a", "b", "c"],
        "workflows belong to no tenant"
    );
    assert_eq!(list("isEnabled=false").await, ["b"]);
    assert_eq!(list("status=Active&isEnabled=true").await, ["a"]);
    assert_eq!(list("dialect=DataWorkflows&status=Draft").await, ["c"]);
    assert!(list("dialect=runlater").await.is_empty());
}

/// Stores a run that never starts, as the child of a run.
async fn child(server: &Server, parent: RunId, node: &str) -> RunId {
    let id = RunId(Uuid::now_v7());
    let run = NewRun {
        id,
        workflow_uid: server.store.workflow("", "hello").await.unwrap().unwrap().uid,
        workflow_id: "hello".to_owned(),
        workflow_version: 1,
        pinned: false,
        tenant: String::new(),
        request_id: format!("fermata:child:{parent}:{node}:1"),
        trigger: "{}".to_owned(),
        spec: None,
        priority: None,
        correlation_id: None,
        traceparent: None,
        request: None,
        delivery: None,
        principal: Principal::default(),
        parent: Some(Parent {
            node: Some(node.into()),
            ..Parent::of(parent)
        }),
        created_at: Timestamp(i64::MAX),
        flow: None,
        rerun: None,
        fields: Vec::new(),
        local_start: None,
    };
    assert_eq!(server.store.enqueue(run).await.unwrap(), Enqueued::Created);
    id
}

#[tokio::test]
async fn a_hierarchy_is_shown_from_any_of_its_runs() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let root = server
        .post_nothing("/api/v1/workflows/hello/execute?wait=15s")
        .await
        .expect(200);
    let root: RunId = root["id"].as_str().unwrap().parse().unwrap();
    let alone = server
        .get(&format!("{EXECUTIONS}/{root}?include=children"))
        .await
        .expect(200);
    assert_eq!(alone["children"], json!([]));
    let first = child(&server, root, "call:me").await;
    let second = child(&server, root, "later").await;
    let grandchild = child(&server, first, "deep").await;
    let leaf = |id: RunId, node: &str| {
        json!({
            "executionId": id, "workflowId": "hello", "status": "Pending", "parentNodeId": node, "children": []
        })
    };
    let mut middle = leaf(first, "call:me");
    middle["children"] = json!([leaf(grandchild, "deep")]);
    let whole = json!({
        "executionId": root, "workflowId": "hello", "status": "Succeeded",
        "children": [middle, leaf(second, "later")],
    });
    for id in [root, first, second, grandchild] {
        let tree = server.get(&format!("{EXECUTIONS}/{id}/hierarchy")).await.expect(200);
        assert_eq!(tree, whole);
    }
    let run = server
        .get(&format!("{EXECUTIONS}/{root}?include=children"))
        .await
        .expect(200);
    let children = run["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    assert_eq!(children[0]["parentExecutionId"], json!(root));
    let one = server
        .get(&format!("{EXECUTIONS}/{root}?include=children&limit=1"))
        .await
        .expect(200);
    assert_eq!(
        (one["children"].as_array().unwrap().len(), &one["moreChildren"]),
        (1, &json!(true))
    );
    server
        .get(&format!("{EXECUTIONS}/01890000-0000-7000-8000-000000000000/hierarchy"))
        .await
        .error(404, "EXECUTION_NOT_FOUND");
}

#[tokio::test]
async fn a_large_hierarchy_is_truncated_and_says_so() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let root: RunId = server.execute("hello", json!({})).await.parse().unwrap();
    for n in 0..1001 {
        child(&server, root, &format!("n{n}")).await;
    }
    let tree = server.get(&format!("{EXECUTIONS}/{root}/hierarchy")).await.expect(200);
    assert_eq!(
        (tree["children"].as_array().unwrap().len(), &tree["truncated"]),
        (999, &json!(true))
    );
    let unseen = tree["children"].as_array().unwrap().iter();
    let unseen = unseen.filter(|child| child["truncated"] == true).count();
    assert_eq!(unseen, 999 - 199, "their children were not read");
    // A chain of runs that is deeper than the limit.
    let mut last = root;
    for _ in 0..50 {
        last = child(&server, last, "down").await;
    }
    let mut tree = &server.get(&format!("{EXECUTIONS}/{last}/hierarchy")).await.expect(200);
    let mut levels = 1;
    while let Some(below) = tree["children"].get(0) {
        (tree, levels) = (below, levels + 1);
    }
    assert_eq!((levels, &tree["truncated"]), (32, &json!(true)));
}

#[tokio::test]
async fn higher_priority_starts_first() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let occupant = server.execute("gated", json!({})).await;
    server.until(&occupant, |run| run["status"] == "Running").await;
    let mut waiting = Vec::new();
    for priority in [json!(null), json!(1), json!(9), json!(-1), json!(1)] {
        waiting.push(server.execute("gated", json!({ "priority": priority })).await);
    }
    for next in [2, 1, 4, 0, 3] {
        let pending = found(&server, "status=Pending").await;
        assert!(pending.contains(&waiting[next]), "{next}");
        server.gate.add_permits(1);
        server.until(&waiting[next], |run| run["status"] != "Pending").await;
        let left = found(&server, "status=Pending").await;
        assert_eq!(left.len(), pending.len() - 1, "one at a time");
    }
    server.gate.add_permits(1);
    server.until(&waiting[3], |run| run["status"] == "Succeeded").await;
}

#[tokio::test]
async fn expressions_can_read_vars_and_the_principal() {
    let settings = Settings {
        vars: json!({ "region": "eu" }).as_object().unwrap().clone(),
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    let parameters = json!({ "region": "{{ vars.region }}", "spec": "{{ trigger.spec.a }} {{ spec.a }}" });
    server.publish(&single("w", "core.echo", parameters)).await;
    let run = server
        .post("/api/v1/workflows/w/execute?wait=15s", json!({ "spec": { "a": 1 } }))
        .await
        .expect(200);
    assert_eq!(run["outputs"], json!({ "region": "eu", "spec": "1 1" }));
    assert_eq!(run["principal"], json!({ "userId": "system", "displayName": "System" }));
    let mine = json!({ "principal": { "userId": "U1" }, "spec": { "a": 2 } });
    let run = server
        .post("/api/v1/workflows/w/execute?wait=15s", mine)
        .await
        .expect(200);
    assert_eq!(run["principal"], json!({ "userId": "U1" }));
}
