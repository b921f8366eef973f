//! Secrets on a real server: services get them, and nothing else shows them.

use crate::{
    runlater::service::{Answer, Service},
    support::{Process, Server, fermata, folder, text, write},
};
use serde_json::{Value, json};
use std::path::Path;

/// A secret with characters that encodings change.
const SECRET: &str = "k\"y/+=-core9f8e7d6c5b4a3f2e1d0c";
/// What all forms of the secret contain, except those in base64.
const CORE: &str = "core9f8e7d6c5b4a3f2e1d0c";
const PERCENT: &str = "k%22y%2F%2B%3D-core9f8e7d6c5b4a3f2e1d0c";
const ESCAPED: &str = r#"\u006b\"y\/+=-core9f8e7d6c5b4a3f2e1d0c"#;
/// In base64, alone and after `user:`.
const BASE64: [&str; 2] = [
    "ayJ5Lys9LWNvcmU5ZjhlN2Q2YzViNGEzZjJlMWQwYw",
    "dXNlcjprInkvKz0tY29yZTlmOGU3ZDZjNWI0YTNmMmUxZDBj",
];
const ENVIRONMENT: (&str, &str) = ("FERMATA_SECRET_TOKEN", SECRET);

/// Every form of the secret in one object.
fn echo() -> Value {
    json!({
        "plain": format!("you sent {SECRET}, thanks"),
        "percent": format!("/path?key={PERCENT}"),
        "escaped": format!("{{\"k\": \"{ESCAPED}\"}}"),
        "base64": format!("Basic {}", BASE64[0]),
        "basic": format!("Basic {}", BASE64[1]),
        format!("name {SECRET}"): [SECRET],
    })
}

fn assert_clean(what: &str, text: &str) {
    for form in [CORE, &BASE64[0][4..40], &BASE64[1][8..44]] {
        assert!(!text.contains(form), "{what} contains {form}:\n{}", excerpt(text, form));
    }
}

fn excerpt<'t>(text: &'t str, form: &str) -> &'t str {
    let at = text.find(form).unwrap_or(0);
    &text[text.floor_char_boundary(at.saturating_sub(300))..text.ceil_char_boundary((at + 100).min(text.len()))]
}

/// Everything that the database has, as bytes of an SQLite file.
fn database(server_url: &str, folder: &Path) -> String {
    let file = match server_url.strip_prefix("sqlite:") {
        Some(file) => file.to_owned(),
        None => {
            let copy = folder.join("copy.db");
            let to = format!("sqlite:{}", text(&copy));
            let moved = fermata(&["transfer", "--from", server_url, "--to", &to]);
            assert_eq!(moved.code, Some(0), "{moved:?}");
            text(&copy).to_owned()
        }
    };
    let bytes = [file.clone(), format!("{file}-wal")].map(|file| std::fs::read(file).unwrap_or_default());
    assert!(bytes[0].len() + bytes[1].len() > 10_000, "the database has data");
    bytes.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect()
}

/// A service echoes the secret in every form: in a response that is retried, in one that the server never sees because it is
/// killed, in a success, in headers, and in a final refusal.
#[tokio::test]
async fn secrets_are_recorded_nowhere_through_echoes_crashes_and_retries() {
    let service = Service::start().await;
    let echoed = |status| Answer::new(status, &echo()).header("x-echo", PERCENT);
    service.script("/pay", [echoed(503), echoed(200).held(), echoed(200)]);
    service.script("/refuse", [Answer::text("text/plain", SECRET), echoed(400)]);
    let refused = format!("/refuse?key={PERCENT}");
    service.script(&refused, [echoed(400)]);
    let home = crate::support::home();
    let mut server = Server::on(
        &home,
        &[],
        &[
            ENVIRONMENT,
            ("FERMATA_LOG__LEVEL", "trace"),
            ("FERMATA_ORCHESTRATION__RETRY__INITIAL_DELAY_MS", "5"),
        ],
    );
    let document = json!({
        "name": "pay",
        "tasks": {
            "pay": { "url": service.at("/pay"), "headers": { "X-Auth": "Bearer {{secrets.TOKEN}}", "X-Lit": "{{trigger.body.text}}" },
                     "body": { "key": "{{secrets.TOKEN}}", "given": "{{trigger.body.text}}" } },
            "report": { "needs": ["pay"], "url": service.at("/report"), "body": "{{tasks.pay.body}}" },
            "refuse": { "needs": ["pay"], "url": service.at("/refuse?key={{secrets.TOKEN}}") },
        },
    });
    let (status, created) = server.post("/api/v1/workflows", &document).await;
    assert_eq!(status, 201, "{created}");
    assert!(!created.to_string().contains("UNKNOWN_SECRET"), "{created}");
    let body = json!({ "text": "{{ secrets.TOKEN }}" });
    let (status, started) = server.post("/api/v1/workflows/pay/trigger", &body).await;
    assert!(status < 300, "{started}");
    let run = started["data"]["run_id"]
        .as_str()
        .or(started["data"]["id"].as_str())
        .expect("an id")
        .to_owned();
    let id = run.trim_start_matches("run_").to_owned();

    service.call("/pay", 2).await;
    let before = server.process().log();
    server.kill9();
    server.restart();
    let ended = server.ended(&id).await;
    assert_eq!(
        ended["status"], "Succeeded",
        "a last task that fails does not fail a run: {ended}"
    );

    // Only the reference was resolved.
    for call in service.calls_of("/pay") {
        assert_eq!(call.header("x-auth"), format!("Bearer {SECRET}").as_str());
        assert_eq!(call.header("x-lit"), "{{ secrets.TOKEN }}");
        assert_eq!(call.json(), json!({ "key": SECRET, "given": "{{ secrets.TOKEN }}" }));
    }
    assert_eq!(service.calls_of("/pay").len(), 3);
    assert_eq!(service.calls_of(&refused).len(), 1, "{:?}", service.calls());
    let report = service.call("/report", 1).await;
    let expected = json!({
        "plain": "you sent ***, thanks", "percent": "/path?key=***", "name ***": ["***"],
        "escaped": "{\"k\": \"***\"}",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&report.json()[name], value, "{}", report.body);
    }
    assert_clean("what the next step got", &report.body);

    for path in [
        format!("/api/v1/executions/{id}?include=actions,events,resources,children,waits"),
        format!("/api/v1/executions/{id}/events"),
        format!("/api/v1/executions/{id}/context"),
        format!("/api/v1/workflows/pay/runs/{run}"),
        "/api/v1/workflows/pay/runs".to_owned(),
        "/api/v1/executions".to_owned(),
        "/api/v1/workflows/pay".to_owned(),
        "/api/v1/workflows/pay/versions".to_owned(),
        "/api/v1/dead-letters".to_owned(),
    ] {
        let (_, answer) = server.get(&path).await;
        assert_clean(&path, &answer.to_string());
    }
    let (_, shown) = server.get(&format!("/api/v1/executions/{id}?include=actions")).await;
    assert!(shown.to_string().contains("Bearer {{ secrets.TOKEN }}"), "{shown}");
    assert!(
        shown.to_string().contains("HTTP_400"),
        "the refusal is recorded: {shown}"
    );
    assert_clean("the log before the crash", &before);
    assert_clean("the log", &server.process().log());
    server.stop();
    assert_clean("the log", &server.process().log());
    // A transfer refuses a database with a recent heartbeat, and the killed process has left one.
    home.execute("DELETE FROM runners").await;
    assert_clean("the database", &database(&home.url(), folder().path()));
}

fn call_with_secret(url: &str) -> Value {
    json!({
        "id": "call", "displayName": "Call", "startNode": "call",
        "nodes": [{ "id": "call", "actionType": "http.request", "parameters": {
            "url": url, "headers": { "X-Key": "{{ secrets.TOKEN }}" } } }],
    })
}

/// Files are read when they are needed; an unknown secret fails the step once, by name.
#[tokio::test]
async fn changed_files_count_and_unknown_secrets_fail_by_name() {
    let service = Service::start().await;
    let secrets = folder();
    let server = Server::start_with(&[], &[("FERMATA_SECRETS__FOLDER", text(secrets.path()))]);
    let (status, saved) = server
        .post("/api/v1/workflows", &call_with_secret(&service.at("/x")))
        .await;
    assert!(status < 300, "{saved}");
    let (status, published) = server
        .post("/api/v1/workflows/call/publish?autoActivate=true", &Value::Null)
        .await;
    assert!(status < 300, "{published}");
    assert!(published.to_string().contains("UNKNOWN_SECRET"), "{published}");
    let run = server.execute("call", &json!({ "trigger": {} })).await;
    let failed = server.ended(&run).await;
    assert_eq!(failed["error"]["code"], "TEMPLATE_ERROR", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the secret `TOKEN` is unknown"), "{message}");
    let (_, shown) = server.get(&format!("/api/v1/executions/{run}?include=actions")).await;
    assert_eq!(
        shown["actions"].as_array().map(Vec::len),
        Some(1),
        "not retried: {shown}"
    );
    for (number, value) in ["first-value", "second-value"].into_iter().enumerate() {
        write(&secrets, "TOKEN", format!("{value}\n"));
        let run = server.execute("call", &json!({ "trigger": {} })).await;
        assert_eq!(server.ended(&run).await["status"], "Succeeded");
        assert_eq!(service.call("/x", number + 1).await.header("x-key"), value);
    }
}

/// The third dialect with templates.
#[tokio::test]
async fn http_tasks_of_jsondagapi_get_secrets() {
    let service = Service::start().await;
    service.script("/task", [Answer::ok(&json!({ "got": format!("Token {SECRET}") }))]);
    let server = Server::start_with(&[], &[ENVIRONMENT]);
    let document = json!({
        "workflow_id": "tasks", "name": "Tasks", "version": "1.0.0",
        "nodes": [{ "id": "a", "type": "task", "name": "A", "executor": { "type": "http", "config": {
            "url": service.at("/task"), "headers": { "X-Key": "{{ secrets.TOKEN }}" } } } }],
        "edges": [],
    });
    let (status, created) = server.post("/api/v1/workflows", &document).await;
    assert_eq!(status, 201, "{created}");
    let start = json!({ "workflow_id": "tasks", "inputs": { "secrets": { "TOKEN": "from the state" } } });
    let (_, started) = server.post("/api/v1/executions", &start).await;
    let ended = server.ended(started["execution_id"].as_str().expect("an id")).await;
    assert_eq!(ended["outputs"], json!({ "got": "Token ***" }), "{ended}");
    assert_eq!(service.call("/task", 1).await.header("x-key"), SECRET);
}

#[tokio::test]
async fn run_and_validate_know_the_secrets_of_their_environment() {
    let folder = folder();
    let document = json!({
        "id": "say", "displayName": "Say", "startNode": "say",
        "nodes": [{ "id": "say", "actionType": "core.echo", "parameters": { "text": "<{{ secrets.TOKEN }}>" } }],
    });
    let file = write(&folder, "say.json", document.to_string());
    let call = |command: &str, environment: &[(&str, &str)]| {
        Process::start(&[command, text(&file), "-o", "json"], environment, "").output()
    };
    let ran = call("run", &[ENVIRONMENT]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("<***>"), "{ran:?}");
    assert_clean("run", &format!("{}{}", ran.stdout, ran.stderr));
    let unknown = call("run", &[]);
    assert!(
        unknown.code == Some(1) && format!("{unknown:?}").contains("the secret `TOKEN` is unknown"),
        "{unknown:?}"
    );
    let valid = call("validate", &[ENVIRONMENT]);
    assert_eq!(
        (valid.code, valid.json()["warnings"].clone()),
        (Some(0), json!(0)),
        "{valid:?}"
    );
    let warned = call("validate", &[]).json();
    assert_eq!(warned["files"][0]["problems"][0]["code"], "UNKNOWN_SECRET", "{warned}");
}

#[test]
fn secrets_folder_must_exist() {
    let environment = [("FERMATA_SECRETS__FOLDER", "/does/not/exist")];
    let output = Process::start(&["validate", "-"], &environment, "{}").output();
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output
            .stderr
            .contains("`secrets.folder`: `/does/not/exist` is not a folder"),
        "{output:?}"
    );
}

/// A tenant's workflow has the tenant's secrets only, a shared one the operator's. Who starts the run makes no difference.
#[tokio::test]
async fn secrets_belong_to_the_owner_of_the_workflow() {
    let service = Service::start().await;
    let secrets = folder();
    write(&secrets, "TOKEN", "of-the-operator");
    write(&secrets, "ONLY", "of-the-operator-too");
    write(&secrets, "acme/TOKEN", "of-acme");
    let folder = ("FERMATA_SECRETS__FOLDER", text(secrets.path()));
    let server = Server::start_with(&[], &[folder, ("FERMATA_SECRET_VARIABLE", "of-the-environment")]);
    let key = json!({ "name": "acme", "tenantId": "acme",
                      "scopes": ["workflows:manage", "workflows:execute", "workflows:read"] });
    let (status, key) = server.post("/api/v1/admin/keys", &key).await;
    assert_eq!(status, 201, "{key}");
    let client = crate::support::http_client();
    let as_acme = |path: &str, body: Value| {
        let url = format!("{}{path}", server.url);
        let request = client
            .post(url)
            .bearer_auth(key["key"].as_str().expect("a key"))
            .json(&body);
        async move {
            let response = request.send().await.expect("the server answers");
            let status = response.status().as_u16();
            (status, response.json::<Value>().await.expect("JSON"))
        }
    };
    let document = |name: &str, secret: &str| {
        let url = service.at(&format!("/{name}"));
        json!({ "name": name, "tasks": { "call": {
            "url": url, "headers": { "X-Key": format!("{{{{secrets.{secret}}}}}") }, "retries": 0 } } })
    };
    let (status, shared) = server.post("/api/v1/workflows", &document("shared", "TOKEN")).await;
    assert_eq!(status, 201, "{shared}");
    for (name, secret) in [("own", "TOKEN"), ("file", "ONLY"), ("variable", "VARIABLE")] {
        let (status, created) = as_acme("/api/v1/workflows", document(name, secret)).await;
        assert_eq!(status, 201, "{created}");
    }
    for (name, sent) in [
        ("shared", Some("of-the-operator")),
        ("own", Some("of-acme")),
        ("file", None),
        ("variable", None),
    ] {
        let (status, started) = as_acme(&format!("/api/v1/workflows/{name}/trigger"), json!({})).await;
        assert!(status < 300, "{started}");
        let id = started["data"]["run_id"]
            .as_str()
            .or(started["data"]["id"].as_str())
            .expect("an id");
        let ended = server.ended(id.trim_start_matches("run_")).await;
        match sent {
            Some(sent) => assert_eq!(service.call(&format!("/{name}"), 1).await.header("x-key"), sent),
            None => {
                assert_eq!(ended["error"]["code"], "TEMPLATE_ERROR", "{ended}");
                assert_eq!(service.calls_of(&format!("/{name}")).len(), 0);
            }
        }
    }
}
