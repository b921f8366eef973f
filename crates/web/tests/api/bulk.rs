//! Bulk jobs: preview, start, progress, result per execution, cancel.

use crate::{
    harness::{LONG, Server, echo, single},
    provider::{Provider, Signer, changed, claims},
};
use fermata_runtime::Settings;
use fermata_web::Loose;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const BULK: &str = "/api/v1/bulk";

fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}

async fn prepared(server: &Server, body: Value) -> Value {
    server.post(BULK, body).await.expect(201)
}

/// Starts a job and waits for its end.
async fn run(server: &Server, job: &Value) -> Value {
    let path = format!("{BULK}/{}", id(job));
    server.post_nothing(&format!("{path}/start")).await.expect(202);
    over(server, &path).await
}

async fn over(server: &Server, path: &str) -> Value {
    let deadline = Instant::now() + LONG;
    loop {
        let job = server.get(path).await.expect(200);
        if matches!(job["state"].as_str(), Some("finished" | "cancelled")) {
            return job;
        }
        assert!(Instant::now() < deadline, "the job does not end: {job}");
        tokio::task::yield_now().await;
    }
}

async fn status(server: &Server, id: &str) -> String {
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    run["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn jobs_act_on_exactly_the_executions_of_the_preview() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    server.publish(&echo("other")).await;
    let mut runs = Vec::new();
    for _ in 0..40 {
        runs.push(server.execute("gated", json!({})).await);
    }
    let job = prepared(
        &server,
        json!({ "query": "workflow:gated", "action": "cancel", "reason": "why" }),
    )
    .await;
    assert_eq!(
        (&job["total"], &job["state"], &job["action"]),
        (&json!(40), &json!("ready"), &json!("cancel"))
    );
    let later = server.execute("gated", json!({})).await;
    assert_eq!(
        status(&server, &runs[0]).await,
        "Running",
        "nothing is done before the start"
    );

    let ended = run(&server, &job).await;
    assert_eq!(
        (&ended["state"], &ended["done"], &ended["total"]),
        (&json!("finished"), &json!(40), &json!(40))
    );
    for id in &runs {
        let run = server.until(id, |run| run["status"] == "Cancelled").await;
        assert_eq!(run["reason"], "why");
    }
    assert_eq!(status(&server, &later).await, "Running");
    // A second start does nothing.
    let again = server
        .post_nothing(&format!("{BULK}/{}/start", id(&job)))
        .await
        .expect(202);
    assert_eq!(again, ended);
    assert_eq!(status(&server, &later).await, "Running");

    let mut seen = Vec::new();
    let mut cursor = String::new();
    for _ in 0..9 {
        let path = format!("{BULK}/{}/items?limit=15&state=done{cursor}", id(&job));
        let page = server.get(&path).await.expect(200);
        let items = page["items"].as_array().unwrap().iter();
        seen.extend(items.map(|item| item["executionId"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, runs);
    let list = server.get(BULK).await.expect(200);
    assert_eq!(list["items"], json!([ended]));
    let audit = server.get("/api/v1/audit?limit=1000").await.expect(200);
    let count = |action: &str| {
        let rows = audit["items"].as_array().unwrap().iter();
        rows.filter(|row| row["action"] == action).count()
    };
    assert_eq!(
        (count("bulk.create"), count("bulk.start"), count("execution.cancel")),
        (1, 1, 40)
    );
    server.gate.add_permits(100);
}

#[tokio::test]
async fn each_execution_has_its_result() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    server.publish(&echo("quick")).await;
    let running = server.execute("gated", json!({})).await;
    let done = server.execute("quick", json!({})).await;
    server.until(&done, |run| run["status"] == "Succeeded").await;
    let unknown = "01900000-0000-7000-8000-000000000000";
    let of = |action: &str| json!({ "ids": [running, done, unknown, done], "action": action });

    let job = prepared(&server, of("cancel")).await;
    assert_eq!(job["total"], 2, "of the ids that exist, each once");
    // Before the job is started, one of its executions ends.
    let cancelled = run(&server, &job).await;
    assert_eq!((&cancelled["done"], &cancelled["refused"]), (&json!(1), &json!(1)));
    let refused = server
        .get(&format!("{BULK}/{}/items?state=refused", id(&job)))
        .await
        .expect(200);
    let item = &refused["items"][0];
    assert_eq!(
        (&item["executionId"], &item["code"]),
        (&json!(done), &json!("ALREADY_ENDED"))
    );
    server.until(&running, |run| run["status"] == "Cancelled").await;

    let still = server.execute("gated", json!({})).await;
    let body = json!({ "ids": [running, done, still], "action": "delete" });
    let job = prepared(&server, body).await;
    let gone = format!("/api/v1/executions/{done}");
    server.send(Method::DELETE, &gone, &[], String::new()).await;
    let deleted = run(&server, &job).await;
    assert_eq!(
        (&deleted["done"], &deleted["refused"]),
        (&json!(2), &json!(1)),
        "what is gone is done"
    );
    server.get(&gone).await.error(404, "EXECUTION_NOT_FOUND");
    let refused = server
        .get(&format!("{BULK}/{}/items?state=refused", id(&job)))
        .await
        .expect(200);
    assert_eq!(refused["items"][0]["code"], "EXECUTION_NOT_FINISHED");
    // Without a status, a query is limited to what the action can change.
    let job = prepared(&server, json!({ "query": "since:1h", "action": "delete" })).await;
    assert_eq!(job["total"], 0);
    let ended = run(&server, &job).await;
    assert_eq!(ended["state"], "finished");
    server.gate.add_permits(9);
}

#[tokio::test]
async fn jobs_can_leave_out_what_their_action_cannot_change() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    server.publish(&echo("quick")).await;
    let running = server.execute("gated", json!({})).await;
    let done = server.execute("quick", json!({})).await;
    server.until(&done, |run| run["status"] == "Succeeded").await;
    for (action, total, left_out) in [
        ("cancel", 1, 1),
        ("pause", 1, 1),
        ("resume", 0, 2),
        ("rerun", 1, 1),
        ("delete", 1, 1),
    ] {
        for selection in [
            json!({ "ids": [running, done] }),
            json!({ "query": "status:running status:succeeded" }),
        ] {
            let mut body = selection.clone();
            body["action"] = json!(action);
            body["onlyFitting"] = json!(true);
            let job = prepared(&server, body).await;
            let counts = (&job["total"], &job["leftOut"]);
            assert_eq!(counts, (&json!(total), &json!(left_out)), "{action} {selection}");
        }
    }
    let failed = json!({ "ids": [done], "action": "rerun", "failedOnly": true, "onlyFitting": true });
    assert_eq!(prepared(&server, failed).await["leftOut"], 1);
    let all = prepared(&server, json!({ "ids": [running, done], "action": "cancel" })).await;
    assert_eq!((&all["total"], &all["leftOut"]), (&json!(2), &json!(0)));
    server.gate.add_permits(9);
}

#[tokio::test]
async fn executions_are_paused_and_resumed() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(server.execute("gated", json!({})).await);
    }
    let pause = json!({ "ids": [runs[0], runs[1]], "action": "pause", "reason": "why" });
    let paused = run(&server, &prepared(&server, pause).await).await;
    assert_eq!((&paused["done"], &paused["reason"]), (&json!(2), &json!("why")));
    for (id, is_paused) in [(&runs[0], true), (&runs[1], true), (&runs[2], false)] {
        let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
        assert_eq!(run["pausedAt"].is_string(), is_paused, "{run}");
    }
    // A query finds those that the action changes.
    for (action, expected) in [("pause", &runs[2..]), ("resume", &runs[..2])] {
        let job = prepared(&server, json!({ "query": "workflow:gated", "action": action })).await;
        let items = server.get(&format!("{BULK}/{}/items", id(&job))).await.expect(200);
        let items = items["items"].as_array().unwrap().iter();
        let found: Vec<&str> = items.map(|item| item["executionId"].as_str().unwrap()).collect();
        assert_eq!(found, expected, "{action}");
    }
    server.gate.add_permits(100);
    let resume = prepared(&server, json!({ "query": "status:running", "action": "resume" })).await;
    run(&server, &resume).await;
    for id in &runs {
        server.until(id, |run| run["status"] == "Succeeded").await;
    }
    for action in ["pause", "resume"] {
        let job = prepared(&server, json!({ "ids": [runs[0]], "action": action })).await;
        assert_eq!(run(&server, &job).await["refused"], 1);
        let items = server.get(&format!("{BULK}/{}/items", id(&job))).await.expect(200);
        assert_eq!(items["items"][0]["code"], "ALREADY_ENDED", "{items}");
    }
}

#[tokio::test]
async fn executions_are_repeated() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    server.publish(&echo("quick")).await;
    let running = server.execute("gated", json!({})).await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        let id = server.execute("quick", json!({})).await;
        server.until(&id, |run| run["status"] == "Succeeded").await;
        runs.push(id);
    }
    let job = prepared(
        &server,
        json!({ "query": "since:1h", "action": "rerun", "version": "latest" }),
    )
    .await;
    assert_eq!(
        (&job["total"], &job["version"], &job["failedOnly"]),
        (&json!(20), &json!("latest"), &json!(false)),
        "those that have ended"
    );
    assert_eq!(run(&server, &job).await["done"], 20);
    let items = server.get(&format!("{BULK}/{}/items", id(&job))).await.expect(200);
    let mut created = Vec::new();
    for (item, old) in items["items"].as_array().unwrap().iter().zip(&runs) {
        assert_eq!(item["executionId"], **old);
        let new = item["createdExecutionId"].as_str().unwrap();
        let new = server.until(new, |run| run["status"] == "Succeeded").await;
        assert_eq!(new["rerunOf"], **old, "{new}");
        // A process that dies before it recorded the result finds it by this, instead of making another one.
        assert_eq!(new["requestId"], format!("fermata:bulk:{}:{old}", id(&job)), "{new}");
        created.push(new["id"].clone());
    }
    created.dedup();
    assert_eq!(created.len(), 20);

    let refused = json!({ "ids": [running, runs[0]], "action": "rerun", "failedOnly": true });
    let refused = prepared(&server, refused).await;
    assert_eq!(run(&server, &refused).await["refused"], 2);
    let items = server.get(&format!("{BULK}/{}/items", id(&refused))).await.expect(200);
    assert_eq!(items["items"][0]["code"], "EXECUTION_NOT_FINISHED", "{items}");
    assert_eq!(items["items"][1]["code"], "INVALID_RERUN", "{items}");
    // Its requestIds are its own.
    let taken = json!({ "requestId": format!("fermata:bulk:{}:{}", id(&job), runs[0]) });
    let path = format!("/api/v1/executions/{}/rerun", runs[0]);
    server.post(&path, taken).await.error(400, "RESERVED_REQUEST_ID");
    server.gate.add_permits(9);
}

#[tokio::test]
async fn cancelled_jobs_do_nothing_more() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let mut runs = Vec::new();
    for _ in 0..200 {
        runs.push(server.execute("gated", json!({})).await);
    }
    let selection = json!({ "query": "workflow:gated", "action": "cancel" });
    let ready = prepared(&server, selection.clone()).await;
    let path = format!("{BULK}/{}", id(&ready));
    let cancelled = server.post_nothing(&format!("{path}/cancel")).await.expect(200);
    assert_eq!(
        (&cancelled["state"], &cancelled["done"]),
        (&json!("cancelled"), &json!(0))
    );
    let started = server.post_nothing(&format!("{path}/start")).await.expect(202);
    assert_eq!(started, cancelled, "it cannot be started");

    let job = prepared(&server, selection).await;
    let path = format!("{BULK}/{}", id(&job));
    server.post_nothing(&format!("{path}/start")).await.expect(202);
    let answer = server.post_nothing(&format!("{path}/cancel")).await;
    assert!([200, 202].contains(&answer.status), "{}", answer.text);
    // On a fast machine it may have finished before.
    let ended = over(&server, &path).await;
    // Exactly those that were recorded as done were cancelled, and no other one is.
    let done = server
        .get(&format!("{path}/items?state=done&limit=1000"))
        .await
        .expect(200);
    let done = done["items"].as_array().unwrap().len();
    assert_eq!(ended["done"], json!(done));
    let last = server.execute("gated", json!({})).await;
    server.post_nothing(&format!("/api/v1/executions/{last}/cancel")).await;
    server.until(&last, |run| run["status"] == "Cancelled").await;
    let path = "/api/v1/audit?action=execution.cancel&limit=1000";
    let audit = server.get(path).await.expect(200);
    assert_eq!(audit["items"].as_array().unwrap().len(), done + 1);
    server.gate.add_permits(1000);
}

#[tokio::test]
async fn wrong_jobs_are_refused() {
    let server = Server::start().await;
    for (body, code) in [
        (json!({ "action": "cancel" }), "INVALID_REQUEST"),
        (
            json!({ "action": "cancel", "query": "tag:x", "ids": [] }),
            "INVALID_REQUEST",
        ),
        (json!({ "action": "cancel", "ids": [] }), "INVALID_REQUEST"),
        (json!({ "action": "cancel", "query": " " }), "INVALID_REQUEST"),
        (json!({ "action": "explode", "query": "tag:x" }), "INVALID_REQUEST"),
        (json!({ "query": "tag:x" }), "INVALID_REQUEST"),
        (
            json!({ "action": "delete", "query": "tag:x", "reason": "r" }),
            "INVALID_REQUEST",
        ),
        (
            json!({ "action": "rerun", "query": "tag:x", "reason": "r" }),
            "INVALID_REQUEST",
        ),
        (
            json!({ "action": "rerun", "query": "tag:x", "version": "1" }),
            "INVALID_REQUEST",
        ),
        (
            json!({ "action": "pause", "query": "tag:x", "failedOnly": true }),
            "INVALID_REQUEST",
        ),
        (json!({ "action": "cancel", "query": "status:faild" }), "INVALID_QUERY"),
        (json!({ "action": "cancel", "ids": ["x"] }), "INVALID_REQUEST"),
    ] {
        server.post(BULK, body).await.error(400, code);
    }
    let path = format!("{BULK}/01900000-0000-7000-8000-000000000000");
    server.get(&path).await.error(404, "BULK_NOT_FOUND");
    server.get(&format!("{path}/items")).await.error(404, "BULK_NOT_FOUND");
    for action in ["start", "cancel"] {
        let answer = server.post_nothing(&format!("{path}/{action}")).await;
        answer.error(404, "BULK_NOT_FOUND");
    }
    server.get(&format!("{BULK}/x")).await.error(400, "INVALID_ID");
    let job = prepared(&server, json!({ "action": "cancel", "query": "tag:x" })).await;
    let path = format!("{BULK}/{}/items?state=x", id(&job));
    server.get(&path).await.error(400, "INVALID_PARAMETER");
    assert_eq!(server.get(BULK).await.expect(200)["items"].as_array().unwrap().len(), 1);
}

/// A job needs the scope of its action, to be made and to be started, and has runs of its own tenant only.
#[tokio::test]
async fn jobs_need_the_scope_of_their_action_and_stay_in_their_tenant() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let all = "workflows:read workflows:execute workflows:manage admin";
    let send = async |tenant: &str, scopes: &str, path: &str, body: Value| {
        let token = changed(changed(claims("-"), "scope", json!(scopes)), "tenant_id", json!(tenant));
        let token = format!("Bearer {}", signer.sign(&token));
        let mut headers = vec![("authorization", token.as_str())];
        if body.is_null() {
            return server.send(Method::POST, path, &headers, String::new()).await;
        }
        headers.push(("content-type", "application/json"));
        server.send(Method::POST, path, &headers, body.to_string()).await
    };
    send("acme", all, "/api/v1/workflows", echo("hello")).await.expect(201);
    send("acme", all, "/api/v1/workflows/hello/publish", Value::Null)
        .await
        .expect(200);
    let path = "/api/v1/workflows/hello/execute?wait=10s";
    let run = send("acme", all, path, json!({})).await.expect(200);
    let delete = json!({ "action": "delete", "query": "status:succeeded" });
    let execute = "workflows:read workflows:execute";
    send("acme", execute, BULK, delete.clone())
        .await
        .error(403, "FORBIDDEN");
    let job = send("acme", all, BULK, delete.clone()).await.expect(201);
    assert_eq!(job["total"], 1);
    let start = format!("{BULK}/{}/start", id(&job));
    send("acme", execute, &start, Value::Null).await.error(403, "FORBIDDEN");
    send("evil", all, &start, Value::Null)
        .await
        .error(404, "BULK_NOT_FOUND");
    for body in [delete, json!({ "action": "delete", "ids": [run["id"]] })] {
        let none = send("evil", all, BULK, body).await.expect(201);
        assert_eq!(none["total"], 0);
    }
    send("acme", all, &start, Value::Null).await.expect(202);
}
