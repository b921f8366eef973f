//! The list of runs in a browser: suggestions of the query box, and how the list follows its stream.

use crate::{
    browser::{FAINT, UNNAMED, assert_calm},
    chromium::Browser,
    harness::{Server, echo},
};
use serde_json::{Value, json};

/// Remembers the streams that a page opens.
const STREAMS: &str = "window.streams = []; \
    window.EventSource = class extends EventSource { constructor(address) { super(address); window.streams.push(this); } };";
/// Opens streams that the server refuses.
const REFUSED: &str = "window.streams = []; \
    window.EventSource = class extends EventSource { constructor() { super('/nothing'); window.streams.push(this); } };";
const ROWS: &str = "document.querySelectorAll('#runs tbody tr').length";

async fn run(server: &Server) -> String {
    let id = server.execute("hello", json!({})).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    id
}

fn hide(is_hidden: bool) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }}); \
         document.dispatchEvent(new Event('visibilitychange'))"
    )
}

#[tokio::test]
async fn queries_are_completed_with_the_keys() {
    let server = Server::start().await;
    let base = server.base.clone();
    let mut tagged = echo("order-eu");
    tagged["tags"] = json!(["europe", "billing"]);
    server.publish(&tagged).await;
    server.publish(&echo("hello")).await;
    run(&server).await;
    let mut browser = Browser::start().await;
    browser.open(&format!("{base}/")).await;
    browser.press("/").await;
    let offered = |text: &str| {
        format!(
            "[...document.querySelectorAll('#suggestions:not([hidden]) [role=option]')].some((o) => o.dataset.text === '{text}')"
        )
    };
    browser.type_text("sta").await;
    browser.until(&offered("status:")).await;
    browser.press("ArrowDown").await;
    browser
        .until("document.activeElement.getAttribute('aria-activedescendant') === 'suggestion-0'")
        .await;
    browser.press("Enter").await;
    // After a key come its values.
    browser.until(&offered("status:failed")).await;
    browser.picture("suggestions").await;
    browser.type_text("succ").await;
    browser
        .until("document.querySelectorAll('#suggestions [role=option]').length === 1")
        .await;
    browser.press("ArrowDown").await;
    browser.press("Tab").await;
    browser
        .until("document.querySelector('#query').value === 'status:succeeded '")
        .await;
    browser.type_text("workflow:ord").await;
    browser.until(&offered("workflow:order-eu")).await;
    assert_eq!(browser.eval(UNNAMED).await, json!([]));
    assert_eq!(browser.eval(FAINT).await, json!([]));
    browser.press("Escape").await;
    browser
        .until("document.querySelector('#suggestions').hidden && document.activeElement.id === 'query'")
        .await;
    browser.type_text("* tag:bil").await;
    browser.until(&offered("tag:billing")).await;
    browser.size(375, 800).await;
    browser.picture("suggestions-narrow").await;
    assert!(!browser.overflows().await);
    browser.click("#suggestions [role=option]").await;
    browser
        .until("document.querySelector('#query').value === 'status:succeeded workflow:ord* tag:billing '")
        .await;
    assert_eq!(browser.eval("location.search").await, "", "nothing was sent yet");

    // What was probably meant is one click away, and the other filters stay.
    browser.size(1280, 900).await;
    browser.open(&format!("{base}/?query=stauts%3Asucceeded&limit=7")).await;
    browser.until("document.querySelector('[data-corrected]')").await;
    browser.picture("corrected").await;
    browser.click("[data-corrected]").await;
    browser
        .until("location.search === '?query=status%3Asucceeded&limit=7' && document.querySelector('#runs a.main')")
        .await;
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn the_list_follows_its_stream_while_it_is_seen() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&echo("hello")).await;
    run(&server).await;
    let mut browser = Browser::start().await;
    browser.before_pages(STREAMS).await;
    browser.open(&format!("{base}/?query=workflow:hello")).await;
    browser
        .until("window.streams.length === 1 && window.streams[0].readyState === 1")
        .await;
    let address = browser.eval("window.streams[0].url").await;
    assert!(
        address
            .as_str()
            .unwrap()
            .ends_with("/api/v1/stream?query=workflow%3Ahello&limit=50"),
        "{address}"
    );
    run(&server).await;
    browser.until(&format!("{ROWS} === 2")).await;

    // A hidden page has no stream and asks for nothing.
    browser.eval(&hide(true)).await;
    assert_eq!(browser.eval("window.streams[0].readyState").await, 2);
    run(&server).await;
    let asked = "performance.getEntriesByType('resource').filter((entry) => entry.initiatorType === 'fetch').length";
    let before = browser.eval(asked).await;
    browser.eval("new Promise((go) => setTimeout(go, 1500))").await;
    assert_eq!(browser.eval(asked).await, before);
    browser.eval(&hide(false)).await;
    browser
        .until(&format!("{ROWS} === 3 && window.streams.length === 2"))
        .await;

    // While runs are selected, the rows stay where they are.
    browser.click("[data-pick]").await;
    let first = browser.eval("document.querySelector('[data-pick]').dataset.pick").await;
    browser
        .eval("window.streams.at(-1).addEventListener('execution', () => { window.arrived = true; })")
        .await;
    let (newer, newest) = (run(&server).await, run(&server).await);
    browser.until("window.arrived").await;
    browser.eval("new Promise((go) => setTimeout(go, 3500))").await;
    assert_eq!(
        browser
            .eval("[document.querySelector('[data-pick]').dataset.pick, document.querySelector('[data-pick]').checked]")
            .await,
        json!([first, true])
    );
    browser.click("[data-select=none]").await;
    browser.until(&format!("{ROWS} === 5")).await;
    let rows = browser
        .eval("[...document.querySelectorAll('[data-pick]')].map((pick) => pick.dataset.pick)")
        .await;
    assert_eq!((&rows[0], &rows[1]), (&json!(newest), &json!(newer)));
    assert_calm(&mut browser).await;
}

#[tokio::test]
async fn a_refused_stream_is_replaced_by_asking() {
    let server = Server::start().await;
    let base = server.base.clone();
    server.publish(&echo("hello")).await;
    let mut browser = Browser::start().await;
    browser.before_pages(REFUSED).await;
    browser.open(&format!("{base}/")).await;
    browser
        .until("window.streams.length === 1 && window.streams[0].readyState === 2")
        .await;
    for count in 1..=2 {
        run(&server).await;
        browser.until(&format!("{ROWS} === {count}")).await;
    }
    assert_eq!(
        browser.eval("window.streams.length").await,
        1,
        "the page asked for the rows"
    );
    assert_eq!(browser.eval("document.querySelector('[data-away]').hidden").await, true);
    assert_eq!(browser.problems, Vec::<String>::new());
    assert_eq!(browser.eval("window.harmed ?? null").await, Value::Null);
}
