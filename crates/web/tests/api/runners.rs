//! The list of runners.

use crate::harness::{LONG, Server, assert_time, single};
use serde_json::{Value, json};
use tokio::time::Instant;

async fn until(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + LONG;
    loop {
        let page = server.get("/api/v1/runners").await.expect(200);
        if wanted(&page) {
            return page;
        }
        assert!(Instant::now() < deadline, "the condition never held: {page}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_runner_is_listed_with_the_number_of_its_runs() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let page = until(&server, |page| page["items"][0].is_object()).await;
    let runner = &page["items"][0];
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert!(page.get("nextCursor").is_none());
    assert_eq!(runner["pid"], std::process::id());
    assert_eq!(runner["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&runner["role"], &runner["isAlive"]), (&json!("all"), &json!(true)));
    assert!(!runner["host"].as_str().unwrap().is_empty());
    assert_time(&runner["startedAt"]);
    assert_time(&runner["heartbeatAt"]);
    server.execute("gated", json!({})).await;
    let last = server.execute("gated", json!({})).await;
    until(&server, |page| page["items"][0]["executions"] == 2).await;

    let held = format!("/api/v1/executions?runnerId={}", runner["id"].as_str().unwrap());
    let listed = server.get(&held).await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed["items"][0]["runnerId"], runner["id"]);
    let path = format!("/api/v1/executions/{last}");
    assert_eq!(server.get(&path).await.expect(200)["runnerId"], runner["id"]);

    server.gate.add_permits(2);
    until(&server, |page| page["items"][0]["executions"] == 0).await;
    assert_eq!(server.get(&held).await.expect(200)["items"], json!([]));
    assert!(server.get(&path).await.expect(200).get("runnerId").is_none());
}

#[tokio::test]
async fn invalid_list_queries_are_refused() {
    let server = Server::start().await;
    for (query, code) in [
        ("limit=0", "INVALID_PARAMETER"),
        ("cursor=zz", "INVALID_CURSOR"),
        ("role=all", "INVALID_PARAMETER"),
    ] {
        server.get(&format!("/api/v1/runners?{query}")).await.error(400, code);
    }
}
