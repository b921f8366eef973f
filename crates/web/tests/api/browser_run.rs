//! The page of a run in a browser: reruns with changes, skip and send again, a restart of the server, and very large runs.

use crate::{
    browser::{FAINT, UNNAMED, assert_calm},
    chromium::Browser,
    harness::{LONG, Server, single},
    service::{Service, pause},
};
use fermata_runtime::Settings;
use fermata_store::conformance::home::{Home, Kind};
use fermata_web::WebConfig;
use reqwest::Method;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// `a`, then `b`, which fails without `trigger.b`.
fn chain(more: &str) -> Value {
    json!({ "id": "chain", "displayName": "Chain", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n ?? 1 }}" }, "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "core.echo", "parameters": { "b": "{{ trigger.b }}", "of": "{{ context.data['a'].n }}", "more": more } } ] })
}

async fn failed(server: &Server) -> String {
    server.publish(&chain("one")).await;
    let id = server.execute("chain", json!({ "trigger": { "n": 5 } })).await;
    server.until(&id, |run| run["status"] == "Failed").await;
    id
}

/// Opens the page of a run and the dialog of a button on it.
async fn ask(browser: &mut Browser, page: &str, button: &str) {
    browser.open(page).await;
    browser.click(button).await;
    browser.until("document.querySelector('#confirm[open]')").await;
}

/// Replaces the text of a field.
async fn fill(browser: &mut Browser, field: &str, text: &str) {
    browser
        .eval(&format!("document.querySelector({}).select()", json!(field)))
        .await;
    browser.type_text(text).await;
}

/// Confirms with a double click, and waits for the end of the new run. Returns it.
async fn repeated(browser: &mut Browser, server: &Server, old: &str, kind: &str) -> Value {
    browser.click_times("#confirm [data-yes]", 2).await;
    browser
        .until(&format!(
            "location.pathname.startsWith('/runs/') && !location.pathname.endsWith('{old}') && document.querySelector('#run-head .s-{kind}')"
        ))
        .await;
    let path = browser.eval("location.pathname").await;
    let id = path.as_str().unwrap().trim_start_matches("/runs/").to_owned();
    server.get(&format!("/api/v1/executions/{id}")).await.expect(200)
}

async fn count(server: &Server) -> usize {
    let runs = server.get("/api/v1/executions").await.expect(200);
    runs["items"].as_array().unwrap().len()
}

const RERUN: &str = "#run-head [data-body='{}']";
const RETRY: &str = "#run-head [data-body*=failedOnly]";

#[tokio::test]
async fn reruns_start_one_new_run_each() {
    let server = Server::start().await;
    let id = failed(&server).await;
    let page = format!("{}/runs/{id}", server.base);
    let mut browser = Browser::start().await;
    ask(&mut browser, &page, RERUN).await;
    let whole = repeated(&mut browser, &server, &id, "failed").await;
    assert_eq!(
        (&whole["rerunOf"], &whole["trigger"]),
        (&json!(id), &json!({ "n": 5 })),
        "nothing was changed"
    );
    assert_eq!(count(&server).await, 2);
    let kept = "document.querySelector('#graph').textContent.includes('kept')";
    assert_eq!(browser.eval(kept).await, false, "everything is repeated");
    ask(&mut browser, &page, RETRY).await;
    let failed = repeated(&mut browser, &server, &id, "failed").await;
    assert_eq!((&failed["rerunOf"], count(&server).await), (&json!(id), 3));
    assert_eq!(browser.eval(kept).await, true, "a is kept");
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn reruns_can_be_changed() {
    let server = Server::start().await;
    let id = failed(&server).await;
    let headers = [("content-type", "application/json")];
    let newer = chain("two").to_string();
    let put = server.send(Method::PUT, "/api/v1/workflows/chain/draft", &headers, newer);
    put.await.expect(200);
    server.post_nothing("/api/v1/workflows/chain/publish").await.expect(200);
    let page = format!("{}/runs/{id}", server.base);
    let mut browser = Browser::start().await;

    ask(&mut browser, &page, RETRY).await;
    assert_eq!(
        browser.eval("document.querySelector('#confirm .edit').open").await,
        false
    );
    browser.click("#confirm .edit summary").await;
    browser.picture("rerun-edit").await;
    let shown = browser
        .eval("document.querySelector('#confirm [name=trigger]').value")
        .await;
    assert_eq!(shown, "{\n  \"n\": 5\n}");
    fill(&mut browser, "#confirm [name=trigger]", "{\n  \"b\": 1,\n  \"c\" 2 }").await;
    browser.click("#confirm [data-yes]").await;
    browser
        .until("document.querySelector('#confirm [data-error]').textContent === 'Trigger, line 3, column 7: “:” is expected'")
        .await;
    assert_eq!(
        browser
            .eval("[document.activeElement.name, document.activeElement.selectionStart]")
            .await,
        json!(["trigger", 18])
    );
    assert_eq!(browser.eval(UNNAMED).await, json!([]));
    for (width, dark, name) in [(1280, true, "rerun-wrong-dark"), (375, false, "rerun-wrong-narrow")] {
        browser.size(width, 900).await;
        browser.dark(dark).await;
        browser.picture(name).await;
        assert_eq!(
            browser.eval(&FAINT.replace("main *, header *", "dialog *")).await,
            json!([])
        );
    }
    browser.size(1280, 900).await;
    assert_eq!(count(&server).await, 1, "nothing was sent");
    fill(&mut browser, "#confirm [name=trigger]", "{ \"b\": 9007199254740993 }").await;
    let run = repeated(&mut browser, &server, &id, "succeeded").await;
    assert_eq!(
        (&run["outputs"], &run["workflowVersion"]),
        (
            &json!({ "b": 9_007_199_254_740_993_u64, "of": 5, "more": "one" }),
            &json!(1)
        )
    );

    // The newest version, and parameters of one node.
    ask(&mut browser, &page, RERUN).await;
    browser.click("#confirm .edit summary").await;
    browser.click("#confirm [name=version][value*=latest]").await;
    browser
        .eval("{ const s = document.querySelector('#confirm [data-edit-node]'); s.value = 'b'; s.dispatchEvent(new Event('change', { bubbles: true })); }")
        .await;
    browser
        .until("document.querySelector('#confirm [data-node=b]')?.value.includes('trigger.b')")
        .await;
    browser.picture("rerun-parameters").await;
    fill(&mut browser, "#confirm [data-node=b]", "{ \"b\": 1 }").await;
    browser.click("#confirm [data-yes]").await;
    browser
        .until("document.querySelector('#confirm [data-error]').textContent.includes('\"of\" cannot be removed')")
        .await;
    // Only what differs is sent: `more` is that of the new version.
    browser
        .eval("{ const f = document.querySelector('#confirm [data-node=b]'); f.value = f.defaultValue.replace('{{ trigger.b }}', 'fixed {{ trigger.n }}'); }")
        .await;
    let run = repeated(&mut browser, &server, &id, "succeeded").await;
    assert_eq!(
        (&run["outputs"], &run["workflowVersion"]),
        (&json!({ "b": "fixed 5", "of": 5, "more": "two" }), &json!(2))
    );
    assert_eq!(count(&server).await, 3);
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn mistakes_in_json_are_found_where_they_are() {
    let server = Server::start().await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/", server.base)).await;
    for (text, place) in [
        ("", Some(0)),
        ("{\"a\": }", Some(6)),
        ("{\"a\": 1,}", Some(8)),
        ("[1 2]", Some(3)),
        ("[1, 02]", Some(4)),
        ("{a: 1}", Some(1)),
        ("{\"a\" 1}", Some(5)),
        ("\"a\nb\"", Some(0)),
        ("{} x", Some(3)),
        ("tru", Some(0)),
        (" {\"a\": [1.5e-7, null, true, \"\\u00e4\", {}, []]} ", None),
        ("9007199254740993", None),
    ] {
        let script = format!(
            "import('/assets/edit.js').then((edit) => [edit.mistake({0})?.at ?? null, (() => {{ try {{ JSON.parse({0}); return true; }} catch {{ return false; }} }})()])",
            json!(text)
        );
        assert_eq!(browser.eval(&script).await, json!([place, place.is_none()]), "{text}");
    }
}

#[tokio::test]
async fn a_node_that_waits_is_skipped_with_a_reason() {
    let server = Server::start().await;
    let ask_for = json!({ "title": "Pay?", "outcomes": ["approve", "reject"] });
    server.publish(&single("pay", "core.approval", ask_for)).await;
    let id = server.execute("pay", json!({})).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/runs/{id}?node=only", server.base)).await;
    browser
        .until("document.querySelector('.drawer [data-post$=skip]')")
        .await;
    assert_eq!(
        browser
            .eval("document.querySelector('.drawer [data-post$=resend]')")
            .await,
        Value::Null,
        "there is nothing to send"
    );
    browser.click(".drawer [data-post$=skip]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    let error = |text: &str| format!("document.querySelector('#confirm [data-error]').textContent === '{text}'");
    browser.click("#confirm [data-yes]").await;
    browser.until(&error("Reason is missing")).await;
    fill(&mut browser, "#confirm [name=reason]", "approved by phone").await;
    browser.click("#confirm [data-yes]").await;
    browser.until(&error("Outcome is missing")).await;
    browser.picture("skip").await;
    browser
        .eval("document.querySelector('#confirm [data-outcome]').value = 'reject'")
        .await;
    fill(&mut browser, "#confirm [name=outputs]", "{\"limit\": 9007199254740993}").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser.until("document.querySelector('#run-head .s-succeeded')").await;
    let run = server
        .get(&format!("/api/v1/executions/{id}?include=actions"))
        .await
        .expect(200);
    let outputs = &run["actions"][0]["outputs"];
    assert_eq!(
        (&outputs["outcome"], &outputs["limit"]),
        (&json!("reject"), &json!(9_007_199_254_740_993_u64)),
        "{run}"
    );
    assert_eq!(
        browser
            .eval("document.querySelector('.drawer [data-post$=skip]')")
            .await,
        Value::Null
    );
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn a_lost_request_is_sent_again() {
    let service = Service::start().await;
    let server = Server::start().await;
    let executor = json!({ "type": "callback", "config": { "url": service.url("/answer/202") } });
    let document = json!({ "workflow_id": "lost", "name": "Lost", "version": "1.0.0", "edges": [],
        "nodes": [{ "id": "work", "type": "task", "executor": executor }] });
    server.post("/api/v1/workflows", document).await.expect(201);
    let started = server
        .post("/api/v1/executions", json!({ "workflow_id": "lost", "inputs": {} }))
        .await;
    let started: Value = serde_json::from_str(&started.text).unwrap();
    let id = started["execution_id"].as_str().unwrap();
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/runs/{id}?node=work", server.base)).await;
    browser
        .until("document.querySelector('.drawer [data-post$=resend]')")
        .await;
    assert_eq!(service.bodies().len(), 1);
    browser.picture("drawer-waiting").await;
    browser.click("[data-post$=resend]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser
        .until("document.querySelector('#events').innerText.includes('was sent again')")
        .await;
    let bodies = service.bodies();
    assert_eq!(
        (bodies.len(), &bodies[0]),
        (2, &bodies[1]),
        "the same request, once more"
    );
    assert_calm(&mut browser).await;
}

/// `Settings` with which another process takes the runs of a dead one soon.
fn impatient() -> Settings {
    Settings {
        lease_ttl: Duration::from_secs(1),
        ..Settings::default()
    }
}

#[tokio::test]
async fn a_page_survives_a_crash_of_the_server() {
    let home = Arc::new(Home::new(Kind::Sqlite));
    // Its tasks end all at once, as those of a process that is killed.
    let process = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let first = {
        let home = home.clone();
        process.spawn(async move { Server::on(&home, impatient(), WebConfig::default()).await })
    };
    let first = first.await.unwrap();
    let base = first.base.clone();
    first
        .publish(
            &json!({ "id": "gated", "displayName": "Gated", "startNode": "before", "nodes": [
            { "id": "before", "actionType": "core.echo", "parameters": {}, "edges": [{ "targetNode": "gate" }] },
            { "id": "gate", "actionType": "test.gate", "parameters": {} } ] }),
        )
        .await;
    let id = first.execute("gated", json!({})).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/runs/{id}")).await;
    browser
        .until("document.querySelector('#graph [data-node=gate].s-running')")
        .await;
    browser.eval("window.same = true").await;
    process.shutdown_background();
    first.store.close().await.unwrap();
    drop(first);
    browser.until("!document.querySelector('[data-away]').hidden").await;
    browser.picture("away").await;

    let address = base.trim_start_matches("http://");
    let second = Server::at(address, &home, impatient(), WebConfig::default()).await;
    browser.until("document.querySelector('[data-away]').hidden").await;
    second.gate.add_permits(1);
    browser.until("document.querySelector('#run-head .s-succeeded')").await;
    assert_eq!(browser.eval("window.same").await, true, "the page was not loaded again");
    // Each event is shown once, in order.
    let run = second
        .get(&format!("/api/v1/executions/{id}?include=events"))
        .await
        .expect(200);
    let messages: Vec<&Value> = run["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["message"])
        .collect();
    let shown = browser
        .eval("[...document.querySelectorAll('#events .message')].map((item) => item.textContent)")
        .await;
    assert_eq!(shown, json!(messages));
    assert_eq!(count(&second).await, 1);
    assert_calm(&mut browser).await;
    second.store.close().await.unwrap();
}

#[tokio::test]
async fn a_run_with_20_000_events_stays_usable() {
    let server = Server::start().await;
    let names: Vec<String> = (0..20).map(|n| format!("n{n}")).collect();
    let edges: Vec<Value> = names.iter().map(|name| json!({ "targetNode": name })).collect();
    let retry = json!({ "retry": { "maxAttempts": 1000, "baseDelayMs": 0, "jitter": false } });
    let flaky = |name: &String| {
        json!({ "id": name, "actionType": "core.fail", "policies": retry, "parameters": { "retriable": true },
        "edges": [{ "targetNode": "last", "when": "failure" }] })
    };
    let first = json!({ "id": "first", "actionType": "core.echo", "parameters": {}, "edges": edges });
    let last = json!({ "id": "last", "actionType": "core.echo", "parameters": {} });
    let nodes: Vec<Value> = [first, last].into_iter().chain(names.iter().map(flaky)).collect();
    server
        .publish(&json!({ "id": "noisy", "displayName": "Noisy", "startNode": "first", "nodes": nodes }))
        .await;
    let id = server.execute("noisy", json!({})).await;
    let deadline = Instant::now() + 6 * LONG;
    loop {
        let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
        if run["status"] == "Succeeded" {
            break;
        }
        assert!(Instant::now() < deadline, "it does not end: {run}");
        pause().await;
    }
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/runs/{id}", server.base)).await;
    let events = browser.text("#event-count").await;
    assert!(events.parse::<u32>().unwrap() >= 20_000, "{events}");
    let weight = "performance.getEntriesByType('navigation')[0].decodedBodySize";
    let weight = browser.eval(weight).await.as_u64().unwrap();
    assert!(weight < 4_000_000, "{weight} bytes");
    assert_eq!(
        browser.eval("document.querySelectorAll('#events li').length").await,
        200
    );
    browser.click("#events .pages a").await;
    browser.until("location.search.startsWith('?events=')").await;
    browser.click("#graph [data-node=n7]").await;
    browser
        .until("document.querySelector('.drawer')?.innerText.includes('Attempt 1000')")
        .await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('.drawer')").await;
    browser.picture("run-noisy").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn a_run_with_a_large_output_stays_usable() {
    let server = Server::start().await;
    let parameters = json!({ "one": "{{ trigger.all }}", "other": "{{ trigger.all }}" });
    server.publish(&single("big", "core.echo", parameters)).await;
    let large = "x".repeat(2_700_000);
    let id = server.execute("big", json!({ "trigger": { "all": large } })).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{}/runs/{id}", server.base)).await;
    let weight = "performance.getEntriesByType('navigation')[0].decodedBodySize";
    let weight = browser.eval(weight).await.as_u64().unwrap();
    assert!(weight < 400_000, "{weight} bytes");
    browser.click("#graph [data-node=only]").await;
    browser
        .until("document.querySelector('.drawer')?.innerText.includes('5.1 MB')")
        .await;
    browser.picture("run-big").await;
    let whole =
        format!("fetch('/runs/{id}/data/outputs').then((response) => response.text()).then((text) => text.length)");
    assert!(browser.eval(&whole).await.as_u64().unwrap() > 5_400_000);
    // Too large to be edited, but it can be repeated.
    browser.press("Escape").await;
    browser.until("!document.querySelector('.drawer')").await;
    browser.click(RERUN).await;
    browser.until("document.querySelector('#confirm[open]')").await;
    assert_eq!(
        browser.eval("document.querySelector('#confirm [name=trigger]')").await,
        Value::Null
    );
    repeated(&mut browser, &server, &id, "succeeded").await;
    assert_eq!(count(&server).await, 2);
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn nothing_moves_for_people_who_prefer_that() {
    let server = Server::start().await;
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let id = server.execute("gated", json!({})).await;
    let mut browser = Browser::start().await;
    let moving = "document.getAnimations().length";
    let transitions =
        "[...document.querySelectorAll('*')].filter((e) => getComputedStyle(e).transitionDuration !== '0s').length";
    for path in ["/".to_owned(), format!("/runs/{id}?node=only")] {
        for (value, is_moving) in [("no-preference", true), ("reduce", false)] {
            browser.prefers("reduced-motion", value).await;
            browser.open(&format!("{}{path}", server.base)).await;
            browser.until("document.querySelector('main .s-running')").await;
            assert_eq!(browser.eval(moving).await != 0, is_moving, "{path} {value}");
            if !is_moving {
                assert_eq!(browser.eval(transitions).await, 0, "{path}");
            }
        }
    }
    server.gate.add_permits(1);
}
