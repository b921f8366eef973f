//! The action with a resolver and a guard of the test. 127.0.0.2 is the address that must not be called. All addresses are
//! loopback.

use super::*;
use crate::memory::{Budget, Reserved};
use fermata_core::{NodeId, RunId};
use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::json;
use std::{
    collections::VecDeque,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    sync::Mutex,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;

const REFUSED_HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));
const GUARD: Guard = Guard::new(|address| (address == REFUSED_HERE).then_some("test"));

type Heads = Arc<Mutex<Vec<String>>>;

/// Sends a scripted response to one request per connection. Returns the address and the requests.
async fn service(at: &str, answer: impl Fn(usize) -> String + Send + 'static) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Heads::default();
    let seen = requests.clone();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 8192];
            let count = socket.read(&mut request).await.unwrap();
            let text = String::from_utf8_lossy(&request[..count]).to_ascii_lowercase();
            seen.lock().unwrap().push(text);
            let _ = socket.write_all(answer(number).as_bytes()).await;
        }
    });
    (address, requests)
}

fn redirect_to(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} Go\r\nconnection: close\r\ncontent-length: 0\r\nlocation: {location}\r\n\r\n")
}

fn fine() -> String {
    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok".to_owned()
}

/// Returns the nth list of addresses for the nth lookup; an absent one is an error.
#[derive(Default)]
struct Names {
    answers: Mutex<VecDeque<Vec<&'static str>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn new(answers: &[&[&'static str]]) -> Arc<Names> {
        Arc::new(Names {
            answers: Mutex::new(answers.iter().map(|answer| answer.to_vec()).collect()),
            asked: Mutex::default(),
        })
    }
}

#[async_trait]
impl Lookup for Names {
    async fn lookup(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        self.asked.lock().unwrap().push(host.to_owned());
        let answer = self.answers.lock().unwrap().pop_front();
        let addresses = answer.ok_or_else(|| io::Error::other("no such name"))?;
        Ok(addresses
            .iter()
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), 0))
            .collect())
    }
}

fn action(names: &Arc<Names>) -> HttpRequest {
    HttpRequest::guarded(&HttpSettings::default(), GUARD, names.clone()).unwrap()
}

async fn call(action: &HttpRequest, parameters: Value) -> Result<HttpOutputs, Failure> {
    call_with(action, parameters, Reserved::default()).await
}

async fn call_with(action: &HttpRequest, parameters: Value, memory: Reserved) -> Result<HttpOutputs, Failure> {
    let call = Call {
        run: RunId(uuid::Uuid::now_v7()),
        node: NodeId::from("call"),
        attempt: 1,
        idempotency_key: "run:call".to_owned(),
        correlation_id: "correlation".into(),
        traceparent: None,
        principal: Arc::default(),
        workflow: "test".into(),
        answer: None,
        children: None,
        callbacks: None,
        events: None,
        state: Arc::default(),
        cancelled: CancellationToken::new(),
        memory,
    };
    let parameters = serde_json::from_value(parameters).unwrap();
    let done = action.run(parameters, call).await;
    done.map(|done| done.outputs).map_err(|failed| failed.failure)
}

async fn get(action: &HttpRequest, url: String) -> Result<HttpOutputs, Failure> {
    call(action, json!({ "url": url })).await
}

fn assert_refused(failure: &Failure, hints: &[&str]) {
    assert_eq!(
        (failure.code.as_str(), failure.retriable),
        ("ADDRESS_REFUSED", false),
        "{failure:?}"
    );
    for hint in hints.iter().chain(&["`allow_private_networks = true`"]) {
        assert!(failure.message.contains(hint), "{hint}: {}", failure.message);
    }
}

#[tokio::test]
async fn refused_literal_is_not_called() {
    let (address, requests) = service("127.0.0.2:0", |_| fine()).await;
    for host in [
        "127.0.0.2",
        "127.2",
        "0x7f.0.0.2",
        "2130706434",
        "user@127.0.0.2",
        "127.0.0.2.",
    ] {
        let failure = get(&action(&Names::new(&[])), format!("http://{host}:{}/", address.port())).await;
        assert_refused(&failure.unwrap_err(), &["`127.0.0.2` is a private address (test)"]);
    }
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn private_addresses_are_refused_by_default() {
    let (address, requests) = service("127.0.0.1:0", |_| fine()).await;
    let action = HttpRequest::new(&HttpSettings::default()).unwrap();
    let failure = get(&action, format!("http://{address}/")).await.unwrap_err();
    assert_refused(&failure, &["`127.0.0.1` is a private address (loopback)"]);
    assert_eq!(requests.lock().unwrap().len(), 0);
    let open = HttpSettings {
        allow_private_networks: true,
        ..HttpSettings::default()
    };
    let outputs = get(&HttpRequest::new(&open).unwrap(), format!("http://{address}/")).await;
    assert_eq!(outputs.unwrap().status, 200);
}

#[tokio::test]
async fn stand_in_is_called_at_its_own_address() {
    let (address, requests) = service("127.0.0.2:0", |_| fine()).await;
    let (other, others) = service("127.0.0.2:0", |_| fine()).await;
    let settings = HttpSettings {
        stand_ins: vec![("stand-in.test".to_owned(), address)],
        ..HttpSettings::default()
    };
    let action = HttpRequest::guarded(&settings, GUARD, Names::new(&[])).unwrap();
    for url in ["http://stand-in.test/a", "http://Stand-In.test:80/b"] {
        assert_eq!(get(&action, url.to_owned()).await.unwrap().status, 200, "{url}");
    }
    let elsewhere = format!("http://stand-in.test:{}/c", other.port());
    assert_eq!(get(&action, elsewhere).await.unwrap().status, 200);
    assert_eq!((requests.lock().unwrap().len(), others.lock().unwrap().len()), (3, 0));
    assert!(requests.lock().unwrap()[0].contains("host: stand-in.test\r\n"));
    // Its address itself is refused, and so is every other name.
    let failure = get(&action, format!("http://{address}/")).await.unwrap_err();
    assert_refused(&failure, &["`127.0.0.2` is a private address (test)"]);
    let failure = get(&action, "http://x.stand-in.test/".to_owned()).await.unwrap_err();
    assert_eq!(failure.code, "CONNECTION_FAILED", "{failure:?}");
}

#[tokio::test]
async fn name_that_resolves_to_a_refused_address_is_refused() {
    let (address, requests) = service("127.0.0.2:0", |_| fine()).await;
    let action = action(&Names::new(&[&["127.0.0.2", "127.0.0.2"]]));
    let failure = get(&action, format!("http://inside.test:{}/?secret", address.port()))
        .await
        .unwrap_err();
    assert_refused(&failure, &["`inside.test` resolves to a private address (test)"]);
    assert!(
        !failure.message.contains("secret") && !failure.message.contains("127.0.0.2"),
        "{failure:?}"
    );
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn only_permitted_addresses_of_a_name_are_called() {
    let (address, permitted) = service("127.0.0.1:0", |_| fine()).await;
    let (_, refused) = service(&format!("127.0.0.2:{}", address.port()), |_| fine()).await;
    let names = Names::new(&[&["127.0.0.2", "127.0.0.1"], &["127.0.0.1", "127.0.0.2"]]);
    let action = action(&names);
    for _ in 0..2 {
        get(&action, format!("http://both.test:{}/", address.port()))
            .await
            .unwrap();
    }
    assert_eq!((permitted.lock().unwrap().len(), refused.lock().unwrap().len()), (2, 0));
}

/// The second lookup would return a refused address. The name is not resolved again.
#[tokio::test]
async fn checked_address_is_the_one_that_is_called() {
    let (address, permitted) = service("127.0.0.1:0", |_| fine()).await;
    let (_, refused) = service(&format!("127.0.0.2:{}", address.port()), |_| fine()).await;
    let names = Names::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let action = action(&names);
    let url = format!("http://rebind.test:{}/", address.port());
    assert_eq!(get(&action, url.clone()).await.unwrap().status, 200);
    assert_eq!(*names.asked.lock().unwrap(), ["rebind.test"]);
    assert_refused(&get(&action, url).await.unwrap_err(), &["`rebind.test` resolves to"]);
    assert_eq!((permitted.lock().unwrap().len(), refused.lock().unwrap().len()), (1, 0));
}

#[tokio::test]
async fn failed_resolution_is_retriable() {
    for names in [Names::new(&[]), Names::new(&[&[]])] {
        let failure = get(&action(&names), "http://nowhere.test/?secret".to_owned())
            .await
            .unwrap_err();
        assert_eq!(
            (failure.code.as_str(), failure.retriable),
            ("CONNECTION_FAILED", true),
            "{failure:?}"
        );
        assert!(failure.message.contains("`http://nowhere.test`"), "{failure:?}");
        assert!(!failure.message.contains("secret"), "{failure:?}");
    }
}

#[tokio::test]
async fn redirect_to_a_refused_address_is_refused_and_named() {
    let (inside, requests) = service("127.0.0.2:0", |_| fine()).await;
    let port = inside.port();
    for (location, lookups, hints) in [
        (
            format!("http://127.0.0.2:{port}/"),
            0,
            ["`127.0.0.2` is a private", "redirect 2"],
        ),
        (
            format!("//0x7f000002:{port}/"),
            0,
            ["`127.0.0.2` is a private", "redirect 2"],
        ),
        (
            format!("http://inside.test:{port}/"),
            1,
            ["`inside.test` resolves to", "to `http://inside.test:"],
        ),
    ] {
        let (outside, seen) = service("127.0.0.1:0", move |number| match number {
            0 => redirect_to(302, "/again"),
            _ => redirect_to(307, &location),
        })
        .await;
        let names = Names::new(&[&["127.0.0.2"]]);
        let failure = get(&action(&names), format!("http://{outside}/")).await.unwrap_err();
        assert_refused(&failure, &hints);
        assert_eq!(
            (seen.lock().unwrap().len(), names.asked.lock().unwrap().len()),
            (2, lookups)
        );
    }
    assert_eq!(requests.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn redirects_send_only_safe_headers_to_another_origin() {
    let (there, arrived) = service("127.0.0.1:0", |_| fine()).await;
    let (here, left) = service("127.0.0.1:0", move |number| match number {
        0 => redirect_to(308, "/same"),
        1 => redirect_to(307, &format!("http://other.test:{}/far", there.port())),
        _ => unreachable!(),
    })
    .await;
    let parameters = json!({ "method": "POST", "url": format!("http://me:secret@{here}/"), "body": { "a": 1 },
                             "headers": { "Cookie": "c=1", "X-Own": "own" } });
    call(&action(&Names::new(&[&["127.0.0.1"]])), parameters).await.unwrap();
    let (left, arrived) = (left.lock().unwrap(), arrived.lock().unwrap());
    for (request, line) in left.iter().zip(["post / ", "post /same "]) {
        assert!(request.starts_with(line), "{request}");
        for part in [
            "authorization: basic bwu6c2vjcmv0",
            "cookie: c=1",
            "idempotency-key: run:call",
            "x-attempt: 1",
            "x-own: own",
        ] {
            assert!(request.contains(part), "{part}: {request}");
        }
    }
    let request = &arrived[0];
    assert!(
        request.starts_with("post /far ") && request.ends_with(r#"{"a":1}"#),
        "{request}"
    );
    for part in ["content-type: application/json", "x-attempt: 1", "user-agent: fermata/"] {
        assert!(request.contains(part), "{part}: {request}");
    }
    for part in ["authorization", "cookie", "idempotency-key", "referer", "x-own"] {
        assert!(!request.contains(part), "{part}: {request}");
    }
}

#[tokio::test]
async fn redirect_303_turns_post_into_get() {
    let (address, requests) = service("127.0.0.1:0", |number| match number {
        0 => redirect_to(303, "/seen"),
        _ => fine(),
    })
    .await;
    let parameters = json!({ "method": "POST", "url": format!("http://{address}/"), "body": "text" });
    call(&action(&Names::new(&[])), parameters).await.unwrap();
    let requests = requests.lock().unwrap();
    assert!(
        requests[1].starts_with("get /seen ") && !requests[1].contains("text"),
        "{}",
        requests[1]
    );
    assert!(requests[1].contains("idempotency-key: run:call"), "{}", requests[1]);
}

#[tokio::test]
async fn at_most_ten_redirects_are_followed() {
    for (hops, works) in [(MAX_REDIRECTS, true), (MAX_REDIRECTS + 1, false)] {
        let (address, requests) = service("127.0.0.1:0", move |number| match number < hops {
            true => redirect_to(302, "/on"),
            false => fine(),
        })
        .await;
        let result = get(&action(&Names::new(&[])), format!("http://{address}/")).await;
        assert_eq!(result.is_ok(), works, "{hops}: {result:?}");
        assert_eq!(requests.lock().unwrap().len(), MAX_REDIRECTS + 1);
        if let Err(failure) = result {
            assert_eq!(
                (failure.code.as_str(), failure.retriable),
                ("TOO_MANY_REDIRECTS", false)
            );
        }
    }
}

/// With a timeout for each hop, a chain of slow services could take ten times as long. All hops together exceed the timeout
/// and no single hop does, also on a slow machine.
#[tokio::test]
async fn timeout_covers_all_hops() {
    let (address, requests) = service("127.0.0.1:0", |_| {
        std::thread::sleep(Duration::from_millis(60));
        redirect_to(302, "/on")
    })
    .await;
    let parameters = json!({ "url": format!("http://{address}/"), "timeoutMs": 200 });
    let failure = call(&action(&Names::new(&[])), parameters).await.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.retriable),
        (code::TIMEOUT, true),
        "{failure:?}"
    );
    assert!(requests.lock().unwrap().len() <= 4);
}

/// Sends pieces as one chunked body until the client closes the connection or there are no more.
async fn stream(encoding: &str, mut piece: impl FnMut() -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ntransfer-encoding: chunked\r\n\r\n");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 8192]).await;
        let mut out = head.into_bytes();
        while let Some(piece) = piece() {
            write!(out, "{:x}\r\n", piece.len()).unwrap();
            out.extend_from_slice(&piece);
            out.extend_from_slice(b"\r\n");
            if socket.write_all(&out).await.is_err() {
                return;
            }
            out.clear();
        }
        let _ = socket.write_all(b"0\r\n\r\n").await;
    });
    address
}

fn assert_cut(outputs: &HttpOutputs) {
    assert!(outputs.is_truncated);
    assert_eq!(outputs.body.as_str().unwrap().len(), MAX_BODY);
}

#[tokio::test]
async fn decompression_bomb_is_truncated() {
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..100 {
        bomb.write_all(&vec![0; 1 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < MAX_BODY, "it comes over the wire without being cut");
    let mut pieces = vec![bomb];
    let address = stream("gzip", move || pieces.pop()).await;
    assert_cut(
        &get(&action(&Names::new(&[])), format!("http://{address}/"))
            .await
            .unwrap(),
    );
}

/// The body never ends, so the test ends only if reading stops.
#[tokio::test]
async fn endless_body_is_not_read_to_its_end() {
    fn endless<E: Write + Send + 'static>(
        mut encoder: E,
        take: fn(&mut E) -> &mut Vec<u8>,
    ) -> impl FnMut() -> Option<Vec<u8>> + Send {
        move || {
            encoder.write_all(&vec![0; 1 << 20]).unwrap();
            encoder.flush().unwrap();
            Some(std::mem::take(take(&mut encoder)))
        }
    }
    let level = Compression::fast;
    let gzip = stream("gzip", endless(GzEncoder::new(Vec::new(), level()), GzEncoder::get_mut)).await;
    let zlib = stream(
        "deflate",
        endless(ZlibEncoder::new(Vec::new(), level()), ZlibEncoder::get_mut),
    )
    .await;
    let plain = stream("identity", || Some(vec![0; 1 << 16])).await;
    for address in [gzip, zlib, plain] {
        assert_cut(
            &get(&action(&Names::new(&[])), format!("http://{address}/"))
                .await
                .unwrap(),
        );
    }
}

/// A service that keeps its connections. A request for `/rude` gets a response without a body; the body that must not be there
/// is sent with the response to the next request. Returns the number of connections.
async fn rude_service(head: &'static str) -> (SocketAddr, Arc<Mutex<usize>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(Mutex::new(0));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            *count.lock().unwrap() += 1;
            tokio::spawn(async move {
                let mut owed = "";
                let mut request = vec![0; 8192];
                while let Ok(read @ 1..) = socket.read(&mut request).await {
                    let is_rude = String::from_utf8_lossy(&request[..read]).contains(" /rude ");
                    let fine = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    let answer = if is_rude {
                        head.to_owned()
                    } else {
                        format!("{owed}{fine}")
                    };
                    owed = if is_rude { "a body that must not be there" } else { "" };
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn unexpected_body_does_not_affect_the_next_request() {
    for (method, head) in [
        ("POST", "HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\netag: a\r\n\r\n"),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 29\r\n\r\n"),
    ] {
        let (address, connections) = rude_service(head).await;
        let action = action(&Names::new(&[]));
        for _ in 0..3 {
            let outputs = get(&action, format!("http://{address}/fine")).await.unwrap();
            assert_eq!(outputs.body, "ok");
        }
        assert_eq!(*connections.lock().unwrap(), 1, "connections are kept");
        let rude = call(
            &action,
            json!({ "method": method, "url": format!("http://{address}/rude") }),
        )
        .await;
        let status = match &rude {
            Ok(outputs) => outputs.status.to_string(),
            Err(failure) => failure.code.trim_start_matches("HTTP_").to_owned(),
        };
        assert!(head.contains(&format!(" {status} ")), "{method}: {rude:?}");
        let outputs = get(&action, format!("http://{address}/fine")).await.unwrap();
        assert_eq!(outputs.body, "ok", "{method} {head}");
    }
}

#[tokio::test]
async fn response_is_read_when_there_is_memory_for_it() {
    let (address, _) = service("127.0.0.1:0", |_| {
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned()
    })
    .await;
    let action = action(&Names::new(&[]));
    let budget = Budget::new(1000);
    let others = budget.take(1).await;
    let memory = Reserved::of(&budget);
    let parameters = json!({ "url": format!("http://{address}/") });
    let mut calling = std::pin::pin!(call_with(&action, parameters, memory.clone()));
    let waits = tokio::time::timeout(Duration::from_millis(100), calling.as_mut());
    assert!(waits.await.is_err(), "it is not read while others use the memory");
    drop(others);
    let outputs = calling.await.unwrap();
    assert_eq!(outputs.body, "ok");
    assert!(budget.free() < 1000, "it is counted until it is recorded");
    drop(memory);
    assert_eq!(budget.free(), 1000);
}
