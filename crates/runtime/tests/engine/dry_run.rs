//! Dry runs: the route, exact virtual times, mocks, and no effects.

use fermata_dialects::{Settings as DialectSettings, Stage};
use fermata_runtime::{
    EngineError, Refusal, Secrets, Settings,
    actions::{HttpSettings, Registry},
    check_document,
    dry_run::{DryRun, DryRunNode, DryRunReport, dry_run},
    sandbox::Sandbox,
};
use serde_json::{Value, json};
use std::{net::TcpListener, time::Duration};

const DAY: u64 = 24 * 3600 * 1000;

async fn attempted(document: &Value, trigger: Value, mocks: Value) -> Result<DryRunReport, EngineError> {
    let http = HttpSettings {
        allow_private_networks: true,
        ..HttpSettings::default()
    };
    let registry = Registry::builtin(&http).unwrap();
    let settings = Settings::default();
    let sandbox = Sandbox::new(settings.sandbox.clone());
    let text = document.to_string();
    let (dialects, secrets) = (DialectSettings::default(), Secrets::default());
    let checked = check_document(
        text.as_bytes(),
        "test.json",
        &dialects,
        &registry,
        Stage::Publish,
        &sandbox,
        &secrets,
    );
    let (_, compiled) = checked.await.unwrap_or_else(|problems| panic!("{problems}"));
    let request = DryRun {
        trigger,
        mocks,
        ..DryRun::default()
    };
    dry_run(&compiled.plan, request, &registry, &settings, sandbox).await
}

async fn run(document: Value, mocks: Value) -> DryRunReport {
    attempted(&document, json!({}), mocks).await.unwrap()
}

fn workflow(nodes: Value) -> Value {
    json!({ "id": "w", "displayName": "W", "startNode": nodes[0]["id"], "nodes": nodes })
}

fn node<'a>(report: &'a DryRunReport, id: &str) -> &'a DryRunNode {
    let found = report.nodes.iter().find(|node| node.node_id == id);
    found.unwrap_or_else(|| panic!("{id} in {report:?}"))
}

fn ids(report: &DryRunReport) -> Vec<&str> {
    report.nodes.iter().map(|node| node.node_id.as_str()).collect()
}

#[tokio::test]
async fn thirteen_days_of_sleep_take_no_time_and_are_exact() {
    let document = workflow(json!([
        { "id": "a", "actionType": "core.echo", "edges": [{ "targetNode": "pause" }] },
        { "id": "pause", "actionType": "core.delay", "parameters": { "durationMs": 13 * DAY }, "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo", "parameters": { "done": true } },
    ]));
    let report = run(document, json!({})).await;
    assert_eq!(
        (report.status.as_str(), report.virtual_duration_ms),
        ("Succeeded", 13 * DAY)
    );
    assert_eq!(report.outputs, json!({ "done": true }));
    assert_eq!(ids(&report), ["a", "pause", "b"]);
    let pause = node(&report, "pause");
    assert_eq!(
        (pause.started_after_ms, pause.ended_after_ms),
        (Some(0), Some(13 * DAY))
    );
    assert_eq!(node(&report, "b").started_after_ms, Some(13 * DAY));
    assert_eq!(node(&report, "a").mock, None, "an action without effects is called");
}

#[tokio::test]
async fn retries_follow_their_policy_on_the_virtual_clock() {
    let retry = json!({ "retry": { "maxAttempts": 3, "baseDelayMs": 60_000, "backoffFactor": 10, "jitter": false } });
    let document = workflow(json!([
        { "id": "call", "actionType": "http.request", "parameters": { "url": "http://127.0.0.1:1/" }, "policies": retry,
          "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo", "parameters": { "got": "{{ context.data.call.body.n }}" } },
    ]));
    let down = json!({ "error": { "code": "DOWN", "message": "not yet" } });
    let up = json!({ "outputs": { "body": { "n": 5.0 } } });
    let report = run(document.clone(), json!({ "call": [down, down, up] })).await;
    assert_eq!(report.outputs, json!({ "got": 5.0 }));
    let call = node(&report, "call");
    assert_eq!((call.attempts, call.ended_after_ms), (3, Some(660_000)));
    let history = call
        .attempt_history
        .iter()
        .map(|attempt| (attempt.status.as_str(), attempt.ended_after_ms));
    let expected = [
        ("RetriableFailure", 0),
        ("RetriableFailure", 60_000),
        ("Succeeded", 660_000),
    ];
    assert_eq!(history.collect::<Vec<_>>(), expected);
    let outputs = call.outputs.as_ref().unwrap();
    assert_eq!(
        outputs["status"], 200,
        "given outputs get the members of real ones: {outputs}"
    );

    let failed = run(document, json!({ "call": down })).await;
    assert_eq!(
        (failed.status.as_str(), failed.virtual_duration_ms),
        ("Failed", 660_000)
    );
    assert_eq!(failed.error.unwrap()["code"], "DOWN");
    let permanent = json!({ "call": { "error": { "code": "NO", "message": "no", "retriable": false } } });
    let document =
        workflow(json!([{ "id": "call", "actionType": "http.request", "parameters": { "url": "http://a.example/" } }]));
    assert_eq!(run(document, permanent).await.nodes[0].attempts, 1);
}

#[tokio::test]
async fn edges_show_their_conditions_values_and_verdicts() {
    let document = workflow(json!([
        { "id": "a", "actionType": "core.echo", "parameters": { "n": 7 }, "routePolicy": "parallel",
          "edges": [{ "targetNode": "big", "condition": "context.data.a.n > 5" },
                    { "targetNode": "small", "condition": "context.data.a.n <= 5" }],
          "onFailure": "sorry" },
        { "id": "big", "actionType": "core.echo" },
        { "id": "small", "actionType": "core.echo" },
        { "id": "sorry", "actionType": "core.echo", "parameters": { "sorry": true } },
    ]));
    let report = run(document.clone(), json!({})).await;
    let edges = &node(&report, "a").edges;
    let shown: Vec<_> = edges
        .iter()
        .map(|edge| (edge.to.as_str(), edge.when, edge.taken, edge.verdict))
        .collect();
    let expected = [
        ("big", "success", true, Some(true)),
        ("small", "success", false, Some(false)),
        ("sorry", "onFailure", false, None),
    ];
    assert_eq!(shown, expected);
    assert!(
        edges[1].values.values().any(|value| *value == json!(7)),
        "{:?}",
        edges[1]
    );
    assert!(edges[1].reason.as_ref().unwrap().contains("is false"), "{:?}", edges[1]);
    let skipped = node(&report, "small");
    assert!(
        skipped.skip_reason.as_ref().unwrap().contains("context.data.a.n <= 5"),
        "{skipped:?}"
    );

    let failing = json!({ "a": { "error": { "code": "X", "message": "x", "retriable": false } } });
    let report = run(document, failing).await;
    assert_eq!(
        (report.status.as_str(), &report.outputs),
        ("Succeeded", &json!({ "sorry": true }))
    );
    let taken: Vec<_> = node(&report, "a").edges.iter().filter(|edge| edge.taken).collect();
    assert_eq!((taken.len(), taken[0].to.as_str()), (1, "sorry"));
}

#[tokio::test]
async fn waits_are_answered_or_time_out() {
    let document = workflow(json!([
        { "id": "payment", "actionType": "core.wait", "parameters": { "timeoutMs": 2 * DAY },
          "edges": [{ "targetNode": "paid", "condition": "context.data.payment.ok" }], "onFailure": "late" },
        { "id": "paid", "actionType": "core.echo", "parameters": { "paid": true } },
        { "id": "late", "actionType": "core.echo", "parameters": { "late": true } },
    ]));
    let answered = run(document.clone(), json!({ "payment": { "callback": { "ok": true } } })).await;
    assert_eq!(
        (&answered.outputs, answered.virtual_duration_ms),
        (&json!({ "paid": true }), 0)
    );
    let late = run(document.clone(), json!({ "payment": { "timeout": true } })).await;
    assert_eq!(
        (&late.outputs, late.virtual_duration_ms),
        (&json!({ "late": true }), 2 * DAY)
    );
    assert_eq!(node(&late, "payment").error.as_ref().unwrap()["code"], "WAIT_TIMEOUT");
    let made = run(document, json!({})).await;
    assert_eq!(made.status, "Succeeded");
    assert!(
        node(&made, "paid").skip_reason.is_some(),
        "without a mock a wait is answered with {{}}"
    );
}

#[tokio::test]
async fn approvals_are_answered_by_mock_or_from_their_schema() {
    let document = workflow(json!([
        { "id": "ask", "actionType": "core.approval",
          "parameters": { "title": "May I?", "outcomes": ["yes", "no"],
                          "fields": { "amount": { "type": "integer", "minimum": 3, "required": true } } },
          "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo",
          "parameters": { "outcome": "{{ context.data.ask.outcome }}", "amount": "{{ context.data.ask.fields.amount }}" } },
    ]));
    let made = run(document.clone(), json!({})).await;
    assert_eq!(made.outputs, json!({ "outcome": "yes", "amount": 3 }));
    let mock = json!({ "ask": { "callback": { "outcome": "no", "fields": { "amount": 9 } } } });
    let given = run(document.clone(), mock).await;
    assert_eq!(given.outputs, json!({ "outcome": "no", "amount": 9 }));
    let wrong = json!({ "ask": { "callback": { "outcome": "maybe" } } });
    let Err(EngineError::Refused(Refusal::InvalidMocks(problems))) = attempted(&document, json!({}), wrong).await
    else {
        panic!("a node refuses its answer");
    };
    assert!(
        problems[0].0 == "/ask" && problems[0].1.contains("yes, no"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn jsondagapi_decisions_and_tasks_follow_the_mocks() {
    let document = json!({
        "workflow_id": "decide", "name": "Decide", "version": "1.0.0",
        "nodes": [
            { "id": "score", "type": "task", "executor": { "type": "callback", "config": { "url": "http://127.0.0.1:1/" } } },
            { "id": "d", "type": "decision", "executor": { "type": "callback", "config": { "timeout_seconds": 60 } } },
            { "id": "yes", "type": "task", "executor": { "type": "http", "config": { "url": "http://127.0.0.1:1/" } } },
            { "id": "no", "type": "task", "executor": { "type": "callback" } },
        ],
        "edges": [
            { "from": "score", "to": "d" },
            { "from": "d", "to": "yes", "metadata": { "outcome": "yes" } },
            { "from": "d", "to": "no", "metadata": { "outcome": "no" } },
        ],
    });
    let mocks = json!({
        "score": { "callback": { "state": { "score": 7 } } },
        "d": { "callback": { "outcome": "no" } },
        "no": { "callback": { "state": { "told": true } } },
    });
    let report = run(document.clone(), mocks).await;
    assert_eq!(
        (report.status.as_str(), &report.outputs),
        ("Succeeded", &json!({ "score": 7, "told": true }))
    );
    let edges = &node(&report, "d").edges;
    let shown: Vec<_> = edges.iter().map(|edge| (edge.outcome.as_deref(), edge.taken)).collect();
    assert_eq!(shown, [(Some("yes"), false), (Some("no"), true)]);
    assert!(
        edges[0].reason.as_ref().unwrap().contains("another outcome"),
        "{edges:?}"
    );
    // Without mocks the first outcome is chosen, and nothing is sent.
    let made = run(document.clone(), json!({})).await;
    assert_eq!(made.status, "Succeeded");
    assert!(node(&made, "no").skip_reason.is_some() && node(&made, "yes").skip_reason.is_none());
    let late = run(document, json!({ "d": { "timeout": true } })).await;
    assert_eq!(late.status, "Failed");
}

#[tokio::test]
async fn runlater_tasks_follow_the_mocks() {
    let document = json!({ "name": "shop", "tasks": {
        "charge": { "url": "http://127.0.0.1:1/charge", "retries": 0 },
        "nap": { "sleep": "13d", "needs": ["charge"] },
        "ship": { "url": "http://127.0.0.1:1/ship", "needs": ["nap"] },
        "refuse": { "url": "http://127.0.0.1:1/refuse", "needs": ["charge"], "if": "tasks.charge.status_code == 402" },
    } });
    let paid = run(document.clone(), json!({})).await;
    assert_eq!(
        (paid.status.as_str(), paid.virtual_duration_ms),
        ("Succeeded", 13 * DAY)
    );
    let refuse = node(&paid, "refuse");
    assert!(!refuse.guard.as_ref().unwrap().verdict, "{refuse:?}");
    assert!(refuse.skip_reason.as_ref().unwrap().contains("402"), "{refuse:?}");
    let error = json!({ "code": "HTTP_STATUS", "message": "402", "retriable": false });
    let refused = run(
        document,
        json!({ "charge": { "error": error, "outputs": { "status": 402 } } }),
    )
    .await;
    assert!(node(&refused, "refuse").guard.as_ref().unwrap().verdict, "{refused:?}");
    assert!(node(&refused, "ship").skip_reason.is_some());
}

#[tokio::test]
async fn child_runs_are_not_started() {
    let document = workflow(json!([
        { "id": "one", "nodeType": "subworkflow", "workflowId": "child", "parameters": { "n": 1 }, "edges": [{ "targetNode": "all" }] },
        { "id": "all", "nodeType": "subworkflow", "workflowId": "child", "forEach": "{{ trigger.list }}", "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo",
          "parameters": { "one": "{{ context.data.one.outputs.price }}", "all": "{{ context.data.all.outputs }}", "count": "{{ context.data.all.count }}" } },
    ]));
    let trigger = json!({ "list": ["a", "b"] });
    let mocks = json!({ "one": { "outputs": { "price": 3 } }, "all": { "outputs": [{ "x": 1 }, { "x": 2 }] } });
    let report = attempted(&document, trigger.clone(), mocks).await.unwrap();
    assert_eq!(
        report.outputs,
        json!({ "one": 3, "all": [{ "x": 1 }, { "x": 2 }], "count": 2 })
    );
    let mocks = json!({ "one": { "error": { "code": "CHILD", "message": "broken", "retriable": false } } });
    let failed = attempted(&document, trigger, mocks).await.unwrap();
    assert_eq!(failed.error.unwrap()["code"], "CHILD");
    let mocks = json!({ "one": { "outputs": { "price": 3 } } });
    let wrong = attempted(&document, json!({ "list": 7 }), mocks).await.unwrap();
    assert!(
        wrong.error.unwrap()["message"]
            .as_str()
            .unwrap()
            .contains("must be a list")
    );
}

/// The service accepts connections only if the engine opens one.
#[tokio::test]
async fn no_effect_leaves_the_process() {
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", service.local_addr().unwrap());
    let document = workflow(json!([
        { "id": "call", "actionType": "http.request", "parameters": { "url": url, "headers": { "x": "{{ secrets.KEY }}" } },
          "edges": [{ "targetNode": "emit" }] },
        { "id": "emit", "actionType": "core.emit", "parameters": { "type": "order.paid" }, "edges": [{ "targetNode": "end" }] },
        { "id": "end", "actionType": "core.echo", "parameters": { "status": "{{ context.data.call.status }}" } },
    ]));
    let report = run(document, json!({})).await;
    assert_eq!(report.outputs, json!({ "status": 200 }), "{report:?}");
    let task = |id: &str, kind: &str| json!({ "id": id, "type": "task", "executor": { "type": kind, "config": { "url": url } } });
    let document = json!({ "workflow_id": "w", "name": "W", "version": "1.0.0", "nodes": [task("a", "callback"), task("b", "http")],
                           "edges": [{ "from": "a", "to": "b" }] });
    assert_eq!(run(document, json!({})).await.status, "Succeeded");
    let accepted = service.accept().map(|(_, from)| from);
    assert!(accepted.is_err(), "a dry run called {accepted:?}");
}

#[tokio::test]
async fn parameters_of_mocked_actions_are_checked() {
    let document = workflow(json!([
        { "id": "call", "actionType": "http.request", "parameters": { "url": "{{ trigger.url }}" }, "policies": { "retry": { "maxAttempts": 1 } } },
    ]));
    let report = attempted(&document, json!({ "url": 7 }), json!({})).await.unwrap();
    assert_eq!(report.error.unwrap()["code"], "INVALID_PARAMETERS");
    let report = attempted(&document, json!({ "url": "http://a.example/x" }), json!({}))
        .await
        .unwrap();
    assert_eq!(
        report.nodes[0].parameters.as_ref().unwrap()["url"],
        "http://a.example/x"
    );
    let report = attempted(&document, json!({}), json!({})).await.unwrap();
    assert_eq!(report.error.unwrap()["code"], "TEMPLATE_ERROR");
}

#[tokio::test]
async fn run_ends_at_its_deadline() {
    let document = workflow(json!([{ "id": "answer", "actionType": "core.wait" }]));
    let report = run(document, json!({ "answer": { "timeout": true } })).await;
    assert_eq!(
        (report.status.as_str(), report.virtual_duration_ms),
        ("Failed", 30 * DAY)
    );
    assert_eq!(report.reason.as_deref(), Some("timeout"));
}

#[tokio::test]
async fn wrong_mocks_and_triggers_are_refused_before_anything_runs() {
    let mut document = workflow(
        json!([{ "id": "charge", "actionType": "http.request", "parameters": { "url": "http://a.example/" } }]),
    );
    document["triggerSchema"] = json!({ "type": "object", "required": ["id"] });
    let mocks = json!({ "chrage": { "outputs": {} } });
    let refused = attempted(&document, json!({ "id": 1 }), mocks).await;
    let Err(EngineError::Refused(Refusal::InvalidMocks(problems))) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        problems,
        [(
            "/chrage".to_owned(),
            "there is no node `chrage`; did you mean `charge`?".to_owned()
        )]
    );
    let refused = attempted(&document, json!({}), json!({})).await;
    assert!(
        matches!(refused, Err(EngineError::Refused(Refusal::InvalidTrigger { .. }))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn many_sleeps_in_parallel_are_in_order() {
    let edges: Vec<Value> = (1..=9).map(|n| json!({ "targetNode": format!("s{n}") })).collect();
    let mut nodes = vec![json!({ "id": "a", "actionType": "core.echo", "edges": edges, "routePolicy": "parallel" })];
    nodes.extend((1..=9u64).map(|n| {
        let millis = Duration::from_secs(10 - n).as_millis() as u64;
        json!({ "id": format!("s{n}"), "actionType": "core.delay", "parameters": { "durationMs": millis } })
    }));
    let report = run(workflow(json!(nodes)), json!({})).await;
    for n in 1..=9u64 {
        assert_eq!(node(&report, &format!("s{n}")).ended_after_ms, Some((10 - n) * 1000));
    }
    assert_eq!(report.virtual_duration_ms, 9000);
}
