//! HTTP steps against a service that is slow, broken or unreachable.

use super::{
    Stage,
    service::{Answer, Call},
    task_statuses,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::UNIX_EPOCH};

/// Microseconds since the epoch.
fn micros(call: &Call) -> u64 {
    let since = call.arrived_at.duration_since(UNIX_EPOCH).expect("a time");
    u64::try_from(since.as_micros()).expect("not yet")
}

#[tokio::test]
async fn parallel_branches_overlap() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    // Each call is answered only when all calls of its level have arrived: `first`, then three, then two.
    for (path, calls) in [("/a", 4), ("/b", 4), ("/c", 4), ("/x", 6), ("/y", 6)] {
        stage.service.script(path, [Answer::ok(&json!({})).after_calls(calls)]);
    }
    let view = stage
        .run_tasks(
            json!({
                "first": { "url": at("/first") },
                "a": { "needs": ["first"], "url": at("/a") },
                "b": { "needs": ["first"], "url": at("/b") },
                "c": { "needs": ["first"], "if": "tasks.first.status_code == 200", "url": at("/c") },
                "x": { "needs": ["a", "b", "c"], "url": at("/x") },
                "y": { "needs": ["a", "c"], "if": "tasks.a.status == 'success'", "url": at("/y") },
            }),
            json!({}),
        )
        .await;
    assert_eq!(view["status"], "completed", "{view}");
    let calls = stage.service.calls();
    assert_eq!(calls.len(), 6, "one call for each task: {calls:#?}");
    let call = |path: &str| stage.service.calls_of(path).remove(0);
    for level in [&["/a", "/b", "/c"][..], &["/x", "/y"]] {
        let last_arrival = level.iter().map(|path| call(path).arrived).max();
        let first_answer = level.iter().map(|path| call(path).answered.expect("an answer")).min();
        assert!(last_arrival < first_answer, "{level:?} did not overlap: {calls:#?}");
    }
    // Tasks wait for the tasks that they need.
    assert!(
        ["/a", "/b", "/c"]
            .iter()
            .all(|path| Some(call(path).arrived) > call("/first").answered)
    );
    assert!(
        ["/a", "/b", "/c"]
            .iter()
            .all(|path| Some(call("/x").arrived) > call(path).answered)
    );
}

#[tokio::test]
async fn retries_back_off_and_only_the_last_attempt_advances_the_graph() {
    let stage = Stage::with(&[
        ("FERMATA_ORCHESTRATION__RETRY__INITIAL_DELAY_MS", "20"),
        ("FERMATA_ORCHESTRATION__RETRY__JITTER", "false"),
    ])
    .await;
    let at = |path| stage.service.at(path);
    stage.service.script("/down", [Answer::status(500)]);
    let back = [
        Answer::status(500),
        Answer::status(502),
        Answer::status(503),
        Answer::ok(&json!({ "n": 4 })),
    ];
    stage.service.script("/back", back);
    stage.service.script("/never-again", [Answer::status(500)]);
    let run = stage
        .trigger_tasks(
            json!({
                "down": { "url": at("/down") },
                "back": { "url": at("/back"), "retries": 3 },
                "never": { "url": at("/never-again"), "retries": 0 },
                "on-down": { "needs": ["down"], "if": "tasks.down.status_code == 500", "url": at("/on-down") },
                "on-back": { "needs": ["back"], "if": "tasks.back.status_code == 500", "url": at("/premature") },
                "after-back": { "needs": ["back"], "url": at("/after-back"), "body": "{{tasks.back.body.n}}" },
            }),
            json!({}),
        )
        .await;
    let view = stage.server.over(&run).await;
    let status = |task: &str| task_statuses(&view)[task];
    assert_eq!(
        (status("down"), status("back"), status("on-back")),
        ("failed", "success", "skipped")
    );
    assert_eq!(stage.service.calls_of("/down").len(), 6, "five retries by default");
    assert_eq!(stage.service.calls_of("/back").len(), 4);
    assert_eq!(stage.service.calls_of("/never-again").len(), 1);

    let history = stage.server.history(&run).await;
    for (task, path, dependent) in [("down", "/down", "/on-down"), ("back", "/back", "/after-back")] {
        let calls = stage.service.calls_of(path);
        let retried: Vec<_> = history
            .events("retried")
            .into_iter()
            .filter(|event| event["node"] == task)
            .collect();
        assert_eq!(retried.len(), calls.len() - 1);
        for (at, event) in retried.iter().enumerate() {
            let (before, next) = (&calls[at], &calls[at + 1]);
            let due = event["retryAt"].as_u64().expect("a time");
            let pause = 20_000 << at;
            assert!(
                due >= micros(before) + pause,
                "{task}: the pause after attempt {} doubles",
                at + 1
            );
            assert!(micros(next) >= due, "{task}: attempt {} started too early", at + 2);
        }
        let last = calls.last().and_then(|call| call.answered);
        let dependents = stage.service.calls_of(dependent);
        assert_eq!(dependents.len(), 1);
        assert!(Some(dependents[0].arrived) > last, "{dependent} was called too early");
    }
    assert!(stage.service.calls_of("/premature").is_empty());
}

#[tokio::test]
async fn transient_errors_are_retried_and_permanent_errors_are_not() {
    let stage = Stage::start().await;
    let statuses = [408, 425, 429, 500, 501, 502, 503, 504].map(Answer::status);
    let broken = [Answer::reset(), Answer::broken_body()];
    let transient: Vec<Answer> = statuses.into_iter().chain(broken).collect();
    let permanent = [304, 400, 401, 402, 403, 404, 405, 409, 410, 422];
    let mut tasks = serde_json::Map::new();
    for (number, answer) in transient.iter().enumerate() {
        let path = format!("/transient-{number}");
        stage
            .service
            .script(&path, [answer.clone(), answer.clone(), Answer::ok(&json!({}))]);
        tasks.insert(format!("transient-{number}"), json!({ "url": stage.service.at(&path) }));
    }
    for status in permanent {
        let path = format!("/permanent-{status}");
        stage
            .service
            .script(&path, [Answer::status(status), Answer::ok(&json!({}))]);
        tasks.insert(format!("permanent-{status}"), json!({ "url": stage.service.at(&path) }));
    }
    let view = stage.run_tasks(Value::Object(tasks), json!({})).await;
    for number in 0..transient.len() {
        let task = &view["tasks"][format!("transient-{number}")];
        assert_eq!(
            (&task["status"], &task["attempt"]),
            (&json!("success"), &json!(3)),
            "{:?}",
            transient[number]
        );
        let calls = stage.service.calls_of(&format!("/transient-{number}"));
        assert_eq!(calls.len(), 3, "{:?}", transient[number]);
    }
    for status in permanent {
        let task = &view["tasks"][format!("permanent-{status}")];
        assert_eq!(
            (&task["status"], &task["status_code"]),
            (&json!("failed"), &json!(status))
        );
        assert_eq!(
            stage.service.calls_of(&format!("/permanent-{status}")).len(),
            1,
            "{status}"
        );
        let message = task["error_message"].as_str().expect("a message");
        assert!(message.contains(&status.to_string()), "{message}");
    }
}

#[tokio::test]
async fn retry_after_is_honoured() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    let busy = Answer::status(503).header("retry-after", "1");
    stage.service.script("/busy", [busy, Answer::ok(&json!({}))]);
    stage
        .service
        .script("/closed", [Answer::status(429).header("retry-after", "3600")]);
    let run = stage
        .trigger_tasks(
            json!({ "busy": { "url": at("/busy") }, "closed": { "url": at("/closed") } }),
            json!({}),
        )
        .await;
    stage.server.until(&run, "busy", "success").await;
    let calls = stage.service.calls_of("/busy");
    assert_eq!(calls.len(), 2);
    // Without the header it would be a few milliseconds.
    assert!(micros(&calls[1]) >= micros(&calls[0]) + 1_000_000);

    let next = |view: &Value| view["tasks"]["closed"]["next_attempt_at"].is_string();
    let view = stage.server.run_when("the next attempt", &run, next).await;
    let closed = &view["tasks"]["closed"];
    assert_eq!(
        (&closed["status"], &closed["status_code"]),
        (&json!("running"), &json!(429))
    );
    let history = stage.server.history(&run).await;
    let retried = history.events("retried");
    let retried = retried
        .iter()
        .find(|event| event["node"] == "closed")
        .expect("a retry is recorded");
    let first = &stage.service.calls_of("/closed")[0];
    assert!(retried["retryAt"].as_u64() >= Some(micros(first) + 3_600_000_000));

    // The run is cancelled, so that the test does not wait for an hour.
    stage.server.post(&format!("{}/cancel", run.path()), &json!({})).await;
    assert_eq!(stage.server.over(&run).await["status"], "cancelled");
    assert_eq!(stage.service.calls_of("/closed").len(), 1);
}

#[tokio::test]
async fn each_step_has_its_own_timeout() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    stage.service.script("/silent", [Answer::never()]);
    stage
        .service
        .script("/wakes-up", [Answer::never(), Answer::ok(&json!({}))]);
    stage.service.script("/slow", [Answer::ok(&json!({})).held()]);
    let run = stage
        .trigger_tasks(
            json!({
                "silent": { "url": at("/silent"), "timeout": 1000, "retries": 1 },
                "wakes-up": { "url": at("/wakes-up"), "timeout": 1000, "retries": 1 },
                "slow": { "url": at("/slow") },
                "on-timeout": { "needs": ["silent"], "if": "tasks.silent.status == 'timeout'", "url": at("/on-timeout") },
                "after": { "needs": ["silent"], "url": at("/no") },
            }),
            json!({}),
        )
        .await;
    let view = stage.server.until(&run, "on-timeout", "success").await;
    assert_eq!(
        task_statuses(&view)["slow"],
        "running",
        "the timeout of one step does not apply to others"
    );
    stage.service.release("/slow");
    let view = stage.server.over(&run).await;
    let expected = BTreeMap::from([
        ("silent", "timeout"),
        ("wakes-up", "success"),
        ("slow", "success"),
        ("on-timeout", "success"),
        ("after", "skipped"),
    ]);
    assert_eq!((task_statuses(&view), &view["status"]), (expected, &json!("completed")));
    assert_eq!(
        view["tasks"]["silent"].get("status_code"),
        None,
        "there was no response"
    );
    let message = view["tasks"]["silent"]["error_message"].as_str().expect("a message");
    assert!(message.contains("1000 ms"), "{message}");
    assert_eq!(stage.service.calls_of("/silent").len(), 2);
}

#[tokio::test]
async fn requests_are_sent_as_written_in_the_document() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    let response =
        Answer::ok(&json!({ "id": "a/b c", "n": 1.5, "list": [1, null], "yes": true })).header("X-Request-Id", "r-7");
    stage.service.script("/first", [response]);
    let view = stage
        .run_tasks(
            json!({
                "first": { "url": at("/first"), "headers": { "Authorization": "Bearer {{trigger.body.token}}" },
                           "body": { "order": "{{trigger.body.order}}", "text": "order {{trigger.body.order.id}}!" } },
                "json": { "needs": ["first"], "url": at("/json?x={{tasks.first.body.n}}"), "method": "PUT",
                          "body": { "deep": [{ "list": "{{tasks.first.body.list}}" }, "{{tasks.first.body.yes}}", 3, null] } },
                "text": { "needs": ["first"], "url": at("/text"), "headers": { "Content-Type": "text/csv" },
                          "body": "id;code\n{{tasks.first.headers.x-request-id}};{{tasks.first.status_code}}\n" },
                "get": { "url": at("/get"), "method": "GET", "headers": { "X-Number": 7 } },
                "delete": { "url": at("/delete"), "method": "DELETE" },
                "own-key": { "url": at("/own-key"), "headers": { "Idempotency-Key": "mine" } },
            }),
            json!({ "token": "sk_live_xxx", "order": { "id": 123, "tags": ["new"] } }),
        )
        .await;
    assert_eq!(view["status"], "completed", "{view}");
    let sent = |path: &str| stage.service.calls_of(path).remove(0);

    let first = sent("/first");
    assert_eq!(first.method, "POST", "the default method");
    assert_eq!(first.header("authorization"), "Bearer sk_live_xxx");
    assert_eq!(first.header("content-type"), "application/json");
    let order = json!({ "id": 123, "tags": ["new"] });
    assert_eq!(
        first.json(),
        json!({ "order": order, "text": "order 123!" }),
        "values keep their types"
    );

    let json_call = sent("/json?x=1.5");
    assert_eq!(
        (json_call.method.as_str(), json_call.header("content-type")),
        ("PUT", "application/json")
    );
    assert_eq!(
        json_call.json(),
        json!({ "deep": [{ "list": [1, null] }, true, 3, null] })
    );

    let text = sent("/text");
    assert_eq!(
        (text.header("content-type"), text.body.as_str()),
        ("text/csv", "id;code\nr-7;200\n")
    );
    let get = sent("/get");
    assert_eq!(
        (get.method.as_str(), get.body.as_str(), get.header("x-number")),
        ("GET", "", "7")
    );
    assert_eq!(
        (sent("/delete").method.as_str(), sent("/delete").body.as_str()),
        ("DELETE", "")
    );
    assert_eq!(sent("/own-key").key(), "mine");
}

#[tokio::test]
async fn every_attempt_has_the_same_key_and_body() {
    let stage = Stage::start().await;
    let at = |path| stage.service.at(path);
    stage.service.script(
        "/flaky",
        [
            Answer::status(503),
            Answer::reset(),
            Answer::broken_body(),
            Answer::ok(&json!({})),
        ],
    );
    let tasks = json!({
        "one": { "url": at("/flaky"), "body": { "n": "{{trigger.body.n}}" } },
        "two": { "needs": ["one"], "url": at("/two") },
    });
    let run = stage.trigger_tasks(tasks, json!({ "n": 1 })).await;
    stage.server.over(&run).await;
    let again = stage.server.trigger("under-test", &json!({ "n": 2 })).await;
    stage.server.over(&again).await;

    let calls = stage.service.calls_of("/flaky");
    assert_eq!(calls.len(), 5);
    for call in &calls[..4] {
        assert_eq!(
            (call.key(), call.json()),
            (format!("{}:one", run.id).as_str(), json!({ "n": 1 }))
        );
    }
    assert_eq!(
        calls[4].key(),
        format!("{}:one", again.id),
        "another run is another request"
    );
    let keys: Vec<String> = stage
        .service
        .calls_of("/two")
        .iter()
        .map(|call| call.key().to_owned())
        .collect();
    assert_eq!(keys, [format!("{}:two", run.id), format!("{}:two", again.id)]);
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let stage = Stage::with(&[("FERMATA_HTTP__ALLOW_PRIVATE_NETWORKS", "false")]).await;
    let port = stage.service.url.rsplit(':').next().expect("a port").to_owned();
    let mut tasks = serde_json::Map::new();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "0.0.0.0",
        "10.0.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
    ];
    for (number, host) in hosts.iter().enumerate() {
        tasks.insert(format!("t{number}"), json!({ "url": format!("http://{host}:{port}/") }));
    }
    // The address is also checked if a template supplies it.
    tasks.insert("hidden".to_owned(), json!({ "url": "{{trigger.body.url}}" }));
    let view = stage
        .run_tasks(Value::Object(tasks), json!({ "url": stage.service.at("/") }))
        .await;
    for (task, status) in task_statuses(&view) {
        assert_eq!(status, "failed", "{task}");
        assert_eq!(
            view["tasks"][task].get("attempt"),
            None,
            "{task}: a retry would not help"
        );
        assert_eq!(view["tasks"][task].get("status_code"), None);
    }
    assert_eq!(view["status"], "failed");
    let run = super::Run {
        workflow: "under-test".to_owned(),
        id: view["id"].as_str().expect("an id").to_owned(),
    };
    let history = stage.server.history(&run).await;
    let codes = history.0["actions"]
        .as_array()
        .expect("actions")
        .iter()
        .map(|action| &action["error"]["code"]);
    assert!(
        codes.clone().all(|code| code == "ADDRESS_REFUSED"),
        "{:?}",
        codes.collect::<Vec<_>>()
    );
    assert!(stage.service.calls().is_empty());
}
