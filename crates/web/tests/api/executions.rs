//! Reading runs: one run with its parts, and lists.

use crate::harness::{Server, assert_time, echo, single};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use serde_json::{Value, json};

/// A first node, one that fails once and links a resource, and one that is never reached.
fn linking() -> Value {
    json!({
        "id": "linking", "displayName": "Linking", "startNode": "first",
        "nodes": [
            { "id": "first", "actionType": "core.echo", "parameters": { "n": 1 }, "edges": [{ "targetNode": "link" }] },
            { "id": "link", "actionType": "test.link",
              "policies": { "retry": { "maxAttempts": 2, "baseDelayMs": 1, "jitter": false } },
              "edges": [{ "targetNode": "never", "when": "failure" }] },
            { "id": "never", "actionType": "core.echo" },
        ]
    })
}

#[tokio::test]
async fn a_run_is_shown_with_its_included_parts() {
    let server = Server::start().await;
    server.publish(&linking()).await;
    let finished = server
        .post_nothing("/api/v1/workflows/linking/execute?wait=15s")
        .await
        .expect(200);
    let id = finished["executionId"].as_str().unwrap();
    let base = format!("/api/v1/executions/{id}");
    let run = server
        .get(&format!("{base}?include=actions,events,%20resources"))
        .await
        .expect(200);

    assert_eq!(
        (&run["id"], &run["workflowId"], &run["workflowVersion"]),
        (&json!(id), &json!("linking"), &json!(1))
    );
    assert_eq!((&run["status"], &run["statusUrl"]), (&json!("Succeeded"), &json!(base)));
    assert!(run["contextSnapshot"]["first"].is_object(), "{run}");
    for time in ["createdAt", "startedAt", "endedAt"] {
        assert_time(&run[time]);
    }
    assert!(run["durationMs"].is_u64());
    for absent in [
        "reason",
        "error",
        "wakeAt",
        "tenantId",
        "priority",
        "spec",
        "parentExecutionId",
    ] {
        assert!(run.get(absent).is_none(), "{absent}");
    }

    let actions = run["actions"].as_array().unwrap();
    let shown: Vec<Value> = actions
        .iter()
        .map(|action| {
            json!([
                action["nodeId"],
                action["status"],
                action["attempt"],
                action["retryCount"]
            ])
        })
        .collect();
    let expected = json!([
        ["first", "Succeeded", 1, 0],
        ["link", "RetriableFailure", 1, 0],
        ["link", "Succeeded", 2, 1],
        ["never", "Skipped", 1, 0],
    ]);
    assert_eq!(Value::Array(shown), expected);
    assert_eq!(run["actionsTotal"], 4);
    assert_eq!(actions[0]["actionType"], "core.echo");
    assert_eq!(
        (&actions[0]["parameters"], &actions[0]["outputs"]),
        (&json!({ "n": 1 }), &json!({ "n": 1 }))
    );
    assert_eq!(actions[1]["error"]["code"], "BUSY");
    assert_time(&actions[0]["startTime"]);
    assert_time(&actions[0]["endTime"]);
    assert!(actions[0]["durationMs"].is_u64());

    let events = run["events"].as_array().unwrap();
    assert!(events.len() >= 6, "{run}");
    assert_eq!(
        (&events[0]["seq"], &events[0]["message"]),
        (&json!(1), &json!("the run started"))
    );
    assert!(
        events
            .iter()
            .any(|event| event["category"] == "Action:test.link" && event["level"] == "Warn")
    );
    for event in events {
        assert_time(&event["ts"]);
        assert!(event["data"].is_object() || event["data"].is_string(), "{event}");
    }

    assert_eq!(run["resourcesTotal"], 1);
    let resource = &run["resources"][0];
    assert_eq!((&resource["nodeId"], &resource["attempt"]), (&json!("link"), &json!(2)));
    assert_eq!(
        (&resource["system"], &resource["resourceId"]),
        (&json!("slack"), &json!(id))
    );
    assert_eq!(resource["resourceType"], "message");
    assert_eq!(resource["url"], "https://example.com/m");
    assert_time(&resource["createdAt"]);

    let window = server
        .get(&format!("{base}?include=actions,events&limit=1&offset=1"))
        .await
        .expect(200);
    assert_eq!(window["actions"], json!([actions[1]]));
    assert_eq!(
        (&window["actionsTotal"], &window["eventsTotal"]),
        (&run["actionsTotal"], &run["eventsTotal"])
    );
    assert_eq!(run["eventsTotal"], events.len(), "events are counted, not journal rows");
    for (offset, event) in events.iter().enumerate() {
        let window = format!("{base}?include=events&limit=1&offset={offset}");
        assert_eq!(
            server.get(&window).await.expect(200)["events"],
            json!([event]),
            "{window}"
        );
    }
    let last = format!("{base}?include=events&limit=100&offset={}", events.len() - 2);
    let last = server.get(&last).await.expect(200);
    assert_eq!(last["events"], json!(events[events.len() - 2..]));
    let beyond = server
        .get(&format!("{base}?include=actions&offset=4294967295"))
        .await
        .expect(200);
    assert_eq!(beyond["actions"], json!([]));
    let plain = server.get(&base).await.expect(200);
    assert!(plain.get("actions").is_none() && plain.get("eventsTotal").is_none());
}

#[tokio::test]
async fn events_do_not_show_vars() {
    let settings = Settings {
        vars: json!({ "key": "s3cret" }).as_object().unwrap().clone(),
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    let mut document = echo("guarded");
    document["nodes"][0]["edges"] = json!([
        { "targetNode": "next", "condition": "vars.key === 's3cret' && trigger.go === true" },
        { "targetNode": "next", "condition": "vars.key.missing.deep" },
    ]);
    let next = json!({ "id": "next", "actionType": "core.echo", "parameters": { "n": 1 } });
    document["nodes"].as_array_mut().unwrap().push(next);
    server.publish(&document).await;
    let asked = json!({ "trigger": { "go": true } });
    let run = server
        .post("/api/v1/workflows/guarded/execute?wait=15s", asked)
        .await
        .expect(200);
    assert_eq!(run["outputs"], json!({ "n": 1 }), "the condition saw it");
    let id = run["id"].as_str().unwrap();
    let events = server.get(&format!("/api/v1/executions/{id}?include=events")).await;
    events.expect(200);
    assert!(
        !events.text.contains("s3cret") && !events.text.contains("\"vars\""),
        "{}",
        events.text
    );
    assert!(events.text.contains("trigger.go"), "{}", events.text);
    let stored = server.store.load(run_id(id)).await.unwrap().unwrap();
    assert!(stored.journal[0].contains("s3cret"), "replay needs it");
}

#[tokio::test]
async fn secrets_in_outputs_are_masked_in_responses() {
    let server = Server::start().await;
    let secret = "s3cret ".repeat(20_000);
    let document = json!({
        "id": "login", "displayName": "Login", "startNode": "login", "contextSnapshot": { "mode": "Full" },
        "nodes": [
            { "id": "login", "actionType": "core.echo", "parameters": { "token": "{{ trigger.t }}", "ok": true },
              "edges": [{ "targetNode": "use" }] },
            { "id": "use", "actionType": "core.echo",
              "parameters": { "access_token": "{{ context.data.login.token }}", "url": "https://a.example/?key=s3cret&n=1" } },
        ]
    });
    server.publish(&document).await;
    let body = json!({ "trigger": { "t": secret } });
    let answer = server.post("/api/v1/workflows/login/execute?wait=15s", body).await;
    let run = answer.expect(200);
    let outputs = json!({ "access_token": "***", "url": "https://a.example/?key=***&n=1" });
    assert_eq!(run["outputs"], outputs);
    assert_eq!(run["contextSnapshot"]["login"], json!({ "token": "***", "ok": true }));
    let id = run["id"].as_str().unwrap();
    let answer = server
        .get(&format!("/api/v1/executions/{id}?include=actions,events"))
        .await;
    let mut shown = answer.expect(200);
    assert_eq!(shown["outputs"], outputs);
    assert_eq!(shown["actions"][0]["outputs"], json!({ "token": "***", "ok": true }));
    assert_eq!(shown["actions"][1]["parameters"], outputs);
    shown["trigger"].take();
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    let stored = server.store.run(run_id(id)).await.unwrap().unwrap();
    let stored: Value = serde_json::from_str(stored.outputs.as_deref().unwrap()).unwrap();
    assert_eq!(stored["access_token"], json!(secret), "later steps see the real one");
}

fn run_id(id: &str) -> fermata_core::RunId {
    fermata_core::RunId(id.parse().unwrap())
}

#[tokio::test]
async fn a_page_of_actions_has_a_limit_in_bytes() {
    let server = Server::start().await;
    let node = |n: usize| {
        let next = json!([{ "targetNode": format!("n{}", n + 1) }]);
        let edges = if n < 4 { next } else { json!([]) };
        json!({ "id": format!("n{n}"), "actionType": "core.echo", "edges": edges,
                "parameters": { "text": "{{ trigger.text }}" } })
    };
    let nodes: Vec<_> = (0..5).map(node).collect();
    let document = json!({ "id": "large", "displayName": "Large", "startNode": "n0", "nodes": nodes });
    server.publish(&document).await;
    let body = json!({ "trigger": { "text": "x".repeat(1_500_000) } });
    let run = server
        .post("/api/v1/workflows/large/execute?wait=20s", body)
        .await
        .expect(200);
    assert_eq!(run["status"], "Succeeded");
    let base = format!("/api/v1/executions/{}?include=actions", run["id"].as_str().unwrap());
    let mut names = Vec::new();
    for _ in 0..5 {
        let answer = server.get(&format!("{base}&offset={}", names.len())).await;
        assert!(answer.text.len() < 12 << 20, "{}", answer.text.len());
        let page = answer.expect(200);
        assert_eq!(page["actionsTotal"], 5);
        let actions = page["actions"].as_array().unwrap();
        assert!(actions.len() < 5, "it does not fit into one response");
        names.extend(
            actions
                .iter()
                .map(|action| action["nodeId"].as_str().unwrap().to_owned()),
        );
        if names.len() == 5 {
            break;
        }
    }
    assert_eq!(names, ["n0", "n1", "n2", "n3", "n4"]);
}

#[tokio::test]
async fn invalid_queries_are_refused() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let id = server.execute("hello", json!({})).await;
    let base = format!("/api/v1/executions/{id}");
    let error = server
        .get(&format!("{base}?include=actions,sauce"))
        .await
        .error(400, "INVALID_PARAMETER");
    let message = error["message"].as_str().unwrap();
    for word in ["sauce", "actions", "events", "resources"] {
        assert!(message.contains(word), "{message}");
    }
    for query in ["limit=0", "limit=1001", "limit=x", "offset=-1", "inlcude=actions"] {
        server
            .get(&format!("{base}?{query}"))
            .await
            .error(400, "INVALID_PARAMETER");
    }
    server.get(&format!("{base}?limit=1000")).await.expect(200);
    server.get("/api/v1/executions/7").await.error(400, "INVALID_ID");
    server.get("/api/v1/executions/%ff").await.error(400, "INVALID_REQUEST");
    let missing = "/api/v1/executions/01890000-0000-7000-8000-000000000000";
    server.get(missing).await.error(404, "EXECUTION_NOT_FOUND");
}

#[tokio::test]
async fn the_list_is_newest_first() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server.publish(&single("broken", "core.fail", json!({}))).await;
    let mut ids = Vec::new();
    for n in 0..10 {
        let tenant = if n % 5 == 0 { "acme" } else { "" };
        ids.insert(0, server.execute("hello", json!({ "tenantId": tenant })).await);
    }
    let failed = server
        .post_nothing("/api/v1/workflows/broken/execute?wait=15s")
        .await
        .expect(200);
    for id in &ids {
        server.until(id, |run| run["status"] == "Succeeded").await;
    }

    for limit in [1, 3, 5, 10, 11] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        for page in 1..=ids.len() + 1 {
            let answer = server
                .get(&format!("/api/v1/executions?workflowId=hello&limit={limit}{cursor}"))
                .await
                .expect(200);
            let items = answer["items"].as_array().unwrap();
            assert!(items.len() <= limit && (page == 1 || !items.is_empty()));
            seen.extend(items.iter().map(|run| run["id"].as_str().unwrap().to_owned()));
            match answer.get("nextCursor").and_then(Value::as_str) {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, ids, "limit {limit}");
    }

    let list =
        async |query: &str| server.get(&format!("/api/v1/executions?{query}")).await.expect(200)["items"].clone();
    assert_eq!(list("").await.as_array().unwrap().len(), 11);
    let broken = list("status=failed").await;
    assert_eq!((broken.as_array().unwrap().len(), &broken[0]["id"]), (1, &failed["id"]));
    assert_eq!(broken[0]["error"]["code"], "FAILED_ON_PURPOSE");
    assert!(broken[0].get("trigger").is_none(), "lists are without payloads");
    assert_eq!(list("tenantId=acme").await.as_array().unwrap().len(), 2);
    assert_eq!(list("workflowId=missing").await, json!([]));
    for cursor in ["x", "00", "zz", "%00"] {
        server
            .get(&format!("/api/v1/executions?cursor={cursor}"))
            .await
            .error(400, "INVALID_CURSOR");
    }
    for query in ["status=Done", "limit=0", "limit=1001", "order=up"] {
        server
            .get(&format!("/api/v1/executions?{query}"))
            .await
            .error(400, "INVALID_PARAMETER");
    }
}
