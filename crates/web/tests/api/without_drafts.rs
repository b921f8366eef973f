//! Workflows without drafts: create, replace and delete as in the Runlater specification.

use crate::{
    harness::{Answer, Server, assert_time, echo},
    service::{Service, keys},
};
use fermata_runtime::Settings;
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

const WORKFLOWS: &str = "/api/v1/workflows";
const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// A task that ends at once, and a task after it.
fn nap(name: &str) -> Value {
    let tasks = json!({ "rest": { "sleep": 0 }, "and-again": { "needs": ["rest"], "sleep": "0s" } });
    json!({ "name": name, "trigger": "api", "tasks": tasks })
}

/// A task whose request waits until the service responds.
fn held(service: &Service, name: &str) -> Value {
    json!({ "name": name, "tasks": { "held": { "url": service.url("/held") } } })
}

fn place(id: &str) -> String {
    format!("{WORKFLOWS}/{id}")
}

async fn put(server: &Server, id: &str, document: &Value) -> Answer {
    server.send(Method::PUT, &place(id), &JSON, document.to_string()).await
}

async fn delete(server: &Server, id: &str) -> Answer {
    server.send(Method::DELETE, &place(id), &[], "").await
}

async fn versions(server: &Server, id: &str) -> Vec<u64> {
    let page = server.get(&format!("{WORKFLOWS}/{id}/versions")).await.expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item["version"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn creating_responds_as_in_the_specification() {
    let server = Server::start().await;
    let created = server.post(WORKFLOWS, nap("order-processing")).await.expect(201);
    assert_eq!(keys(&created), ["data"]);
    let data = &created["data"];
    assert_eq!(
        keys(data),
        ["id", "name", "trigger", "task_count", "enabled", "inserted_at"]
    );
    let uid: Uuid = data["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(uid.get_version_num(), 7);
    assert_eq!(
        (&data["name"], &data["trigger"], &data["task_count"], &data["enabled"]),
        (&json!("order-processing"), &json!("api"), &json!(2), &json!(true))
    );
    assert_time(&data["inserted_at"]);

    assert_eq!(versions(&server, "order-processing").await, [1]);
    let draft = server.get(&format!("{WORKFLOWS}/order-processing/draft")).await;
    draft.error(404, "NO_DRAFT");
    let list = server.get(WORKFLOWS).await.expect(200);
    let row = &list["items"][0];
    assert_eq!(
        (&row["id"], &row["status"], &row["dialect"], &row["currentVersion"]),
        (
            &json!("order-processing"),
            &json!("Active"),
            &json!("runlater"),
            &json!(1)
        )
    );
    assert_eq!(row["createdAt"], data["inserted_at"]);
    let run = server
        .post(&format!("{WORKFLOWS}/order-processing/execute?wait=15s"), json!({}))
        .await;
    assert_eq!(run.expect(200)["status"], "Succeeded");
}

#[tokio::test]
async fn a_name_that_exists_is_a_conflict() {
    let server = Server::start().await;
    server.post(WORKFLOWS, nap("taken")).await.expect(201);
    let mut other = nap("taken");
    other["tasks"] = json!({ "other": { "sleep": 1 } });
    let error = server.post(WORKFLOWS, other).await.error(409, "WORKFLOW_EXISTS");
    assert!(error["message"].as_str().unwrap().contains("`taken`"), "{error}");
    assert_eq!(versions(&server, "taken").await, [1]);

    server.post(WORKFLOWS, echo("draft")).await.expect(201);
    server.post(WORKFLOWS, nap("draft")).await.error(409, "WORKFLOW_EXISTS");
    let there = server.get(&place("draft")).await.expect(200);
    assert_eq!(
        (&there["status"], &there["definition"]),
        (&json!("Draft"), &echo("draft"))
    );
}

#[tokio::test]
async fn invalid_documents_are_refused_and_not_stored() {
    let server = Server::start().await;
    let mut wrong = nap("wrong");
    wrong["tasks"]["and-again"]["needs"] = json!(["rset"]);
    let error = server.post(WORKFLOWS, wrong.clone()).await.error(400, "WFENG005");
    let detail = &error["details"][0];
    assert_eq!(detail["pointer"], "/tasks/and-again/needs/0", "{error}");
    assert_eq!(detail["suggestion"], "did you mean `rest`?");
    server.get(&place("wrong")).await.error(404, "WORKFLOW_NOT_FOUND");

    server.post(WORKFLOWS, nap("wrong")).await.expect(201);
    put(&server, "wrong", &wrong).await.error(400, "WFENG005");
    put(&server, "wrong", &nap("right")).await.error(400, "ID_MISMATCH");
    assert_eq!(versions(&server, "wrong").await, [1]);
}

#[tokio::test]
async fn reading_adds_the_fields_of_the_document() {
    let server = Server::start().await;
    let created = server.post(WORKFLOWS, nap("short")).await.expect(201);
    let read = server.get(&place("short")).await.expect(200);
    let mut expected = created["data"].clone();
    expected["tasks"] = nap("short")["tasks"].clone();
    assert_eq!(read["data"], expected);
    assert_eq!(keys(&read["data"]["tasks"]), ["rest", "and-again"], "in their order");

    let yaml = "# every morning\nname: long\ndescription: Says good morning\ntrigger: cron\n\
                cron_expression: 0 8 * * *\nmax_duration_seconds: 60\ntags: [daily]\nconcurrency: { limit: 1 }\n\
                tasks:\n  z: { sleep: 1m }\n  a: { sleep: 1 }\n";
    let headers = [("content-type", "application/yaml")];
    let created = server.send(Method::POST, WORKFLOWS, &headers, yaml).await.expect(201);
    assert_eq!(
        (&created["data"]["trigger"], &created["data"]["task_count"]),
        (&json!("cron"), &json!(2))
    );
    let read = server.get(&place("long")).await.expect(200)["data"].clone();
    assert_eq!(
        (
            &read["description"],
            &read["cron_expression"],
            &read["max_duration_seconds"]
        ),
        (&json!("Says good morning"), &json!("0 8 * * *"), &json!(60))
    );
    assert_eq!(keys(&read["tasks"]), ["z", "a"]);
    assert_eq!(read["tasks"]["z"], json!({ "sleep": "1m" }));
    // What the specification does not have is shown too, so that a document that is read and sent again is the same.
    assert_eq!(
        (&read["tags"], &read["concurrency"]),
        (&json!(["daily"]), &json!({ "limit": 1 }))
    );
    let uniform = format!("{}?format=definition", place("long"));
    let uniform = server.get(&uniform).await.expect(200);
    assert_eq!((&uniform["source"], &uniform["version"]), (&json!(yaml), &json!(1)));
    assert_eq!(uniform["definition"]["tags"], json!(["daily"]));
}

#[tokio::test]
async fn replacing_makes_the_next_version() {
    let server = Server::start().await;
    let first = server.post(WORKFLOWS, nap("w")).await.expect(201);
    let mut document = nap("w");
    document["tasks"] = json!({ "only": { "sleep": 0 } });
    document["description"] = json!("Changed");
    let replaced = put(&server, "w", &document).await.expect(200);
    let mut expected = first.clone();
    expected["data"]["task_count"] = json!(1);
    assert_eq!(replaced, expected, "the same id and time");
    assert_eq!(versions(&server, "w").await, [2, 1]);
    assert_eq!(
        put(&server, "w", &document).await.expect(200),
        expected,
        "and again changes nothing"
    );
    assert_eq!(versions(&server, "w").await, [2, 1]);

    let read = async |query: &str| server.get(&format!("{WORKFLOWS}/w{query}")).await.expect(200)["data"].clone();
    let now = read("").await;
    assert_eq!((&now["tasks"], &now["task_count"]), (&document["tasks"], &json!(1)));
    assert_eq!(now["description"], "Changed");
    let before = read("?version=1").await;
    assert_eq!(
        (&before["tasks"], &before["task_count"]),
        (&nap("w")["tasks"], &json!(2))
    );
    assert!(before.get("description").is_none(), "{before}");
    let missing = server.get(&format!("{WORKFLOWS}/w?version=3")).await;
    missing.error(404, "VERSION_NOT_FOUND");
}

#[tokio::test]
async fn replacing_leaves_runs_in_flight_alone() {
    let (server, service) = (Server::start().await, Service::start().await);
    server.create(&held(&service, "w")).await;
    let before = server.execute("w", json!({})).await;
    put(&server, "w", &nap("w")).await.expect(200);
    let after = server.execute("w", json!({})).await;
    let run = server.until(&after, |run| run["endedAt"].is_string()).await;
    assert_eq!(
        (&run["status"], &run["workflowVersion"]),
        (&json!("Succeeded"), &json!(2))
    );
    service.state.gate.add_permits(1);
    let run = server.until(&before, |run| run["endedAt"].is_string()).await;
    assert_eq!(
        (&run["status"], &run["workflowVersion"]),
        (&json!("Succeeded"), &json!(1))
    );
    assert_eq!(run["outputs"]["status_code"], 200, "it followed its version");
}

#[tokio::test]
async fn workflows_that_cannot_be_replaced() {
    let server = Server::start().await;
    put(&server, "missing", &nap("missing"))
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
    server.publish(&echo("old")).await;
    server.post(WORKFLOWS, nap("new")).await.expect(201);
    for (id, document) in [("old", nap("old")), ("old", echo("old")), ("new", echo("new"))] {
        let error = put(&server, id, &document).await.error(409, "WORKFLOW_HAS_DRAFTS");
        let message = error["message"].as_str().unwrap();
        let way = format!("PUT /api/v1/workflows/{id}/draft");
        assert!(message.contains(&way) && message.contains("/publish"), "{message}");
    }
    server
        .post_nothing(&format!("{WORKFLOWS}/new/archive"))
        .await
        .expect(200);
    let error = put(&server, "new", &nap("new"))
        .await
        .error(409, "ILLEGAL_LIFECYCLE_TRANSITION");
    assert!(error["message"].as_str().unwrap().contains("reactivate"), "{error}");
    assert_eq!(versions(&server, "new").await, [1]);
    assert_eq!(versions(&server, "old").await, [1]);
}

#[tokio::test]
async fn enabled_in_the_document_controls_new_runs() {
    let server = Server::start().await;
    let mut off = nap("w");
    off["enabled"] = json!(false);
    let created = server.post(WORKFLOWS, off.clone()).await.expect(201);
    assert_eq!(created["data"]["enabled"], false);
    let start = async |way: &str| server.post(&format!("{WORKFLOWS}/w/{way}"), json!({})).await;
    for way in ["execute", "trigger"] {
        let error = start(way).await.error(409, "WORKFLOW_NOT_ACTIVE");
        assert!(error["message"].as_str().unwrap().contains("disabled"), "{error}");
    }
    server.post_nothing(&format!("{WORKFLOWS}/w/enable")).await.expect(200);
    assert_eq!(server.get(&place("w")).await.expect(200)["data"]["enabled"], true);
    start("execute").await.expect(202);
    assert_eq!(put(&server, "w", &off).await.expect(200)["data"]["enabled"], false);
    start("execute").await.error(409, "WORKFLOW_NOT_ACTIVE");
    assert_eq!(put(&server, "w", &nap("w")).await.expect(200)["data"]["enabled"], true);
    start("trigger").await.expect(201);

    let draft = format!("{WORKFLOWS}/w/draft");
    let saved = server.send(Method::PUT, &draft, &JSON, off.to_string()).await;
    saved.expect(200);
    start("execute").await.expect(202);
    server.post_nothing(&format!("{WORKFLOWS}/w/publish")).await.expect(200);
    start("execute").await.error(409, "WORKFLOW_NOT_ACTIVE");
}

#[tokio::test]
async fn deleting_keeps_runs_and_frees_the_name() {
    let settings = Settings {
        max_active_runs: 1,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    let service = Service::start().await;
    let uid = server.create(&held(&service, "w")).await;
    let begun = server.execute("w", json!({})).await;
    let waiting = server.execute("w", json!({})).await;
    assert_eq!(delete(&server, "w").await.status, 204);

    delete(&server, "w").await.error(404, "WORKFLOW_NOT_FOUND");
    for reference in ["w", &uid] {
        let gone = server.get(&place(reference)).await;
        gone.error(404, "WORKFLOW_NOT_FOUND");
        let start = server
            .post(&format!("{WORKFLOWS}/{reference}/execute"), json!({}))
            .await;
        start.error(404, "WORKFLOW_NOT_FOUND");
    }
    assert_eq!(server.get(WORKFLOWS).await.expect(200)["items"], json!([]));
    let run = server.get(&format!("/api/v1/executions/{waiting}")).await.expect(200);
    assert_eq!(run["status"], "Pending");

    let mut again = nap("w");
    again["description"] = json!("The second of this name");
    let other = server.create(&again).await;
    assert_ne!(other, uid);
    assert_eq!(
        versions(&server, "w").await,
        [2],
        "it has its own versions, and numbers that were not used"
    );
    server.get(&place(&uid)).await.error(404, "WORKFLOW_NOT_FOUND");
    let read = server.get(&place(&other)).await.expect(200);
    assert_eq!(read["data"]["description"], again["description"]);

    service.state.gate.add_permits(2);
    for run in [begun, waiting] {
        let run = server.until(&run, |run| run["endedAt"].is_string()).await;
        assert_eq!(
            (&run["status"], &run["workflowId"], &run["workflowVersion"]),
            (&json!("Succeeded"), &json!("w"), &json!(1))
        );
    }
    let run = server.execute("w", json!({})).await;
    let run = server.until(&run, |run| run["endedAt"].is_string()).await;
    assert_eq!(
        (&run["status"], &run["workflowVersion"]),
        (&json!("Succeeded"), &json!(2))
    );
}

#[tokio::test]
async fn a_freed_name_can_be_used_by_any_dialect() {
    let server = Server::start().await;
    server.create(&nap("w")).await;
    let run = server.execute("w", json!({})).await;
    server.until(&run, |run| run["endedAt"].is_string()).await;
    assert_eq!(delete(&server, "w").await.status, 204);
    let draft = server.post(WORKFLOWS, echo("w")).await.expect(201);
    assert_eq!(
        (&draft["status"], draft.get("latestVersion")),
        (&json!("Draft"), None),
        "what was deleted does not count"
    );
    assert_eq!(delete(&server, "w").await.status, 204, "a Draft can be deleted");
    server.publish(&echo("w")).await;
    assert_eq!(versions(&server, "w").await, [2]);
    delete(&server, "w").await.error(409, "ILLEGAL_LIFECYCLE_TRANSITION");
    let old = server.get(&format!("/api/v1/executions/{run}")).await.expect(200);
    assert_eq!(
        (&old["workflowVersion"], &old["status"]),
        (&json!(1), &json!("Succeeded"))
    );
}

#[tokio::test]
async fn every_route_accepts_id_and_uid() {
    let server = Server::start().await;
    let uid = server.create(&nap("w")).await;
    let upper = uid.to_uppercase();
    for name in ["w", "wf_w", &uid, &upper, &format!("wf_{uid}")] {
        let place = place(name);
        assert_eq!(server.get(&place).await.expect(200)["data"]["id"], json!(uid));
        assert_eq!(
            put(&server, name, &nap("w")).await.expect(200)["data"]["id"],
            json!(uid)
        );
        assert_eq!(versions(&server, name).await, [1]);
        let saved = server
            .send(Method::PUT, &format!("{place}/draft"), &JSON, nap("w").to_string())
            .await;
        assert_eq!(saved.expect(200)["id"], "w");
        assert_eq!(server.get(&format!("{place}/draft")).await.expect(200)["id"], "w");
        for command in ["publish", "disable", "enable", "archive", "reactivate"] {
            let done = server.post_nothing(&format!("{place}/{command}")).await.expect(200);
            assert_eq!(done["workflowId"], "w", "{command}");
        }
        let run = server.execute(name, json!({})).await;
        let run = server.get(&format!("/api/v1/executions/{run}")).await.expect(200);
        assert_eq!(run["workflowId"], "w");
    }
    let stranger = Uuid::now_v7();
    for name in ["wf_", "wf_x", &format!("wf_{stranger}"), &stranger.to_string()] {
        server.get(&place(name)).await.error(404, "WORKFLOW_NOT_FOUND");
    }
    server.create(&nap("wf_w")).await;
    let named = server.get(&place("wf_w")).await.expect(200);
    assert_eq!(named["data"]["name"], "wf_w", "an exact name has precedence");
    assert_eq!(delete(&server, &format!("wf_{uid}")).await.status, 204);
    server.get(&place("w")).await.error(404, "WORKFLOW_NOT_FOUND");
}

/// Runs of a deleted workflow are found by its uid, not under the workflow that has its name now.
#[tokio::test]
async fn runs_of_a_deleted_workflow_are_reached_by_its_uid() {
    let server = Server::start().await;
    let service = Service::start().await;
    let old = server.create(&held(&service, "w")).await;
    let execute = async |request_id: &str| {
        let body = json!({ "requestId": request_id });
        server.post(&format!("{WORKFLOWS}/w/execute"), body).await
    };
    let run = execute("r1").await.expect(202)["executionId"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(delete(&server, "w").await.status, 204);
    execute("r1").await.error(404, "WORKFLOW_NOT_FOUND");
    let new = server.create(&nap("w")).await;

    let taken = execute("r1").await.error(409, "WFENG001");
    let message = taken["message"].as_str().unwrap();
    assert!(message.contains(&run) && message.contains("deleted"), "{message}");
    let second = execute("r2").await.expect(202)["executionId"]
        .as_str()
        .unwrap()
        .to_owned();

    let ids = |list: Value, key: &str, id: &str| -> Vec<String> {
        let list = list[key].as_array().unwrap();
        list.iter().map(|run| run[id].as_str().unwrap().to_owned()).collect()
    };
    for (reference, mine, other) in [
        ("w", &second, &run),
        (new.as_str(), &second, &run),
        (old.as_str(), &run, &second),
        (&format!("wf_{old}"), &run, &second),
    ] {
        let runs = format!("{WORKFLOWS}/{reference}/runs");
        assert_eq!(ids(server.get(&runs).await.expect(200), "data", "id"), [mine.as_str()]);
        server.get(&format!("{runs}/{mine}")).await.expect(200);
        server
            .get(&format!("{runs}/{other}"))
            .await
            .error(404, "EXECUTION_NOT_FOUND");
        let listed = format!("/api/v1/executions?workflowId={reference}");
        assert_eq!(
            ids(server.get(&listed).await.expect(200), "items", "id"),
            [mine.as_str()]
        );
    }
    let nothing = server.get("/api/v1/executions?workflowId=missing").await.expect(200);
    assert_eq!(nothing["items"], json!([]));
    let read = server.get(&format!("/api/v1/executions/{run}")).await.expect(200);
    assert_eq!((&read["workflowUid"], &read["workflowId"]), (&json!(old), &json!("w")));
    server.get(&place(&old)).await.error(404, "WORKFLOW_NOT_FOUND");
    let trigger = server.post_nothing(&format!("{WORKFLOWS}/{old}/trigger")).await;
    trigger.error(404, "WORKFLOW_NOT_FOUND");

    let cancel = server
        .post_nothing(&format!("{WORKFLOWS}/{old}/runs/{run}/cancel"))
        .await;
    assert!((200..300).contains(&cancel.status), "{}", cancel.status);
    service.state.gate.add_permits(1);
    let ended = server.until(&run, |run| run["endedAt"].is_string()).await;
    assert_eq!(ended["status"], "Cancelled");
}

/// A name that looks like an id could not be used in paths, so it is refused.
#[tokio::test]
async fn names_that_look_like_ids_are_refused() {
    let server = Server::start().await;
    let id = Uuid::now_v7();
    for name in [
        id.to_string(),
        id.simple().to_string(),
        format!("wf_{id}"),
        format!("run_{id}"),
    ] {
        let refused = server.post(WORKFLOWS, nap(&name)).await.error(400, "WFENG005");
        assert!(refused.to_string().contains("NAME_LOOKS_LIKE_ID"), "{refused}");
    }
    let refused = server.post(WORKFLOWS, echo(&id.to_string())).await;
    let refused = refused.error(400, "WFENG005");
    assert!(refused.to_string().contains("NAME_LOOKS_LIKE_ID"), "{refused}");
    assert_eq!(server.get(WORKFLOWS).await.expect(200)["items"], json!([]));
}
