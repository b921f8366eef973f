//! Runs that take their process down, for real: the server is killed each time it calls a certain service. And the
//! commands for what is left of them.

use crate::support::{Output, Process, Server, eventually};
use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use tokio::sync::Semaphore;

/// A service at which calls wait until they are let through.
#[derive(Clone)]
struct Service {
    url: String,
    state: Arc<Calls>,
}

#[derive(Default)]
struct Calls {
    /// Calls of what kills.
    deadly: AtomicUsize,
    /// Calls of what only takes long.
    slow: AtomicUsize,
    harmless: AtomicBool,
    gate: Option<Semaphore>,
}

impl Service {
    async fn start() -> Service {
        async fn deadly(State(calls): State<Arc<Calls>>) -> Json<Value> {
            calls.deadly.fetch_add(1, Ordering::SeqCst);
            if !calls.harmless.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Json(json!({}))
        }
        async fn slow(State(calls): State<Arc<Calls>>) -> Json<Value> {
            calls.slow.fetch_add(1, Ordering::SeqCst);
            if let Some(gate) = &calls.gate {
                let permit = gate.acquire().await;
                drop(permit);
            }
            Json(json!({ "fine": true }))
        }
        let state = Arc::new(Calls {
            gate: Some(Semaphore::new(0)),
            ..Calls::default()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let router = Router::new()
            .route("/deadly", post(deadly))
            .route("/slow", post(slow))
            .with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Service { url, state }
    }

    fn workflow(&self, id: &str) -> Value {
        let parameters = json!({ "method": "POST", "url": format!("{}/{id}", self.url), "body": {} });
        let policies = json!({ "timeoutMs": 600_000, "retry": { "maxAttempts": 1 } });
        let node =
            json!({ "id": "call", "actionType": "http.request", "parameters": parameters, "policies": policies });
        json!({ "id": id, "displayName": id, "startNode": "call", "nodes": [node] })
    }
}

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

/// What the command printed, if all went well.
#[track_caller]
fn printed(server: &Server, arguments: &[&str]) -> String {
    let output = at(server, arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout
}

/// One of three runs takes the server down each time it is tried. It is given up; the others, which did not come to a
/// commit all the while, are not.
#[tokio::test(flavor = "multi_thread")]
async fn poison_run_is_dead_lettered_and_others_continue() {
    let service = Service::start().await;
    let calls = service.state.clone();
    let mut server = Server::start(&[]);
    for id in ["deadly", "slow"] {
        server.publish(&service.workflow(id)).await;
    }
    let innocent = [
        server.execute("slow", &json!({})).await,
        server.execute("slow", &json!({})).await,
    ];
    eventually("the calls of the slow ones", || async {
        (calls.slow.load(Ordering::SeqCst) == 2).then_some(())
    })
    .await;
    let deadly = server.execute("deadly", &json!({ "trigger": { "n": 7 } })).await;
    let mut deaths = 0;
    let given_up = loop {
        let next = eventually("another death, or the end of them", || async {
            if calls.deadly.load(Ordering::SeqCst) > deaths {
                return Some(None);
            }
            let run = server.execution(&deadly).await;
            (run["status"] == "Failed").then_some(Some(run))
        })
        .await;
        if let Some(run) = next {
            break run;
        }
        deaths += 1;
        tokio::task::block_in_place(|| {
            server.kill9();
            server.restart();
        });
    };
    assert_eq!(
        deaths, 4,
        "once where it was started, and three times where it was claimed"
    );
    assert_eq!(
        (&given_up["reason"], &given_up["error"]["code"]),
        (&json!("dead_letter"), &json!("POISON"))
    );
    calls.gate.as_ref().expect("a gate").close();
    for run in &innocent {
        let ended = server.ended(run).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
    }

    let listed = printed(&server, &["dead-letters", "list", "--reason", "POISON"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    assert!(
        listed.contains("POISON") && listed.contains("deadly@1") && listed.contains(&deadly),
        "{listed}"
    );
    let json = printed(&server, &["dead-letters", "list", "--all", "-o", "json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let letter = json["items"][0]["id"].as_str().expect("an id");
    let shown = printed(&server, &["dead-letters", "show", letter]);
    assert!(shown.contains("request\n") && shown.contains("\"n\": 7"), "{shown}");
    calls.harmless.store(true, Ordering::SeqCst);
    let requeued = printed(&server, &["dead-letters", "requeue", letter]);
    let run = requeued.split([' ', ',']).nth(4).expect("a run");
    assert_eq!(server.ended(run).await["status"], "Succeeded");
    let again = printed(&server, &["dead-letters", "requeue", letter]);
    assert_eq!(again, format!("requeued {letter} as run {run}, which is Succeeded\n"));
    assert_eq!(
        printed(&server, &["dead-letters", "purge", "--all"]),
        "deleted 0 dead letters\n"
    );
}

#[tokio::test]
async fn wrong_commands_are_refused_with_the_reason() {
    let server = Server::start(&[]);
    let none = at(&server, &["dead-letters", "purge"]);
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("--all"), "{}", none.stderr);
    let unknown = "01990000-0000-7000-8000-000000000000";
    for arguments in [
        ["dead-letters", "show", unknown],
        ["dead-letters", "requeue", unknown],
        ["dead-letters", "purge", unknown],
    ] {
        let refused = at(&server, &arguments);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("DEAD_LETTER_NOT_FOUND"), "{}", refused.stderr);
    }
    // A wrong id among several deletes none of them.
    for command in ["requeue", "purge"] {
        let refused = at(&server, &["dead-letters", command, unknown, "nonsense"]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains("nonsense"), "{}", refused.stderr);
    }
    let wrong = at(&server, &["dead-letters", "list", "--reason", "no such reason"]);
    assert!(
        wrong.code == Some(1) && wrong.stderr.contains("INVALID_PARAMETER"),
        "{wrong:?}"
    );
}

#[tokio::test]
async fn runners_are_listed_with_their_runs() {
    // What sleeps for less than that stays in memory.
    let server = Server::start_with(&[], &[("FERMATA_ORCHESTRATION__PARK_AFTER_MS", "1h")]);
    let table = eventually("the runner", || async {
        let table = printed(&server, &["runners"]);
        (table.lines().count() == 2).then_some(table)
    })
    .await;
    let row = table.lines().nth(1).expect("a runner");
    for piece in [
        &server.process().id().to_string(),
        "all",
        env!("CARGO_PKG_VERSION"),
        "yes",
    ] {
        assert!(row.contains(piece), "{piece}: {row}");
    }
    let json: Value = serde_json::from_str(&printed(&server, &["runners", "-o", "json"])).expect("JSON");
    assert_eq!(json["items"][0]["pid"], server.process().id());

    server
        .add(&json!({ "name": "nap", "tasks": { "rest": { "sleep": "10m" } } }))
        .await;
    let run = server.execute("nap", &json!({})).await;
    let runner = json["items"][0]["id"].as_str().expect("an id");
    assert!(printed(&server, &["executions", "get", &run]).contains(runner));
    let held = printed(&server, &["executions", "list", "--runner", runner]);
    assert!(held.contains(&run), "{held}");
    assert!(!printed(&server, &["executions", "list", "--runner", &run]).contains(&run));
}
