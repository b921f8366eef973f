//! The audit trail over HTTP: who changed what, as each tenant sees it.

use crate::{
    harness::{LONG, Server, echo},
    keys::{create, send, servers, text},
};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const WORKFLOWS: &str = "/api/v1/workflows";

/// Rows, oldest first.
async fn rows(server: &Server, key: &str, query: &str) -> Vec<Value> {
    let page = send(server, key, Method::GET, &format!("/api/v1/audit{query}"), Value::Null).await;
    let mut rows = page.expect(200)["items"].as_array().unwrap().clone();
    rows.reverse();
    rows
}

fn actions(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["action"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn changes_are_recorded_for_their_tenant() {
    let (_loose, server, root) = servers().await;
    let all = json!(["admin", "workflows:read", "workflows:manage", "workflows:execute"]);
    let mut keys = Vec::new();
    for tenant in ["acme", "other"] {
        let body = json!({ "name": format!("admin of {tenant}"), "scopes": all, "tenantId": tenant });
        keys.push(create(&server, &root, body).await.expect(201));
    }
    let (acme, other) = (text(&keys[0], "key"), text(&keys[1], "key"));
    send(&server, &root, Method::POST, WORKFLOWS, echo("shared"))
        .await
        .expect(201);
    let own = send(&server, &acme, Method::POST, WORKFLOWS, echo("own"))
        .await
        .expect(201);
    send(
        &server,
        &acme,
        Method::POST,
        &format!("{WORKFLOWS}/own/publish"),
        Value::Null,
    )
    .await
    .expect(200);
    send(
        &server,
        &acme,
        Method::POST,
        &format!("{WORKFLOWS}/shared/publish"),
        Value::Null,
    )
    .await
    .error(403, "SHARED_WORKFLOW");
    send(
        &server,
        &acme,
        Method::POST,
        &format!("{WORKFLOWS}/own/disable"),
        Value::Null,
    )
    .await
    .expect(200);
    // What conflicts with the state changes nothing and is no change.
    send(&server, &acme, Method::DELETE, &format!("{WORKFLOWS}/own"), Value::Null)
        .await
        .error(409, "ILLEGAL_LIFECYCLE_TRANSITION");

    let seen = rows(&server, &acme, "").await;
    let expected = [
        "key.create",
        "workflow.create",
        "workflow.publish",
        "workflow.publish",
        "workflow.disable",
    ];
    assert_eq!(actions(&seen)[..5], expected, "{seen:#?}");
    let (created, published, refused) = (&seen[1], &seen[2], &seen[3]);
    assert_eq!(
        (&created["target"], &created["outcome"]),
        (&json!("own"), &json!("done"))
    );
    assert_eq!(
        (&created["who"], &created["tenantId"]),
        (&json!("key:admin of acme"), &json!("acme"))
    );
    assert_eq!(
        created["credential"],
        format!("key:{}", keys[0]["id"].as_str().unwrap())
    );
    assert_eq!(
        (&created["checksumAfter"], &created["address"]),
        (&own["checksum"], &json!("127.0.0.1"))
    );
    assert_eq!(
        (&published["checksumAfter"], &published["checksumBefore"]),
        (&own["checksum"], &Value::Null)
    );
    assert_eq!(
        (&refused["target"], &refused["outcome"]),
        (&json!("shared"), &json!("refused"))
    );

    assert_eq!(
        actions(&rows(&server, &other, "").await),
        ["key.create"],
        "nothing of others"
    );
    assert!(rows(&server, &other, "?tenantId=acme").await.is_empty());
    let of_all = rows(&server, &root, "?action=workflow").await;
    assert_eq!(of_all.len(), 5 - usize::from(seen.len() < 5), "{of_all:#?}");
    assert_eq!(rows(&server, &root, "?tenantId=acme&outcome=refused").await.len(), 1);
    assert_eq!(rows(&server, &root, "?target=own&limit=1").await.len(), 1);
    let text_of_all = rows(&server, &root, "")
        .await
        .iter()
        .map(Value::to_string)
        .collect::<String>();
    for secret in [&root, &acme, &other] {
        assert!(
            !text_of_all.contains(secret.rsplit('_').next().unwrap()),
            "a key is in the audit trail"
        );
    }
    for (query, code) in [
        ("?outcome=maybe", "INVALID_PARAMETER"),
        ("?cursor=x", "INVALID_CURSOR"),
        ("?since=x", "INVALID_PARAMETER"),
    ] {
        send(
            &server,
            &root,
            Method::GET,
            &format!("/api/v1/audit{query}"),
            Value::Null,
        )
        .await
        .error(400, code);
    }
}

/// A run on behalf of another principal has that one only, so the trail has who started it. What an operator does to a tenant's
/// things is in the trail of that tenant.
#[tokio::test]
async fn starts_for_others_and_changes_by_operators_are_recorded() {
    let (loose, server, root) = servers().await;
    loose.publish(&echo("common")).await;
    let mut keys = Vec::new();
    for (name, more) in [("proxy", "workflows:on-behalf-of"), ("plain", "workflows:read")] {
        let scopes = json!(["workflows:execute", more]);
        let body = json!({ "name": name, "scopes": scopes, "tenantId": "acme" });
        // The anonymous caller of the loose server has all scopes.
        keys.push(loose.post("/api/v1/admin/keys", body).await.expect(201));
    }
    let body = json!({ "principal": { "userId": "ada" } });
    let path = format!("{WORKFLOWS}/common/execute");
    let start =
        async |key: &Value, body: &Value| send(&server, &text(key, "key"), Method::POST, &path, body.clone()).await;
    start(&keys[0], &body).await.expect(202);
    start(&keys[0], &json!({ "principal": { "userId": "key:proxy" } }))
        .await
        .expect(202);
    start(&keys[1], &json!({})).await.expect(202);
    start(&keys[1], &body).await.error(403, "OTHER_PRINCIPAL");
    let key = format!("/api/v1/admin/keys/{}", text(&keys[1], "id"));
    let revoked = send(&server, &root, Method::DELETE, &key, Value::Null).await;
    assert_eq!(revoked.status, 204, "{}", revoked.text);

    let seen = rows(&server, &root, "?tenantId=acme").await;
    let expected = [
        "key.create",
        "key.create",
        "execution.start",
        "execution.start",
        "key.revoke",
    ];
    assert_eq!(actions(&seen), expected, "{seen:#?}");
    let brief = |row: &Value| {
        let of = |name: &str| row[name].as_str().unwrap().to_owned();
        (of("who"), of("target"), of("outcome"))
    };
    let row = |who: &str, outcome: &str| (who.to_owned(), "common".to_owned(), outcome.to_owned());
    assert_eq!(brief(&seen[2]), row("key:proxy", "requested"));
    assert_eq!(seen[2]["detail"], "on behalf of ada");
    assert_eq!(brief(&seen[3]), row("key:plain", "refused"));
    assert_eq!(seen[4]["who"], "key:root");
    assert!(
        seen[4]["detail"].as_str().unwrap().starts_with("plain: "),
        "{}",
        seen[4]
    );
}

#[tokio::test]
async fn denied_requests_are_recorded() {
    let (_loose, server, root) = servers().await;
    let body = json!({ "name": "ci", "scopes": ["workflows:read"], "tenantId": "acme" });
    let ci = text(&create(&server, &root, body).await.expect(201), "key");
    send(&server, &ci, Method::POST, WORKFLOWS, echo("w"))
        .await
        .error(403, "INSUFFICIENT_SCOPE");
    let wrong = format!("fk_{}_{}", "0".repeat(32), "0".repeat(64));
    send(&server, &wrong, Method::GET, WORKFLOWS, Value::Null)
        .await
        .error(401, "INVALID_TOKEN");
    let until = Instant::now() + LONG;
    let denied = loop {
        let denied = rows(&server, &root, "?action=request.denied").await;
        if denied.len() == 2 || Instant::now() > until {
            break denied;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let find = |code: &str| {
        denied
            .iter()
            .find(|row| row["detail"] == code)
            .unwrap_or_else(|| panic!("{denied:#?}"))
    };
    let lacks = find("INSUFFICIENT_SCOPE");
    assert_eq!(
        (&lacks["who"], &lacks["target"]),
        (&json!("key:ci"), &json!("POST /api/v1/workflows"))
    );
    assert_eq!(
        (&lacks["outcome"], &lacks["tenantId"]),
        (&json!("refused"), &json!("acme"))
    );
    let invalid = find("INVALID_TOKEN");
    assert_eq!(
        (&invalid["who"], &invalid["credential"]),
        (&json!("none"), &json!("none"))
    );
    // The trail needs the scope `admin`.
    send(&server, &ci, Method::GET, "/api/v1/audit", Value::Null)
        .await
        .error(403, "INSUFFICIENT_SCOPE");
}
