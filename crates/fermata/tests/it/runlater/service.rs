//! A service on loopback that answers as its test says, and remembers who asked for what, and when.
//!
//! It speaks HTTP by hand, because it also has to break off in the middle of an answer. "When" is a place in the order of
//! everything that happened here, so that tests ask what came before what and never how long something took.

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

/// A request that came.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Its place among all that happened here.
    pub arrived: u64,
    /// The same for the end of its answer.
    pub answered: Option<u64>,
    /// By the clock of this machine.
    pub arrived_at: SystemTime,
}

impl Call {
    /// Its body as JSON; `null` if there is none.
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

    /// The path of a callback's address that stands in a member of its body.
    pub fn callback(&self, member: &str) -> String {
        let body = self.json();
        let url = body[member].as_str().expect("an address");
        url[url.find("/wh/").expect("an address of a callback")..].to_owned()
    }
}

/// What is answered.
#[derive(Debug, Clone)]
pub struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    how: How,
    /// It is held until so many calls have come to the service in all.
    after_calls: usize,
    /// It is held until the test lets it go.
    held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Whole,
    /// It promises more than it sends, and ends.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing ever comes.
    Silent,
    /// What came is sent back, as `seen`.
    Echo,
    /// The same, but the first so many calls with the same key are refused with 503.
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

    /// Only when so many calls have come to the service in all: one that comes alone is never answered.
    pub fn after_calls(self, after_calls: usize) -> Answer {
        Answer { after_calls, ..self }
    }

    /// Only when [`Service::release`] says so.
    pub fn held(self) -> Answer {
        Answer { held: true, ..self }
    }
}

/// The service. Ends with its test.
pub struct Service {
    pub url: String,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    log: Mutex<Log>,
    /// Changes with every entry of the log and every release.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Log {
    calls: Vec<Call>,
    /// How often something happened.
    clock: u64,
    scripts: HashMap<String, Vec<Answer>>,
    /// How many calls of a path there were, and with a key.
    counts: HashMap<String, usize>,
    /// How many answers of a path may still go.
    released: HashMap<String, usize>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Service {
    /// Answers 200 with `{}` to whatever has no script.
    pub async fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(State::default());
        let serving = tokio::spawn(serve(listener, state.clone()));
        Service { url, state, serving }
    }

    /// An address of it.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// What is answered at a path: the first call gets the first answer, and the last one is repeated for ever.
    pub fn script(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.state.log.lock().unwrap().scripts.insert(path.to_owned(), answers);
    }

    /// Lets one answer of a path go that is [`Answer::held`], or will be.
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

    /// Those after the first so many.
    pub fn calls_after(&self, first: usize) -> Vec<Call> {
        self.state.log.lock().unwrap().calls[first..].to_vec()
    }

    /// Those of a path.
    pub fn calls_of(&self, path: &str) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.path == path);
        calls
    }

    /// The `number`th call of a path, once it has come.
    pub async fn call(&self, path: &str, number: usize) -> Call {
        let mut changed = self.state.changed.subscribe();
        let look = async {
            loop {
                if let Some(call) = self.calls_of(path).get(number - 1) {
                    return call.clone();
                }
                changed.changed().await.expect("the service runs");
            }
        };
        let seen = tokio::time::timeout(PATIENCE, look).await;
        seen.unwrap_or_else(|_| panic!("call {number} of {path} did not come: {:#?}", self.calls()))
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("connections can be accepted");
        connections.spawn(converse(stream, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers on a connection until either side has enough. That a client is gone is no matter here.
async fn converse(stream: TcpStream, state: Arc<State>) {
    let mut stream = BufReader::new(stream);
    while let Some(call) = read(&mut stream).await {
        let (number, answer) = state.note(call);
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
        // Noted first: whoever has read the answer must find it in the log.
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
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
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
    /// Counts; how often it was before.
    fn count(&mut self, what: &str) -> usize {
        let count = self.counts.entry(what.to_owned()).or_default();
        *count += 1;
        *count - 1
    }
}

impl State {
    /// Writes a call down, and finds out what to answer it with.
    fn note(&self, mut call: Call) -> (usize, Answer) {
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
