//! The documents of the specification, unchanged: the responses to them, and their runs against a service.

use super::{Run, Stage, service::Answer, task_statuses};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const ORDER_PROCESSING: &str = include_str!("../../../../dialects/testdata/runlater/spec-order-processing.json");
const TRIAL_EXPIRY: &str = include_str!("../../../../dialects/testdata/runlater/spec-trial-expiry.json");
const CHECKOUT_FLOW: &str = include_str!("../../../../dialects/testdata/runlater/spec-checkout-flow.json");
const API_CREATE: &str = include_str!("../../../../dialects/testdata/runlater/spec-api-create.json");

/// The address in the documents. Tests replace it with the address of their service.
const SPEC_URL: &str = "https://myapp.com";

fn keys(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

/// Whether the value has the format `2026-02-22T10:00:00Z`.
fn is_time(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    matches!(shape.as_str(), "0000-00-00T00:00:00Z" | "0000-00-00T00:00:00.000Z")
}

fn is_id(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[tokio::test]
async fn spec_documents_are_accepted_unchanged() {
    let stage = Stage::start().await;
    for (text, name, tasks) in [
        (ORDER_PROCESSING, "order-processing", 4),
        (TRIAL_EXPIRY, "trial-expiry", 5),
        (CHECKOUT_FLOW, "checkout-flow", 4),
        (API_CREATE, "order-processing", 2),
    ] {
        let (status, created) = stage.server.send("POST", "/api/v1/workflows", text).await;
        assert_eq!(status, 201, "{created}");
        assert_eq!(keys(&created), ["data"], "{name}");
        let data = &created["data"];
        assert_eq!(
            keys(data),
            ["id", "name", "trigger", "task_count", "enabled", "inserted_at"]
        );
        let shown = (&data["name"], &data["trigger"], &data["task_count"], &data["enabled"]);
        assert_eq!(shown, (&json!(name), &json!("api"), &json!(tasks), &json!(true)));
        assert!(is_id(&data["id"]) && is_time(&data["inserted_at"]), "{data}");

        // "Returns workflow definition with all tasks", under its name and both forms of its id.
        let document: Value = serde_json::from_str(text).expect("JSON");
        let id = data["id"].as_str().expect("an id");
        for reference in [name, id, &format!("wf_{id}")] {
            let (status, found) = stage.server.get(&format!("/api/v1/workflows/{reference}")).await;
            assert_eq!(status, 200, "{found}");
            assert_eq!(found["data"]["tasks"], document["tasks"]);
            assert!(keys(data).iter().all(|key| found["data"][key] == data[key]), "{found}");
        }
        // A name cannot be used again until its workflow is deleted.
        let (status, refused) = stage.server.send("POST", "/api/v1/workflows", text).await;
        assert_eq!((status, &refused["error"]["code"]), (409, &json!("WORKFLOW_EXISTS")));
        let (_, listed) = stage.server.get("/api/v1/workflows").await;
        assert!(listed.to_string().contains(name), "{listed}");
        let (status, _) = stage
            .server
            .send("DELETE", &format!("/api/v1/workflows/{name}"), "")
            .await;
        assert!((200..300).contains(&status), "{status}");
        assert_eq!(stage.server.get(&format!("/api/v1/workflows/{name}")).await.0, 404);
    }
}

/// Adds a document that calls the service of the test, and triggers it.
async fn begin(stage: &Stage, text: &str, trigger: &Value) -> Run {
    let document: Value = serde_json::from_str(&text.replace(SPEC_URL, &stage.service.url)).expect("JSON");
    let name = document["name"].as_str().expect("a name");
    if stage.server.get(&format!("/api/v1/workflows/{name}")).await.0 == 404 {
        stage.server.add(&document).await;
    }
    stage.server.trigger(name, trigger).await
}

/// Checks all keys of an order-processing run whose charge succeeded.
fn check_specified_keys(view: &Value) {
    assert_eq!(keys(view), ["id", "status", "started_at", "finished_at", "tasks"]);
    assert!(is_time(&view["finished_at"]));
    assert_eq!(
        keys(&view["tasks"]),
        ["charge", "send-receipt", "notify-warehouse", "handle-failure"],
        "in the order of the document"
    );
    for name in ["charge", "send-receipt", "notify-warehouse"] {
        let task = &view["tasks"][name];
        assert_eq!(
            keys(task),
            ["status", "status_code", "duration_ms", "started_at", "finished_at"],
            "{name}"
        );
        assert_eq!(
            (&task["status"], &task["status_code"]),
            (&json!("success"), &json!(200))
        );
        assert!(task["duration_ms"].is_u64() && is_time(&task["started_at"]) && is_time(&task["finished_at"]));
    }
    assert_eq!(keys(&view["tasks"]["handle-failure"]), ["status", "skip_reason"]);
}

#[tokio::test]
async fn order_processing_when_the_charge_succeeds() {
    let stage = Stage::start().await;
    stage
        .service
        .script("/api/charge", [Answer::ok(&json!({ "amount": 49.90 }))]);
    // "run in parallel"
    for path in ["/api/send-receipt", "/api/ship"] {
        stage.service.script(path, [Answer::ok(&json!({})).after_calls(3)]);
    }
    let document: Value = serde_json::from_str(&ORDER_PROCESSING.replace(SPEC_URL, &stage.service.url)).expect("JSON");
    let workflow = stage.server.add(&document).await["data"]["id"].clone();
    let (status, triggered) = stage
        .server
        .post(
            "/api/v1/workflows/order-processing/trigger",
            &json!({ "order_id": 123 }),
        )
        .await;
    assert_eq!(status, 201);
    assert_eq!(keys(&triggered), ["data"]);
    let data = &triggered["data"];
    assert_eq!(keys(data), ["run_id", "workflow_id", "status", "started_at"]);
    assert_eq!((&data["workflow_id"], &data["status"]), (&workflow, &json!("running")));
    assert!(is_id(&data["run_id"]) && is_time(&data["started_at"]), "{data}");

    let id = data["run_id"].as_str().expect("an id");
    let run = Run {
        workflow: "order-processing".to_owned(),
        id: id.to_owned(),
    };
    let view = stage.server.over(&run).await;
    assert_eq!((&view["id"], &view["status"]), (&data["run_id"], &json!("completed")));
    assert_eq!(view["started_at"], data["started_at"]);
    check_specified_keys(&view);
    for path in [
        format!("/api/v1/workflows/wf_{}/runs/run_{id}", workflow.as_str().unwrap_or("")),
        run.path(),
    ] {
        assert_eq!(stage.server.get(&path).await, (200, json!({ "data": view })), "{path}");
    }
    let (_, listed) = stage.server.get("/api/v1/workflows/order-processing/runs").await;
    let listed = listed["data"].as_array().expect("a list").clone();
    assert_eq!(listed.len(), 1);
    assert!(
        keys(&listed[0]).iter().all(|key| listed[0][key] == view[key]),
        "{listed:?}"
    );

    assert_eq!(
        stage.service.call("/api/charge", 1).await.json(),
        json!({ "order_id": 123 })
    );
    let receipt = stage.service.call("/api/send-receipt", 1).await.json();
    assert_eq!(receipt, json!({ "order_id": 123, "amount": 49.90 }));
    assert_eq!(stage.service.calls().len(), 3, "no other calls");
}

#[tokio::test]
async fn order_processing_when_the_charge_fails() {
    let stage = Stage::start().await;
    stage.service.script("/api/charge", [Answer::status(402)]);
    let run = begin(&stage, ORDER_PROCESSING, &json!({ "order_id": 123 })).await;
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("charge", "failed"),
        ("send-receipt", "skipped"),
        ("notify-warehouse", "skipped"),
        ("handle-failure", "success"),
    ]);
    assert_eq!((task_statuses(&view), &view["status"]), (expected, &json!("completed")));
    let paths: Vec<String> = stage.service.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/api/charge", "/api/payment-failed"]);
}

/// Triggers the checkout. Returns the run and the path of the callback.
async fn checkout(stage: &Stage, text: &str) -> (Run, String) {
    let run = begin(stage, text, &json!({ "amount": 20, "order_id": "o-7" })).await;
    let call = stage.service.call("/api/create-checkout", 1).await;
    assert_eq!(call.json()["amount"], 20);
    (run, call.callback("callback_url"))
}

#[tokio::test]
async fn checkout_flow_when_it_is_paid() {
    let stage = Stage::start().await;
    let (run, callback) = checkout(&stage, CHECKOUT_FLOW).await;
    let waiting = stage.server.until(&run, "payment-result", "waiting").await;
    assert_eq!(
        (&waiting["status"], task_statuses(&waiting)["fulfill-order"]),
        (&json!("running"), "pending")
    );
    let paid = json!({ "status": "paid", "payment_id": "p-1" });
    assert_eq!(stage.server.post(&callback, &paid).await.0, 200);
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("create-checkout", "success"),
        ("payment-result", "received"),
        ("fulfill-order", "success"),
        ("handle-timeout", "skipped"),
    ]);
    assert_eq!((task_statuses(&view), &view["status"]), (expected, &json!("completed")));
    let fulfilled = stage.service.call("/api/fulfill", 1).await.json();
    assert_eq!(fulfilled, json!({ "order_id": "o-7", "payment_id": "p-1" }));
    assert!(stage.service.calls_of("/api/checkout-expired").is_empty());
}

#[tokio::test]
async fn checkout_flow_when_it_is_declined() {
    let stage = Stage::start().await;
    let (run, callback) = checkout(&stage, CHECKOUT_FLOW).await;
    assert_eq!(
        stage.server.post(&callback, &json!({ "status": "declined" })).await.0,
        200
    );
    let view = stage.server.over(&run).await;
    let statuses = task_statuses(&view);
    assert_eq!(
        (
            statuses["payment-result"],
            statuses["fulfill-order"],
            statuses["handle-timeout"]
        ),
        ("received", "skipped", "skipped")
    );
    assert_eq!(view["status"], "completed");
    assert_eq!(stage.service.calls().len(), 1);
}

#[tokio::test]
async fn checkout_flow_when_the_wait_times_out() {
    let stage = Stage::start().await;
    let brief = CHECKOUT_FLOW.replace("\"1h\"", "\"1s\"");
    assert_ne!(brief, CHECKOUT_FLOW);
    let (run, callback) = checkout(&stage, &brief).await;
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("create-checkout", "success"),
        ("payment-result", "timeout"),
        ("fulfill-order", "skipped"),
        ("handle-timeout", "success"),
    ]);
    assert_eq!((task_statuses(&view), &view["status"]), (expected, &json!("completed")));
    assert_eq!(stage.service.calls_of("/api/checkout-expired").len(), 1);
    assert_eq!(stage.server.post(&callback, &json!({ "status": "paid" })).await.0, 409);
}

#[tokio::test]
async fn checkout_flow_when_it_cannot_be_created() {
    let stage = Stage::start().await;
    stage.service.script("/api/create-checkout", [Answer::status(500)]);
    let (run, callback) = checkout(&stage, CHECKOUT_FLOW).await;
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("create-checkout", "failed"),
        ("payment-result", "skipped"),
        ("fulfill-order", "skipped"),
        ("handle-timeout", "skipped"),
    ]);
    assert_eq!((task_statuses(&view), &view["status"]), (expected, &json!("failed")));
    assert_eq!(
        stage.service.calls_of("/api/create-checkout").len(),
        6,
        "it was retried five times"
    );
    assert_eq!(stage.server.post(&callback, &json!({ "status": "paid" })).await.0, 409);
}

#[tokio::test]
async fn trial_expiry_sleeps_and_continues() {
    let stage = Stage::start().await;
    let run = begin(&stage, TRIAL_EXPIRY, &json!({ "user_id": "u-1" })).await;
    let has_wake_at = |view: &Value| view["tasks"]["wait-13-days"]["wake_at"].is_string();
    let view = stage.server.run_when("the wake-up time", &run, has_wake_at).await;
    let day = |value: &Value| value.as_str().map(|text| text[..10].to_owned());
    let nap = &view["tasks"]["wait-13-days"];
    assert!(
        is_time(&nap["wake_at"]) && day(&nap["wake_at"]) > day(&nap["started_at"]),
        "{nap}"
    );
    assert_eq!(stage.service.calls().len(), 1);
    stage.server.post(&format!("{}/cancel", run.path()), &json!({})).await;
    assert_eq!(stage.server.over(&run).await["status"], "cancelled");

    let quick = TRIAL_EXPIRY.replace("\"13d\"", "\"100ms\"").replace("\"1d\"", "0.1");
    let (status, replaced) = {
        let quick = quick.replace(SPEC_URL, &stage.service.url);
        stage.server.send("PUT", "/api/v1/workflows/trial-expiry", quick).await
    };
    assert_eq!(status, 200, "{replaced}");
    let run = stage.server.trigger("trial-expiry", &json!({ "user_id": "u-2" })).await;
    let view = stage.server.over(&run).await;
    assert!(
        task_statuses(&view).values().all(|status| *status == "success"),
        "{view}"
    );
    let paths: Vec<String> = stage
        .service
        .calls()
        .into_iter()
        .skip(1)
        .map(|call| call.path)
        .collect();
    assert_eq!(paths, ["/api/activate-trial", "/api/send-email", "/api/expire-trial"]);
    let email = stage.service.call("/api/send-email", 1).await.json();
    assert_eq!(email, json!({ "template": "trial-ending-soon", "user_id": "u-2" }));
}

#[tokio::test]
async fn api_example_sends_values_of_the_trigger() {
    let stage = Stage::start().await;
    stage.service.script(
        "/api/charge",
        [
            Answer::status(503),
            Answer::status(503),
            Answer::status(503),
            Answer::ok(&json!({})),
        ],
    );
    let trigger = json!({ "order_id": 123, "email": "alice@example.com", "token": "sk_live_xxx" });
    let run = begin(&stage, API_CREATE, &trigger).await;
    let view = stage.server.over(&run).await;
    assert_eq!(view["status"], "completed");
    let charges = stage.service.calls_of("/api/charge");
    assert_eq!(charges.len(), 4, "its `retries` are 3");
    for charge in charges {
        assert_eq!(
            (charge.header("authorization"), charge.json()),
            ("Bearer sk_live_xxx", json!({ "order_id": 123 }))
        );
    }
    let receipt = stage.service.call("/api/send-receipt", 1).await.json();
    assert_eq!(receipt, json!({ "email": "alice@example.com" }));
    // A task with more than one attempt shows the number of its attempts.
    assert_eq!(view["tasks"]["charge"]["attempt"], 4);
}

/// "Replaces all tasks. Doesn't affect in-flight runs." "Soft delete. In-flight runs continue to completion."
#[tokio::test]
async fn runs_in_flight_continue_after_their_workflow_is_replaced_or_deleted() {
    let stage = Stage::start().await;
    stage
        .service
        .script("/api/charge", [Answer::ok(&json!({ "amount": 1 })).held()]);
    let of_first = begin(&stage, ORDER_PROCESSING, &json!({ "order_id": 1 })).await;
    stage.service.call("/api/charge", 1).await;
    let text = API_CREATE.replace(SPEC_URL, &stage.service.url);
    let (status, replaced) = stage
        .server
        .send("PUT", "/api/v1/workflows/order-processing", text)
        .await;
    assert_eq!(
        (status, &replaced["data"]["task_count"]),
        (200, &json!(2)),
        "{replaced}"
    );
    let trigger = json!({ "order_id": 2, "email": "a@b.example", "token": "t" });
    let of_second = stage.server.trigger("order-processing", &trigger).await;
    stage.service.call("/api/charge", 2).await;
    let (status, _) = stage
        .server
        .send("DELETE", "/api/v1/workflows/order-processing", "")
        .await;
    assert!((200..300).contains(&status), "{status}");
    let (status, _) = stage
        .server
        .post("/api/v1/workflows/order-processing/trigger", &trigger)
        .await;
    assert_eq!(status, 404);

    stage.service.release("/api/charge");
    stage.service.release("/api/charge");
    for (run, tasks) in [(&of_first, 4), (&of_second, 2)] {
        let ended = stage.server.ended(&run.id).await;
        assert_eq!(ended["status"], "Succeeded");
        let history = stage.server.history(run).await;
        let opened = history.events("opened").len() + history.events("skipped").len();
        assert_eq!(opened, tasks, "each run keeps its version");
    }
    // The name can be used again.
    begin(&stage, CHECKOUT_FLOW, &json!({ "amount": 1 })).await;
    let again = stage.server.send("POST", "/api/v1/workflows", ORDER_PROCESSING).await;
    assert_eq!(again.0, 201, "{}", again.1);
}
