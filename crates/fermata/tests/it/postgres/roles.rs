//! Which work the processes of each role do.

use super::{PUBLIC_URL, pair, process};
use crate::{
    runlater::service::Service,
    support::{Process, Signal, fermata, folder, shared_home, text},
};
use serde_json::json;

#[tokio::test]
async fn api_process_accepts_runs_and_runner_process_executes_them() {
    let home = shared_home();
    let service = Service::start().await;
    let mut api = process(&home, "api", &[]);
    assert!(api.ready.contains("(api) listening on http://"), "{}", api.ready);
    let document = json!({ "name": "call", "tasks": { "call": { "url": service.at("/call") } } });
    api.add(&document).await;
    let early = api.trigger("call", &json!({})).await;
    let (code, waited) = api.post("/api/v1/workflows/call/execute?wait=200ms", &json!({})).await;
    assert_eq!(
        (code, &waited["status"]),
        (202, &json!("Pending")),
        "no runner is up yet"
    );
    assert_eq!(service.calls().len(), 0);

    let mut runner = process(&home, "runner", &[]);
    assert!(
        runner.ready.contains("(runner) listening on http://"),
        "{}",
        runner.ready
    );
    assert_eq!(api.over(&early).await["status"], "completed");
    let (code, ended) = api.post("/api/v1/workflows/call/execute?wait=30s", &json!({})).await;
    assert_eq!((code, &ended["status"]), (200, &json!("Succeeded")), "{ended}");

    for path in ["/health/live", "/health/ready"] {
        assert_eq!(runner.get(path).await.0, 200, "{path}");
    }
    for path in ["/api/v1/workflows", "/api/v1/executions", "/"] {
        assert_eq!(runner.get(path).await.0, 404, "{path}");
    }
    assert_eq!(runner.post("/wh/0123", &json!({})).await.0, 404);
    assert_eq!((api.stop(), runner.stop()), (Some(0), Some(0)));
}

#[tokio::test]
async fn runner_works_without_a_listener() {
    let (api, mut listening, home) = pair(&[]);
    assert_eq!(listening.stop(), Some(0));
    let url = home.url();
    let mut runner = Process::start(&["serve", "--database", &url, "--role", "runner"], &[PUBLIC_URL], "");
    let ready = runner.wait_for_line("ready in");
    assert!(ready.contains("(runner) not listening, data in postgres://"), "{ready}");
    api.add(&json!({ "name": "n", "tasks": { "rest": { "sleep": "1ms" } } }))
        .await;
    let run = api.trigger("n", &json!({})).await;
    assert_eq!(api.over(&run).await["status"], "completed");
    runner.signal(Signal::TERM);
    assert_eq!(runner.output().code, Some(0));
}

#[test]
fn single_process_databases_refuse_the_roles_api_and_runner() {
    let folder = folder();
    let file = format!("sqlite:{}", text(&folder.path().join("f.db")));
    for database in ["memory:", &file] {
        for role in ["api", "runner"] {
            let ended = fermata(&[
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--database",
                database,
                "--role",
                role,
            ]);
            assert_eq!(ended.code, Some(2), "{ended:?}");
            let message = format!("the role `{role}` needs a database that several processes can share");
            assert!(ended.stderr.contains(&message), "{}", ended.stderr);
            assert!(ended.stderr.contains("--role all"), "{}", ended.stderr);
        }
    }
    assert!(
        !folder.path().join("f.db").exists(),
        "it is refused before a file is created"
    );
    let unknown = fermata(&["serve", "--role", "boss"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(
        unknown.stderr.contains("expected one of `all`, `api`, `runner`"),
        "{}",
        unknown.stderr
    );
}

/// Runners render the callback URLs in documents.
#[test]
fn runner_role_needs_a_public_url() {
    let home = shared_home();
    let url = home.url();
    for listen in [&[][..], &["--listen", "127.0.0.1:0"]] {
        let refused = fermata(&[&["serve", "--database", &url, "--role", "runner"], listen].concat());
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("needs server.public_url"), "{}", refused.stderr);
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    }
    // An API process renders no documents.
    let api = Process::start(
        &["serve", "--database", &url, "--role", "api", "--listen", "127.0.0.1:0"],
        &[],
        "",
    );
    api.wait_for_line("(api) listening on http://");
}
