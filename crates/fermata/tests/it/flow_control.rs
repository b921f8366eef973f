//! Flow control on a real server that is killed: the limit holds, places are neither lost nor doubled, and every acknowledged start
//! begins.

use crate::{
    crash::PATIENT_WITH_RUNS,
    support::{Output, Process, Server, eventually},
};
use axum::{Json, Router, extract::State, routing::post};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

const LIMIT: usize = 3;
const RUNS: u64 = 24;

/// The orders that have entered and not left, the most at once, and those that have left.
#[derive(Default)]
struct Room {
    inside: BTreeSet<u64>,
    most: usize,
    left: BTreeSet<u64>,
}

type Shared = State<Arc<Mutex<Room>>>;

/// A service that remembers which runs are active. Calls that are repeated after a crash change nothing.
async fn start_service(room: Arc<Mutex<Room>>) -> String {
    async fn note(State(room): Shared, Json(call): Json<Value>) -> Json<Value> {
        let order = call["order"].as_u64().expect("an order");
        let mut room = room.lock().unwrap();
        if call["at"] == "enter" && !room.left.contains(&order) {
            room.inside.insert(order);
            room.most = room.most.max(room.inside.len());
        } else if call["at"] == "leave" {
            room.inside.remove(&order);
            room.left.insert(order);
        }
        Json(json!({}))
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/", post(note)).with_state(room);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/")
}

fn document(service: &str) -> Value {
    let call = |at: &str, next: Value| {
        json!({
            "id": at, "actionType": "http.request",
            "parameters": { "method": "POST", "url": service, "body": { "order": "{{ trigger.order }}", "at": at } },
            "policies": { "retry": { "maxAttempts": 10, "baseDelayMs": 20 } }, "edges": next,
        })
    };
    json!({
        "id": "keyed", "displayName": "Keyed", "startNode": "enter",
        "concurrency": { "limit": LIMIT, "key": "{{ trigger.customer }}" },
        "nodes": [
            call("enter", json!([{ "targetNode": "stay" }])),
            { "id": "stay", "actionType": "core.delay", "parameters": { "durationMs": 60 }, "edges": [{ "targetNode": "leave" }] },
            call("leave", json!([])),
        ],
    })
}

fn at(server: &Server, arguments: &[&str]) -> Output {
    Process::start(arguments, &[("FERMATA_SERVER", &server.url)], "").output()
}

#[tokio::test]
async fn limits_hold_and_no_place_is_lost_when_the_server_is_killed_repeatedly() {
    let room: Arc<Mutex<Room>> = Arc::default();
    let service = start_service(room.clone()).await;
    let environment = [PATIENT_WITH_RUNS];
    let mut server = Server::start_with(&[], &environment);
    server.publish(&document(&service)).await;
    let mut runs = Vec::new();
    for order in 0..RUNS {
        let trigger = json!({ "order": order, "customer": "c1" });
        runs.push(server.execute("keyed", &json!({ "trigger": trigger })).await);
    }
    let (_, page) = server.get("/api/v1/executions?status=Pending&limit=100").await;
    let waiting = page["items"].as_array().unwrap();
    let last = waiting.iter().find(|run| run["id"] == *runs[RUNS as usize - 1]);
    let waiting_for = &last.unwrap_or_else(|| panic!("the last run waits: {page}"))["waitingFor"];
    assert_eq!(
        (&waiting_for["kind"], &waiting_for["key"], &waiting_for["limit"]),
        (&json!("concurrency"), &json!("c1"), &json!(LIMIT)),
        "{waiting_for}"
    );
    let shown = at(&server, &["executions", "get", &runs[RUNS as usize - 1]]).stdout;
    assert!(shown.contains("a place of key c1, limit 3, "), "{shown}");
    for leaves in [2, 5, 9, 14] {
        eventually("some runs end", || async {
            (room.lock().unwrap().left.len() >= leaves).then_some(())
        })
        .await;
        server.kill9();
        server.restart();
    }
    for run in &runs {
        let ended = server.ended(run).await;
        assert_eq!(ended["status"], "Succeeded", "{ended}");
        assert_eq!(ended.get("waitingFor"), None, "{ended}");
    }
    {
        let room = room.lock().unwrap();
        assert_eq!((room.left.len() as u64, room.inside.len()), (RUNS, 0));
        assert!(room.most <= LIMIT, "{} runs at once", room.most);
    }
    // All places are free again.
    let mut again = Vec::new();
    for order in RUNS..RUNS + LIMIT as u64 {
        let trigger = json!({ "order": order, "customer": "c1" });
        again.push(server.execute("keyed", &json!({ "trigger": trigger })).await);
    }
    for run in &again {
        assert_eq!(server.ended(run).await["status"], "Succeeded");
    }
}

#[tokio::test]
async fn merged_starts_survive_a_kill() {
    let mut server = Server::start(&[]);
    let echo = json!([{ "id": "say", "actionType": "core.echo", "parameters": { "n": "{{ trigger.n }}" } }]);
    let document = json!({
        "id": "merged", "displayName": "Merged", "startNode": "say", "nodes": echo,
        "debounce": { "quiet": "3s", "key": "{{ trigger.id }}" },
    });
    server.publish(&document).await;
    let start = |n: u32| json!({ "requestId": format!("r{n}"), "trigger": { "id": "a", "n": n } });
    let first = server.execute("merged", &start(1)).await;
    assert_eq!(server.execute("merged", &start(2)).await, first);
    server.kill9();
    server.restart();
    assert_eq!(
        server.execute("merged", &start(2)).await,
        first,
        "the requestId was kept"
    );
    let ended = server.ended(&first).await;
    assert_eq!(ended["outputs"], json!({ "n": 2 }), "{ended}");
}

#[tokio::test]
async fn full_keys_are_refused_with_429() {
    let server = Server::start(&[]);
    let nap = json!([{ "id": "nap", "actionType": "core.delay", "parameters": { "durationMs": 600_000 } }]);
    let document = json!({
        "id": "full", "displayName": "Full", "startNode": "nap", "nodes": nap,
        "concurrency": { "limit": 1, "onLimit": "refuse" },
    });
    server.publish(&document).await;
    let first = server.execute("full", &json!({ "trigger": {} })).await;
    let (status, refused) = server
        .post("/api/v1/workflows/full/execute", &json!({ "trigger": {} }))
        .await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (429, &json!("CONCURRENCY_LIMIT")),
        "{refused}"
    );
    let (status, _) = server
        .post(&format!("/api/v1/executions/{first}/cancel"), &json!({}))
        .await;
    assert_eq!(status, 200);
    server.ended(&first).await;
    server.execute("full", &json!({ "trigger": {} })).await;
}
