//! Pages of workflows over HTTP: numbers, differences of versions, the editor, and the system page. `browser_workflows.rs` opens them in a
//! browser.

use crate::{
    harness::{Answer, Server, echo, single},
    provider::{Provider, Signer, changed, claims},
};
use fermata_runtime::{Role, Settings};
use fermata_store::conformance::home::Kind;
use fermata_web::Loose;
use reqwest::Method;
use serde_json::{Value, json};

const HTML: (&str, &str) = ("accept", "text/html");
const YAML: (&str, &str) = ("content-type", "application/yaml");
const JSON: (&str, &str) = ("content-type", "application/json");

async fn shown(server: &Server, path: &str) -> String {
    let answer = server.send(Method::GET, path, &[HTML], "").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.text
}

async fn put_draft(server: &Server, document: &Value) -> Answer {
    let path = format!("/api/v1/workflows/{}/draft", document["id"].as_str().unwrap());
    server.send(Method::PUT, &path, &[JSON], document.to_string()).await
}

async fn publish_again(server: &Server, document: &Value) {
    put_draft(server, document).await.expect(200);
    let path = format!("/api/v1/workflows/{}/publish", document["id"].as_str().unwrap());
    server.post_nothing(&path).await.expect(200);
}

fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn lists_and_pages_show_the_numbers_of_a_day() {
    let server = Server::start().await;
    server.publish(&echo("good")).await;
    server
        .publish(&single("mixed", "core.echo", json!({ "x": "{{ trigger.x }}" })))
        .await;
    server.publish(&echo("idle")).await;
    for (workflow, body) in [
        ("good", json!({})),
        ("mixed", json!({ "trigger": { "x": 1 } })),
        ("mixed", json!({ "trigger": { "x": 1 } })),
        ("mixed", json!({})),
    ] {
        let path = format!("/api/v1/workflows/{workflow}/execute?wait=20s");
        server.post(&path, body).await.expect(200);
    }
    server.engine.write_numbers().await.unwrap();
    let list = shown(&server, "/workflows").await;
    let row = |name: &str| {
        let begin = list.find(&format!("href=\"/workflows/{name}\"")).unwrap();
        &list[begin..begin + list[begin..].find("</tr>").unwrap()]
    };
    contains(row("good"), &["100 %", "1 succeeded, 0 failed, 0 cancelled"]);
    contains(row("mixed"), &["66.6 %", "2 succeeded, 1 failed, 0 cancelled", " ms"]);
    assert!(!row("idle").contains('%'), "{}", row("idle"));
    let page = shown(&server, "/workflows/mixed").await;
    contains(
        &page,
        &[
            "66.6 %",
            "Runs that ended",
            "2 succeeded, 1 failed, 0 cancelled",
            "as a table",
        ],
    );
}

#[tokio::test]
async fn versions_are_compared_as_text_and_as_a_graph() {
    let server = Server::start().await;
    let mut document = json!({ "id": "w", "displayName": "W", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "n": 1 }, "edges": [{ "targetNode": "b" }, { "targetNode": "c", "condition": "true" }] },
        { "id": "b", "actionType": "core.echo", "parameters": {} },
        { "id": "c", "actionType": "core.echo", "parameters": {} } ] });
    server.publish(&document).await;
    // `a` changes, `b` goes, `d` is new, an edge gets another condition, and the direction between `c` and `d` is new.
    document["nodes"] = json!([
        { "id": "a", "actionType": "core.echo", "parameters": { "n": 2, "say": "<b>" }, "edges": [{ "targetNode": "c", "condition": "1 < 2" }] },
        { "id": "c", "actionType": "core.echo", "parameters": {}, "edges": [{ "targetNode": "d" }] },
        { "id": "d", "actionType": "core.echo", "parameters": {} } ]);
    publish_again(&server, &document).await;
    let text = shown(&server, "/workflows/w/difference?from=1&to=2").await;
    contains(
        &text,
        &[
            "Version 1 → Version 2",
            "data-node=\"a\" role=\"img\" aria-label=\"a changed\"",
            "aria-label=\"b removed\"",
            "aria-label=\"d added\"",
            "edge removed",
            "edge added",
            "edge changed",
            "parameters.n: ",
            "<del>1</del> → <ins>2</ins>",
            "&quot;&lt;b&gt;&quot;",
            "<del>on success, if true</del>",
            "tr class=\"removed\"",
            "tr class=\"added\"",
        ],
    );
    assert!(
        !text.contains("<b>\"") && !text.contains("aria-label=\"c changed\""),
        "{text}"
    );
    // Without parameters: the last two versions.
    assert!(
        shown(&server, "/workflows/w/difference")
            .await
            .contains("Version 1 → Version 2")
    );
    let same = shown(&server, "/workflows/w/difference?from=2&to=2").await;
    contains(&same, &["The texts are equal", "Nodes and edges are the same"]);

    // The other way round there is a cycle of old and new edges; it has a layout all the same.
    document["nodes"] = json!([
        { "id": "a", "actionType": "core.echo", "parameters": { "n": 2, "say": "<b>" }, "edges": [{ "targetNode": "d" }] },
        { "id": "c", "actionType": "core.echo", "parameters": {} },
        { "id": "d", "actionType": "core.echo", "parameters": {}, "edges": [{ "targetNode": "c" }] } ]);
    put_draft(&server, &document).await.expect(200);
    let draft = shown(&server, "/workflows/w/difference?from=2&to=draft").await;
    contains(&draft, &["Version 2 → Draft", "edge removed", "edge added"]);
    assert!(!draft.contains("NaN"), "{draft}");
    for (query, status) in [("from=1&to=7", 404), ("from=x&to=1", 400), ("from=1&to=1&x=1", 400)] {
        let path = format!("/workflows/w/difference?{query}");
        assert_eq!(
            server.send(Method::GET, &path, &[HTML], "").await.status,
            status,
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_check_locates_problems_draws_the_graph_and_stores_nothing() {
    let server = Server::start().await;
    let check = async |source: &str| {
        let answer = server
            .send(Method::POST, "/workflows/new", &[YAML], source.to_owned())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.text
    };
    let good = "id: w\ndisplayName: W\nstartNode: a\nnodes:\n  - id: a\n    actionType: core.echo\n    parameters: { said: '<i>' }\n";
    let text = check(good).await;
    contains(&text, &["No problems", "data-node=\"a\"", "id=\"graph\"", "1 node"]);
    assert!(!text.contains("<i>"), "{text}");
    let text = check(&good.replace("startNode: a", "startNode: b")).await;
    contains(&text, &["data-line=\"3\"", "data-column=\"12\"", "Error"]);
    assert!(!text.contains("id=\"graph\""), "the graph stays: {text}");
    contains(&check("id: [").await, &["data-line=\"1\""]);
    let large = format!("# {}\n{good}", "x".repeat(6 * 1024 * 1024));
    let answer = server.send(Method::POST, "/workflows/new", &[YAML], large).await;
    assert_eq!(answer.status, 413);
    let plain = [("content-type", "text/plain")];
    assert_eq!(
        server.send(Method::POST, "/workflows/new", &plain, good).await.status,
        415
    );
    assert_eq!(server.get("/api/v1/workflows").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_dry_run_shows_the_route_and_exact_outputs() {
    let server = Server::start().await;
    let document = json!({ "id": "w", "displayName": "W", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n }}" },
          "edges": [{ "targetNode": "large", "condition": "trigger.n > 5" }, { "targetNode": "small", "condition": "trigger.n <= 5" }] },
        { "id": "large", "actionType": "core.echo", "parameters": {} },
        { "id": "small", "actionType": "core.echo", "parameters": {} } ] });
    let body = json!({ "document": document.to_string(), "trigger": { "n": 9_007_199_254_740_993_u64 } });
    let answer = server.post("/workflows/new/dry-run", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    contains(
        &answer.text,
        &[
            "id=\"dry-result\"",
            "9007199254740993",
            "edge taken",
            "edge dead",
            "s-skipped",
            "Succeeded",
        ],
    );
    let wrong = json!({ "document": document.to_string().replace("startNode", "start") });
    server
        .post("/workflows/new/dry-run", wrong)
        .await
        .error(400, "WFENG005");
    let stored = json!({ "workflowId": "w" });
    server
        .post("/workflows/new/dry-run", stored)
        .await
        .error(400, "INVALID_REQUEST");
    assert_eq!(server.get("/api/v1/executions").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_new_workflow_does_not_replace_the_draft_of_another() {
    let server = Server::start().await;
    let send = async |document: &Value| {
        let headers = [JSON, ("if-none-match", "*")];
        server
            .send(Method::POST, "/api/v1/workflows", &headers, document.to_string())
            .await
    };
    send(&echo("w")).await.expect(201);
    let other = single("w", "core.echo", json!({ "mine": true }));
    send(&other).await.error(412, "PRECONDITION_FAILED");
    let draft = server.get("/api/v1/workflows/w/draft").await.expect(200);
    assert_eq!(draft["definition"], echo("w"));
}

#[tokio::test]
async fn only_those_who_may_change_a_workflow_see_the_editor_and_the_buttons() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let token = |tenant: &str, scopes: &str| {
        let claims = changed(claims(tenant), "scope", json!(scopes));
        format!("Bearer {}", signer.sign(&claims))
    };
    let send = async |token: &str, method: Method, path: &str, body: String| {
        let headers = [HTML, JSON, ("authorization", token)];
        server.send(method, path, &headers, body).await
    };
    let manager = token("acme", "workflows:read workflows:manage");
    send(&manager, Method::POST, "/api/v1/workflows", echo("w").to_string())
        .await
        .expect(201);
    send(&manager, Method::POST, "/api/v1/workflows/w/publish", String::new())
        .await
        .expect(200);
    let page = send(&manager, Method::GET, "/workflows/w", String::new()).await;
    contains(&page.text, &["/edit\"", "/pause\"", "/archive\""]);
    assert_eq!(
        send(&manager, Method::GET, "/workflows/w/edit", String::new())
            .await
            .status,
        200
    );
    let reader = token("acme", "workflows:read");
    let page = send(&reader, Method::GET, "/workflows/w", String::new()).await;
    assert!(
        page.status == 200 && !page.text.contains("data-post") && !page.text.contains("/edit\""),
        "{}",
        page.text
    );
    for path in ["/workflows/w/edit", "/workflows/new"] {
        assert_eq!(
            send(&reader, Method::GET, path, String::new()).await.status,
            403,
            "{path}"
        );
        assert_eq!(
            send(&reader, Method::POST, path, "{}".to_owned()).await.status,
            403,
            "{path}"
        );
    }
    let foreign = token("other", "workflows:read workflows:manage");
    for path in ["/workflows/w", "/workflows/w/edit", "/workflows/w/difference"] {
        assert_eq!(
            send(&foreign, Method::GET, path, String::new()).await.status,
            404,
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_system_page_shows_numbers_queue_schedules_retention_and_database() {
    let mut settings = Settings::default();
    settings.retention.ages.succeeded = Some(std::time::Duration::from_secs(7 * 86_400));
    let server = Server::with(settings, Default::default()).await;
    let mut scheduled = echo("nightly");
    scheduled["triggers"] = json!([{ "name": "night", "type": "schedule", "config": { "cron": "0 3 * * *" } }]);
    server.publish(&scheduled).await;
    let run = server.execute("nightly", json!({})).await;
    server.until(&run, |run| run["status"] == "Succeeded").await;
    let page = shown(&server, "/system").await;
    contains(
        &page,
        &[
            "Last 24 hours",
            "Runs that ended",
            "Duration",
            "p95",
            "Queue",
            "Nothing waits.",
            "Schedules due next",
            "0 3 * * *",
            "Retention",
            "7 d",
            "for ever",
            match Kind::asked_for() {
                Some(Kind::Postgres) => "PostgreSQL",
                Some(Kind::Sqlite) => "SQLite",
                Some(Kind::Memory) | None => "memory",
            },
        ],
    );
}

#[tokio::test]
async fn the_system_page_shows_what_waits_for_a_runner() {
    // A process without a runner: nothing is claimed.
    let settings = Settings {
        role: Role::Api,
        ..Settings::default()
    };
    let server = Server::with(settings, Default::default()).await;
    server.publish(&echo("waiting")).await;
    for _ in 0..2 {
        server.execute("waiting", json!({})).await;
    }
    let page = shown(&server, "/system").await;
    let queue = page.split("<h2>Queue</h2>").nth(1).unwrap();
    let queue = &queue[..queue.find("</section>").unwrap()];
    contains(
        queue,
        &["2 runs are due", ">waiting</a>", "<td class=\"num\">2</td>", " ago"],
    );
}
