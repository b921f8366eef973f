//! Streams of the real binary through kills: nothing is missing, nothing is repeated.

use crate::support::{PATIENCE, Process, Server, shared_home};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// Steps with pauses, so that a kill comes in the middle.
fn document() -> Value {
    let node = |number: usize| {
        let edges = match number < 30 {
            true => json!([{ "targetNode": format!("n{}", number + 1) }]),
            false => json!([]),
        };
        let id = format!("n{number}");
        match number % 3 {
            0 => json!({ "id": id, "actionType": "core.delay", "parameters": { "durationMs": 60 }, "edges": edges }),
            _ => json!({ "id": id, "actionType": "core.echo", "parameters": { "n": number }, "edges": edges }),
        }
    };
    let nodes: Vec<Value> = (0..=30).map(node).collect();
    json!({ "id": "steps", "displayName": "Steps", "startNode": "n0", "nodes": nodes })
}

/// `(id, events)` of each journal row, and whether the stream has said that the run ended.
#[derive(Default)]
struct Seen {
    rows: Vec<(u64, Value)>,
    has_ended: bool,
}

impl Seen {
    /// Reads the stream of a run from where this has come, until it has `most` rows, the run ends or the connection breaks.
    async fn follow(&mut self, server: &Server, id: &str, most: usize) {
        let client = crate::support::http_client();
        let mut request = client.get(format!("{}/api/v1/executions/{id}/stream", server.url));
        if let Some((last, _)) = self.rows.last() {
            request = request.header("last-event-id", last.to_string());
        }
        let mut response = request.send().await.expect("the server answers");
        assert_eq!(response.status(), 200);
        let mut text = String::new();
        while self.rows.len() < most && !self.has_ended {
            let chunk = timeout(PATIENCE, response.chunk()).await.expect("something comes");
            let Ok(Some(chunk)) = chunk else { return };
            text.push_str(std::str::from_utf8(&chunk).expect("text"));
            while let Some((message, rest)) = text.split_once("\n\n") {
                let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name));
                match (field("event: "), field("id: "), field("data: ")) {
                    (Some("events"), Some(id), Some(data)) => {
                        let events = serde_json::from_str(data).expect("JSON");
                        self.rows.push((id.parse().expect("a sequence"), events));
                    }
                    (Some("end"), _, _) => self.has_ended = true,
                    _ => {}
                }
                text = rest.to_owned();
            }
        }
    }

    /// Checks that these are all events of the journal, each once.
    async fn check(&self, server: &Server, id: &str) {
        assert!(self.has_ended);
        let path = format!("/api/v1/executions/{id}?include=events&limit=1000");
        let (_, run) = server.get(&path).await;
        let events = self
            .rows
            .iter()
            .flat_map(|(_, events)| events.as_array().expect("an array"));
        let events: Vec<&Value> = events.collect();
        let journal: Vec<&Value> = run["events"].as_array().expect("events").iter().collect();
        assert_eq!(events, journal);
        let ids: Vec<u64> = self.rows.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_continues_at_another_process_after_a_kill() {
    let home = shared_home();
    let mut first = Server::on(&home, &[], &[]);
    let second = Server::on(&home, &[], &[]);
    first.publish(&document()).await;
    let id = first.execute("steps", &json!({})).await;
    let mut seen = Seen::default();
    seen.follow(&first, &id, 5).await;
    first.kill9();
    // The second process takes the run over when the lease of the first has expired.
    seen.follow(&second, &id, usize::MAX).await;
    seen.check(&second, &id).await;
}

#[tokio::test]
async fn a_stream_continues_after_the_server_is_killed_repeatedly() {
    let mut server = Server::start(&[]);
    server.publish(&document()).await;
    let id = server.execute("steps", &json!({})).await;
    let mut seen = Seen::default();
    for most in [1, 4, 9, 10] {
        seen.follow(&server, &id, most).await;
        server.kill9();
        server.restart();
    }
    seen.follow(&server, &id, usize::MAX).await;
    seen.check(&server, &id).await;
}

#[tokio::test]
async fn a_stream_ends_soon_after_sigterm() {
    let mut server = Server::start(&[]);
    server.publish(&document()).await;
    let mut waits = document();
    waits["id"] = json!("waits");
    waits["nodes"] = json!([{ "id": "n0", "actionType": "core.wait", "parameters": {} }]);
    server.publish(&waits).await;
    let id = server.execute("waits", &json!({})).await;
    let mut seen = Seen::default();
    seen.follow(&server, &id, 1).await;
    let follows = async {
        seen.follow(&server, &id, usize::MAX).await;
    };
    let stops = async {
        tokio::task::yield_now().await;
        server.process().signal(crate::support::Signal::TERM);
    };
    tokio::join!(follows, stops);
    assert!(!seen.has_ended, "the run goes on");
    assert_eq!(server.wait(), Some(0));
}

/// `executions watch` goes on when the server is killed and started again at the same address.
#[tokio::test]
async fn watch_continues_after_a_kill() {
    let mut server = Server::start(&["--listen", "127.0.0.1:0"]);
    server.publish(&document()).await;
    let id = server.execute("steps", &json!({})).await;
    let mut watch = Process::start(&["executions", "watch", &id, "--server", &server.url], &[], "");
    watch.wait_for_line("n1");
    let address = server.url.trim_start_matches("http://").to_owned();
    server.kill9();
    server.restart_at(&address);
    let output = watch.output_within(PATIENCE + Duration::from_secs(30));
    assert_eq!(output.code, Some(0), "{output:?}");
    for number in 0..=30 {
        let lines = output.stderr.lines();
        let name = format!(" n{number} ");
        let shown = lines.filter(|line| format!("{line} ").contains(&name)).count();
        assert_eq!(
            shown,
            if number % 3 == 0 { shown.max(1) } else { 1 },
            "{name}: {}",
            output.stderr
        );
    }
}
