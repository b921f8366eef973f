//! The OpenAPI document: each of its examples is sent to a server, and the response must match the schema. The page that shows
//! it loads nothing from elsewhere.

use crate::{
    dead_letters::{dead_lettered, strict},
    harness::{Server, echo},
    service::Service,
};
use fermata_runtime::Settings;
use fermata_store::conformance::home::{Home, Kind};
use fermata_web::WebConfig;
use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::sync::Arc;

fn document() -> Value {
    serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap()
}

/// Real ids in place of those of the example: of the path, and of the body.
#[derive(Default)]
struct Real {
    path: Vec<(&'static str, String)>,
    body: Vec<(&'static str, Value)>,
}

impl Real {
    fn id(id: impl ToString) -> Real {
        Real {
            path: vec![("id", id.to_string())],
            body: Vec::new(),
        }
    }
}

const REVIEW: &str = r#"{ "workflow_id": "review", "name": "Review", "version": "1.0.0", "nodes": [
    { "id": "ask", "type": "decision", "executor": { "type": "callback", "config": { "queue": "ask", "title": "Approve?" } } },
    { "id": "greet", "type": "task", "executor": { "type": "callback" } },
    { "id": "finish", "type": "task", "executor": { "type": "callback" } }],
  "edges": [{ "from": "ask", "to": "greet", "metadata": { "outcome": "approve" } },
            { "from": "ask", "to": "finish", "metadata": { "outcome": "reject" } }] }"#;

const JOB: &str = r#"{ "workflow_id": "job", "name": "Job", "version": "1.0.0", "nodes": [
    { "id": "greet", "type": "task", "executor": { "type": "callback", "config": { "queue": "greet" } } }], "edges": [] }"#;

async fn create(server: &Server, document: &str) {
    let document = serde_json::from_str(document).unwrap();
    server.post("/api/v1/workflows", document).await.expect(201);
}

/// Starts a workflow that waits, and returns the execution and its item in the inbox.
async fn waiting(server: &Server, document: &str) -> (String, String) {
    create(server, document).await;
    let workflow = serde_json::from_str::<Value>(document).unwrap()["workflow_id"].clone();
    let body = json!({ "workflow_id": workflow, "inputs": {} });
    let run = server.post("/api/v1/executions", body).await.expect(201)["execution_id"].clone();
    let run = run.as_str().unwrap().to_owned();
    let path = format!("/api/v1/inbox?executionId={run}");
    loop {
        let page = server.get(&path).await.expect(200);
        if let Some(item) = page["items"][0]["id"].as_str() {
            return (run, item.to_owned());
        }
        tokio::task::yield_now().await;
    }
}

/// A task that a worker has claimed.
async fn claimed(server: &Server) -> Real {
    let (_, item) = waiting(server, JOB).await;
    let claim = json!({ "queue": "greet", "worker": "w" });
    let claimed = server.post("/api/v1/inbox/claim", claim).await.expect(200);
    Real {
        body: vec![("leaseId", claimed["items"][0]["leaseId"].clone())],
        ..Real::id(item)
    }
}

async fn dead_letter(server: &Server) -> Real {
    server.publish(&strict("dead")).await;
    let (_, letter) = dead_lettered(server, "dead", "{}").await;
    let put = [("content-type", "application/json")];
    let path = "/api/v1/workflows/dead";
    let lenient = echo("dead").to_string();
    let saved = server.send(Method::PUT, &format!("{path}/draft"), &put, lenient).await;
    saved.expect(200);
    server.post_nothing(&format!("{path}/publish")).await.expect(200);
    Real::id(letter["id"].as_str().unwrap())
}

/// A trigger of the workflow `hello`, and with it a delivery.
async fn trigger(server: &Server) -> Real {
    let new = json!({ "workflowId": "hello", "triggerType": "Webhook" });
    let trigger = server.post("/api/v1/triggers", new).await.expect(201);
    let id = trigger["id"].as_str().unwrap().to_owned();
    let fired = server
        .post(&format!("/api/v1/triggers/{id}/fire"), json!({}))
        .await
        .expect(202);
    let delivery = fired["deliveryId"].as_str().unwrap().to_owned();
    Real {
        path: vec![("trigger", id), ("delivery", delivery)],
        body: Vec::new(),
    }
}

/// Makes what an example needs.
async fn prepare(server: &Server, operation: &str) -> Real {
    let example = document()["paths"]["/api/v1/workflows"]["post"].clone();
    let hello = example["requestBody"]["content"]["application/json"]["example"].clone();
    match operation {
        "createWorkflow" => return Real::default(),
        "deleteWorkflow" => {
            server.post("/api/v1/workflows", hello).await.expect(201);
            return Real::default();
        }
        _ => server.publish(&hello).await,
    }
    let post = async |path: &str, body: Value| server.post(path, body).await;
    match operation {
        "getDraft" | "publishWorkflow" => {
            let headers = [("content-type", "application/json")];
            let path = "/api/v1/workflows/hello/draft";
            server
                .send(Method::PUT, path, &headers, hello.to_string())
                .await
                .expect(200);
        }
        "reactivateWorkflow" => {
            server.post_nothing("/api/v1/workflows/hello/archive").await.expect(200);
        }
        "replaceWorkflow" => {
            create(
                server,
                r#"{ "name": "order", "tasks": { "charge": { "url": "https://shop.example.com" } } }"#,
            )
            .await;
        }
        "changeWorkflow" | "addNode" | "updateNode" | "addEdge" => create(server, REVIEW).await,
        "removeNode" => {
            create(server, REVIEW).await;
            let node = json!({ "id": "archive", "type": "task", "executor": { "type": "callback" } });
            post("/api/v1/workflows/review/nodes", node).await.expect(201);
        }
        "removeEdge" => {
            create(server, REVIEW).await;
            let edge = json!({ "from": "greet", "to": "finish" });
            post("/api/v1/workflows/review/edges", edge).await.expect(201);
        }
        "getExecution" | "streamExecution" | "deleteExecution" | "getHierarchy" | "cancelExecution"
        | "rerunExecution" => {
            let done = post("/api/v1/workflows/hello/execute?wait=10s", json!({}))
                .await
                .expect(200);
            return Real::id(done["id"].as_str().unwrap());
        }
        "getRun" | "cancelRun" => {
            let done = post("/api/v1/workflows/hello/execute?wait=10s", json!({}))
                .await
                .expect(200);
            let id = done["id"].as_str().unwrap().to_owned();
            return Real {
                path: vec![("run_id", id)],
                body: Vec::new(),
            };
        }
        "getBulk" | "listBulkItems" | "startBulk" | "cancelBulk" => {
            post("/api/v1/workflows/hello/execute?wait=10s", json!({}))
                .await
                .expect(200);
            let body = json!({ "action": "delete", "query": "since:1h" });
            let job = post("/api/v1/bulk", body).await.expect(201);
            return Real::id(job["id"].as_str().unwrap());
        }
        "pauseExecution" | "resumeExecution" | "skipNode" => return Real::id(waiting(server, REVIEW).await.0),
        "resendRequest" => {
            let service = Service::start().await;
            let url = format!("{}/answer/202", service.base);
            let posted = json!({ "workflow_id": "posted", "name": "Posted", "version": "1.0.0", "edges": [],
                "nodes": [{ "id": "ask", "type": "task", "executor": { "type": "callback", "config": { "url": url } } }] });
            post("/api/v1/workflows", posted).await.expect(201);
            let body = json!({ "workflow_id": "posted", "inputs": {} });
            let run = post("/api/v1/executions", body).await.expect(201)["execution_id"].clone();
            let run = run.as_str().unwrap().to_owned();
            let is_sent = |run: &Value| {
                let events = run["events"].as_array().unwrap();
                events.iter().any(|event| event["data"]["type"] == "requested")
            };
            server.until(&format!("{run}?include=events"), is_sent).await;
            return Real::id(run);
        }
        "answerNode" | "decide" => return Real::id(waiting(server, REVIEW).await.0),
        "completeNode" => return Real::id(waiting(server, JOB).await.0),
        "getInboxItem" | "answerInboxItem" => return Real::id(waiting(server, REVIEW).await.1),
        "claimTasks" => {
            waiting(server, JOB).await;
        }
        "extendLease" | "completeTask" | "failTask" => return claimed(server).await,
        "completeWait" => {
            let mut wait = echo("wait");
            wait["nodes"][0]["actionType"] = json!("core.wait");
            wait["nodes"][0]["parameters"] = json!({});
            server.publish(&wait).await;
            let run = server.execute("wait", json!({})).await;
            let shown = server
                .get(&format!("/api/v1/executions/{run}?include=waits"))
                .await
                .expect(200);
            let url = shown["waits"][0]["callbackUrl"].as_str().unwrap();
            let token = url.rsplit('/').next().unwrap().to_owned();
            return Real {
                path: vec![("token", token)],
                body: Vec::new(),
            };
        }
        "deleteCallback" => {
            let paths = document()["paths"]["/api/v1/callbacks/register"]["post"].clone();
            let body = paths["requestBody"]["content"]["application/json"]["example"].clone();
            post("/api/v1/callbacks/register", body).await.expect(200);
        }
        "getTrigger" | "updateTrigger" | "deleteTrigger" | "receiveWebhook" | "enableTrigger" | "disableTrigger"
        | "fireTrigger" | "rotateWebhook" | "listDeliveries" | "getDelivery" | "replayDelivery" => {
            return trigger(server).await;
        }
        "getDeadLetter" | "deleteDeadLetter" | "requeueDeadLetter" => return dead_letter(server).await,
        "revokeKey" => {
            let body = json!({ "name": "k", "scopes": ["workflows:read"], "tenantId": "acme" });
            let key = post("/api/v1/admin/keys", body).await.expect(201);
            return Real::id(key["id"].as_str().unwrap());
        }
        _ => {}
    }
    Real::default()
}

/// The path of an example, with its query.
fn path_of(path: &str, operation: &Value, real: &Real) -> String {
    let mut path = path.to_owned();
    let mut query = Vec::new();
    for parameter in operation["parameters"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let Some(example) = parameter.get("example").map(text) else {
            continue;
        };
        match parameter["in"].as_str().unwrap() {
            "path" => {
                let own = real.path.iter().find(|(of, _)| *of == name);
                let value = own.map_or(&example, |(_, value)| value);
                path = path.replace(&format!("{{{name}}}"), value);
            }
            _ => query.push(format!("{name}={example}")),
        }
    }
    match query.is_empty() {
        true => path,
        false => format!("{path}?{}", query.join("&")),
    }
}

/// What a schema of the document accepts.
fn validator(document: &Value, schema: &Value) -> Validator {
    let mut root = schema.as_object().cloned().unwrap_or_else(Map::new);
    root.insert("components".to_owned(), document["components"].clone());
    jsonschema::validator_for(&Value::Object(root)).unwrap()
}

#[tokio::test]
async fn every_example_works_and_its_response_matches_the_schema() {
    let document = document();
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            // The document is the same for all databases, and many new databases take minutes.
            let home = Arc::new(Home::of(Kind::Memory));
            let server = Server::on(&home, Settings::default(), WebConfig::default()).await;
            let real = prepare(&server, id).await;
            let content = &operation["requestBody"]["content"]["application/json"];
            let mut body = content.get("example").cloned();
            for (name, value) in &real.body {
                body.as_mut().unwrap()[name] = value.clone();
            }
            if let Some(body) = &body {
                let accepts = validator(&document, &content["schema"]);
                assert!(
                    accepts.is_valid(body),
                    "{id}: the example does not match its schema: {body}"
                );
            }
            let headers: &[_] = match body {
                Some(_) => &[("content-type", "application/json")],
                None => &[],
            };
            let text = body.map(|body| body.to_string()).unwrap_or_default();
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let answer = server
                .send(method, &path_of(path, operation, &real), headers, text)
                .await;
            let status = answer.status.to_string();
            let described = &operation["responses"][&status];
            assert!(
                described.is_object(),
                "{id}: {status} is not described: {}",
                answer.text
            );
            match described["content"]["application/json"].get("schema") {
                None => assert_eq!(answer.text.is_empty(), described.get("content").is_none(), "{id}"),
                Some(schema) => {
                    let value: Value = serde_json::from_str(&answer.text).unwrap();
                    let problems: Vec<_> = validator(&document, schema)
                        .iter_errors(&value)
                        .map(|error| format!("{} at {}", error, error.instance_path()))
                        .collect();
                    assert!(problems.is_empty(), "{id}: {problems:?}: {value}");
                }
            }
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}

#[tokio::test]
async fn the_page_comes_from_this_server_alone() {
    let server = Server::start().await;
    let mut all = String::new();
    for path in ["/docs", "/docs/page.js", "/docs/page.css"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(
            answer.header("content-security-policy").contains("default-src 'none'"),
            "{path}"
        );
        all.push_str(&answer.text);
    }
    assert!(!all.contains("http://") && !all.contains("https://") && !all.contains("innerHTML"));
    assert!(!all.contains("<script>") && !all.contains("onclick"));
    assert_eq!(server.get("/openapi.json").await.expect(200), document());
    server.get("/docs/other.js").await.error(404, "NOT_FOUND");
}
