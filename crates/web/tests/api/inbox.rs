//! The inbox over HTTP: workers, people, decisions and approvals; and the example workers.

use crate::harness::{LONG, Server, echo};
use fermata_core::{
    AnswerRule, Node, RunId, RunOutputs, StoredPlan,
    plan::{Name, PlanBuilder, Source},
};
use fermata_runtime::Request;
use serde_json::{Value, json};
use std::{path::Path, process::Stdio};
use tokio::{process::Command, time::timeout};

const INBOX: &str = "/api/v1/inbox";

fn with_state(plan: &mut StoredPlan) {
    plan.scope.names = vec![Name::new("state", Source::State)];
    plan.outputs = RunOutputs::Changed;
}

fn merges(node: &mut Node) {
    node.merges_into_state = true;
    node.policies.retry.max_attempts = 2;
    node.policies.retry.base_delay_ms = 1;
}

fn plan() -> PlanBuilder {
    PlanBuilder::new("hello").plan(with_state)
}

/// A task in the queue `images`.
fn task() -> PlanBuilder {
    plan()
        .request("resize", "callback", json!({ "queue": "images" }), AnswerRule::State)
        .with(merges)
}

fn decision() -> PlanBuilder {
    let outcomes = ["yes", "no"].map(str::to_owned).to_vec();
    let plan = plan().request("ask", "callback", json!({}), AnswerRule::Outcome { outcomes });
    let plan = plan.with(|node| node.route = fermata_core::Route::Outcome);
    let plan = plan.on("yes", "go").on("no", "stop");
    plan.action("go", "core.echo").action("stop", "core.echo")
}

/// Starts a run of this plan, of a tenant.
async fn start(server: &Server, plan: PlanBuilder, tenant: &str) -> RunId {
    server.publish(&echo("hello")).await;
    let uid = server.engine.reads().workflow("hello").await.unwrap().uid;
    server
        .engine
        .workflows()
        .install(uid, plan.build().unwrap(), 1)
        .unwrap();
    again(server, tenant).await
}

async fn again(server: &Server, tenant: &str) -> RunId {
    with_trigger(server, tenant, json!({ "width": 7 })).await
}

async fn with_trigger(server: &Server, tenant: &str, trigger: Value) -> RunId {
    let request = Request {
        workflow_id: "hello".to_owned(),
        trigger,
        tenant: tenant.to_owned(),
        ..Request::default()
    };
    server.engine.start(request).await.unwrap().run
}

async fn claim(server: &Server, body: Value) -> Vec<Value> {
    let mut body = body;
    let defaults = json!({ "queue": "images", "worker": "w1", "wait": "10s" });
    for (name, value) in defaults.as_object().unwrap() {
        body.as_object_mut().unwrap().entry(name).or_insert(value.clone());
    }
    let answer = server.post(&format!("{INBOX}/claim"), body).await.expect(200);
    answer["items"].as_array().unwrap().clone()
}

/// The only pending item, once there is one.
async fn pending(server: &Server) -> Value {
    for _ in 0..2000 {
        let list = server.get(&format!("{INBOX}?status=pending")).await.expect(200);
        if let Some(item) = list["items"].as_array().and_then(|items| items.first()) {
            return item.clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("nothing is in the inbox");
}

fn path(item: &Value, verb: &str) -> String {
    format!("{INBOX}/{}/{verb}", item["id"].as_str().unwrap())
}

async fn outputs(server: &Server, run: RunId) -> Value {
    let ended = server.engine.wait(run, LONG).await.unwrap().expect("it ends");
    serde_json::from_str(ended.outputs.as_deref().unwrap_or("null")).unwrap()
}

/// The code with which a run failed.
async fn failure(server: &Server, run: RunId) -> Value {
    let ended = server.engine.wait(run, LONG).await.unwrap().expect("it ends");
    let error: Value = serde_json::from_str(ended.error.as_deref().unwrap_or("null")).unwrap();
    error["code"].clone()
}

/// A worker waits for a task, renews its lease, reports progress, and completes it. Everything else is refused.
#[tokio::test]
async fn worker_completes_a_task_under_its_lease() {
    let server = Server::start().await;
    let waiting = claim(&server, json!({ "wait": "15s" }));
    let (run, items) = tokio::join!(start(&server, task(), "acme"), waiting);
    let item = &items[0];
    assert_eq!(
        (&item["state"], &item["kind"]),
        (&json!({ "width": 7 }), &json!("task"))
    );
    assert_eq!((&item["attempt"], &item["nodeId"]), (&json!(1), &json!("resize")));
    assert_eq!(item["idempotencyKey"], format!("{run}:resize:1"));
    let lease = item["leaseId"].clone();
    assert!(claim(&server, json!({ "worker": "w2", "wait": "0s" })).await.is_empty());

    let beat = json!({ "leaseId": lease, "progress": { "done": 3 } });
    server.post(&path(item, "heartbeat"), beat).await.expect(200);
    let shown = server
        .get(&format!("{INBOX}/{}", item["id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(
        (&shown["progress"], &shown["lease"]["worker"]),
        (&json!({ "done": 3 }), &json!("w1"))
    );
    assert_eq!(shown.get("leaseId"), None, "only the worker gets it");

    let state = json!({ "state": { "height": 8 } });
    let node = format!("/api/v1/executions/{run}/nodes/resize");
    server
        .post(&path(item, "answer"), state.clone())
        .await
        .error(409, "ITEM_LEASED");
    server
        .post(&format!("{node}/callback"), state)
        .await
        .error(409, "ITEM_LEASED");
    let other = json!({ "leaseId": run.to_string(), "state": {} });
    server
        .post(&path(item, "complete"), other)
        .await
        .error(409, "LEASE_LAPSED");
    let tenant = json!({ "leaseId": lease, "tenantId": "beta", "state": {} });
    server
        .post(&path(item, "complete"), tenant)
        .await
        .error(404, "ITEM_NOT_FOUND");
    let nameless = json!({ "state": {} });
    server
        .post(&path(item, "complete"), nameless)
        .await
        .error(400, "INVALID_REQUEST");

    let done = json!({ "leaseId": lease, "state": { "height": 8 } });
    let answer = server.post(&path(item, "complete"), done.clone()).await.expect(200);
    assert_eq!(answer, json!({ "data": { "status": "received" } }));
    assert_eq!(outputs(&server, run).await, json!({ "height": 8 }));
    server
        .post(&path(item, "complete"), done)
        .await
        .error(409, "ITEM_CLOSED");
    let beat = json!({ "leaseId": lease });
    server
        .post(&path(item, "heartbeat"), beat)
        .await
        .error(409, "ITEM_CLOSED");
}

/// A worker gets the state as it is, people see it without secrets. The state is that of the node: what earlier nodes wrote, and
/// nothing of later ones.
#[tokio::test]
async fn state_of_a_task_is_that_of_its_node() {
    let server = Server::start().await;
    let two = plan()
        .request("login", "callback", json!({ "queue": "images" }), AnswerRule::State)
        .with(merges)
        .then("use")
        .request("use", "callback", json!({ "queue": "images" }), AnswerRule::State)
        .with(merges);
    let run = start(&server, two, "").await;
    let first = claim(&server, json!({})).await.remove(0);
    assert_eq!(first["state"], json!({ "width": 7 }));
    let state = json!({ "token": "s3cret", "width": 8 });
    let done = json!({ "leaseId": first["leaseId"], "state": state });
    server.post(&path(&first, "complete"), done).await.expect(200);
    let second = claim(&server, json!({})).await.remove(0);
    assert_eq!((&second["nodeId"], &second["state"]), (&json!("use"), &state));
    let show = async |item: &Value| {
        let path = format!("{INBOX}/{}", item["id"].as_str().unwrap());
        server.get(&path).await.expect(200)
    };
    assert_eq!(show(&second).await["state"], json!({ "token": "***", "width": 8 }));
    let shown = show(&first).await;
    assert_eq!(shown["state"], json!({ "width": 7 }));
    assert_eq!(shown["answer"], json!({ "state": { "token": "***", "width": 8 } }));
    let list = server.get(&format!("{INBOX}?status=answered")).await.expect(200);
    assert_eq!(list["items"][0]["answer"], shown["answer"]);
    let done = json!({ "leaseId": second["leaseId"], "state": {} });
    server.post(&path(&second, "complete"), done).await.expect(200);
    server.engine.wait(run, LONG).await.unwrap().expect("it ends");
}

/// The states of one response are limited. Tasks beyond the limit are not lost: the next claim gets them.
#[tokio::test]
async fn claims_return_as_many_large_states_as_fit() {
    let server = Server::start().await;
    start(&server, task(), "").await;
    let large = json!({ "text": "x".repeat(5 << 20) });
    for _ in 0..2 {
        with_trigger(&server, "", large.clone()).await;
    }
    let mut items = 0;
    while items < 3 {
        let list = server.get(&format!("{INBOX}?status=pending")).await.expect(200);
        items = list["items"].as_array().unwrap().len();
    }
    let mut sizes = Vec::new();
    let mut claims = 0;
    while sizes.len() < 3 {
        let tasks = claim(&server, json!({ "limit": 10, "lease": "1h" })).await;
        claims += 1;
        let size = |task: &Value| task["state"]["text"].as_str().map_or(0, str::len);
        assert!(tasks.iter().map(size).sum::<usize>() < 8 << 20, "{claims}");
        sizes.extend(tasks.iter().map(size));
    }
    assert_eq!(claims, 2);
    sizes.sort_unstable();
    assert_eq!(sizes, [0, 5 << 20, 5 << 20]);
}

/// A failed attempt is tried again as a new item with a new key; a lapsed lease is the same item with the same key.
#[tokio::test]
async fn failed_and_lapsed_tasks_are_claimed_again() {
    let server = Server::start().await;
    let run = start(&server, task(), "").await;
    let first = claim(&server, json!({ "lease": "100ms" })).await.remove(0);
    let second = claim(&server, json!({ "worker": "w2" })).await.remove(0);
    assert_eq!(
        (&first["id"], &first["idempotencyKey"]),
        (&second["id"], &second["idempotencyKey"])
    );
    assert_ne!(first["leaseId"], second["leaseId"]);
    let late = json!({ "leaseId": first["leaseId"], "state": {} });
    server
        .post(&path(&first, "complete"), late)
        .await
        .error(409, "LEASE_LAPSED");

    let error = json!({ "code": "BROKEN", "message": "no paper" });
    let failed = json!({ "leaseId": second["leaseId"], "error": error, "retriable": true });
    let answer = server.post(&path(&second, "fail"), failed).await.expect(200);
    assert_eq!(answer["data"]["code"], "BROKEN");
    let third = claim(&server, json!({})).await.remove(0);
    assert_eq!((&third["attempt"], third["id"] == second["id"]), (&json!(2), false));
    let failed = json!({ "leaseId": third["leaseId"], "error": error, "retriable": false });
    server.post(&path(&third, "fail"), failed).await.expect(200);
    assert_eq!(failure(&server, run).await, "BROKEN");
}

/// A decision is answered on its own route; who answered is in the events. An unknown outcome is stored and fails the run.
#[tokio::test]
async fn decisions_take_the_answer_as_it_is() {
    let server = Server::start().await;
    let run = start(&server, decision(), "").await;
    let item = pending(&server).await;
    assert_eq!(
        (&item["kind"], &item["outcomes"]),
        (&json!("decision"), &json!(["yes", "no"]))
    );
    let answer = json!({ "outcome": "yes", "answeredBy": "ann" });
    server.post(&path(&item, "answer"), answer.clone()).await.expect(200);
    server
        .post(&path(&item, "answer"), answer)
        .await
        .error(409, "ITEM_CLOSED");
    server.engine.wait(run, LONG).await.unwrap().expect("it ends");
    let shown = server
        .get(&format!("/api/v1/executions/{run}?include=events"))
        .await
        .expect(200);
    let events = shown["events"].as_array().unwrap();
    let is_answer = |event: &&Value| event["data"]["type"] == "finished" && event["data"]["node"] == "ask";
    let answered = events.iter().find(is_answer).expect("the end of the decision");
    assert_eq!(
        (&answered["data"]["answeredBy"], &answered["data"]["chosen"]),
        (&json!("ann"), &json!("yes"))
    );
    assert!(answered["data"]["answeredAt"].is_string(), "{answered}");

    let run = again(&server, "").await;
    let item = pending(&server).await;
    let route = format!("/api/v1/executions/{run}/decisions/ask");
    server.get(&route).await.error(405, "METHOD_NOT_ALLOWED");
    let answer = server.post(&route, json!({ "outcome": "perhaps" })).await.expect(200);
    assert_eq!(answer["data"]["code"], "UNKNOWN_OUTCOME");
    assert_eq!(failure(&server, run).await, "UNKNOWN_OUTCOME");
    server
        .post(&route, json!({ "outcome": "yes" }))
        .await
        .error(409, "ITEM_CLOSED");
    let shown = server
        .get(&format!("{INBOX}/{}", item["id"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(shown["status"], "answered");
}

/// A task is completed by its node, also as failed. A node that does not wait cannot be answered.
#[tokio::test]
async fn nodes_are_completed_by_name() {
    let server = Server::start().await;
    let run = start(&server, task(), "").await;
    pending(&server).await;
    let node = |node: &str| format!("/api/v1/executions/{run}/nodes/{node}/complete");
    let done = json!({ "status": "COMPLETED", "outputs": { "height": 9 } });
    let unknown = server.post(&node("other"), done.clone()).await;
    let unknown = unknown.error(404, "NODE_NOT_WAITING");
    assert!(
        unknown["message"].as_str().unwrap().contains("no such node"),
        "{unknown}"
    );
    server
        .post(&node("resize"), json!({ "status": "DONE" }))
        .await
        .error(400, "INVALID_REQUEST");
    server.post(&node("resize"), done).await.expect(200);
    assert_eq!(outputs(&server, run).await, json!({ "height": 9 }));
}

/// An approval refuses an unknown outcome and fields that do not fit, and stays open. Text is not an answer of a request.
#[tokio::test]
async fn approvals_refuse_what_does_not_fit() {
    let server = Server::start().await;
    let fields = json!({ "amount": { "type": "number", "required": true } });
    let parameters = json!({ "title": "Pay?", "description": "the bill", "fields": fields });
    let outcomes = vec!["approved".to_owned()];
    let plan = plan().request(
        "approve",
        "core.approval",
        parameters,
        AnswerRule::Approval { outcomes },
    );
    let run = start(&server, plan.with(merges), "").await;
    let item = pending(&server).await;
    assert_eq!(
        (&item["title"], &item["description"], &item["fields"]),
        (&json!("Pay?"), &json!("the bill"), &fields)
    );
    let answer = |outcome: &str, amount: Value| json!({ "outcome": outcome, "fields": { "amount": amount }, "answeredBy": "ann" });
    let refused = server.post(&path(&item, "answer"), answer("perhaps", json!(1))).await;
    refused.error(400, "INVALID_ANSWER");
    let refused = server
        .post(&path(&item, "answer"), answer("approved", json!("much")))
        .await;
    let error: Value = serde_json::from_str(&refused.text).unwrap();
    refused.error(400, "INVALID_ANSWER");
    assert_eq!(error["error"]["details"][0]["pointer"], "/fields/amount");
    let token = server.store.waits(run).await.unwrap().remove(0).token;
    let text = server
        .send(reqwest::Method::POST, &format!("/wh/{token}"), &[], "yes please")
        .await;
    text.error(400, "INVALID_ANSWER");
    assert_eq!(pending(&server).await["id"], item["id"], "it stays open");
    server
        .post(&path(&item, "answer"), answer("approved", json!(12)))
        .await
        .expect(200);
    let output = outputs(&server, run).await;
    assert_eq!(
        (&output["outcome"], &output["answeredBy"]),
        (&json!("approved"), &json!("ann"))
    );
    assert_eq!(output["fields"], json!({ "amount": 12 }));
}

#[tokio::test]
async fn invalid_requests_to_the_inbox_are_refused() {
    let server = Server::start().await;
    for (body, code) in [
        (json!({}), "INVALID_REQUEST"),
        (json!({ "queue": "q" }), "INVALID_REQUEST"),
        (json!({ "queue": "q", "worker": "w", "limit": 0 }), "INVALID_REQUEST"),
        (json!({ "queue": "q", "worker": "w", "limit": 101 }), "INVALID_REQUEST"),
        (
            json!({ "queue": "q", "worker": "w", "lease": "1ms" }),
            "INVALID_REQUEST",
        ),
        (
            json!({ "queue": "q", "worker": "w", "lease": "soon" }),
            "INVALID_REQUEST",
        ),
        (
            json!({ "queue": "q", "worker": "w", "wait": "9h" }),
            "INVALID_PARAMETER",
        ),
        (json!({ "queue": "q", "worker": "w", "other": 1 }), "INVALID_REQUEST"),
    ] {
        server.post(&format!("{INBOX}/claim"), body).await.error(400, code);
    }
    let missing = "0199a7c2-0000-7000-8000-000000000000";
    server
        .get(&format!("{INBOX}?status=open"))
        .await
        .error(400, "INVALID_PARAMETER");
    server
        .get(&format!("{INBOX}/{missing}"))
        .await
        .error(404, "ITEM_NOT_FOUND");
    server.get(&format!("{INBOX}/x")).await.error(400, "INVALID_ID");
    let body = json!({ "leaseId": missing, "state": {} });
    server
        .post(&format!("{INBOX}/{missing}/complete"), body.clone())
        .await
        .error(404, "ITEM_NOT_FOUND");
    server
        .post(&format!("{INBOX}/{missing}/answer"), json!([1]))
        .await
        .error(400, "INVALID_REQUEST");
    let fail = json!({ "leaseId": missing, "error": { "code": 1 } });
    server
        .post(&format!("{INBOX}/{missing}/fail"), fail)
        .await
        .error(400, "INVALID_REQUEST");
    for route in ["nodes/x/callback", "nodes/x/complete", "decisions/x"] {
        let body = match route {
            "nodes/x/complete" => json!({ "status": "COMPLETED" }),
            "decisions/x" => json!({ "outcome": "yes" }),
            _ => body.clone(),
        };
        let route = format!("/api/v1/executions/{missing}/{route}");
        server.post(&route, body).await.error(404, "EXECUTION_NOT_FOUND");
    }
}

/// Runs an example worker until it has done one task.
async fn worker_does_a_task(program: &str, file: &str, expected: &str) {
    let server = Server::start().await;
    let run = start(&server, task(), "").await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/workers")
        .join(file);
    let mut command = Command::new(program);
    command
        .arg(file)
        .args(["--server", &server.base, "--queue", "images", "--tasks", "1"]);
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    for proxy in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(proxy);
    }
    let output = timeout(LONG, command.output())
        .await
        .expect("it ends")
        .expect("it starts");
    let shown = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{shown}");
    let done = outputs(&server, run).await;
    assert_eq!(
        done["resize"],
        json!({ "doneBy": expected, "keys": ["width"] }),
        "{shown}"
    );
}

#[tokio::test]
async fn example_worker_in_python_does_a_task() {
    worker_does_a_task("python3", "worker.py", "python").await;
}

#[tokio::test]
async fn example_worker_in_node_does_a_task() {
    let node = Command::new("node")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .await;
    if node.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        eprintln!("SKIPPED: there is no `node` on this machine, so examples/workers/worker.mjs was NOT tested");
        return;
    }
    worker_does_a_task("node", "worker.mjs", "node").await;
}
