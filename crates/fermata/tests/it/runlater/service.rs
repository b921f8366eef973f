//! An HTTP service on loopback that sends scripted responses and records all calls.
//!
//! It implements HTTP itself, because it must also break off in the middle of a response. Calls and responses are
//! numbered in one sequence, so that tests compare the order of events and not their timing.

use crate::support::PATIENCE;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::SystemTime,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A recorded request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    /// Including the query.
    pub path: String,
    /// The names are in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// When it arrived, as a number in the sequence of events.
    pub arrived: u64,
    /// When its response was complete, in the same sequence.
    pub answered: Option<u64>,
    /// When it arrived, by the system clock.
    pub arrived_at: SystemTime,
}

impl Call {
    /// The body as JSON; `null` if it is empty.
    pub fn json(&self) -> Value {
        match self.body.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).expect("the body is JSON"),
        }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub fn key(&self) -> &str {
        self.header("idempotency-key")
    }

    /// The path of the callback URL in this member of the body.
    pub fn callback(&self, member: &str) -> String {
        let body = self.json();
        let url = body[member].as_str().expect("a URL");
        url[url.find("/wh/").expect("a callback URL")..].to_owned()
    }
}

/// A scripted response.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    how: How,
    /// The response waits until the service has received this many calls in total.
    after_calls: usize,
    /// The response waits for [`Service::release`].
    held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Whole,
    /// The body is shorter than its `content-length`.
    Cut,
    /// The connection is reset.
    Reset,
    /// No response is ever sent.
    Silent,
    /// The request body is returned as `seen`.
    Echo,
    /// As `Echo`, but the first calls with the same key, this many, get 503.
    Flaky(usize),
}

impl Answer {
    pub fn new(status: u16, body: &Value) -> Answer {
        Answer {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: body.to_string(),
            how: How::Whole,
            after_calls: 0,
            held: false,
        }
    }

    pub fn ok(body: &Value) -> Answer {
        Answer::new(200, body)
    }

    pub fn status(status: u16) -> Answer {
        Answer::new(status, &json!({ "code": status }))
    }

    pub fn text(media: &str, body: &str) -> Answer {
        Answer {
            headers: vec![("content-type", media.to_owned())],
            body: body.to_owned(),
            ..Answer::status(200)
        }
    }

    pub fn broken_body() -> Answer {
        Answer::status(200).how(How::Cut)
    }

    pub fn reset() -> Answer {
        Answer::status(200).how(How::Reset)
    }

    pub fn never() -> Answer {
        Answer::status(200).how(How::Silent)
    }

    pub fn echo() -> Answer {
        Answer::status(200).how(How::Echo)
    }

    pub fn flaky(times: usize) -> Answer {
        Answer::status(200).how(How::Flaky(times))
    }

    fn how(self, how: How) -> Answer {
        Answer { how, ..self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Answer {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Sends the response only after the service has received this many calls in total.
    pub fn after_calls(self, after_calls: usize) -> Answer {
        Answer { after_calls, ..self }
    }

    /// Sends the response only after [`Service::release`].
    pub fn held(self) -> Answer {
        Answer { held: true, ..self }
    }
}

/// The service. It ends when it is dropped.
pub struct Service {
    pub url: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    log: Mutex<Log>,
    /// Changes with every entry of the log and every release, to wake waiting tasks.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Log {
    calls: Vec<Call>,
    /// The number of the last event.
    clock: u64,
    scripts: HashMap<String, Vec<Answer>>,
    /// The number of calls for each path and for each key.
    counts: HashMap<String, usize>,
    /// How many held responses of each path may be sent.
    released: HashMap<String, usize>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    /// Starts the service. Paths without a script get 200 with `{}`.
    pub async fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State::default());
        let serving = tokio::spawn(serve(listener, state.clone()));
        Service { url, state, serving }
    }

    /// The URL of a path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Sets the responses of a path, in the order of its calls. The last response is repeated.
    pub fn script(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.state.log.lock().unwrap().scripts.insert(path.to_owned(), answers);
    }

    /// Releases one [`Answer::held`] of a path: the one that waits, or the next one.
    pub fn release(&self, path: &str) {
        *self
            .state
            .log
            .lock()
            .unwrap()
            .released
            .entry(path.to_owned())
            .or_default() += 1;
        self.state.changed.send_modify(|clock| *clock += 1);
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.state.log.lock().unwrap().calls.clone()
    }

    /// The calls after the first `first` calls.
    pub fn calls_after(&self, first: usize) -> Vec<Call> {
        self.state.log.lock().unwrap().calls[first..].to_vec()
    }

    /// The calls of a path.
    pub fn calls_of(&self, path: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.path == path);
        calls
    }

    /// Waits for the `number`th call of a path.
    pub async fn call(&self, path: &str, number: usize) -> Call {
        let mut changed = self.state.changed.subscribe();
        let arrival = async {
            loop {
                if let Some(call) = self.calls_of(path).get(number - 1) {
                    return call.clone();
                }
                changed.changed().await.expect("the service runs");
            }
        };
        let call = tokio::time::timeout(PATIENCE, arrival).await;
        call.unwrap_or_else(|_| panic!("call {number} of {path} did not arrive: {:#?}", self.calls()))
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("connections can be accepted");
        connections.spawn(serve_connection(stream, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers the requests of a connection until it is closed. Write errors are ignored: tests kill clients.
async fn serve_connection(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(call) = read(&mut stream).await {
        let (number, answer) = state.record(call);
        state.until_due(number, &answer).await;
        match answer.how {
            How::Whole | How::Echo | How::Flaky(_) => {}
            How::Reset => {
                let _ = stream.get_ref().set_zero_linger();
                return;
            }
            How::Silent => {
                let _ = stream.read(&mut [0]).await;
                return;
            }
            How::Cut => {
                let _ = stream.get_mut().write_all(&head(&answer, answer.body.len() + 10)).await;
                let _ = stream.get_mut().write_all(answer.body.as_bytes()).await;
                return;
            }
        }
        let mut bytes = head(&answer, answer.body.len());
        bytes.extend_from_slice(answer.body.as_bytes());
        // Recorded before it is sent: a test that has seen the response must find it in the log.
        state.answered(number);
        if stream.get_mut().write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn head(answer: &Answer, length: usize) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\ncontent-length: {length}\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    head.into_bytes()
}

/// The next request, or `None` when the connection ends.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut parts = line.split_whitespace();
    let (method, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some(Call {
        method,
        path,
        headers,
        body: String::from_utf8(body).ok()?,
        arrived: 0,
        answered: None,
        arrived_at: SystemTime::now(),
    })
}

impl Log {
    /// Increments a counter. Returns its value before that.
    fn count(&mut self, what: &str) -> usize {
        let count = self.counts.entry(what.to_owned()).or_default();
        *count += 1;
        *count - 1
    }
}

impl State {
    /// Records a call. Returns its index and the response.
    fn record(&self, mut call: Call) -> (usize, Answer) {
        let mut log = self.log.lock().unwrap();
        log.clock += 1;
        call.arrived = log.clock;
        let before = log.count(&call.path);
        let script = log.scripts.get(&call.path).map_or(&[][..], Vec::as_slice);
        let scripted = script.get(before).or(script.last()).cloned();
        let mut answer = scripted.unwrap_or_else(|| Answer::ok(&json!({})));
        if matches!(answer.how, How::Echo | How::Flaky(_)) {
            answer.body = json!({ "seen": call.json() }).to_string();
        }
        if matches!(answer.how, How::Flaky(times) if log.count(call.key()) < times) {
            answer.status = 503;
        }
        log.calls.push(call);
        let number = log.calls.len() - 1;
        drop(log);
        self.changed.send_modify(|clock| *clock += 1);
        (number, answer)
    }

    async fn until_due(&self, number: usize, answer: &Answer) {
        let mut changed = self.changed.subscribe();
        while !self.is_due(number, answer) {
            changed.changed().await.expect("the service runs");
        }
    }

    fn is_due(&self, number: usize, answer: &Answer) -> bool {
        let mut log = self.log.lock().unwrap();
        if log.calls.len() < answer.after_calls {
            return false;
        }
        let path = log.calls[number].path.clone();
        match log.released.get_mut(&path) {
            _ if !answer.held => true,
            Some(left @ 1..) => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn answered(&self, number: usize) {
        let mut log = self.log.lock().unwrap();
        log.clock += 1;
        log.calls[number].answered = Some(log.clock);
        drop(log);
        self.changed.send_modify(|clock| *clock += 1);
    }
}
