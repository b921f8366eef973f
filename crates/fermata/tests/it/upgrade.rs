//! Databases of released programs, as their processes left them when they were killed: everything in them is kept, and their
//! runs end.

use crate::support::{Server, eventually};
use fermata_store::conformance::home::{Home, Kind};
use serde_json::{Value, json};
use std::sync::Arc;

const SQLITE: &str = include_str!("upgrades/0.1.0.sqlite.sql");
const POSTGRES: &str = include_str!("upgrades/0.1.0.postgres.sql");

fn ids<'a>(page: &'a Value, field: &str) -> Vec<&'a str> {
    let items = page["items"].as_array().expect("a page");
    items.iter().map(|item| item[field].as_str().expect("an id")).collect()
}

/// The run with a requestId, as lists show it.
fn find<'a>(runs: &'a Value, request: &str, tenant: &str) -> &'a Value {
    let items = runs["items"].as_array().expect("a page");
    let fits = |run: &&Value| {
        run["requestId"].as_str().is_some_and(|id| id.starts_with(request))
            && run["tenantId"].as_str().unwrap_or_default() == tenant
    };
    items
        .iter()
        .find(fits)
        .unwrap_or_else(|| panic!("{request} of `{tenant}`: {runs}"))
}

async fn upgraded(kind: Kind, dump: &str) {
    let home = Arc::new(Home::of(kind));
    if kind == Kind::Postgres {
        home.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    }
    home.execute(dump).await;
    let server = Server::on(&home, &[], &[]);

    let (_, workflows) = server.get("/api/v1/workflows").await;
    let all = ["approve", "ask", "delay", "draft-only", "echo", "nap", "parent"];
    assert_eq!(ids(&workflows, "id"), all, "{workflows}");
    let ask = &workflows["items"][1];
    assert_eq!((&ask["currentVersion"], &ask["tenantId"]), (&json!(2), &Value::Null));
    let (status, draft) = server.get("/api/v1/workflows/ask/draft").await;
    assert_eq!(
        (status, &draft["definition"]["description"]),
        (200, &json!("third")),
        "{draft}"
    );
    let (_, versions) = server.get("/api/v1/workflows/ask/versions").await;
    assert_eq!(versions["items"].as_array().map(Vec::len), Some(2), "{versions}");
    let (_, callbacks) = server.get("/api/v1/callbacks").await;
    assert_eq!(ids(&callbacks, "callback_id"), ["charge"]);

    let (_, runs) = server.get("/api/v1/executions").await;
    assert_eq!(runs["items"].as_array().map(Vec::len), Some(8), "{runs}");
    // A request that was accepted before is known.
    let again = json!({ "requestId": "one", "tenantId": "acme", "trigger": {} });
    let known = find(&runs, "one", "acme")["id"].as_str().unwrap();
    assert_eq!(server.execute("ask", &again).await, known);
    let mut ends = vec![("done", "", json!({ "text": "hi" }))];
    for (request, tenant, node, path, answer) in [
        (
            "first version",
            "",
            "wait",
            "nodes/wait/complete",
            json!({ "status": "COMPLETED", "outputs": { "n": 1 } }),
        ),
        (
            "one",
            "",
            "wait",
            "nodes/wait/complete",
            json!({ "status": "COMPLETED", "outputs": { "n": 2 } }),
        ),
        (
            "one",
            "acme",
            "wait",
            "nodes/wait/complete",
            json!({ "status": "COMPLETED", "outputs": { "n": 3 } }),
        ),
        (
            "fermata:child:",
            "",
            "wait",
            "nodes/wait/complete",
            json!({ "status": "COMPLETED", "outputs": { "n": 4 } }),
        ),
        ("approval", "", "ok", "decisions/ok", json!({ "outcome": "yes" })),
    ] {
        let id = find(&runs, request, tenant)["id"].as_str().unwrap();
        let (status, given) = server.post(&format!("/api/v1/executions/{id}/{path}"), &answer).await;
        assert_eq!(status, 200, "{request} {tenant} {node}: {given}");
        ends.push((request, tenant, Value::Null));
    }
    ends.extend([("parent", "", Value::Null), ("delay", "", Value::Null)]);
    for (request, tenant, outputs) in ends {
        let id = find(&runs, request, tenant)["id"].as_str().unwrap();
        let ended = server.ended(id).await;
        assert_eq!(ended["status"], "Succeeded", "{request} {tenant}: {ended}");
        if !outputs.is_null() {
            assert_eq!(ended["outputs"], outputs);
        }
    }
    // The next version continues the numbers.
    let (status, published) = server.post("/api/v1/workflows/ask/publish", &Value::Null).await;
    assert_eq!((status, &published["version"]), (200, &json!(3)), "{published}");
    eventually("no run that is left", || async {
        let (_, runs) = server.get("/api/v1/executions?status=Running,Pending").await;
        runs["items"].as_array()?.is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn sqlite_database_of_the_first_release_is_upgraded() {
    upgraded(Kind::Sqlite, SQLITE).await;
}

#[tokio::test]
async fn postgres_database_of_the_first_release_is_upgraded() {
    upgraded(Kind::Postgres, POSTGRES).await;
}
