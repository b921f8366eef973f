//! Workflows in a browser: the editor, differences of versions, commands, and the charts of the system page.

use crate::{
    browser::{FAINT, HOSTILE, UNNAMED, assert_calm, order},
    chromium::Browser,
    harness::{Server, single},
};
use reqwest::Method;
use serde_json::{Value, json};

const SOURCE: &str = "# Orders, with a comment.
id: orders
displayName: Orders
startNode: check
nodes:
  - id: check
    actionType: core.echo
    parameters: { n: \"{{ trigger.n }}\" }
    edges:
      - { targetNode: large, condition: trigger.n > 5 }
      - { targetNode: small, condition: trigger.n <= 5 }
  - { id: large, actionType: core.echo, parameters: {} }
  - { id: small, actionType: core.echo, parameters: {} }
";

async fn write(server: &Server, method: Method, path: &str, source: &str) {
    let yaml = [("content-type", "application/yaml")];
    let answer = server.send(method, path, &yaml, source.to_owned()).await;
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text);
}

/// Replaces the source as a person would: select all, type.
async fn fill(browser: &mut Browser, source: &str) {
    browser
        .eval("document.querySelector('#source').focus(); document.querySelector('#source').select()")
        .await;
    browser.type_text(source).await;
}

/// Light and dark, wide and narrow: nothing overflows, everything has a name and contrast.
async fn assert_accessible(browser: &mut Browser, name: &str) {
    for (width, suffix) in [(375, "-narrow"), (1280, "")] {
        browser.size(width, 900).await;
        assert!(!browser.overflows().await, "{name} is wider than {width} px");
        for (dark, shade) in [(true, "-dark"), (false, "")] {
            browser.dark(dark).await;
            assert_eq!(browser.eval(UNNAMED).await, json!([]), "{name}");
            assert_eq!(browser.eval(FAINT).await, json!([]), "{name}, dark {dark}");
            browser.picture(&format!("{name}{suffix}{shade}")).await;
        }
    }
}

async fn confirm(browser: &mut Browser) {
    browser.until("document.querySelector('#confirm[open]')").await;
    browser.click("#confirm [data-yes]").await;
}

const SAID: &str = "document.querySelector('#said').textContent";

#[tokio::test]
async fn a_workflow_is_written_checked_dry_run_saved_and_published() {
    let server = Server::start().await;
    let base = server.base.clone();
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/workflows")).await;
    browser.click("a[href='/workflows/new']").await;
    browser
        .until("document.querySelector('#graph [data-node=greet]') && document.querySelector('#gutter').textContent")
        .await;

    // An error is located; its button moves the cursor there, also with a character of two units before it.
    let wrong = SOURCE
        .replace("condition: trigger.n > 5", "condition: 'trigger.𝒏 >'")
        .replace("with a comment", "with 🙂 and <b>");
    fill(&mut browser, &wrong).await;
    browser.until("document.querySelector('#problems .s-failed')").await;
    let line = "Number(document.querySelector('#problems [data-line]').dataset.line)";
    assert_eq!(browser.eval(line).await, 10);
    assert!(browser.text("#gutter").await.contains("! 10"));
    assert_eq!(
        browser
            .eval("document.querySelectorAll('#graph [data-node=greet]').length")
            .await,
        1,
        "the graph of the last good source stays"
    );
    browser
        .eval("document.querySelector('#problems [data-line]').focus()")
        .await;
    browser.press("Enter").await;
    browser.until("document.activeElement.id === 'source'").await;
    let selected = "(() => { const s = document.querySelector('#source'); return s.value.slice(0, s.selectionStart).split('\\n').length; })()";
    assert_eq!(browser.eval(selected).await, 10);
    assert_accessible(&mut browser, "editor-problem").await;

    // The graph follows the source.
    fill(&mut browser, SOURCE).await;
    browser
        .until("document.querySelector('#problems .s-succeeded') && document.querySelectorAll('#graph [data-node]').length === 3")
        .await;
    assert_eq!(browser.text("#node-count").await, "3 nodes");
    browser.eval("document.querySelector('#graph [data-node=small]').dispatchEvent(new MouseEvent('click', { bubbles: true }))").await;
    let text = "(() => { const s = document.querySelector('#source'); return s.value.slice(s.selectionStart, s.selectionEnd); })()";
    assert_eq!(browser.eval(text).await, "small");

    // Tab writes spaces; Escape and Tab leave the field.
    browser
        .eval("document.querySelector('#source').setSelectionRange(0, 0)")
        .await;
    browser.press("Tab").await;
    assert_eq!(
        browser
            .eval("document.querySelector('#source').value.startsWith('  # Orders')")
            .await,
        true
    );
    browser.press("Escape").await;
    browser.press("Tab").await;
    assert_eq!(browser.eval("document.activeElement.id === 'source'").await, false);
    let warns = "(() => { const e = new Event('beforeunload', { cancelable: true }); dispatchEvent(e); return e.defaultPrevented; })()";
    assert_eq!(browser.eval(warns).await, true, "leaving with changes warns");

    // A dry run shows the route, with the digits that were typed.
    browser
        .eval("document.querySelector('[name=trigger]').focus(); document.querySelector('[name=trigger]').select()")
        .await;
    browser.type_text("{\"n\": 9007199254740993}").await;
    browser.click("[data-dry-run]").await;
    browser
        .until("document.querySelector('#graph [data-node=small].s-skipped')")
        .await;
    browser
        .until("document.querySelector('#graph [data-node=large].s-succeeded')")
        .await;
    assert!(browser.text("#dry-result").await.contains("9007199254740993"));
    assert_accessible(&mut browser, "editor-dry-run").await;
    let runs = server.get("/api/v1/executions").await.expect(200);
    assert_eq!(runs["items"], json!([]), "a dry run stores nothing");

    // Saved, then published.
    fill(&mut browser, SOURCE).await;
    browser.click("[data-save]").await;
    browser.until("location.pathname === '/workflows/orders/edit'").await;
    let draft = server.get("/api/v1/workflows/orders/draft").await.expect(200);
    assert_eq!(draft["source"], SOURCE);
    assert_eq!(browser.eval(warns).await, false, "nothing is unsaved");
    browser.click("[data-publish]").await;
    confirm(&mut browser).await;
    browser
        .until("location.pathname === '/workflows/orders' && document.querySelector('#workflow-head .s-succeeded')")
        .await;
    assert!(browser.text(".source").await.contains("# Orders, with a comment."));
    let mut problems = std::mem::take(&mut browser.problems);
    problems.retain(|text| !text.contains("status of 4"));
    assert!(problems.is_empty(), "{problems:?}");
}

#[tokio::test]
async fn the_draft_of_another_person_is_not_replaced_silently() {
    let server = Server::start().await;
    let base = server.base.clone();
    let draft = "/api/v1/workflows/orders/draft";
    let stored = async || {
        let answer = server.get(draft).await;
        answer.expect(200)["source"].as_str().unwrap().to_owned()
    };
    write(&server, Method::POST, "/api/v1/workflows", SOURCE).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/workflows/orders/edit")).await;
    let mine = SOURCE.replace("displayName: Orders", "displayName: Mine");
    let theirs = SOURCE.replace("displayName: Orders", "displayName: Theirs");
    write(&server, Method::PUT, draft, &theirs).await;
    fill(&mut browser, &mine).await;
    browser.click("[data-save]").await;
    browser.until("!document.querySelector('#conflict').hidden").await;
    assert_eq!(stored().await, theirs);
    browser.click("[data-compare]").await;
    browser
        .until("document.querySelector('#conflict-difference del')")
        .await;
    let shown = browser.text("#conflict-difference").await;
    assert!(shown.contains("Theirs") && shown.contains("Mine"), "{shown}");
    assert_accessible(&mut browser, "editor-conflict").await;

    // Only after a question.
    browser.click("[data-overwrite]").await;
    confirm(&mut browser).await;
    browser
        .until(&format!(
            "{SAID} === 'Draft saved' && document.querySelector('#conflict').hidden"
        ))
        .await;
    assert_eq!(stored().await, mine);
    // The editor goes on from there.
    let again = SOURCE.replace("displayName: Orders", "displayName: Again");
    fill(&mut browser, &again).await;
    browser.click("[data-save]").await;
    browser.until(&format!("{SAID} === 'Draft saved'")).await;
    assert_eq!(stored().await, again);

    // A version that was published meanwhile is not replaced without a word.
    server
        .post_nothing("/api/v1/workflows/orders/publish")
        .await
        .expect(200);
    browser.open(&format!("{base}/workflows/orders/edit")).await;
    write(&server, Method::PUT, draft, &theirs).await;
    server
        .post_nothing("/api/v1/workflows/orders/publish")
        .await
        .expect(200);
    fill(&mut browser, &mine).await;
    browser.click("[data-publish]").await;
    confirm(&mut browser).await;
    browser
        .until("document.querySelector('#confirm [data-error]').textContent.includes('Version 2 was published')")
        .await;
    let versions = server.get("/api/v1/workflows/orders/versions").await.expect(200);
    assert_eq!(versions["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_workflow_is_paused_resumed_and_goes_back_to_an_older_version() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&order("orders")).await;
    let mut changed: Value = order("orders");
    changed["nodes"][3] = json!({ "id": "tell", "actionType": "core.echo", "parameters": { "text": HOSTILE } });
    changed["nodes"][2]["edges"] = json!([{ "targetNode": "tell" }]);
    write(
        &server,
        Method::PUT,
        "/api/v1/workflows/orders/draft",
        &changed.to_string(),
    )
    .await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/workflows/orders")).await;
    let head = "document.querySelector('#workflow-head .status').innerText";
    for (command, state) in [("pause", "Paused"), ("resume", "Active")] {
        browser.click(&format!("#workflow-head [data-post$={command}]")).await;
        confirm(&mut browser).await;
        browser.until(&format!("{head}.includes('{state}')")).await;
    }
    browser.click("#workflow-head [data-post$=publish]").await;
    confirm(&mut browser).await;
    let current = |version: u32| {
        format!(
            "[...document.querySelectorAll('#versions tr')].some((row) => row.innerText.includes('Version {version}') && row.innerText.includes('current'))"
        )
    };
    browser.until(&current(2)).await;
    browser.picture("workflow-versions").await;
    browser.click("#versions [data-post$='versions/1/activate']").await;
    confirm(&mut browser).await;
    browser.until(&current(1)).await;

    browser.click("#versions a[href*=difference]").await;
    browser
        .until("document.querySelector('#graph [data-node=tell].s-added')")
        .await;
    browser
        .until("document.querySelector('#graph [data-node=notify].s-removed')")
        .await;
    assert_accessible(&mut browser, "difference").await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn charts_have_tables_that_stay_open() {
    let server = Server::start().await;
    let base = server.base.clone();
    server
        .publish(&single("broken", "core.fail", json!({ "message": "no" })))
        .await;
    server.publish(&order("orders")).await;
    for (workflow, amount) in [("orders", 7), ("orders", 8), ("broken", 1)] {
        let path = format!("/api/v1/workflows/{workflow}/execute?wait=20s");
        server
            .post(&path, json!({ "trigger": { "amount": amount } }))
            .await
            .expect(200);
    }
    server.engine.write_numbers().await.unwrap();
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/system")).await;
    browser
        .until("document.querySelectorAll('figure.chart').length === 4")
        .await;
    browser
        .eval("window.before = document.querySelector('figure.chart'); 0")
        .await;
    browser.click("figure.chart summary").await;
    browser
        .until("document.querySelector('figure.chart details').open")
        .await;
    let table = browser.text("figure.chart table").await;
    assert!(table.contains('2') && table.contains('1'), "{table}");
    // Other numbers come with the next fetch; the table stays open.
    server
        .post("/api/v1/workflows/broken/execute?wait=20s", json!({}))
        .await
        .expect(200);
    browser
        .until("document.querySelector('figure.chart') !== window.before && document.querySelector('figure.chart details').open")
        .await;
    assert_accessible(&mut browser, "system-charts").await;
    browser.open(&format!("{base}/workflows/orders")).await;
    browser
        .until("document.querySelector('#numbers figure.chart rect')")
        .await;
    assert_accessible(&mut browser, "workflow-numbers").await;
    browser.open(&format!("{base}/workflows")).await;
    assert_accessible(&mut browser, "workflows-numbers").await;
    assert_calm(&mut browser).await;
}
