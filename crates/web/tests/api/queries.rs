//! The query language: `GET /executions?query=…`.

use crate::harness::{Server, echo, single};
use serde_json::{Value, json};

const EXECUTIONS: &str = "/api/v1/executions";

fn encoded(query: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    query.bytes().map(byte).collect()
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items.map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

async fn found(server: &Server, query: &str) -> Vec<String> {
    ids(&server
        .get(&format!("{EXECUTIONS}?query={}", encoded(query)))
        .await
        .expect(200))
}

fn labelled(mut document: Value, tags: Value) -> Value {
    document["tags"] = tags;
    document["searchable"] = json!(["orderId", "customer.id"]);
    document
}

#[tokio::test]
async fn executions_are_found_by_queries() {
    let server = Server::start().await;
    server.publish(&labelled(echo("order-eu"), json!(["eu"]))).await;
    server
        .publish(&labelled(single("order-us", "core.fail", json!({})), json!(["us"])))
        .await;
    server.publish(&echo("invoice")).await;
    let order = |id: Value, customer: &str| json!({ "trigger": { "orderId": id, "customer": { "id": customer } } });
    let one = server.execute("order-eu", order(json!(123), "ann")).await;
    let two = server.execute("order-eu", order(json!("124"), "bob")).await;
    let three = server.execute("order-us", order(json!(123), "bob")).await;
    let four = server.execute("invoice", order(json!(123), "ann")).await;
    for (id, status) in [
        (&one, "Succeeded"),
        (&two, "Succeeded"),
        (&three, "Failed"),
        (&four, "Succeeded"),
    ] {
        server.until(id, |run| run["status"] == status).await;
    }
    for (query, expected) in [
        ("", vec![&four, &three, &two, &one]),
        ("status:failed", vec![&three]),
        ("workflow:order-*", vec![&three, &two, &one]),
        ("workflow:order-* status:succeeded since:1h", vec![&two, &one]),
        ("workflow:order-eu workflow:invoice", vec![&four, &two, &one]),
        ("workflow:*e*", vec![&four, &three, &two, &one]),
        ("workflow:nothing-*", vec![]),
        ("workflow:nothing", vec![]),
        ("tag:eu", vec![&two, &one]),
        ("tag:eu tag:us", vec![&three, &two, &one]),
        ("tag:eu workflow:order-us", vec![]),
        ("tag:none", vec![]),
        ("orderId=123", vec![&three, &one]),
        ("orderId=123 tag:eu", vec![&one]),
        ("orderId=123 orderId=124 customer.id=bob", vec![&three, &two]),
        ("orderId=12", vec![]),
        ("since:1h until:0s", vec![&four, &three, &two, &one]),
        ("since:0s", vec![]),
        ("until:1h", vec![]),
        ("until:2020-01-01", vec![]),
        (one.as_str(), vec![&one]),
        (&format!("{one} run_{}", two.replace('-', "")), vec![&two, &one]),
        (&format!("{one} status:failed"), vec![]),
        ("text:INVOI", vec![&four]),
        (&format!("correlation:{two}"), vec![&two]),
        ("trigger:00000000-0000-4000-8000-000000000000", vec![]),
    ] {
        let expected: Vec<String> = expected.into_iter().cloned().collect();
        assert_eq!(found(&server, query).await, expected, "{query}");
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    for _ in 0..9 {
        let path = format!("{EXECUTIONS}?query={}&limit=1{cursor}", encoded("workflow:order-*"));
        let page = server.get(&path).await.expect(200);
        seen.extend(ids(&page));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, [three, two, one]);
}

/// Other runs of the same workflow are not those of the trigger.
#[tokio::test]
async fn executions_are_found_by_their_trigger() {
    let server = Server::start().await;
    server.publish(&echo("order")).await;
    server.execute("order", json!({})).await;
    let mut fired = Vec::new();
    for _ in 0..2 {
        let manual = json!({ "workflowId": "order", "triggerType": "Manual", "configJson": {} });
        let trigger = server.post("/api/v1/triggers", manual).await.expect(201);
        let trigger = trigger["id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/triggers/{trigger}/fire");
        let run = server.post(&path, json!({})).await.expect(202);
        fired.push((trigger, run["executionId"].as_str().unwrap().to_owned()));
    }
    for (trigger, run) in &fired {
        let query = format!("trigger:{trigger}");
        assert_eq!(found(&server, &query).await, std::slice::from_ref(run), "{query}");
    }
    assert_eq!(
        found(&server, &format!("trigger:{} workflow:other", fired[0].0)).await,
        [""; 0]
    );
}

#[tokio::test]
async fn wrong_queries_are_refused_with_their_place() {
    let server = Server::start().await;
    for (query, start, end, help) in [
        ("status:faild", 7, 12, "did you mean `failed`?"),
        ("tag:eu stauts:failed", 7, 13, "did you mean `status:`?"),
        ("since:soon", 6, 10, "write how long ago"),
        ("succeeded", 0, 9, "did you mean `status:succeeded`?"),
    ] {
        let answer = server.get(&format!("{EXECUTIONS}?query={}", encoded(query))).await;
        let error = answer.error(400, "INVALID_QUERY");
        let detail = &error["details"][0];
        assert_eq!(
            (detail["start"].as_u64(), detail["end"].as_u64()),
            (Some(start), Some(end)),
            "{query}"
        );
        assert!(detail["help"].as_str().unwrap().starts_with(help), "{query}: {detail}");
    }
    let both = format!("{EXECUTIONS}?status=Failed&query={}", encoded("status:failed"));
    server.get(&both).await.error(400, "INVALID_PARAMETER");
    let mixed = format!("{EXECUTIONS}?status=Failed&query={}", encoded("since:1h"));
    server.get(&mixed).await.expect(200);
}
