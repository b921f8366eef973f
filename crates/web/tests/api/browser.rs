//! The dashboard in a browser: what a person sees and does. `FERMATA_SCREENSHOTS=FOLDER` keeps pictures of the pages.

use crate::{
    chromium::Browser,
    harness::{Server, echo, single},
    provider::{Provider, Signer, changed, claims},
};
use fermata_runtime::Settings;
use fermata_web::{Loose, WebConfig};
use serde_json::{Value, json};

pub const HOSTILE: &str = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>";

/// A fork, a node that waits for its gate, and one that fails.
pub fn order(id: &str) -> Value {
    json!({ "id": id, "displayName": format!("Orders {HOSTILE}"), "startNode": "check",
        "triggerSchema": { "type": "object", "required": ["amount"], "properties": {
            "amount": { "type": "integer", "title": "Amount" }, "note": { "type": "string" }, "express": { "type": "boolean" } } },
        "nodes": [
        { "id": "check", "actionType": "core.echo", "parameters": { "amount": "{{ trigger.amount }}", "note": "{{ trigger.note ?? '' }}" },
          "edges": [{ "targetNode": "review", "when": "success", "condition": "trigger.amount > 100" },
                    { "targetNode": "accept", "when": "success", "condition": "trigger.amount <= 100" }] },
        { "id": "review", "actionType": "test.gate", "parameters": {}, "edges": [{ "targetNode": "accept" }] },
        { "id": "accept", "actionType": "core.echo", "parameters": { "accepted": true }, "edges": [{ "targetNode": "notify" }] },
        { "id": "notify", "actionType": "core.echo", "parameters": { "text": "thanks" } } ] })
}

fn approval(id: &str) -> Value {
    json!({ "id": id, "displayName": "Approval", "startNode": "ask", "nodes": [
        { "id": "ask", "actionType": "core.approval", "parameters": {
            "title": format!("Pay the invoice? {HOSTILE}"), "description": "Supplier: Example Ltd",
            "outcomes": ["approve", "reject"],
            "fields": { "type": "object", "properties": { "limit": { "type": "integer" }, "why": { "type": "string" } } } } } ] })
}

/// No script failed, nothing was blocked, and nothing of a document ran.
pub async fn assert_calm(browser: &mut Browser) {
    assert_eq!(browser.eval("window.harmed ?? 0").await, 0);
    assert!(browser.problems.is_empty(), "{:?}", browser.problems);
}

#[tokio::test]
async fn a_run_is_followed_without_a_reload() {
    let server = Server::start().await;
    let base = server.base.clone();
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/")).await;
    browser.until("document.body.innerText.includes('No runs yet')").await;
    browser.picture("runs-empty").await;
    browser.eval("window.same = true").await;

    server.publish(&order("orders")).await;
    let trigger = json!({ "amount": 9_007_199_254_740_993_u64, "note": HOSTILE });
    let id = server.execute("orders", json!({ "trigger": trigger })).await;
    browser.until("document.querySelector('#runs .s-running')").await;
    assert_eq!(browser.eval("window.same").await, true, "the page was not loaded again");

    browser.open(&format!("{base}/runs/{id}")).await;
    browser.eval("window.same = true").await;
    let state = |node: &str, kind: &str| format!("document.querySelector('#graph [data-node={node}].s-{kind}')");
    browser.until(&state("review", "running")).await;
    browser.until(&state("notify", "pending")).await;
    assert_eq!(
        browser
            .eval("document.querySelectorAll('#graph .edge.dead').length")
            .await,
        1
    );
    browser.picture("run-running").await;
    server.gate.add_permits(1);
    browser.until(&state("notify", "succeeded")).await;
    browser.until("document.querySelector('#run-head .s-succeeded')").await;
    assert_eq!(browser.eval("window.same").await, true, "the page was not loaded again");

    // The drawer shows what the API returns.
    browser.click("#graph [data-node=check]").await;
    browser.until("document.querySelector('.drawer')").await;
    let run = server
        .get(&format!("/api/v1/executions/{id}?include=actions"))
        .await
        .expect(200);
    let check = run["actions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|action| action["nodeId"] == "check")
        .unwrap();
    let shown = browser
        .eval("document.querySelector('.drawer pre.json').textContent")
        .await;
    let shown: Value = serde_json::from_str(shown.as_str().unwrap()).unwrap();
    assert_eq!(shown, check["outputs"]);
    let drawer = browser.text(".drawer").await;
    for part in ["9007199254740993", "trigger.amount > 100", "not taken", "taken"] {
        assert!(drawer.contains(part), "{part}: {drawer}");
    }
    assert!(browser.eval("location.search").await == "?node=check");
    browser.picture("run-drawer").await;
    browser.dark(true).await;
    browser.picture("run-drawer-dark").await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('.drawer')").await;
    browser.picture("run-dark").await;
    browser.dark(false).await;
    browser.picture("run").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn a_run_is_started_and_cancelled_once() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&order("orders")).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/workflows")).await;
    browser.picture("workflows").await;
    browser.open(&format!("{base}/workflows/orders")).await;
    browser.picture("workflow").await;
    browser
        .eval("document.querySelector('[data-field=amount]').focus()")
        .await;
    browser.type_text("9007199254740993").await;
    browser.click_times("[data-run] button", 2).await;
    browser
        .until("location.pathname.startsWith('/runs/') && document.querySelector('#graph .s-running')")
        .await;
    let runs = server.get("/api/v1/executions").await;
    assert!(
        runs.text.matches("\"executionId\"").count() == 1,
        "one run: {}",
        runs.text
    );
    let id = runs.expect(200)["items"][0]["id"].as_str().unwrap().to_owned();
    let run = server.get(&format!("/api/v1/executions/{id}")).await;
    assert!(run.text.contains("{\"amount\":9007199254740993}"), "{}", run.text);

    browser.click("[data-post$=cancel]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.picture("confirm").await;
    browser.click("#confirm [data-no]").await;
    browser.until("!document.querySelector('#confirm[open]')").await;
    let before = server.get(&format!("/api/v1/executions/{id}")).await.expect(200);
    assert_eq!(before["status"], "Running", "nothing is done before the confirmation");
    browser.click("[data-post$=cancel]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    server.gate.add_permits(1);
    browser.until("document.querySelector('#run-head .s-cancelled')").await;
    browser.until("!document.querySelector('[data-post$=cancel]')").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_retried_from_a_node() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&order("orders")).await;
    let id = server.execute("orders", json!({ "trigger": { "amount": 500 } })).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/runs/{id}")).await;
    browser
        .until("document.querySelector('#graph [data-node=review].s-running')")
        .await;
    for (verb, shown) in [("pause", "Paused"), ("resume", "Running")] {
        browser.click(&format!("[data-post$={verb}]")).await;
        browser.until("document.querySelector('#confirm[open]')").await;
        browser.click("#confirm [data-yes]").await;
        browser
            .until(&format!(
                "document.querySelector('#run-head .status').innerText.includes('{shown}')"
            ))
            .await;
    }
    server.gate.add_permits(1);
    browser.until("document.querySelector('#run-head .s-succeeded')").await;

    browser.click("#graph [data-node=accept]").await;
    browser.until("document.querySelector('.drawer [data-new-run]')").await;
    browser.click(".drawer [data-new-run]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser
        .until(&format!(
            "location.pathname.startsWith('/runs/') && !location.pathname.endsWith('{id}') \
             && document.querySelector('#run-head .s-succeeded')"
        ))
        .await;
    browser.picture("run-kept").await;
    let graph = browser.eval("document.querySelector('#graph').textContent").await;
    assert_eq!(
        graph.as_str().unwrap().matches("kept").count(),
        2,
        "check and review: {graph}"
    );
    let runs = server.get("/api/v1/executions").await.expect(200);
    assert_eq!(runs["items"].as_array().unwrap().len(), 2, "one new run: {runs}");
    assert_eq!(runs["items"][0]["rerunOf"], id.as_str());
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn an_approval_is_answered_once() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&approval("pay")).await;
    let id = server.execute("pay", json!({})).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/inbox")).await;
    browser.until("document.querySelector('#inbox a.main')").await;
    browser.picture("inbox").await;
    let item = browser.eval("document.querySelector('#inbox a.main').pathname").await;
    let item = format!("{base}{}", item.as_str().unwrap());
    browser.open(&item).await;
    browser
        .eval("document.querySelector('[data-field=limit]').focus()")
        .await;
    browser.type_text("9007199254740993").await;
    browser.picture("inbox-item").await;
    let pending = server.get("/api/v1/inbox?status=pending").await.expect(200);
    assert_eq!(
        pending["items"].as_array().unwrap().len(),
        1,
        "opening a page answers nothing"
    );
    browser.click("form [value=approve]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.click_times("#confirm [data-yes]", 2).await;
    browser.until("document.querySelector('[data-answered]')").await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let run = server.get(&format!("/api/v1/executions/{id}")).await;
    assert!(
        run.text.contains("9007199254740993") && run.text.contains("approve"),
        "{}",
        run.text
    );

    let id = server.execute("pay", json!({})).await;
    browser.open(&format!("{base}/inbox")).await;
    browser.until("document.querySelector('#inbox a.main')").await;
    let path = browser.eval("document.querySelector('#inbox a.main').pathname").await;
    let path = path.as_str().unwrap().to_owned();
    browser.open(&format!("{base}{path}")).await;
    browser.click("form [value=approve]").await;
    browser.until("document.querySelector('#confirm[open]')").await;
    let answer = json!({ "outcome": "reject", "answeredBy": "ada" });
    server.post(&format!("/api/v1{path}/answer"), answer).await.expect(200);
    browser.click("#confirm [data-yes]").await;
    browser
        .until("document.querySelector('#confirm [data-error]').textContent.includes('already answered')")
        .await;
    browser.click("#confirm [data-no]").await;
    browser
        .until("document.querySelector('[data-answered]')?.innerText.includes('ada')")
        .await;
    browser.picture("inbox-answered").await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn every_page_works_with_the_keyboard_and_on_a_phone() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&order("orders")).await;
    let json = [("content-type", "application/json")];
    let mut other = order("orders");
    other["nodes"][3] = json!({ "id": "tell", "actionType": "core.echo", "parameters": { "text": HOSTILE } });
    other["nodes"][2]["edges"] = json!([{ "targetNode": "tell", "condition": "trigger.amount < 9" }]);
    let path = "/api/v1/workflows/orders/draft";
    server
        .send(reqwest::Method::PUT, path, &json, other.to_string())
        .await
        .expect(200);
    server
        .publish(&single("broken", "core.fail", json!({ "message": HOSTILE.repeat(5) })))
        .await;
    server.publish(&approval("pay")).await;
    let waiting = server.execute("pay", json!({})).await;
    let failed = server.execute("broken", json!({})).await;
    server.until(&failed, |run| run["status"] == "Failed").await;
    let id = server.execute("orders", json!({ "trigger": { "amount": 7 } })).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let mut browser = Browser::start().await;

    // Only keys: search, a row, a node, back.
    browser.open(&format!("{base}/")).await;
    browser.picture("runs").await;
    browser.press("?").await;
    browser.until("document.querySelector('#shortcuts[open]')").await;
    browser.picture("shortcuts").await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('dialog[open]')").await;
    browser.press("/").await;
    browser.until("document.activeElement.name === 'query'").await;
    browser.type_text("text:orders").await;
    browser.press("Enter").await;
    browser
        .until("location.search === '?query=text%3Aorders' && document.querySelectorAll('#runs tbody tr').length === 1")
        .await;
    browser.press("j").await;
    browser.press("Enter").await;
    browser
        .until("location.pathname.startsWith('/runs/') && document.querySelector('#graph .node')")
        .await;
    browser
        .eval("document.querySelector('#graph [data-node=accept]').focus()")
        .await;
    browser.press("Enter").await;
    browser.until("document.querySelector('.drawer')").await;
    browser.press("Escape").await;
    browser.until("!document.querySelector('.drawer')").await;
    browser.press("t").await;
    browser.until("document.documentElement.dataset.theme === 'dark'").await;
    browser.press("g").await;
    browser.press("i").await;
    browser
        .until("location.pathname === '/inbox' && document.documentElement.dataset.theme === 'dark'")
        .await;
    browser.press("t").await;

    // From here on the system decides, not the person.
    browser.eval("localStorage.removeItem('theme')").await;
    let item = browser.eval("document.querySelector('#inbox a.main').pathname").await;
    let pages = [
        ("runs", "/".to_owned()),
        ("run", format!("/runs/{id}")),
        ("run-failed", format!("/runs/{failed}?node=only")),
        ("run-waiting", format!("/runs/{waiting}")),
        ("workflows", "/workflows".to_owned()),
        ("workflow", "/workflows/orders".to_owned()),
        ("difference", "/workflows/orders/difference?from=1&to=draft".to_owned()),
        ("editor", "/workflows/orders/edit".to_owned()),
        ("editor-new", "/workflows/new".to_owned()),
        ("inbox", "/inbox".to_owned()),
        ("inbox-item", item.as_str().unwrap().to_owned()),
        ("system", "/system".to_owned()),
        ("missing", "/nothing".to_owned()),
    ];
    for (name, path) in &pages {
        for (width, suffix) in [(1280, ""), (375, "-narrow")] {
            browser.size(width, 900).await;
            browser.open(&format!("{base}{path}")).await;
            assert!(!browser.overflows().await, "{path} is wider than {width} px");
            for dark in [false, true] {
                browser.dark(dark).await;
                let unnamed = browser.eval(UNNAMED).await;
                assert_eq!(unnamed, json!([]), "{path}: elements without an accessible name");
                let faint = browser.eval(FAINT).await;
                assert_eq!(faint, json!([]), "{path}, dark {dark}: texts with too little contrast");
                let shade = if dark { "-dark" } else { "" };
                browser.picture(&format!("all-{name}{suffix}{shade}")).await;
            }
        }
    }
    assert_calm(&mut browser).await;
}

/// Controls without a name that a screen reader can read.
pub const UNNAMED: &str = "[...document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea')] \
    .filter((e) => e.checkVisibility()) \
    .filter((e) => !(e.innerText ?? e.textContent).trim() && !e.textContent.trim() && !e.getAttribute('aria-label') && !e.title \
        && !e.labels?.length && !e.querySelector('[aria-label]')) \
    .map((e) => e.outerHTML)";

/// Texts whose contrast with the background is below 4.5.
pub const FAINT: &str = r#"(() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 200) return c; } return [255, 255, 255, 255]; };
    return [...document.querySelectorAll('main *, header *')].filter((e) => e.checkVisibility() && !e.closest('svg')
        && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
        .map((e) => { const a = light(rgba(getComputedStyle(e).color)), b = light(behind(e)); return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e]; })
        .filter(([ratio]) => ratio < 4.5).map(([ratio, e]) => `${ratio.toFixed(2)} ${e.outerHTML.slice(0, 120)}`);
})()"#;

#[tokio::test]
async fn signing_in_shows_the_pages_of_the_own_tenant_only() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let base = server.base.clone();
    let token = |tenant: &str, scopes: &str| signer.sign(&changed(claims(tenant), "scope", json!(scopes)));
    let all = "workflows:read workflows:execute workflows:manage";
    let bearer = format!("Bearer {}", token("acme", all));
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let post = async |path: &str, body: String| server.send(reqwest::Method::POST, path, &headers, body).await;
    post("/api/v1/workflows", echo("hello").to_string()).await.expect(201);
    post("/api/v1/workflows/hello/publish", String::new()).await.expect(200);
    let run = post("/api/v1/workflows/hello/execute?wait=20s", "{}".to_owned())
        .await
        .expect(200);
    let path = format!("/runs/{}", run["executionId"].as_str().unwrap());

    let mut browser = Browser::start().await;
    for (tenant, seen) in [("acme", true), ("other", false)] {
        browser.new_page().await;
        browser.open(&format!("{base}{path}")).await;
        browser.until("document.querySelector('[data-sign-in]')").await;
        browser.picture("sign-in").await;
        browser.eval("document.querySelector('[name=token]').focus()").await;
        browser.type_text("wrong").await;
        browser.press("Enter").await;
        browser
            .until("document.querySelector('[data-error]').textContent.includes('not accepted')")
            .await;
        browser
            .eval("document.querySelector('[name=token]').value = ''; document.querySelector('[name=token]').focus()")
            .await;
        browser.type_text(&token(tenant, "workflows:read")).await;
        browser.press("Enter").await;
        match seen {
            true => browser.until("document.querySelector('#graph .s-succeeded')").await,
            false => {
                browser
                    .until("document.querySelector('.problem')?.innerText.includes('404')")
                    .await
            }
        }
        assert_eq!(browser.eval("document.cookie").await, "", "scripts cannot read it");
        browser.open(&format!("{base}/")).await;
        let runs = browser.eval("document.querySelectorAll('#runs tbody tr').length").await;
        assert_eq!(runs, u32::from(seen));
        // A button that the caller may not use is not there, and its request is refused.
        assert_eq!(
            browser
                .eval("document.querySelectorAll('[data-post], [data-run]').length")
                .await,
            0
        );
        let refused =
            "fetch('/api/v1/workflows/hello/execute', { method: 'POST' }).then((response) => response.status)";
        assert_eq!(browser.eval(refused).await, 403);
    }
    let mut problems = std::mem::take(&mut browser.problems);
    problems.retain(|text| !text.contains("status of 4"));
    assert!(problems.is_empty(), "{problems:?}");
}

#[tokio::test]
async fn a_large_graph_stays_usable() {
    let mut settings = Settings::default();
    settings.dialects.max_nodes = 2000;
    let server = Server::with(settings, WebConfig::default()).await;
    let base = server.base.clone();
    let nodes = (0..2000).map(|n| {
        let next = [2 * n + 1, 2 * n + 2].into_iter().filter(|next| *next < 2000);
        let edges: Vec<Value> = next.map(|next| json!({ "targetNode": format!("n{next}") })).collect();
        json!({ "id": format!("n{n}"), "actionType": "core.echo", "parameters": {}, "edges": edges })
    });
    let document =
        json!({ "id": "large", "displayName": "Large", "startNode": "n0", "nodes": nodes.collect::<Vec<_>>() });
    server.publish(&document).await;
    let id = server.execute("large", json!({})).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/runs/{id}")).await;
    assert_eq!(
        browser
            .eval("document.querySelectorAll('#graph .node.s-succeeded').length")
            .await,
        2000
    );
    browser.press("/").await;
    browser.type_text("n1999").await;
    browser
        .until("document.querySelector('.node.hit')?.dataset.node === 'n1999'")
        .await;
    browser.press("Enter").await;
    browser
        .until("document.querySelector('.drawer')?.innerText.includes('n1999')")
        .await;
    browser.picture("run-large").await;
    assert_calm(&mut browser).await;
}
