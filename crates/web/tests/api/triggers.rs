//! Triggers over the API: create, change, fire, rotate; requests to webhooks; what strangers learn; deliveries; events.

use crate::harness::{Answer, LONG, Server, echo};
use fermata_runtime::{Secrets, Settings, triggers::TriggerSettings};
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

const JSON: (&str, &str) = ("content-type", "application/json");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
/// The token of webhooks with the scheme `gitlab`, which needs no computation.
const TOKEN: &str = "a-token-of-webhooks";
const SIGNED: (&str, &str) = ("x-gitlab-token", TOKEN);

async fn server() -> Server {
    server_with(TriggerSettings::default()).await
}

async fn server_with(triggers: TriggerSettings) -> Server {
    let secret = ("FERMATA_SECRET_HOOK".to_owned(), TOKEN.to_owned());
    let settings = Settings {
        secrets: Secrets::new([secret], None).into(),
        triggers,
        ..Settings::default()
    };
    let server = Server::with(settings, WebConfig::default()).await;
    server.publish(&echo("hello")).await;
    server
}

async fn create(server: &Server, kind: &str, config: Value) -> Value {
    let body = json!({ "workflowId": "hello", "triggerType": kind, "configJson": config });
    server.post("/api/v1/triggers", body).await.expect(201)
}

fn path_of(trigger: &Value) -> String {
    format!("/api/v1/triggers/{}", trigger["id"].as_str().unwrap())
}

/// The path of a webhook's URL.
fn webhook(trigger: &Value) -> String {
    let url = trigger["webhookUrl"].as_str().unwrap();
    url.strip_prefix("http://127.0.0.1:7070").unwrap_or(url).to_owned()
}

/// A run once it has ended.
async fn ended(server: &Server, run: &Value) -> Value {
    let is_over = |run: &Value| !matches!(run["status"].as_str(), Some("Pending" | "Running"));
    server.until(run.as_str().unwrap(), is_over).await
}

/// All executions, once there are so many.
async fn executions(server: &Server, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + LONG;
    loop {
        let page = server.get("/api/v1/executions").await.expect(200);
        let items = page["items"].as_array().unwrap();
        if items.len() >= count {
            return items.clone();
        }
        assert!(Instant::now() < deadline, "there are {} executions", items.len());
        tokio::task::yield_now().await;
    }
}

fn signed() -> Value {
    json!({ "signature": { "scheme": "gitlab", "secret": "HOOK" } })
}

/// What a stranger can compare: status, body without what differs in every response, and header names.
fn shape(answer: &Answer) -> (u16, Value, Vec<String>) {
    let mut body: Value = serde_json::from_str(&answer.text).unwrap();
    let error = body["error"].as_object_mut().unwrap();
    error.remove("correlationId");
    error.remove("timestamp");
    let headers = answer.headers.keys().map(|name| name.as_str().to_owned()).collect();
    (answer.status, body, headers)
}

#[tokio::test]
async fn triggers_are_created_listed_changed_and_deleted() {
    let server = server().await;
    let made = create(
        &server,
        "Schedule",
        json!({ "every": "1h", "startAt": "2100-01-01T00:00:00Z" }),
    )
    .await;
    assert_eq!(
        (&made["triggerType"], &made["isEnabled"]),
        (&json!("Schedule"), &json!(true))
    );
    assert_eq!(made["nextFireTimes"][1], "2100-01-01T01:00:00.000Z");
    let webhook = create(&server, "webhook", json!(r#"{"respond":"accepted"}"#)).await;
    assert_eq!(webhook["configJson"], json!({ "respond": "accepted" }));
    let path = path_of(&made);
    assert_eq!(server.get(&path).await.expect(200), made);
    let listed = async |query: &str| {
        let page = server.get(&format!("/api/v1/triggers?{query}")).await.expect(200);
        page["items"].as_array().unwrap().len()
    };
    for (query, count) in [
        ("", 2),
        ("workflowId=hello&triggerType=schedule", 1),
        ("isEnabled=false", 0),
        ("workflowId=other", 0),
        ("limit=1", 1),
    ] {
        assert_eq!(listed(query).await, count, "{query}");
    }
    let change =
        json!({ "configJson": { "at": "2100-06-01T00:00:00Z" }, "activationCondition": "true", "isEnabled": false });
    let changed = server
        .send(Method::PUT, &path, &[JSON], change.to_string())
        .await
        .expect(200);
    assert_eq!(
        (&changed["isEnabled"], &changed["activationCondition"]),
        (&json!(false), &json!("true"))
    );
    let removed = server
        .send(Method::PUT, &path, &[JSON], r#"{"activationCondition":null}"#)
        .await
        .expect(200);
    assert!(removed.get("activationCondition").is_none(), "{removed}");
    assert_eq!(removed["configJson"], change["configJson"]);
    let enabled = server.post_nothing(&format!("{path}/enable")).await.expect(200);
    assert_eq!(enabled["nextFireTimes"], json!(["2100-06-01T00:00:00.000Z"]));
    server.post_nothing(&format!("{path}/disable")).await.expect(200);
    assert_eq!(listed("isEnabled=false").await, 1);
    assert_eq!(server.send(Method::DELETE, &path, &[], "").await.status, 204);
    server.get(&path).await.error(404, "TRIGGER_NOT_FOUND");
}

#[tokio::test]
async fn invalid_triggers_are_refused_with_all_problems() {
    let server = server().await;
    let body = |kind: &str, config: Value| json!({ "workflowId": "hello", "triggerType": kind, "configJson": config });
    let refused = server
        .post(
            "/api/v1/triggers",
            body(
                "Schedule",
                json!({ "cron": "0 0 30 2 *", "timeZone": "Mars/Base", "jiter": "1s" }),
            ),
        )
        .await;
    let error = refused.error(400, "INVALID_TRIGGER_CONFIG");
    let pointers: Vec<&str> = error["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| detail["pointer"].as_str().unwrap())
        .collect();
    assert_eq!(
        pointers,
        ["/configJson/timeZone", "/configJson/cron", "/configJson/jiter"]
    );
    for (body, code) in [
        (body("Timer", json!({})), "INVALID_REQUEST"),
        (body("Webhook", json!("{")), "INVALID_REQUEST"),
        (json!({ "triggerType": "Manual" }), "INVALID_REQUEST"),
        (
            json!({ "workflowId": "hello", "triggerType": "Manual", "name": "x" }),
            "INVALID_REQUEST",
        ),
    ] {
        server.post("/api/v1/triggers", body).await.error(400, code);
    }
    let mut condition = body("Manual", json!({}));
    condition["activationCondition"] = json!("payload. >");
    server
        .post("/api/v1/triggers", condition)
        .await
        .error(400, "INVALID_TRIGGER_CONFIG");
    let mut other = body("Manual", json!({}));
    other["workflowId"] = json!("none");
    server
        .post("/api/v1/triggers", other)
        .await
        .error(404, "WORKFLOW_NOT_FOUND");
}

#[tokio::test]
async fn fire_times_are_previewed_without_saving() {
    let server = server().await;
    let config = json!({ "cron": "0 9 * * *", "timeZone": "Asia/Kolkata", "startAt": "2100-01-01T00:00:00Z" });
    let shown = server
        .post("/api/v1/triggers/preview", json!({ "configJson": config, "count": 2 }))
        .await
        .expect(200);
    assert_eq!(
        shown["fireTimes"],
        json!(["2100-01-01T03:30:00.000Z", "2100-01-02T03:30:00.000Z"])
    );
    let other = json!({ "triggerType": "event", "configJson": {} });
    server
        .post("/api/v1/triggers/preview", other)
        .await
        .error(400, "INVALID_TRIGGER_CONFIG");
    assert_eq!(server.get("/api/v1/triggers").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_request_starts_an_execution_with_body_and_request() {
    let server = server().await;
    let mut document = echo("seen");
    document["nodes"][0]["parameters"] = json!({ "body": "{{ trigger }}", "request": "{{ request }}" });
    server.publish(&document).await;
    let body = json!({ "workflowId": "seen", "triggerType": "Webhook" });
    let trigger = server.post("/api/v1/triggers", body).await.expect(201);
    let path = format!("{}?source=shop", webhook(&trigger));
    for (headers, body, expected) in [
        (vec![JSON], r#"{"total":5.0}"#, json!({ "total": 5.0 })),
        (vec![JSON], "[1]", json!({ "body": [1] })),
        (vec![FORM], "a=1&b=2", json!({ "a": "1", "b": "2" })),
        (
            vec![("content-type", "text/plain")],
            "hello",
            json!({ "body": "hello" }),
        ),
        (vec![], "", json!({})),
    ] {
        let mut headers = headers;
        headers.extend([
            ("x-kind", "order"),
            ("authorization", "Bearer nothing"),
            ("cookie", "a=b"),
        ]);
        let accepted = server.send(Method::POST, &path, &headers, body).await.expect(202);
        assert_eq!(
            (&accepted["state"], &accepted["isDuplicate"]),
            (&json!("started"), &json!(false)),
            "{accepted}"
        );
        let run = ended(&server, &accepted["executionId"]).await;
        assert_eq!(run["status"], "Succeeded", "{run}");
        let outputs = &run["outputs"];
        assert_eq!(outputs["body"], expected);
        assert_eq!(
            (&outputs["request"]["method"], &outputs["request"]["query"]),
            (&json!("POST"), &json!({ "source": "shop" }))
        );
        assert_eq!(outputs["request"]["headers"]["x-kind"], "order");
        assert!(
            !outputs.to_string().contains("nothing") && outputs["request"]["headers"].get("cookie").is_none(),
            "{outputs}"
        );
    }
}

#[tokio::test]
async fn refused_requests_get_the_same_response() {
    let server = server().await;
    let trigger = create(&server, "Webhook", signed()).await;
    let disabled = create(&server, "Webhook", json!({})).await;
    let event = create(&server, "Event", json!({ "type": "a" })).await;
    server
        .post_nothing(&format!("{}/disable", path_of(&disabled)))
        .await
        .expect(200);
    let unknown = "/api/v1/triggers/5b2cf9a4-17b5-4f0e-9a3e-6d2b1c0e7f11";
    let of_unknown = server.send(Method::POST, unknown, &[JSON], "{}").await;
    of_unknown.error(404, "WEBHOOK_NOT_FOUND");
    let path = webhook(&trigger);
    let wrong = ("x-gitlab-token", "a-token-of-webhook");
    for (path, headers, body) in [
        (path.as_str(), vec![JSON], "{}"),
        (&path, vec![JSON, wrong], "{}"),
        (&path, vec![JSON, SIGNED, SIGNED], "{}"),
        (&path, vec![JSON], "{"),
        (&path, vec![("content-type", "image/png")], "x"),
        (&webhook(&disabled), vec![JSON], "{}"),
        (&path_of(&event), vec![JSON], "{}"),
        ("/api/v1/triggers/none", vec![JSON], "{}"),
        ("/api/v1/triggers/%00", vec![JSON], "{}"),
    ] {
        let answer = server.send(Method::POST, path, &headers, body).await;
        assert_eq!(shape(&answer), shape(&of_unknown), "{path} {headers:?}");
    }
    assert_eq!(server.get("/api/v1/executions").await.expect(200)["items"], json!([]));
    // With the right signature the sender learns what is wrong.
    server
        .send(Method::POST, &path, &[JSON, SIGNED], "{")
        .await
        .error(400, "INVALID_REQUEST");
    let image = [("content-type", "image/png"), SIGNED];
    server
        .send(Method::POST, &path, &image, "x")
        .await
        .error(415, "UNSUPPORTED_MEDIA_TYPE");
    server
        .send(Method::POST, &path, &[JSON, SIGNED], "{}")
        .await
        .expect(202);
    let deep = "[".repeat(101);
    for path in [path.as_str(), unknown] {
        let answer = server.send(Method::POST, path, &[JSON], deep.clone()).await;
        answer.error(400, "BODY_TOO_DEEP");
    }
}

#[tokio::test]
async fn a_repeated_delivery_gets_the_same_execution() {
    let server = server().await;
    let trigger = create(&server, "Webhook", json!({ "dedupe": "trigger.id" })).await;
    let path = webhook(&trigger);
    let first = server.post(&path, json!({ "id": "d1" })).await.expect(202);
    let again = server.post(&path, json!({ "id": "d1" })).await.expect(202);
    assert_eq!(again["executionId"], first["executionId"]);
    assert_eq!(
        (&first["isDuplicate"], &again["isDuplicate"]),
        (&json!(false), &json!(true))
    );
    let other = server.post(&path, json!({ "id": "d2" })).await.expect(202);
    assert_ne!(other["executionId"], first["executionId"]);
}

#[tokio::test]
async fn a_webhook_can_answer_with_the_outputs() {
    let server = server().await;
    let trigger = create(&server, "Webhook", json!({ "respond": "result", "timeout": "30s" })).await;
    let answer = server
        .post(&webhook(&trigger), json!({ "say": "hi" }))
        .await
        .expect(200);
    assert!(answer.to_string().contains("hi"), "{answer}");
    let mut failing = echo("failing");
    failing["nodes"][0]["actionType"] = json!("core.sometimes-fails");
    failing["nodes"][0]["parameters"] = json!({ "failureRate": 1.0 });
    failing["nodes"][0]["policies"] = json!({ "retry": { "maxAttempts": 1 } });
    server.publish(&failing).await;
    let body = json!({ "workflowId": "failing", "triggerType": "Webhook", "configJson": { "respond": "result" } });
    let trigger = server.post("/api/v1/triggers", body).await.expect(201);
    server
        .post(&webhook(&trigger), json!({}))
        .await
        .error(502, "EXECUTION_NOT_SUCCEEDED");
}

#[tokio::test]
async fn slacks_challenge_is_answered() {
    let server = server().await;
    let trigger = create(&server, "Webhook", json!({})).await;
    let challenge = json!({ "type": "url_verification", "challenge": "3eZbrw1a" });
    let answer = server.post(&webhook(&trigger), challenge).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, "3eZbrw1a"));
    assert!(answer.header("content-type").starts_with("text/plain"));
    assert_eq!(server.get("/api/v1/executions").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn a_rotated_webhook_accepts_its_old_url_for_the_grace() {
    let server = server().await;
    let trigger = create(&server, "Webhook", json!({})).await;
    let (path, old) = (path_of(&trigger), webhook(&trigger));
    let rotated = server
        .post(&format!("{path}/rotate"), json!({ "grace": "1h" }))
        .await
        .expect(200);
    let new = webhook(&rotated);
    assert_ne!(new, old);
    assert!(rotated["oldWebhookUrl"].as_str().unwrap().ends_with(&old));
    for path in [&old, &new] {
        server.post(path, json!({})).await.expect(202);
    }
    let rotated = server
        .post(&format!("{path}/rotate"), json!({ "grace": "0s" }))
        .await
        .expect(200);
    for path in [&old, &new] {
        server.post(path, json!({})).await.error(404, "WEBHOOK_NOT_FOUND");
    }
    server.post(&webhook(&rotated), json!({})).await.expect(202);
    server
        .post(&format!("{path}/rotate"), json!({ "grace": "90d" }))
        .await
        .error(400, "INVALID_REQUEST");
}

#[tokio::test]
async fn deliveries_say_what_became_of_them_and_can_be_replayed() {
    let server = server().await;
    let body = json!({ "workflowId": "hello", "triggerType": "Webhook", "activationCondition": "payload.total > 100" });
    let trigger = server.post("/api/v1/triggers", body).await.expect(201);
    let path = path_of(&trigger);
    let small = server.post(&webhook(&trigger), json!({ "total": 5 })).await.expect(202);
    assert_eq!(small["state"], "filtered");
    assert!(
        small.get("reason").is_none() && small.get("executionId").is_none(),
        "{small}"
    );
    let large = server
        .post(&webhook(&trigger), json!({ "total": 500 }))
        .await
        .expect(202);
    assert_eq!(large["state"], "started");
    let page = server
        .get(&format!("{path}/deliveries?state=filtered"))
        .await
        .expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert!(page["items"][0]["saw"].to_string().contains('5'), "{page}");
    let shown = server
        .get(&format!("{path}/deliveries/{}", large["deliveryId"].as_str().unwrap()))
        .await
        .expect(200);
    assert_eq!(
        (&shown["payload"], &shown["request"]["method"]),
        (&json!({ "total": 500 }), &json!("POST"))
    );
    let replay = format!("{path}/deliveries/{}/replay", large["deliveryId"].as_str().unwrap());
    let again = server.post_nothing(&replay).await.expect(202);
    assert_ne!(again["executionId"], large["executionId"]);
    assert_eq!(ended(&server, &again["executionId"]).await["status"], "Succeeded");
    let other = create(&server, "Manual", json!({})).await;
    let elsewhere = format!(
        "{}/deliveries/{}",
        path_of(&other),
        large["deliveryId"].as_str().unwrap()
    );
    server.get(&elsewhere).await.error(404, "DELIVERY_NOT_FOUND");
    server
        .get(&format!("{path}/deliveries?state=lost"))
        .await
        .error(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn a_fire_starts_an_execution_once_per_key() {
    let server = server().await;
    let trigger = create(&server, "Manual", json!({})).await;
    let fire = format!("{}/fire", path_of(&trigger));
    let send = async |key: &str| {
        let headers = [JSON, ("idempotency-key", key)];
        server
            .send(Method::POST, &fire, &headers, r#"{"say":"hi"}"#)
            .await
            .expect(202)
    };
    let (first, again, other) = (send("a").await, send("a").await, send("b").await);
    assert_eq!(first["executionId"], again["executionId"]);
    assert_ne!(first["executionId"], other["executionId"]);
    server.post_nothing("/api/v1/workflows/hello/archive").await.expect(200);
    server.post(&fire, json!({})).await.error(409, "WORKFLOW_NOT_ACTIVE");
}

#[tokio::test]
async fn declared_triggers_are_changed_by_publishing_only() {
    let server = server().await;
    let mut document = echo("declared");
    document["triggers"] = json!([{ "name": "in", "type": "webhook" }]);
    server.publish(&document).await;
    let page = server.get("/api/v1/triggers?workflowId=declared").await.expect(200);
    let trigger = &page["items"][0];
    assert_eq!(trigger["name"], "in");
    server.post(&webhook(trigger), json!({})).await.expect(202);
    let path = path_of(trigger);
    let put = server.send(Method::PUT, &path, &[JSON], r#"{"isEnabled":false}"#).await;
    put.error(409, "DECLARED_TRIGGER");
    server
        .send(Method::DELETE, &path, &[], "")
        .await
        .error(409, "DECLARED_TRIGGER");
}

#[tokio::test]
async fn one_event_starts_every_workflow_that_it_matches() {
    let server = server().await;
    server.publish(&echo("other")).await;
    for (workflow, config) in [
        ("hello", json!({ "type": "order.*" })),
        (
            "other",
            json!({ "type": "order.paid", "source": "/shop/*", "match": { "country": "DE" } }),
        ),
        ("other", json!({ "type": "order.sent" })),
    ] {
        let body = json!({ "workflowId": workflow, "triggerType": "Event", "configJson": config });
        server.post("/api/v1/triggers", body).await.expect(201);
    }
    let event = json!({ "type": "order.paid", "source": "/shop/eu", "id": "1", "data": { "country": "DE" } });
    let answer = server.post("/api/v1/events", event.clone()).await.expect(202);
    let expected = json!([{ "id": "1", "source": "/shop/eu", "isDuplicate": false, "matched": 2 }]);
    assert_eq!(answer["items"], expected);
    let again = server.post("/api/v1/events", event).await.expect(202);
    assert_eq!(again["items"][0]["isDuplicate"], true);
    let runs = executions(&server, 2).await;
    let mut workflows: Vec<&str> = runs.iter().map(|run| run["workflowId"].as_str().unwrap()).collect();
    workflows.sort_unstable();
    assert_eq!(workflows, ["hello", "other"]);
}

#[tokio::test]
async fn events_are_taken_in_every_form() {
    let server = server().await;
    let send = async |headers: &[(&str, &str)], body: &str| {
        server
            .send(Method::POST, "/api/v1/events", headers, body.to_owned())
            .await
    };
    let structured = r#"{"specversion":"1.0","id":"1","source":"s","type":"t","data":1}"#;
    let cloud = ("content-type", "application/cloudevents+json");
    assert_eq!(send(&[cloud], structured).await.expect(202)["items"][0]["id"], "1");
    let batch = ("content-type", "application/cloudevents-batch+json");
    let two = format!(
        "[{structured},{}]",
        structured.replace("\"1\",\"source", "\"2\",\"source")
    );
    let answer = send(&[batch], &two).await.expect(202);
    assert_eq!(
        (&answer["items"][0]["isDuplicate"], &answer["items"][1]["isDuplicate"]),
        (&json!(true), &json!(false))
    );
    let binary = [
        ("ce-specversion", "1.0"),
        ("ce-id", "3"),
        ("ce-source", "s"),
        ("ce-type", "t"),
        ("content-type", "text/plain"),
    ];
    assert_eq!(send(&binary, "hello").await.expect(202)["items"][0]["id"], "3");
    assert_eq!(send(&[JSON], "[]").await.expect(202)["items"], json!([]));
    // A batch with one invalid event stores none of them.
    let half = format!("[{},{{}}]", structured.replace("\"1\",\"source", "\"4\",\"source"));
    send(&[batch], &half).await.error(400, "INVALID_EVENT");
    let whole = structured.replace("\"1\",\"source", "\"4\",\"source");
    assert_eq!(
        send(&[cloud], &whole).await.expect(202)["items"][0]["isDuplicate"],
        false
    );
    for media in ["text/plain", "application/yaml", "application/x-www-form-urlencoded"] {
        let answer = send(&[("content-type", media)], "x").await;
        let error = answer.error(415, "UNSUPPORTED_MEDIA_TYPE");
        let message = error["message"].as_str().unwrap().replace(media, "");
        assert!(message.contains("application/cloudevents+json"), "{message}");
        assert!(!message.contains("yaml"), "{message}");
    }
}

#[tokio::test]
async fn webhooks_can_have_a_path_of_their_own() {
    let triggers = TriggerSettings {
        webhook_base_path: "/hooks".to_owned(),
        ..TriggerSettings::default()
    };
    let server = server_with(triggers).await;
    let trigger = create(&server, "Webhook", json!({})).await;
    let path = webhook(&trigger);
    assert!(path.starts_with("/hooks/"), "{path}");
    server.send(Method::POST, &path, &[FORM], "a=1").await.expect(202);
    server
        .post(&path_of(&trigger), json!({}))
        .await
        .error(404, "WEBHOOK_NOT_FOUND");
}

#[tokio::test]
async fn switched_off_triggers_start_nothing() {
    let triggers = TriggerSettings {
        enable_webhooks: false,
        enable_events: false,
        ..TriggerSettings::default()
    };
    let server = server_with(triggers).await;
    let trigger = create(&server, "Webhook", json!({})).await;
    server
        .post(&webhook(&trigger), json!({}))
        .await
        .error(404, "WEBHOOK_NOT_FOUND");
    server
        .post("/api/v1/events", json!({ "type": "a" }))
        .await
        .error(409, "TRIGGERS_DISABLED");
}
