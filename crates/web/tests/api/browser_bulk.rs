//! Bulk jobs in a browser: select, preview, confirm, follow, stop.

use crate::{
    browser::{FAINT, UNNAMED, assert_calm},
    chromium::Browser,
    harness::{Server, echo, single},
    provider::{Provider, Signer, changed, claims},
};
use fermata_runtime::Settings;
use fermata_web::Loose;
use serde_json::{Value, json};

/// The page is as wide as the window, and its controls have names and texts with contrast.
async fn assert_usable(browser: &mut Browser, name: &str) {
    for (width, suffix) in [(1280, ""), (375, "-narrow")] {
        browser.size(width, 900).await;
        assert!(!browser.overflows().await, "{name} is wider than {width} px");
        for dark in [false, true] {
            browser.dark(dark).await;
            assert_eq!(
                browser.eval(UNNAMED).await,
                json!([]),
                "{name}: elements without a name"
            );
            assert_eq!(browser.eval(FAINT).await, json!([]), "{name}, dark {dark}: faint texts");
            let shade = if dark { "-dark" } else { "" };
            browser.picture(&format!("{name}{suffix}{shade}")).await;
        }
    }
    browser.size(1280, 900).await;
    browser.dark(false).await;
    browser.until("innerWidth === 1280").await;
}

async fn jobs(server: &Server) -> Vec<Value> {
    let list = server.get("/api/v1/bulk").await.expect(200);
    list["items"].as_array().unwrap().clone()
}

async fn gated(server: &Server) -> String {
    server.execute("gated", json!({})).await
}

#[tokio::test]
async fn selected_runs_are_counted_then_cancelled_once() {
    let server = Server::start().await;
    let base = server.base.clone();
    server
        .publish(&single("gated", "test.gate", json!({ "obeys": true })))
        .await;
    server.publish(&echo("quick")).await;
    let ended = server.execute("quick", json!({})).await;
    server.until(&ended, |run| run["status"] == "Succeeded").await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(gated(&server).await);
    }
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/")).await;
    browser
        .until("document.querySelectorAll('#runs [data-pick]').length === 4")
        .await;
    assert_eq!(browser.eval("document.querySelector('#bulk').hidden").await, true);
    browser.click("[data-pick-all]").await;
    browser
        .until("document.querySelector('#bulk').innerText.includes('4 runs selected')")
        .await;
    assert_usable(&mut browser, "bulk-bar").await;

    // Right after a change of the size, the browser may drop a click of the mouse.
    browser
        .eval("document.querySelector('[data-bulk=cancel]').click()")
        .await;
    browser
        .until("document.querySelector('#confirm[open] [name=reason]')")
        .await;
    browser.picture("bulk-options").await;
    browser.type_text("wrong <b>price</b>").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser
        .until("document.querySelector('#confirm h2').innerText === 'Cancel 3 runs?'")
        .await;
    // A slow double click hits the button of the next question. It does nothing.
    browser.click_second("#confirm [data-yes]").await;
    assert_eq!(
        browser
            .eval("document.querySelector('#confirm [data-yes]').disabled")
            .await,
        false
    );
    let text = browser.text("#confirm").await;
    for part in ["exactly these 3 runs", "1 run is left out", "Cancel 3 runs"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    browser.picture("bulk-confirm").await;
    let prepared = jobs(&server).await;
    assert_eq!(prepared.len(), 1);
    assert_eq!(
        (&prepared[0]["state"], &prepared[0]["total"]),
        (&json!("ready"), &json!(3))
    );
    let later = gated(&server).await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser
        .until("location.pathname.startsWith('/bulk/') && document.querySelector('#job .s-succeeded')")
        .await;
    for id in &running {
        let run = server.until(id, |run| run["status"] == "Cancelled").await;
        assert_eq!(run["reason"], "wrong <b>price</b>");
    }
    let after = server.get(&format!("/api/v1/executions/{later}")).await.expect(200);
    assert_eq!(after["status"], "Running", "the preview did not count it");
    let finished = jobs(&server).await;
    assert_eq!((finished.len(), &finished[0]["done"]), (1, &json!(3)));
    browser
        .until("document.querySelectorAll('#results .s-succeeded').length === 3")
        .await;
    assert_usable(&mut browser, "bulk-job").await;
    browser.open(&format!("{base}/bulk")).await;
    browser
        .until("document.querySelector('#jobs').innerText.includes('3 of 3 done')")
        .await;
    assert_usable(&mut browser, "bulk-jobs").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn deleting_all_that_match_repeats_the_count() {
    let server = Server::start().await;
    let base = server.base.clone();
    for id in ["quick", "other"] {
        server.publish(&echo(id)).await;
    }
    for workflow in ["quick", "quick", "quick", "other"] {
        let id = server.execute(workflow, json!({})).await;
        server.until(&id, |run| run["status"] == "Succeeded").await;
    }
    let mut browser = Browser::start().await;
    // Without a filter there is no job for all runs.
    browser.open(&format!("{base}/")).await;
    assert_eq!(
        browser.eval("document.querySelector('[data-select=query]')").await,
        Value::Null
    );
    browser.open(&format!("{base}/?workflowId=quick&limit=1")).await;
    browser.click("[data-pick]").await;
    browser.click("[data-select=query]").await;
    let ask = async |browser: &mut Browser| {
        browser.click("[data-bulk=delete]").await;
        browser.until("document.querySelector('#confirm[open]')").await;
        assert!(browser.text("#confirm").await.contains("workflow:quick"));
        browser.click("#confirm [data-yes]").await;
        browser
            .until("document.querySelector('#confirm h2').innerText === 'Delete 3 runs?'")
            .await;
    };
    ask(&mut browser).await;
    // Back: the job is dropped, and nothing was done.
    browser.click("#confirm [data-no]").await;
    browser.until("!document.querySelector('#confirm[open]')").await;
    browser
        .until("fetch('/api/v1/bulk').then((r) => r.json()).then((list) => { window.state = list.items[0].state; }) && window.state === 'cancelled'")
        .await;
    ask(&mut browser).await;
    let is_off = "document.querySelector('#confirm [data-yes]').disabled";
    assert_eq!(browser.eval(is_off).await, true);
    browser.type_text("4").await;
    assert_eq!(browser.eval(is_off).await, true);
    browser
        .eval("document.querySelector('#confirm [data-slot] input').select()")
        .await;
    browser.type_text("3").await;
    browser.picture("bulk-delete").await;
    assert_eq!(browser.eval(is_off).await, false);
    browser.press("Enter").await;
    browser
        .until("location.pathname.startsWith('/bulk/') && document.querySelector('#job .s-succeeded')")
        .await;
    let left = server.get("/api/v1/executions").await.expect(200);
    let left: Vec<&Value> = left["items"].as_array().unwrap().iter().collect();
    assert_eq!((left.len(), &left[0]["workflowId"]), (1, &json!("other")));
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn prepared_jobs_are_started_and_stopped_on_their_page() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&single("gated", "test.gate", json!({}))).await;
    let id = gated(&server).await;
    let prepare = async || {
        let body = json!({ "query": "workflow:gated", "action": "pause" });
        let job = server.post("/api/v1/bulk", body).await.expect(201);
        job["id"].as_str().unwrap().to_owned()
    };
    let mut browser = Browser::start().await;
    let (dropped, started) = (prepare().await, prepare().await);
    for (job, button, kind) in [(&dropped, "cancel", "cancelled"), (&started, "start", "succeeded")] {
        browser.open(&format!("{base}/bulk/{job}")).await;
        browser.click(&format!("[data-post$={button}]")).await;
        browser.until("document.querySelector('#confirm[open]')").await;
        browser.click_times("#confirm [data-yes]", 2).await;
        browser
            .until(&format!("document.querySelector('#job .s-{kind}')"))
            .await;
        assert_eq!(
            browser.eval("document.querySelector('#job [data-post]')").await,
            Value::Null
        );
    }
    let run = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert!(run["pausedAt"].is_string(), "{run}");
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn callers_see_only_the_actions_that_they_may_use() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let base = server.base.clone();
    let token = |scopes: &str| signer.sign(&changed(claims("acme"), "scope", json!(scopes)));
    let bearer = format!("Bearer {}", token("workflows:read workflows:execute workflows:manage"));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let post = async |path: &str, body: String| server.send(reqwest::Method::POST, path, &headers, body).await;
    post("/api/v1/workflows", echo("hello").to_string()).await.expect(201);
    post("/api/v1/workflows/hello/publish", String::new()).await.expect(200);
    post("/api/v1/workflows/hello/execute?wait=20s", "{}".to_owned())
        .await
        .expect(200);
    let mut browser = Browser::start().await;
    for (scopes, buttons, status) in [
        ("workflows:read", 0, 403),
        ("workflows:read workflows:execute", 4, 403),
        ("workflows:read workflows:execute workflows:manage", 5, 201),
    ] {
        browser.new_page().await;
        browser.open(&format!("{base}/")).await;
        browser.until("document.querySelector('[name=token]')").await;
        browser.eval("document.querySelector('[name=token]').focus()").await;
        browser.type_text(&token(scopes)).await;
        browser.press("Enter").await;
        browser.until("document.querySelector('#runs a.main')").await;
        let shown = browser.eval("document.querySelectorAll('[data-bulk]').length").await;
        assert_eq!(shown, buttons, "{scopes}");
        let picks = browser.eval("document.querySelectorAll('[data-pick]').length").await;
        assert_eq!(picks, u32::from(buttons > 0), "{scopes}");
        // A request without the button is refused too.
        let direct = "fetch('/api/v1/bulk', { method: 'POST', headers: { 'content-type': 'application/json' }, \
             body: JSON.stringify({ query: 'workflow:hello', action: 'delete' }) }).then((response) => response.status)";
        assert_eq!(browser.eval(direct).await, status, "{scopes}");
    }
}
