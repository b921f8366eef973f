//! Streams of server-sent events: the events of an execution, and lists of executions.

use crate::{
    harness::{LONG, Server, echo},
    keys::{create, send, servers, text},
};
use fermata_runtime::{Role, Settings};
use fermata_store::conformance::home::{Home, Kind};
use fermata_web::WebConfig;
use reqwest::Method;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    time::{Instant, timeout},
};

/// A message of a stream.
#[derive(Debug, Clone, PartialEq)]
struct Message {
    id: Option<String>,
    event: String,
    data: Value,
}

/// An open stream.
struct Stream {
    response: reqwest::Response,
    text: String,
}

impl Stream {
    async fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Stream {
        let request = server.client.get(format!("{}{path}", server.base));
        let mut request = request.timeout(10 * LONG);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "text/event-stream");
        assert_eq!(header("cache-control"), "no-store");
        Stream {
            response,
            text: String::new(),
        }
    }

    /// The next message; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Message> {
        loop {
            while let Some((text, rest)) = self.text.split_once("\n\n") {
                let (text, rest) = (text.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    let line = text.lines().find_map(|line| line.strip_prefix(name));
                    line.map(|value| value.trim_start_matches(": ").to_owned())
                };
                if let Some(data) = field("data") {
                    return Some(Message {
                        id: field("id"),
                        event: field("event").unwrap(),
                        data: serde_json::from_str(&data).unwrap(),
                    });
                }
            }
            let chunk = timeout(LONG, self.response.chunk()).await.expect("something comes");
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()?).unwrap());
        }
    }

    /// All messages up to the end of the stream.
    async fn rest(&mut self) -> Vec<Message> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }
}

/// The events of messages, each with the check that the id is the seq of its journal row.
fn events(messages: &[Message]) -> Vec<Value> {
    let mut all = Vec::new();
    for message in messages {
        assert_eq!(message.event, "events", "{message:?}");
        let rows = message.data.as_array().unwrap();
        for event in rows {
            assert_eq!(Some(event["seq"].to_string()), message.id, "{message:?}");
        }
        all.extend(rows.iter().cloned());
    }
    all
}

async fn journal(server: &Server, id: &str) -> Vec<Value> {
    let path = format!("/api/v1/executions/{id}?include=events&limit=1000");
    let run = server.get(&path).await.expect(200);
    run["events"].as_array().unwrap().clone()
}

/// A step that waits for the test, between two others.
fn gated() -> Value {
    json!({ "id": "gated", "displayName": "Gated", "startNode": "a", "nodes": [
        { "id": "a", "actionType": "core.echo", "parameters": { "x": 1 }, "edges": [{ "targetNode": "b" }] },
        { "id": "b", "actionType": "test.gate", "edges": [{ "targetNode": "c" }] },
        { "id": "c", "actionType": "core.echo", "parameters": { "y": 2 } }] })
}

fn path_of(id: &str) -> String {
    format!("/api/v1/executions/{id}/stream")
}

fn quick() -> Settings {
    Settings {
        poll_interval: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// A server that works on runs, and one that only accepts requests, on the same database.
async fn two() -> (Server, Server) {
    let home = Arc::new(Home::new(Kind::Memory));
    let first = Server::on(&home, quick(), WebConfig::default()).await;
    let api = Settings {
        role: Role::Api,
        ..quick()
    };
    let second = Server::on(&home, api, WebConfig::default()).await;
    (first, second)
}

#[tokio::test]
async fn a_stream_has_the_events_of_the_journal_and_ends_with_the_run() {
    let server = Server::start().await;
    server.publish(&gated()).await;
    let id = server.execute("gated", json!({})).await;
    let mut stream = Stream::open(&server, &path_of(&id), &[]).await;
    let mut all = vec![stream.next().await.unwrap()];
    server.gate.add_permits(1);
    all.extend(stream.rest().await);
    let end = all.pop().unwrap();
    assert_eq!((end.event.as_str(), &end.data["status"]), ("end", &json!("Succeeded")));
    assert_eq!((end.data["id"].as_str(), end.id), (Some(id.as_str()), None));
    assert!(end.data.get("outputs").is_none(), "a summary has no payloads");
    assert_eq!(events(&all), journal(&server, &id).await);
    // A run that has ended is streamed whole, and then its stream ends.
    let again = Stream::open(&server, &path_of(&id), &[]).await.rest().await;
    assert_eq!(again[..again.len() - 1], all);
}

#[tokio::test]
async fn a_stream_continues_at_another_process_after_any_event() {
    let (first, second) = two().await;
    first.publish(&gated()).await;
    let id = first.execute("gated", json!({})).await;
    let mut stream = Stream::open(&first, &path_of(&id), &[]).await;
    let mut seen = vec![stream.next().await.unwrap()];
    drop(stream);
    // The second process does not hold the run: it finds out what happens by polling.
    let last = seen[0].id.clone().unwrap();
    let mut stream = Stream::open(&second, &path_of(&id), &[("last-event-id", &last)]).await;
    first.gate.add_permits(1);
    seen.extend(stream.rest().await);
    assert_eq!(seen.pop().unwrap().event, "end");
    let whole = journal(&first, &id).await;
    assert_eq!(events(&seen), whole);
    // From every position, with the header and with the parameter.
    for after in 0..=seen.len() {
        let header = after.to_string();
        let rows = seen[after..].to_vec();
        let path = path_of(&id);
        let by_header = Stream::open(&second, &path, &[("last-event-id", &header)])
            .await
            .rest()
            .await;
        let by_query = Stream::open(&first, &format!("{path}?after={after}"), &[])
            .await
            .rest()
            .await;
        for messages in [by_header, by_query] {
            assert_eq!(messages[..messages.len() - 1], rows, "after {after}");
        }
    }
}

/// Streams of the same execution share what is read of its journal.
#[tokio::test]
async fn streams_at_different_positions_miss_and_repeat_nothing() {
    let server = Server::start().await;
    server.publish(&gated()).await;
    let id = server.execute("gated", json!({})).await;
    // Commands add rows to the journal; those that are read together share one.
    let deadline = Instant::now() + LONG;
    let mut commands = ["pause", "resume"].into_iter().cycle();
    while journal(&server, &id)
        .await
        .last()
        .is_none_or(|event| event["seq"].as_u64() < Some(4))
    {
        assert!(Instant::now() < deadline, "the commands are not in the journal");
        let path = format!("/api/v1/executions/{id}/{}", commands.next().unwrap());
        server.post_nothing(&path).await.expect(200);
    }
    let mut open = Vec::new();
    for after in [2, 0, 1, 3] {
        let path = format!("{}?after={after}", path_of(&id));
        let mut stream = Stream::open(&server, &path, &[]).await;
        for seq in after + 1..=4 {
            assert_eq!(stream.next().await.unwrap().id, Some(seq.to_string()), "after {after}");
        }
        open.push(stream);
    }
    server.gate.add_permits(1);
}

#[tokio::test]
async fn the_end_of_a_run_that_never_started_is_streamed() {
    let (first, second) = two().await;
    // A run that waits for a place: it is Pending, and is cancelled without a journal row of its own.
    let mut document = gated();
    document["concurrency"] = json!({ "key": "one", "limit": 1 });
    first.publish(&document).await;
    let _holds = first.execute("gated", json!({})).await;
    let id = first.execute("gated", json!({})).await;
    let streams = [
        Stream::open(&first, &path_of(&id), &[]).await,
        Stream::open(&second, &path_of(&id), &[]).await,
    ];
    first.post_nothing(&format!("/api/v1/executions/{id}/cancel")).await;
    for mut stream in streams {
        let last = stream.rest().await.pop().unwrap();
        assert_eq!(
            (last.event.as_str(), &last.data["status"]),
            ("end", &json!("Cancelled")),
            "{last:?}"
        );
    }
}

#[tokio::test]
async fn wrong_positions_and_parameters_are_refused() {
    let server = Server::start().await;
    server.publish(&echo("hello")).await;
    let id = server.execute("hello", json!({})).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let path = path_of(&id);
    for (path, header) in [
        (path.clone(), "x"),
        (path.clone(), "-1"),
        (path.clone(), "4294967296"),
        (path.clone(), "999"),
        (format!("{path}?after=999"), ""),
        (format!("{path}?after=x"), ""),
        (format!("{path}?timeout=soon"), ""),
        (format!("{path}?timeout=25h"), ""),
        (format!("{path}?limit=1"), ""),
        ("/api/v1/stream?limit=0".to_owned(), ""),
        ("/api/v1/stream?limit=201".to_owned(), ""),
        ("/api/v1/stream?status=Odd".to_owned(), ""),
        ("/api/v1/stream?order=asc".to_owned(), ""),
        ("/api/v1/stream?cursor=x".to_owned(), ""),
        ("/api/v1/stream?timeout=-1s".to_owned(), ""),
    ] {
        let headers: &[(&str, &str)] = if header.is_empty() {
            &[]
        } else {
            &[("last-event-id", header)]
        };
        let answer = server.send(Method::GET, &path, headers, "").await;
        assert_eq!(answer.status, 400, "{path} {header}: {}", answer.text);
    }
    let missing = path_of("01890000-0000-7000-8000-000000000000");
    server.get(&missing).await.error(404, "EXECUTION_NOT_FOUND");
}

#[tokio::test]
async fn a_list_is_followed() {
    let (first, second) = two().await;
    first.publish(&gated()).await;
    first.publish(&echo("other")).await;
    let id = first.execute("gated", json!({})).await;
    let path = "/api/v1/stream?workflowId=gated&status=Pending,Running";
    for server in [&first, &second] {
        let status = |message: &Message| (message.event.clone(), message.data["id"].as_str().unwrap().to_owned());
        let mut stream = Stream::open(server, path, &[]).await;
        let shown = stream.next().await.unwrap();
        assert_eq!(status(&shown), ("execution".to_owned(), id.clone()));
        assert_eq!(shown.data["workflowId"], "gated");
        assert!(shown.data.get("trigger").is_none(), "{shown:?}");
        // Runs that do not match are not shown; one that ends leaves the list.
        first.execute("other", json!({})).await;
        let new = first.execute("gated", json!({})).await;
        let mut seen = stream.next().await.unwrap();
        while seen.data["id"] == *id {
            seen = stream.next().await.unwrap();
        }
        assert_eq!(status(&seen), ("execution".to_owned(), new.clone()));
        first.post_nothing(&format!("/api/v1/executions/{new}/cancel")).await;
        let left = loop {
            let message = stream.next().await.unwrap();
            if message.event == "removed" {
                break message;
            }
            assert_eq!(message.event, "execution", "{message:?}");
        };
        assert_eq!(left.data, json!({ "id": new, "removed": true }));
        // After a reconnect the client is told to forget what it has, and gets the list.
        let last = left.id.unwrap();
        let mut stream = Stream::open(server, path, &[("last-event-id", &last)]).await;
        assert_eq!(stream.next().await.unwrap().event, "reset");
        assert_eq!(
            status(&stream.next().await.unwrap()),
            ("execution".to_owned(), id.clone())
        );
    }
    // With a time limit it ends by itself.
    let all = Stream::open(&second, "/api/v1/stream?timeout=0s&limit=2", &[])
        .await
        .rest()
        .await;
    assert_eq!(all.len(), 2, "{all:?}");
}

#[tokio::test]
async fn a_stream_shows_only_what_its_tenant_sees() {
    let (loose, strict, root) = servers().await;
    loose.publish(&gated()).await;
    let mut keys = Vec::new();
    for tenant in ["acme", "other"] {
        let body = json!({ "name": tenant, "scopes": ["workflows:read", "workflows:execute"], "tenantId": tenant });
        keys.push(text(&create(&strict, &root, body).await.expect(201), "key"));
    }
    let start = async |key: &str| {
        let answer = send(&strict, key, Method::POST, "/api/v1/workflows/gated/execute", json!({})).await;
        text(&answer.expect(202), "executionId")
    };
    let bearer = |key: &str| format!("Bearer {key}");
    let (acme, other) = (bearer(&keys[0]), bearer(&keys[1]));
    let foreign = start(&keys[0]).await;
    let mut stream = Stream::open(&strict, "/api/v1/stream", &[("authorization", &other)]).await;
    let mut own_stream = Stream::open(&strict, "/api/v1/stream", &[("authorization", &acme)]).await;
    assert_eq!(own_stream.next().await.unwrap().data["id"], *foreign);
    let also_foreign = start(&keys[0]).await;
    let own = start(&keys[1]).await;
    // The first thing that the other tenant sees is its own run, though two of the first are older.
    let shown = stream.next().await.unwrap();
    assert_eq!((shown.event.as_str(), &shown.data["id"]), ("execution", &json!(own)));
    assert_eq!(shown.data["tenantId"], "other");
    for id in [&foreign, &also_foreign] {
        let answer = send(&strict, &keys[1], Method::GET, &path_of(id), Value::Null).await;
        answer.error(404, "EXECUTION_NOT_FOUND");
    }
    let headers = [("authorization", other.as_str())];
    let mut named = Stream::open(&strict, "/api/v1/stream?tenantId=acme&timeout=0s", &headers).await;
    assert_eq!(named.rest().await, []);
    // A caller without a tenant sees both. It shares the list of the first tenant, which is read again within a second.
    while own_stream.next().await.unwrap().data["id"] != *also_foreign {}
    let all = Stream::open(
        &strict,
        "/api/v1/stream?timeout=0s&tenantId=acme",
        &[("authorization", &bearer(&root))],
    )
    .await
    .rest()
    .await;
    assert_eq!(all.len(), 2, "{all:?}");
}

#[tokio::test]
async fn a_revoked_key_loses_its_streams() {
    let (loose, strict, root) = servers().await;
    loose.publish(&gated()).await;
    let body = json!({ "name": "page", "scopes": ["workflows:read", "workflows:execute"], "tenantId": "acme" });
    let created = create(&strict, &root, body).await.expect(201);
    let key = text(&created, "key");
    let started = send(
        &strict,
        &key,
        Method::POST,
        "/api/v1/workflows/gated/execute",
        json!({}),
    )
    .await;
    let id = text(&started.expect(202), "executionId");
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let mut streams = Vec::new();
    for path in [path_of(&id).as_str(), "/api/v1/stream"] {
        // On both processes: the key is revoked at one of them.
        for server in [&loose, &strict] {
            let mut stream = Stream::open(server, path, &headers).await;
            stream.next().await.expect("it is accepted");
            streams.push(stream);
        }
    }
    let path = format!("/api/v1/admin/keys/{}", text(&created, "id"));
    let answer = send(&strict, &root, Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let ends = async {
        for stream in &mut streams {
            while let Some(message) = stream.next().await {
                assert_ne!(message.event, "end", "{message:?}");
            }
        }
    };
    timeout(LONG, ends).await.expect("every stream ends");
}

#[tokio::test]
async fn streams_end_when_the_server_stops() {
    let mut server = Server::start().await;
    server.publish(&gated()).await;
    let id = server.execute("gated", json!({})).await;
    let mut one = Stream::open(&server, &path_of(&id), &[]).await;
    let mut list = Stream::open(&server, "/api/v1/stream", &[]).await;
    one.next().await.unwrap();
    list.next().await.unwrap();
    server.shutdown.take();
    for stream in [&mut one, &mut list] {
        assert!(stream.rest().await.iter().all(|message| message.event != "end"));
    }
    let served = timeout(LONG, &mut server.serving).await;
    served.expect("it does not wait for streams").unwrap().unwrap();
}

/// A thousand streams of a run that does nothing: they take none of the limited reads, no read of the database is made for them while
/// other runs work, and those runs end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_streams_cost_nothing() {
    // Each takes two files here: its client is in the same process.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = usize::try_from(files / 4).unwrap_or(usize::MAX).min(1000);
    let config = WebConfig {
        max_concurrent_reads: 1,
        ..WebConfig::default()
    };
    let server = Server::with(quick(), config).await;
    server.publish(&gated()).await;
    server.publish(&echo("hello")).await;
    let id = server.execute("gated", json!({})).await;
    server.until(&id, |run| run["status"] == "Running").await;
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        streams.push(Stream::open(&server, &path_of(&id), &[]).await);
    }
    let rows = journal(&server, &id).await.last().unwrap()["seq"].clone();
    for stream in &mut streams {
        // All that has happened so far.
        while stream.next().await.unwrap().id != Some(rows.to_string()) {}
    }
    let reads = server.engine.watch_reads();
    assert!(reads < 20, "watchers of one run share their reads: {reads}");
    let path = "/api/v1/workflows/hello/execute?wait=20s";
    for _ in 0..100 {
        let run = server.post(path, json!({})).await.expect(200);
        assert_eq!(run["status"], "Succeeded");
        server.get("/api/v1/executions?limit=1").await.expect(200);
    }
    assert_eq!(
        server.engine.watch_reads(),
        reads,
        "nothing happened in the watched run"
    );
    server.gate.add_permits(1);
    for stream in &mut streams {
        assert_eq!(stream.rest().await.pop().unwrap().event, "end");
    }
    let more = server.engine.watch_reads() - reads;
    assert!(more < 20, "one wake-up of a thousand watchers took {more} reads");
    drop(streams);
    let deadline = Instant::now() + LONG;
    while server.engine.watched() > 0 {
        assert!(Instant::now() < deadline, "dropped streams are still watched");
        tokio::task::yield_now().await;
    }
}

/// A client that does not read gets no more than the buffers of its connection hold, and is disconnected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_client_is_disconnected() {
    const NODES: usize = 700;
    let config = WebConfig {
        write_timeout: Duration::from_millis(300),
        ..WebConfig::default()
    };
    let server = Server::with(Settings::default(), config).await;
    // Long ids make long events.
    let id_of = |number: usize| format!("{}-{number}", "n".repeat(220));
    let node = |number: usize| {
        let edges = match number + 1 < NODES {
            true => json!([{ "targetNode": id_of(number + 1) }]),
            false => json!([]),
        };
        json!({ "id": id_of(number), "actionType": "core.echo", "parameters": {}, "edges": edges })
    };
    let nodes: Vec<Value> = (0..NODES).map(node).collect();
    let document = json!({ "id": "long", "displayName": "Long", "startNode": id_of(0), "nodes": nodes });
    server.publish(&document).await;
    let id = server.execute("long", json!({})).await;
    server.until(&id, |run| run["status"] == "Succeeded").await;
    let whole = Stream::open(&server, &path_of(&id), &[]).await.rest().await;
    let size: usize = whole.iter().map(|message| message.data.to_string().len()).sum();

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let mut silent = socket.connect(address).await.unwrap();
    // As many requests as the buffers of the connection cannot hold the responses of.
    const REQUESTS: usize = 20;
    let request = format!("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", path_of(&id));
    silent.write_all(request.repeat(REQUESTS).as_bytes()).await.unwrap();
    // The server drops the connection, and watches nothing then. Between two responses it watches nothing for a moment.
    let deadline = Instant::now() + LONG;
    while server.engine.watched() == 0 {
        assert!(Instant::now() < deadline, "the stream was never opened");
        tokio::task::yield_now().await;
    }
    let mut idle_since = Instant::now();
    while idle_since.elapsed() < Duration::from_secs(1) {
        assert!(Instant::now() < deadline, "the silent client is still served");
        if server.engine.watched() > 0 {
            idle_since = Instant::now();
        }
        tokio::task::yield_now().await;
    }
    let mut received = Vec::new();
    let read = timeout(LONG, silent.read_to_end(&mut received)).await;
    let _ = read.expect("the connection is closed");
    assert!(
        received.len() < REQUESTS * size,
        "{} of {REQUESTS} times {size} bytes",
        received.len()
    );
}
