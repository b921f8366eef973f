//! Numbers of executions.

use crate::{
    harness::{Server, echo, single},
    keys::{create, send, servers, text},
};
use reqwest::Method;
use serde_json::{Value, json};

const STATS: &str = "/api/v1/stats";

#[tokio::test]
async fn executions_are_counted_by_workflow() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    server
        .publish(&single("broken", "core.echo", json!({ "x": "{{ trigger.missing }}" })))
        .await;
    for (workflow, count) in [("hello", 3), ("broken", 1)] {
        for _ in 0..count {
            let path = format!("/api/v1/workflows/{workflow}/execute?wait=20s");
            server.post(&path, json!({})).await.expect(200);
        }
    }
    // The minute that is not over counts too. When it ends, its counts are missing for the moment until they are written.
    let mut all_were_seen = false;
    for _ in 0..1000 {
        let now = server.get(STATS).await.expect(200);
        let ended = now["overall"]["ended"].as_u64().unwrap();
        assert!(ended <= 4, "nothing is counted twice: {now}");
        if ended == 4 {
            assert_eq!(now["workflows"][0]["workflowId"], "hello", "{now}");
            assert_eq!(now["workflows"][1]["failed"], 1, "{now}");
            all_were_seen = true;
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(all_were_seen);
    let one = server.get(&format!("{STATS}?workflowId=broken")).await.expect(200);
    assert!(one["overall"]["ended"].as_u64() <= Some(1), "{one}");
    server.engine.write_numbers().await.unwrap();
    // Writing again changes nothing.
    server.engine.write_numbers().await.unwrap();
    let stats = server.get(STATS).await.expect(200);
    let overall = &stats["overall"];
    for (name, value) in [
        ("started", 4),
        ("ended", 4),
        ("succeeded", 3),
        ("failed", 1),
        ("cancelled", 0),
    ] {
        assert_eq!(overall[name], value, "{name}: {stats}");
    }
    assert_eq!(overall["successRate"], 0.75);
    assert!(
        overall["p50Ms"].is_u64() && overall["p95Ms"].as_u64() >= overall["p50Ms"].as_u64(),
        "{stats}"
    );
    let workflows = stats["workflows"].as_array().unwrap();
    let names: Vec<_> = workflows
        .iter()
        .map(|counts| counts["workflowId"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["hello", "broken"]);
    let sum: u64 = stats["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["succeeded"].as_u64().unwrap())
        .sum();
    assert_eq!((sum, &stats["stepMinutes"]), (3, &json!(15)));
    let one = server
        .get(&format!("{STATS}?workflowId=broken&since=1h"))
        .await
        .expect(200);
    assert_eq!(
        (&one["overall"]["ended"], &one["stepMinutes"]),
        (&json!(1), &json!(1)),
        "{one}"
    );
    let none = server.get(&format!("{STATS}?workflowId=unknown")).await.expect(200);
    assert_eq!(
        (&none["overall"]["ended"], &none["workflows"]),
        (&json!(0), &json!([])),
        "{none}"
    );
    for wrong in ["since=0s", "since=32d", "since=soon", "until=1h"] {
        let answer = server.get(&format!("{STATS}?{wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_tenant_sees_its_own_numbers() {
    let (loose, strict, root) = servers().await;
    loose.publish(&echo("hello")).await;
    for (tenant, count) in [("acme", 2), ("other", 1)] {
        let body = json!({ "name": tenant, "scopes": ["workflows:read", "workflows:execute"], "tenantId": tenant });
        let key = text(&create(&strict, &root, body).await.expect(201), "key");
        let path = "/api/v1/workflows/hello/execute?wait=20s";
        for _ in 0..count {
            send(&strict, &key, Method::POST, path, json!({})).await.expect(200);
        }
        loose.engine.write_numbers().await.unwrap();
        for query in ["", "?workflowId=hello"] {
            let own = send(&strict, &key, Method::GET, &format!("{STATS}{query}"), Value::Null)
                .await
                .expect(200);
            assert_eq!(own["overall"]["succeeded"], count, "{tenant}: {own}");
        }
        let foreign = send(
            &strict,
            &key,
            Method::GET,
            &format!("{STATS}?tenantId=third"),
            Value::Null,
        )
        .await;
        assert_eq!(foreign.expect(200)["overall"]["ended"], 0);
    }
    let all = send(&strict, &root, Method::GET, STATS, Value::Null).await.expect(200);
    assert_eq!(all["overall"]["succeeded"], 3, "{all}");
    let of_one = send(
        &strict,
        &root,
        Method::GET,
        &format!("{STATS}?tenantId=other"),
        Value::Null,
    )
    .await;
    assert_eq!(of_one.expect(200)["overall"]["succeeded"], 1);
}
