//! Reruns with the real program: nothing before the chosen node is executed again, also if the server is killed.

use crate::{
    runlater::service::{Answer, Call, Service},
    support::{Server, fermata},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Three steps in a row, each a call to the service; `c` sends what `a` got.
fn chain(service: &Service) -> Value {
    let step = |id: &str, body: Value, edges: Value| {
        json!({ "id": id, "actionType": "http.request", "policies": { "retry": { "maxAttempts": 1 } }, "edges": edges,
                "parameters": { "method": "POST", "url": service.at(&format!("/{id}")), "body": body } })
    };
    json!({ "id": "chain", "displayName": "Chain", "startNode": "a", "nodes": [
        step("a", json!({ "say": "{{ trigger.say }}" }), json!([{ "targetNode": "b" }])),
        step("b", json!({ "say": "{{ trigger.say }}" }), json!([{ "targetNode": "c" }])),
        step("c", json!({ "of": "{{ context.data['a'].body.n }}", "say": "{{ trigger.say }}" }), json!([])),
    ] })
}

/// The id of a run of the chain that failed at `b`.
async fn failed(server: &Server, service: &Service) -> String {
    service.script("/a", [Answer::ok(&json!({ "n": 5.0 }))]);
    service.script("/b", [Answer::status(400)]);
    server.publish(&chain(service)).await;
    let run = server.execute("chain", &json!({ "trigger": { "say": "hi" } })).await;
    assert_eq!(server.ended(&run).await["status"], "Failed");
    run
}

async fn rerun(server: &Server, run: &str, body: Value) -> String {
    let (status, accepted) = server.post(&format!("/api/v1/executions/{run}/rerun"), &body).await;
    assert_eq!(status, 202, "{accepted}");
    assert_eq!(accepted["rerunOf"], run);
    accepted["executionId"].as_str().expect("an id").to_owned()
}

fn keys(calls: &[Call]) -> BTreeSet<String> {
    calls.iter().map(|call| call.key().to_owned()).collect()
}

/// The server is killed right after the response, and while the repeated node executes. `a` is called once in all; the calls
/// of the repeated node are one attempt with its changed parameters; the link to the old run stays.
#[tokio::test]
async fn nothing_upstream_is_executed_again_when_the_server_is_killed() {
    let service = Service::start().await;
    let mut server = Server::start(&[]);
    let run = failed(&server, &service).await;
    for (round, kill_at_once) in [true, false, true, false].into_iter().enumerate() {
        let before = service.calls().len();
        let calls_of_b = service.calls_of("/b").len();
        let body = json!({ "fromNode": "b", "trigger": { "say": round },
                           "parameters": { "b": { "body": { "edited": round } } } });
        service.script("/b", [Answer::never()]);
        let new = rerun(&server, &run, body).await;
        if !kill_at_once {
            service.call("/b", calls_of_b + 1).await;
        }
        server.kill9();
        service.script("/b", [Answer::ok(&json!({ "ok": true }))]);
        server.restart();
        let ended = server.ended(&new).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
        assert_eq!(ended["rerunOf"], run.as_str());
        let calls = service.calls_after(before);
        let of = |path: &str| -> Vec<Call> { calls.iter().filter(|call| call.path == path).cloned().collect() };
        assert_eq!(
            of("/a").len(),
            0,
            "round {round}: a node before the chosen one was executed"
        );
        let (b, c) = (of("/b"), of("/c"));
        assert_eq!(keys(&b), BTreeSet::from([format!("{new}:b")]));
        assert!(b.iter().all(|call| call.json() == json!({ "edited": round })), "{b:?}");
        assert_eq!(keys(&c), BTreeSet::from([format!("{new}:c")]));
        let sent = serde_json::from_str::<Value>(r#"{"of":5.0}"#).unwrap()["of"].clone();
        assert!(
            c.iter().all(|call| call.json() == json!({ "of": sent, "say": round })),
            "{c:?}"
        );
        let (_, shown) = server
            .get(&format!("/api/v1/executions/{new}?include=actions,events"))
            .await;
        let a = shown["actions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|action| action["nodeId"] == "a");
        assert_eq!(a.unwrap()["reusedFrom"], run.as_str(), "{shown}");
        let events = shown["events"].as_array().unwrap().iter();
        let kept: Vec<_> = events.filter(|event| event["data"]["type"] == "reused").collect();
        assert_eq!(kept.len(), 1, "{shown}");
        assert_eq!(
            (&kept[0]["data"]["node"], &kept[0]["data"]["of"]),
            (&json!("a"), &json!(run))
        );
    }
    assert_eq!(service.calls_of("/a").len(), 1);
}

/// One request id, sent again and again and to a server that was killed in between, makes one run.
#[tokio::test]
async fn repeated_requests_make_one_run_through_a_kill() {
    let service = Service::start().await;
    let mut server = Server::start(&[]);
    let run = failed(&server, &service).await;
    service.script("/b", [Answer::ok(&json!({}))]);
    let body = json!({ "failedOnly": true, "requestId": "click" });
    let path = format!("/api/v1/executions/{run}/rerun");
    let first = rerun(&server, &run, body.clone()).await;
    server.kill9();
    server.restart();
    let again = futures_of(&server, &path, &body).await;
    assert!(
        again
            .iter()
            .all(|(status, view)| *status == 200 && view["executionId"] == first.as_str()),
        "{again:?}"
    );
    assert_eq!(server.ended(&first).await["status"], "Succeeded");
    assert_eq!(
        (service.calls_of("/a").len(), keys(&service.calls_of("/b")).len()),
        (1, 2)
    );
    let (_, all) = server.get("/api/v1/executions?workflowId=chain").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    assert_eq!(all["items"][0]["rerunOf"], run.as_str());
}

async fn futures_of(server: &Server, path: &str, body: &Value) -> Vec<(u16, Value)> {
    let (one, two, three) = tokio::join!(
        server.post(path, body),
        server.post(path, body),
        server.post(path, body)
    );
    vec![one, two, three]
}

/// The command line: what is repeated, changed and shown, and what is refused.
#[tokio::test(flavor = "multi_thread")]
async fn commands() {
    let service = Service::start().await;
    let server = Server::start(&[]);
    let run = failed(&server, &service).await;
    let call = |arguments: &[&str]| {
        let all: Vec<&str> = ["executions", "rerun"]
            .iter()
            .chain(arguments)
            .chain(&["--server", server.url.as_str()])
            .copied()
            .collect();
        fermata(&all)
    };
    let failed_again = call(&[&run, "--from", "b", "--wait", "--timeout", "30s"]);
    assert_eq!(failed_again.code, Some(1), "{failed_again:?}");
    let param = format!("b.url={}", service.at("/other"));
    let made = call(&[&run, "--failed", "--param", &param, "--input", "say=you", "-o", "json"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let new = made.json();
    assert_eq!(new["rerunOf"], run.as_str());
    let new = new["executionId"].as_str().unwrap().to_owned();
    assert_eq!(server.ended(&new).await["status"], "Succeeded");
    assert_eq!(service.calls_of("/other").len(), 1);
    assert_eq!(service.calls_of("/other")[0].json(), json!({ "say": "you" }));
    assert_eq!(service.calls_of("/a").len(), 1);
    let page = fermata(&["executions", "get", &new, "--server", &server.url]);
    assert!(page.stdout.contains(&run) && page.stdout.contains("reused"), "{page:?}");
    service.script("/b", [Answer::ok(&json!({}))]);
    let whole = call(&[
        &run,
        "--version",
        "latest",
        "--spec",
        "x=1",
        "--wait",
        "--timeout",
        "30s",
    ]);
    assert_eq!(whole.code, Some(0), "{whole:?}");
    assert_eq!(service.calls_of("/a").len(), 2);
    for (wrong, code, text) in [
        (vec![run.as_str(), "--from", "x"], 1, "has no node `x`; its nodes are `"),
        (vec![run.as_str(), "--from", "b", "--failed"], 2, "--failed"),
        (vec![run.as_str(), "--param", "b"], 2, "NODE.key=value"),
        (vec![run.as_str(), "--version", "0"], 2, "latest"),
        (vec![run.as_str(), "--version", "9"], 1, "has no version 9"),
        (
            vec![run.as_str(), "--from", "b", "--param", "a.url=x"],
            1,
            "`a` is not repeated",
        ),
    ] {
        let refused = call(&wrong);
        assert_eq!(refused.code, Some(code), "{wrong:?}: {refused:?}");
        assert!(refused.stderr.contains(text), "{wrong:?}: {refused:?}");
    }
}
