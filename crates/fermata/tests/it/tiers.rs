//! Limits of tenants on real servers: months and places are exact over two processes and through kills.

use crate::{
    runlater::service::{Answer, Service},
    support::{Server, shared_home},
};
use serde_json::{Value, json};

/// Two runs of ten steps and one more step use up the month.
const TIER: [(&str, &str); 3] = [
    ("FERMATA_TIERS__FREE__EXECUTIONS_PER_MONTH", "21"),
    ("FERMATA_TIERS__FREE__HTTP_STEPS_AT_ONCE", "5"),
    ("FERMATA_TENANTS__ACME", "free"),
];

/// Ten requests side by side. The last one is refused once, so it is retried.
fn workflow(service: &Service) -> Value {
    let step = |number: usize| {
        json!({ "id": format!("s{number}"), "actionType": "http.request",
                "parameters": { "url": service.at(&format!("/{number}")) },
                "policies": { "retry": { "maxAttempts": 3, "baseDelayMs": 1 } } })
    };
    let edges: Vec<Value> = (0..10)
        .map(|number| json!({ "targetNode": format!("s{number}") }))
        .collect();
    let mut nodes = vec![json!({ "id": "begin", "actionType": "core.echo", "parameters": {}, "edges": edges })];
    nodes.extend((0..10).map(step));
    json!({ "id": "ten", "displayName": "Ten", "startNode": "begin", "nodes": nodes })
}

fn start_of(tenant: &str, request: &str) -> Value {
    json!({ "requestId": request, "tenantId": tenant, "trigger": {} })
}

/// The most calls that were open at the same time.
fn most_open(service: &Service) -> usize {
    let calls = service.calls();
    let open_at = |time: u64| {
        let open =
            |call: &&crate::runlater::service::Call| call.arrived <= time && call.answered.is_none_or(|at| at > time);
        calls.iter().filter(open).count()
    };
    calls.iter().map(|call| open_at(call.arrived)).max().unwrap_or(0)
}

/// Two processes execute one run of the tenant each, until one of them is killed.
#[tokio::test]
async fn months_and_places_are_exact_over_two_processes_and_kills() {
    let service = Service::start().await;
    // A step of each run holds its place; the other responses wait until five steps execute.
    service.script("/0", [Answer::ok(&json!({})).held()]);
    service.script("/9", [Answer::status(503), Answer::ok(&json!({}))]);
    for number in 1..9 {
        service.script(&format!("/{number}"), [Answer::ok(&json!({})).after_calls(5)]);
    }
    let home = shared_home();
    let mut first = Server::on(&home, &[], &TIER);
    let second = Server::on(&home, &[], &TIER);
    first.publish(&workflow(&service)).await;
    first.publish(&one_step(&service)).await;
    let execute = "/api/v1/workflows/ten/execute";
    let (status, one) = first.post(execute, &start_of("acme", "one")).await;
    assert_eq!(status, 202, "{one}");
    let (status, two) = second.post(execute, &start_of("acme", "two")).await;
    assert_eq!(status, 202, "{two}");
    for run in 1..=2 {
        service.call("/0", run).await;
    }
    service.call("/8", 2).await;
    assert_eq!(most_open(&service), 5, "{:#?}", service.calls());

    first.kill9();
    service.script("/0", [Answer::ok(&json!({}))]);
    for _ in 0..2 {
        service.release("/0");
    }
    for started in [&one, &two] {
        let ended = second.ended(started["executionId"].as_str().unwrap()).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
    }
    // Twenty of twenty-one: a count that was doubled, by a retry or the crash, would refuse this.
    let (status, last) = second
        .post("/api/v1/workflows/one/execute", &start_of("acme", "three"))
        .await;
    assert_eq!(status, 202, "{last}");
    second.ended(last["executionId"].as_str().unwrap()).await;
    // All are used up: a count that was lost would accept this.
    first.restart();
    for server in [&first, &second] {
        let (status, refused) = server.post(execute, &start_of("acme", "four")).await;
        assert_eq!(
            (status, &refused["error"]["code"]),
            (429, &json!("MONTHLY_LIMIT")),
            "{refused}"
        );
        let (status, accepted) = server
            .post("/api/v1/workflows/one/execute", &start_of("other", "x"))
            .await;
        assert!(status == 202 || status == 200, "{accepted}");
    }
}

fn one_step(service: &Service) -> Value {
    json!({ "id": "one", "displayName": "One", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "http.request", "parameters": { "url": service.at("/one") } }] })
}

#[tokio::test]
async fn starts_of_a_workflow_are_limited_by_tenant() {
    let server = Server::start_with(&[], &[("FERMATA_RATE_LIMITS__EXECUTIONS_PER_MINUTE", "2")]);
    let document = |id: &str| {
        json!({ "id": id, "displayName": "X", "startNode": "a",
                "nodes": [{ "id": "a", "actionType": "core.echo", "parameters": {} }] })
    };
    server.publish(&document("x")).await;
    server.publish(&document("y")).await;
    let start = |workflow: &'static str, tenant: &'static str, request: &'static str| {
        let path = format!("/api/v1/workflows/{workflow}/execute");
        let body = start_of(tenant, request);
        let server = &server;
        async move { server.post(&path, &body).await }
    };
    assert_eq!(start("x", "acme", "1").await.0, 202);
    assert_eq!(start("x", "acme", "2").await.0, 202);
    let (status, refused) = start("x", "acme", "3").await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (429, &json!("RATE_LIMITED")),
        "{refused}"
    );
    assert_eq!(start("x", "globex", "4").await.0, 202, "other tenants are not affected");
    assert_eq!(start("y", "acme", "5").await.0, 202, "nor other workflows");
    let client = crate::support::http_client();
    let url = format!("{}/api/v1/workflows/x/execute", server.url);
    let response = client.post(url).json(&start_of("acme", "6")).send().await.unwrap();
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(
        (header("x-ratelimit-limit"), header("x-ratelimit-remaining")),
        ("2".to_owned(), "0".to_owned())
    );
    let retry_after: u64 = header("retry-after").parse().unwrap();
    assert!((1..=30).contains(&retry_after), "{retry_after}");
}

#[test]
fn wrong_tiers_are_refused() {
    for (environment, problem) in [
        (
            vec![
                ("FERMATA_TENANTS__ACME", "fre"),
                ("FERMATA_TIERS__FREE__WORKFLOWS", "3"),
            ],
            "there is no tier `fre`; did you mean `free`?",
        ),
        (
            vec![("FERMATA_TIERS__FREE__CONCURRENT_RUNS", "0")],
            "tiers.free.concurrent_runs",
        ),
        (vec![("FERMATA_TIERS__FREE__CRON", "3")], "tiers.free.cron"),
        (vec![("FERMATA_TIERS__FREE__WORKFLOWS", "0")], "tiers.free.workflows"),
        (vec![("FERMATA_TIERS__FREE__FLOWS", "1")], "flows"),
    ] {
        let output = crate::support::Process::start(&["validate", "-"], &environment, "{}").output();
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains(problem), "{problem}: {output:?}");
    }
}

#[tokio::test]
async fn tiers_limit_workflows_their_tasks_and_their_schedules() {
    let tier = [
        ("FERMATA_TIERS__FREE__CRON", "false"),
        ("FERMATA_TIERS__FREE__WORKFLOWS", "1"),
        ("FERMATA_TIERS__FREE__TASKS_PER_WORKFLOW", "2"),
        ("FERMATA_TENANTS__ACME", "free"),
    ];
    let server = Server::start_with(&[], &tier);
    let key = json!({ "name": "acme", "tenantId": "acme", "scopes": ["workflows:manage", "workflows:read"] });
    let (status, key) = server.post("/api/v1/admin/keys", &key).await;
    assert_eq!(status, 201, "{key}");
    let client = crate::support::http_client();
    let save = |document: Value| {
        let url = format!("{}/api/v1/workflows", server.url);
        let request = client
            .post(url)
            .bearer_auth(key["key"].as_str().expect("a key"))
            .json(&document);
        async move {
            let response = request.send().await.expect("the server answers");
            let status = response.status().as_u16();
            (status, response.json::<Value>().await.expect("JSON"))
        }
    };
    let document = |id: &str, nodes: usize| {
        let node = |at: usize| {
            json!({ "id": format!("n{at}"), "actionType": "core.echo", "parameters": {},
            "edges": match at + 1 < nodes { true => json!([{ "targetNode": format!("n{}", at + 1) }]), false => json!([]) } })
        };
        json!({ "id": id, "displayName": id, "startNode": "n0", "nodes": (0..nodes).map(node).collect::<Vec<_>>() })
    };
    let (status, refused) = save(document("large", 3)).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("TIER_LIMIT")),
        "{refused}"
    );
    let mut scheduled = document("first", 1);
    scheduled["triggers"] = json!([{ "name": "daily", "type": "schedule", "config": { "cron": "@daily" } }]);
    let (status, refused) = save(scheduled).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("TIER_LIMIT")),
        "{refused}"
    );
    let (status, created) = save(document("first", 2)).await;
    assert_eq!(status, 201, "{created}");
    let (status, changed) = save(document("first", 1)).await;
    assert!(status < 300, "{changed}");
    let (status, refused) = save(document("second", 1)).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("TIER_LIMIT")),
        "{refused}"
    );
    let (status, shared) = server.post("/api/v1/workflows", &document("shared", 3)).await;
    assert_eq!(status, 201, "shared workflows have no limits: {shared}");
}

/// Each token has its own bucket, and a refused one does not affect others.
#[tokio::test]
async fn requests_are_limited_by_token() {
    let rate = [
        ("FERMATA_RATE_LIMITS__ENABLED", "true"),
        ("FERMATA_RATE_LIMITS__REQUESTS_PER_MINUTE", "1"),
        ("FERMATA_RATE_LIMITS__BURST", "3"),
    ];
    let server = Server::start_with(&[], &rate);
    let mut keys = Vec::new();
    for name in ["a", "b"] {
        let key = json!({ "name": name, "tenantId": name, "scopes": ["workflows:read"] });
        let (status, key) = server.post("/api/v1/admin/keys", &key).await;
        assert_eq!(status, 201, "{key}");
        keys.push(key["key"].as_str().expect("a key").to_owned());
    }
    let client = crate::support::http_client();
    let list = |key: &str| {
        client
            .get(format!("{}/api/v1/workflows", server.url))
            .bearer_auth(key)
            .send()
    };
    for left in ["2", "1", "0"] {
        let response = list(&keys[0]).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["x-ratelimit-limit"], "3");
        assert_eq!(response.headers()["x-ratelimit-remaining"], left);
        assert!(response.headers().contains_key("x-ratelimit-reset"));
    }
    let refused = list(&keys[0]).await.unwrap();
    assert_eq!(refused.status().as_u16(), 429);
    assert_eq!(refused.headers()["x-ratelimit-remaining"], "0");
    let retry_after: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
    let body: Value = refused.json().await.unwrap();
    assert_eq!(body["error"]["code"], "RATE_LIMITED", "{body}");
    assert_eq!(
        list(&keys[1]).await.unwrap().status().as_u16(),
        200,
        "other tokens are not affected"
    );
    for _ in 0..10 {
        let health = client.get(format!("{}/health/live", server.url)).send().await.unwrap();
        assert_eq!(health.status().as_u16(), 200);
        assert!(!health.headers().contains_key("x-ratelimit-limit"));
    }
}
