//! The dashboard over HTTP: what pages contain, who sees them, and the sign-in. `browser.rs` opens them in a browser.

use crate::{
    harness::{Answer, Server, echo, single},
    provider::{Provider, Signer, changed, claims},
};
use fermata_runtime::Settings;
use fermata_web::Loose;
use reqwest::Method;
use serde_json::{Value, json};

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn page(server: &Server, path: &str) -> Answer {
    server.send(Method::GET, path, &[HTML], "").await
}

async fn shown(server: &Server, path: &str) -> String {
    let answer = page(server, path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    answer.text
}

/// Two nodes after a decision by a condition.
fn forked(id: &str) -> Value {
    json!({ "id": id, "displayName": "Forked", "startNode": "first", "nodes": [
        { "id": "first", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n }}", "say": "{{ trigger.say }}" },
          "edges": [{ "targetNode": "large", "when": "success", "condition": "trigger.n > 5" },
                    { "targetNode": "small", "when": "success", "condition": "trigger.n <= 5" }] },
        { "id": "large", "actionType": "core.echo", "parameters": {} },
        { "id": "small", "actionType": "core.echo", "parameters": {} } ] })
}

#[tokio::test]
async fn first_visit_on_an_empty_database() {
    let server = Server::start().await;
    let text = shown(&server, "/").await;
    assert!(
        text.contains("No runs yet") && text.contains("data-copy=\"curl -X POST"),
        "{text}"
    );
}

#[tokio::test]
async fn a_run_is_shown_with_exact_numbers_and_inert_texts() {
    let server = Server::start().await;
    server.publish(&forked("forked")).await;
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>";
    let trigger = json!({ "trigger": { "n": 9_007_199_254_740_993_u64, "say": hostile } });
    let id = server.execute("forked", trigger).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let list = shown(&server, "/").await;
    assert!(
        list.contains(&format!("/runs/{id}")) && list.contains("Succeeded"),
        "{list}"
    );
    let run = shown(&server, &format!("/runs/{id}?node=first")).await;
    for text in [&list, &run] {
        assert!(
            !text.contains("<script>alert") && !text.contains("<img src=x"),
            "{text}"
        );
    }
    assert!(
        run.contains("9007199254740993") && !run.contains("9007199254740992"),
        "{run}"
    );
    assert!(run.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{run}");
    // Why: both conditions, the value they read, and what followed.
    for part in [
        "trigger.n &gt; 5",
        "trigger.n &lt;= 5",
        "not taken",
        "s-skipped",
        "edge dead",
        "edge taken",
    ] {
        assert!(run.contains(part), "{part}: {run}");
    }
    let none = page(&server, &format!("/runs/{id}?node=none")).await;
    assert_eq!(none.status, 404, "{}", none.text);
}

#[tokio::test]
async fn pages_load_nothing_from_elsewhere_and_have_no_inline_code() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let id = server.execute("hello", json!({})).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    for path in ["/", &format!("/runs/{id}?node=only"), "/nothing"] {
        let answer = page(&server, path).await;
        let policy = answer.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
            "{policy}"
        );
        assert!(
            !policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        for script in answer.text.split("<script").skip(1) {
            let is_file =
                script.starts_with(" src=\"/assets/") || script.starts_with(" type=\"module\" src=\"/assets/");
            assert!(is_file, "{path}: {script}");
        }
        for inline in [" style=", "<style", " onclick=", " onload=", " onerror=", "javascript:"] {
            assert!(!answer.text.contains(inline), "{path}: {inline}");
        }
        let loads = answer
            .text
            .split([' ', '<'])
            .filter(|part| part.starts_with("src=") || part.starts_with("href="));
        for load in loads {
            let target = load.split('"').nth(1).unwrap();
            assert!(
                target.starts_with(['/', '?', '#']) && !target.starts_with("//"),
                "{path}: {load}"
            );
        }
        assert!(answer.text.len() < 40 * 1024, "{path}: {} bytes", answer.text.len());
    }
    for file in [
        "app.css", "app.js", "act.js", "bulk.js", "edit.js", "forms.js", "graph.js", "live.js", "query.js", "theme.js",
        "icon.svg",
    ] {
        let answer = server.get(&format!("/assets/{file}")).await;
        assert_eq!(answer.status, 200, "{file}");
        let known = [("if-none-match", answer.header("etag"))];
        let again = server.send(Method::GET, &format!("/assets/{file}"), &known, "").await;
        assert_eq!((again.status, again.text.as_str()), (304, ""));
    }
}

#[tokio::test]
async fn large_texts_are_cut_and_can_be_downloaded() {
    let server = Server::start().await;
    server
        .publish(&single("big", "core.echo", json!({ "all": "{{ trigger.all }}" })))
        .await;
    let large = "x".repeat(300_000);
    let id = server.execute("big", json!({ "trigger": { "all": large } })).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let text = shown(&server, &format!("/runs/{id}?node=only")).await;
    assert!(
        text.len() < 500_000 && text.contains("Only the first 64 KB are shown"),
        "{}",
        text.len()
    );
    let run = server
        .get(&format!("/api/v1/executions/{id}?include=actions"))
        .await
        .expect(200);
    for (path, expected) in [
        (format!("/runs/{id}/data/trigger"), &run["trigger"]),
        (format!("/runs/{id}/data/outputs"), &run["outputs"]),
        (
            format!("/runs/{id}/nodes/only/attempts/1/outputs"),
            &run["actions"][0]["outputs"],
        ),
        (
            format!("/runs/{id}/nodes/only/attempts/1/parameters"),
            &run["actions"][0]["parameters"],
        ),
    ] {
        let answer = server.get(&path).await;
        assert!(answer.header("content-disposition").starts_with("attachment"), "{path}");
        assert_eq!(&answer.expect(200), expected, "{path}");
    }
    for path in [
        "data/none",
        "nodes/only/attempts/7/outputs",
        "nodes/none/attempts/1/outputs",
    ] {
        assert_eq!(server.get(&format!("/runs/{id}/{path}")).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn filters_are_in_the_address() {
    let server = Server::start().await;
    for id in ["one", "two"] {
        server.publish(&echo(id)).await;
    }
    let mut runs = Vec::new();
    for workflow in ["one", "two", "one"] {
        let id = server.execute(workflow, json!({})).await;
        server.until(&id, |run| run["status"] == "Succeeded").await;
        runs.push(id);
    }
    let of = |text: &str| {
        runs.iter()
            .map(|id| text.contains(&format!("href=\"/runs/{id}\"")))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&shown(&server, "/").await), [true, true, true]);
    assert_eq!(of(&shown(&server, "/?workflowId=one").await), [true, false, true]);
    assert_eq!(
        of(&shown(&server, "/?workflowId=one&status=Failed").await),
        [false, false, false]
    );
    let first = shown(&server, "/?workflowId=one&limit=1").await;
    assert_eq!(of(&first), [false, false, true]);
    let next = first.split("href=\"").find(|part| part.contains("cursor=")).unwrap();
    let next = next.split('"').next().unwrap().replace("&amp;", "&");
    assert_eq!(of(&shown(&server, &next).await), [true, false, false]);
    assert_eq!(page(&server, "/?status=Wrong").await.status, 400);
}

#[tokio::test]
async fn suggestions_are_those_of_the_caller() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let bearer = |tenant: &str| {
        let scopes = json!("workflows:read workflows:manage");
        format!("Bearer {}", signer.sign(&changed(claims(tenant), "scope", scopes)))
    };
    for (tenant, id, tag) in [("acme", "order-eu", "europe"), ("other", "order-us", "america")] {
        let mut document = echo(id);
        document["tags"] = json!([tag]);
        let token = bearer(tenant);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        let post = async |path: &str, body: String| server.send(Method::POST, path, &headers, body).await;
        post("/api/v1/workflows", document.to_string()).await.expect(201);
        post(&format!("/api/v1/workflows/{id}/publish"), String::new())
            .await
            .expect(200);
    }
    let token = bearer("acme");
    for (text, expected) in [
        ("tag:x%20status:fa", json!(["status:failed"])),
        ("sta", json!(["status:"])),
        ("since:7", json!(["since:7d"])),
        ("workflow:ORD", json!(["workflow:order-eu"])),
        ("tag:", json!(["tag:europe"])),
        ("tag:am", json!([])),
        ("workflow:%00", json!([])),
        ("order_id=1", json!([])),
        (&"x".repeat(3000), json!([])),
    ] {
        let path = format!("/suggest?text={text}");
        let found = server
            .send(Method::GET, &path, &[("authorization", token.as_str())], "")
            .await
            .expect(200);
        let texts: Vec<&Value> = found.as_array().unwrap().iter().map(|one| &one["text"]).collect();
        assert_eq!(json!(texts), expected, "{text}");
    }
}

#[tokio::test]
async fn wrong_queries_offer_what_was_meant() {
    let server = Server::start().await;
    let wrong = page(&server, "/?query=status%3Afaild%20tag%3A%22a%20%3Cb%3E%22&limit=3").await;
    assert_eq!(wrong.status, 400);
    let link = "href=\"/?query=status%3Afailed%20tag%3A%22a%20%3Cb%3E%22&amp;limit=3\"";
    assert!(
        wrong.text.contains(link) && !wrong.text.contains("<b>"),
        "{}",
        wrong.text
    );
    let unknown = page(&server, "/?query=since%3Asoon").await;
    assert!(unknown.status == 400 && !unknown.text.contains("data-corrected"));
    let other = page(&server, "/?status=Wrong&query=status%3Afailed").await;
    assert!(other.status == 400 && !other.text.contains("data-corrected"));
}

#[tokio::test]
async fn bulk_jobs_belong_to_their_tenant() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let bearer = |tenant: &str, scopes: &str| {
        format!(
            "Bearer {}",
            signer.sign(&changed(claims(tenant), "scope", json!(scopes)))
        )
    };
    let own = bearer("acme", "workflows:read workflows:execute");
    let headers = [("authorization", own.as_str()), ("content-type", "application/json")];
    let hostile = "tag:\"<script>alert(1)</script>\"";
    let body = json!({ "query": hostile, "action": "cancel", "reason": "<img src=x>" });
    let job = server
        .send(Method::POST, "/api/v1/bulk", &headers, body.to_string())
        .await
        .expect(201);
    let path = format!("/bulk/{}", job["id"].as_str().unwrap());
    let get = async |token: &str, path: &str| {
        let headers = [HTML, ("authorization", token)];
        server.send(Method::GET, path, &headers, "").await
    };
    for path in ["/bulk", &path] {
        let shown = get(&own, path).await;
        assert_eq!(shown.status, 200, "{}", shown.text);
        assert!(shown.text.contains("Cancel 0 runs"), "{}", shown.text);
        assert!(
            !shown.text.contains("<script>alert") && !shown.text.contains("<img"),
            "{}",
            shown.text
        );
    }
    // Who may only read sees the job, and no button.
    let reader = get(&bearer("acme", "workflows:read"), &path).await;
    assert!(
        reader.status == 200 && !reader.text.contains("data-post"),
        "{}",
        reader.text
    );
    let other = bearer("other", "workflows:read workflows:execute");
    assert_eq!(get(&other, &path).await.status, 404);
    assert!(get(&other, "/bulk").await.text.contains("No bulk jobs"));
    assert_eq!(get(&own, &format!("{path}?state=wrong")).await.status, 400);
    assert_eq!(get(&own, "/bulk/x").await.status, 400);
}

#[tokio::test]
async fn clients_that_do_not_accept_html_get_json() {
    let server = Server::start().await;
    server.get("/nothing").await.error(404, "NOT_FOUND");
    server.get("/runs/nothing").await.error(400, "INVALID_ID");
    let missing = page(&server, "/nothing").await;
    assert_eq!(
        (missing.status, missing.header("content-type")),
        (404, "text/html; charset=utf-8")
    );
    assert!(
        missing.text.contains("There is no page at this address"),
        "{}",
        missing.text
    );
    let api = server.send(Method::GET, "/api/v1/nothing", &[HTML], "").await;
    api.error(404, "NOT_FOUND");
    let api = server
        .send(Method::GET, "/api/v1/executions?limit=0", &[HTML], "")
        .await;
    api.error(400, "INVALID_PARAMETER");
}

#[tokio::test]
async fn signing_in_sets_a_cookie_that_counts_for_this_server_only() {
    let signer = Signer::ed25519("k");
    let provider = Provider::start(&[&signer]).await;
    let server = Server::with(Settings::default(), provider.config(Loose::Refused)).await;
    let asked = page(&server, "/").await;
    assert_eq!(asked.status, 401);
    assert!(
        asked.text.contains("data-sign-in") && asked.header("www-authenticate").starts_with("Bearer"),
        "{}",
        asked.text
    );

    let json = ("content-type", "application/json");
    let sign_in = async |token: &str| {
        let body = json!({ "token": token }).to_string();
        server.send(Method::POST, "/sign-in", &[json], body).await
    };
    for wrong in ["", "none", "a;b", "fk_none", &"x".repeat(4000)] {
        let refused = sign_in(wrong).await;
        refused.error(401, "INVALID_TOKEN");
        assert_eq!(refused.header("set-cookie"), "", "{wrong}");
    }
    let body = json!({ "token": "none" }).to_string();
    let foreign = [json, ("origin", "https://evil.example")];
    let refused = server.send(Method::POST, "/sign-in", &foreign, body).await;
    refused.error(403, "FOREIGN_ORIGIN");

    let scopes = "workflows:read workflows:execute";
    let token = signer.sign(&changed(claims("acme"), "scope", json!(scopes)));
    let accepted = sign_in(&token).await;
    assert_eq!(accepted.status, 204, "{}", accepted.text);
    let cookie = accepted.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap();
    let with = async |path: &str, more: &[(&str, &str)]| {
        let headers = [&[HTML, ("cookie", cookie)][..], more].concat();
        server.send(Method::GET, path, &headers, "").await
    };
    let own = [("sec-fetch-site", "same-origin")];
    assert_eq!(with("/", &[]).await.status, 200);
    assert!(with("/", &[]).await.text.contains("acme"));
    // For the API the cookie counts only if a page of this server sends the request.
    assert_eq!(with("/api/v1/executions", &own).await.status, 200);
    with("/api/v1/executions", &[]).await.error(401, "UNAUTHENTICATED");
    let foreign = [("sec-fetch-site", "cross-site")];
    with("/api/v1/executions", &foreign).await.error(403, "FOREIGN_ORIGIN");
    assert_eq!(with("/", &foreign).await.status, 403, "not a visit");
    // What the scopes do not allow, a page does not either; the header comes before the cookie.
    with("/api/v1/admin/keys", &own).await.error(403, "INSUFFICIENT_SCOPE");
    let header = [("authorization", "Bearer none"), own[0]];
    with("/api/v1/executions", &header).await.error(401, "INVALID_TOKEN");

    let gone = server.send(Method::POST, "/sign-out", &[("cookie", cookie)], "").await;
    assert!(
        gone.status == 204 && gone.header("set-cookie").contains("Max-Age=0"),
        "{:?}",
        gone.headers
    );
    let stale = [HTML, ("cookie", "fermata_session=stale")];
    let stale = server.send(Method::GET, "/", &stale, "").await;
    assert!(
        stale.status == 401 && stale.header("set-cookie").contains("Max-Age=0"),
        "{:?}",
        stale.headers
    );
}

#[tokio::test]
async fn links_of_other_sites_open_pages_and_nothing_else() {
    let server = Server::start().await;
    let link = [
        HTML,
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];
    let get = async |path: &str, headers: &[(&str, &str)]| server.send(Method::GET, path, headers, "").await.status;
    assert_eq!(get("/", &link).await, 200);
    assert_eq!(get("/api/v1/executions", &link).await, 403);
    let framed = [link[0], link[1], link[2], ("sec-fetch-dest", "iframe")];
    assert_eq!(get("/", &framed).await, 403);
    assert_eq!(get("/", &link[..2]).await, 403);
    let post = server.send(Method::POST, "/sign-out", &link, "").await;
    assert_eq!(post.status, 403);
}
