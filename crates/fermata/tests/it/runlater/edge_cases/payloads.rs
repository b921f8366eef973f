//! Templates that cannot be resolved, and responses that are too long.

use super::super::{Stage, service::Answer};
use serde_json::{Value, json};

const LIMIT: usize = 256 * 1024;

/// "If a template path doesn't exist […], the step fails with `status: "template_error"`."
#[tokio::test]
async fn template_resolution_failures() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    let charged = json!({ "orderId": 1, "none": null, "items": [{ "sku": "a" }], "amount": 12.5 });
    stage.service.script("/charge", [Answer::ok(&charged)]);
    stage.service.script("/text", [Answer::text("text/plain", "not JSON")]);
    let view = stage
        .run_tasks(
            json!({
                "charge": { "url": at("/charge") },
                "text": { "url": at("/text") },
                "missing": { "needs": ["charge"], "url": at("/no"),
                             "body": { "a": "{{tasks.charge.body.amount}}", "b": "{{tasks.charge.body.missing_field}}" } },
                "in-url": { "needs": ["charge"], "url": format!("{}/{{{{tasks.charge.body.id}}}}", at("/no")) },
                "in-header": { "needs": ["charge"], "url": at("/no"), "headers": { "x-id": "{{tasks.charge.headers.x-id}}" } },
                "beyond": { "needs": ["charge"], "url": at("/no"), "body": "{{tasks.charge.body.items.1.sku}}" },
                "into-text": { "needs": ["text"], "url": at("/no"), "body": "{{tasks.text.body.field}}" },
                "of-trigger": { "url": at("/no"), "body": "{{trigger.body.user.id}}" },
                "after-missing": { "needs": ["missing"], "url": at("/no") },
                "on-error": { "needs": ["missing"], "if": "tasks.missing.status == 'template_error'", "url": at("/yes"),
                              "body": { "was": "{{tasks.missing.status}}" } },
                "whole": { "needs": ["charge", "text"], "url": at("/yes"),
                           "body": { "text": "{{tasks.text.body}}", "all": "{{tasks.charge.body}}" } },
            }),
            json!({ "user_id": 7 }),
        )
        .await;
    let result = |task: &str| {
        let task = &view["tasks"][task];
        (task["status"].clone(), task["error_message"].clone())
    };
    for (task, path) in [
        ("missing", "tasks.charge.body.missing_field"),
        ("in-url", "tasks.charge.body.id"),
        ("in-header", "tasks.charge.headers.x-id"),
        ("beyond", "tasks.charge.body.items.1.sku"),
        ("into-text", "tasks.text.body.field"),
        ("of-trigger", "trigger.body.user.id"),
    ] {
        let (status, message) = result(task);
        assert_eq!(status, "template_error", "{task}");
        let start = format!("Failed to resolve {{{{{path}}}}}: ");
        assert!(
            message.as_str().is_some_and(|text| text.starts_with(&start)),
            "{task}: {message}"
        );
        assert_eq!(view["tasks"][task].get("status_code"), None, "{task}");
    }
    // "silently sending empty values to external APIs is far more dangerous than failing visibly"
    assert!(stage.service.calls().iter().all(|call| !call.path.starts_with("/no")));
    assert_eq!(result("after-missing"), (json!("skipped"), Value::Null));
    let mut sent: Vec<Value> = stage.service.calls_of("/yes").iter().map(|call| call.json()).collect();
    sent.sort_by_key(Value::to_string);
    assert_eq!(
        sent,
        [
            json!({ "all": charged, "text": "not JSON" }),
            json!({ "was": "template_error" })
        ]
    );
}

/// A JSON text of this many bytes.
fn json_text(bytes: usize) -> String {
    let (start, end) = (r#"{"field":7,"more":""#, r#""}"#);
    format!("{start}{}{end}", "x".repeat(bytes - start.len() - end.len()))
}

/// "`response_body` is truncated to 256 KB […] the body is stored but not parsed as JSON for templating."
#[tokio::test]
async fn response_payload_limits() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    let json = |text: &str| Answer::text("application/json", text);
    stage.service.script("/fits", [json(&json_text(LIMIT))]);
    stage.service.script("/X", [json(&json_text(LIMIT + 1))]);
    let run = stage
        .trigger_tasks(
            json!({
                "fits": { "url": at("/fits") },
                "X": { "url": at("/X") },
                "of-fits": { "needs": ["fits"], "url": at("/yes"), "body": "{{tasks.fits.body.field}}" },
                "of-x": { "needs": ["X"], "url": at("/no"), "body": { "deep": ["{{tasks.X.body.field}}"] } },
                "deeper": { "needs": ["X"], "url": at("/no"), "body": "<{{tasks.X.body.a.b}}>" },
                "whole": { "needs": ["X"], "url": at("/no"), "body": "{{tasks.X.body}}" },
                "code-of-x": { "needs": ["X"], "url": at("/yes"), "body": "{{tasks.X.status_code}}" },
                "if-body": { "needs": ["X"], "if": "tasks.X.body.field == 7", "url": at("/no") },
                "if-code": { "needs": ["X"], "if": "tasks.X.status_code == 200", "url": at("/yes"), "body": "if" },
            }),
            json!({}),
        )
        .await;
    let view = stage.server.over(&run).await;
    let tasks = &view["tasks"];
    assert_eq!(
        (&tasks["X"]["status"], &tasks["X"]["is_truncated"]),
        (&json!("success"), &json!(true))
    );
    assert_eq!(
        (&tasks["fits"]["status"], tasks["fits"].get("is_truncated")),
        (&json!("success"), None)
    );
    for (task, path) in [("of-x", "body.field"), ("deeper", "body.a.b"), ("whole", "body")] {
        let message =
            format!("Cannot read '{path}' because the response from 'X' exceeded the 256KB limit and was truncated");
        assert_eq!(tasks[task]["status"], "template_error", "{task}");
        assert_eq!(tasks[task]["error_message"], message, "{task}");
    }
    assert_eq!(tasks["if-body"]["status"], "skipped");
    assert!(stage.service.calls_of("/no").is_empty());
    let mut sent: Vec<String> = stage
        .service
        .calls_of("/yes")
        .into_iter()
        .map(|call| call.body)
        .collect();
    sent.sort();
    assert_eq!(sent, ["200", "7", "if"]);

    let history = stage.server.history(&run).await;
    let actions = history.0["actions"].as_array().expect("actions");
    let kept = actions
        .iter()
        .find(|action| action["nodeId"] == "X")
        .expect("X is recorded");
    let body = kept["outputs"]["body"]
        .as_str()
        .expect("text, because it was not parsed");
    assert_eq!(
        body,
        &json_text(LIMIT + 1)[..LIMIT],
        "the body is stored up to the limit"
    );
}
