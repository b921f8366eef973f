//! Runs sleep, wait and retry and callbacks arrive, while the server is killed repeatedly.

use super::super::{
    Run, Stage,
    service::{Answer, Call, Service},
    task_statuses,
};
use crate::{
    crash::{PATIENT_WITH_RUNS, all_runs, check_steps, number, throw},
    support::{PATIENCE, http_client},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, task::JoinSet};

const WORKERS: usize = 4;
/// Each process listens on another port, but repeated requests must have the same body. So callback URLs must not
/// contain the port.
const PUBLIC_URL: (&str, &str) = ("FERMATA_SERVER__PUBLIC_URL", "https://flows.example");

fn workflow(service: &Service) -> Value {
    let call = |path: &str, needs: &[&str], body: Value| json!({ "needs": needs, "url": service.at(path), "retries": 30, "body": body });
    let n = "{{trigger.body.n}}";
    json!({ "name": "crash-tasks", "tasks": {
        "first": call("/effect", &[], json!({ "first": n })),
        "nap": { "needs": ["first"], "sleep": "120ms" },
        "flaky": call("/flaky", &["first"], json!({ "flaky": n })),
        "ask": call("/ask", &["first"], json!({ "reply": "{{wait.reply.url}}", "early": "{{wait.early.url}}" })),
        "reply": { "needs": ["ask"], "wait_for_webhook": {} },
        "early": { "needs": ["nap"], "wait_for_webhook": {} },
        "use": call("/use", &["reply"], json!({ "reply": "{{tasks.reply.body}}" })),
        "handle": { "needs": ["flaky"], "if": "tasks.flaky.status != 'success'", "url": service.at("/wrong") },
        "join": call("/join", &["nap", "flaky", "use", "early"],
                     json!({ "n": n, "reply": "{{tasks.reply.body}}", "early": "{{tasks.early.body}}",
                             "flaky": "{{tasks.flaky.body.seen.flaky}}" })),
    } })
}

/// What was sent to a callback.
#[derive(Default)]
struct Sent {
    payloads: Vec<Value>,
    /// The payload that was answered with 200.
    accepted: Option<Value>,
}

/// (run, task) → what was sent.
type Callbacks = BTreeMap<(String, &'static str), Sent>;

struct Load {
    url: RwLock<String>,
    client: reqwest::Client,
    next: AtomicU64,
    /// Set to stop triggering runs.
    stop_triggers: AtomicBool,
    /// Set to stop sending callbacks.
    stop_callbacks: AtomicBool,
    /// Idempotency-Key → run.
    runs: Mutex<BTreeMap<String, String>>,
    callbacks: Mutex<Callbacks>,
    /// Notified when a callback was accepted.
    callback_accepted: Notify,
}

impl Load {
    /// Status and body of the response, if there is one.
    async fn post(&self, path: &str, key: Option<&str>, body: &Value) -> Option<(u16, Value)> {
        let url = format!("{}{path}", self.url.read().unwrap());
        let mut request = self.client.post(url).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// Triggers runs until `stop_triggers` is set. A trigger that was not acknowledged is repeated with the same key.
    async fn keep_triggering(self: Arc<Self>) {
        while !self.stop_triggers.load(Ordering::Relaxed) {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            let key = format!("n-{n}");
            loop {
                let answer = self
                    .post("/api/v1/workflows/crash-tasks/trigger", Some(&key), &json!({ "n": n }))
                    .await;
                if let Some((200 | 201, answer)) = answer {
                    let run = answer["data"]["run_id"].as_str().expect("an id").to_owned();
                    self.runs.lock().unwrap().insert(key, run);
                    break;
                }
                if self.stop_triggers.load(Ordering::Relaxed) {
                    return;
                }
                pause(5).await; // the server is being killed
            }
            pause(10).await;
        }
    }

    /// Sends a callback until it is accepted or already closed. Each attempt has another payload.
    async fn call_back(self: Arc<Self>, run: String, task: &'static str, path: String, wait: u64) {
        pause(wait).await;
        for number in 0.. {
            let payload = json!({ "to": run, "task": task, "try": number });
            self.callbacks
                .lock()
                .unwrap()
                .entry((run.clone(), task))
                .or_default()
                .payloads
                .push(payload.clone());
            match self.post(&path, None, &payload).await {
                Some((200, _)) => {
                    self.callbacks
                        .lock()
                        .unwrap()
                        .entry((run.clone(), task))
                        .or_default()
                        .accepted = Some(payload);
                    self.callback_accepted.notify_one();
                    return;
                }
                // An earlier attempt was accepted, but its response was lost.
                Some((409, _)) if number > 0 => return,
                Some((503, _)) | None => pause(5).await,
                Some(other) => panic!("{task} of {run}: {other:?}"),
            }
        }
    }

    /// Sends two callbacks, `reply` and `early`, for each run that calls `/ask`.
    async fn keep_calling_back(self: Arc<Self>, service: Arc<Service>, mut rng: u64) {
        let (mut seen, mut asked, mut callers) = (0, BTreeSet::new(), JoinSet::new());
        while !self.stop_callbacks.load(Ordering::Relaxed) {
            let calls = service.calls_after(seen);
            seen += calls.len();
            for call in calls.iter().filter(|call| call.path == "/ask") {
                let run = run_of(call);
                if asked.insert(run.clone()) {
                    for task in ["reply", "early"] {
                        let wait = throw(&mut rng) % 150;
                        callers.spawn(self.clone().call_back(run.clone(), task, call.callback(task), wait));
                    }
                }
            }
            while let Some(caller) = callers.try_join_next() {
                caller.expect("callbacks get the expected status");
            }
            pause(2).await;
        }
    }
}

async fn pause(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

fn run_of(call: &Call) -> String {
    call.key().split(':').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_work_survives_repeated_kills_under_load() {
    let crashes = number("FERMATA_CRASHES", 14);
    let mut rng = number("FERMATA_CRASH_SEED", u64::from(std::process::id()));
    println!("seed {rng}");
    let Stage { mut server, service } = Stage::with(&[PUBLIC_URL, PATIENT_WITH_RUNS]).await;
    let service = Arc::new(service);
    service.script("/flaky", [Answer::flaky(2)]);
    server.add(&workflow(&service)).await;
    let load = Arc::new(Load {
        url: RwLock::new(server.url.clone()),
        client: http_client(),
        next: AtomicU64::new(0),
        stop_triggers: AtomicBool::new(false),
        stop_callbacks: AtomicBool::new(false),
        runs: Mutex::default(),
        callbacks: Mutex::default(),
        callback_accepted: Notify::new(),
    });
    let triggering: Vec<_> = (0..WORKERS)
        .map(|_| tokio::spawn(load.clone().keep_triggering()))
        .collect();
    let calling = tokio::spawn(load.clone().keep_calling_back(service.clone(), rng));
    for crash in 0..crashes {
        pause(20 + throw(&mut rng) % 250).await;
        if crash % 2 == 0 {
            // Kill right after a callback's 200, before its effects are complete.
            tokio::time::timeout(PATIENCE, load.callback_accepted.notified())
                .await
                .expect("callbacks are accepted");
        }
        tokio::task::block_in_place(|| {
            server.kill9();
            server.restart();
        });
        *load.url.write().unwrap() = server.url.clone();
    }
    load.stop_triggers.store(true, Ordering::Relaxed);
    for worker in triggering {
        worker.await.expect("the triggers succeed");
    }
    let all = all_runs(&server).await;
    for run in &all {
        let (workflow, id) = ("crash-tasks".to_owned(), run.clone());
        let view = server.over(&Run { workflow, id }).await;
        assert_eq!(view["status"], "completed", "{view}");
        for (task, status) in task_statuses(&view) {
            let expected = match task {
                "handle" => "skipped",
                "reply" | "early" => "received",
                _ => "success",
            };
            assert_eq!(status, expected, "{task}: {view}");
        }
        check_steps(&server, run, Some(task_statuses(&view).len())).await;
    }
    load.stop_callbacks.store(true, Ordering::Relaxed);
    calling.await.expect("the callbacks succeed");
    compare(&all, &load, &service.calls());
}

/// Compares the acknowledgements and the calls of the service with the stored runs.
fn compare(all: &BTreeSet<String>, load: &Load, calls: &[Call]) {
    let runs = load.runs.lock().unwrap();
    assert!(runs.len() > 20, "too little load: {} runs", runs.len());
    for (key, run) in runs.iter() {
        assert!(all.contains(run), "{run} ({key}) was acknowledged and is lost");
    }
    let mut effects: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        assert_ne!(
            call.path, "/wrong",
            "the graph advanced on an attempt that was not the last: {call:?}"
        );
        effects.entry(call.key()).or_default().push(call);
    }
    for (key, calls) in &effects {
        assert!(
            all.contains(&run_of(calls[0])),
            "{key}: an effect of a run that was never durable"
        );
        let same = calls.iter().all(|call| call.body == calls[0].body);
        assert!(same, "{key} was repeated with another body: {calls:#?}");
    }
    let callbacks = load.callbacks.lock().unwrap();
    let mut unanswered = 0;
    for run in all {
        for task in ["first", "flaky", "ask", "use", "join"] {
            let key = format!("{run}:{task}");
            assert!(effects.contains_key(key.as_str()), "{key} succeeded without its effect");
        }
        let joined = effects[format!("{run}:join").as_str()][0].json();
        let used = effects[format!("{run}:use").as_str()][0].json();
        assert_eq!(joined["reply"], used["reply"]);
        for task in ["reply", "early"] {
            let sent = &callbacks[&(run.clone(), task)];
            match &sent.accepted {
                Some(accepted) => assert_eq!(
                    joined[task], *accepted,
                    "{run}: another payload was acknowledged for {task}"
                ),
                None => {
                    unanswered += 1;
                    assert!(sent.payloads.contains(&joined[task]), "{run}: {joined} was never sent");
                }
            }
        }
    }
    // Two attempts of `flaky` fail. Any further calls are due to the kills.
    let expected = all.len() * (5 + 2);
    println!(
        "{} runs, {} acknowledged, {} calls ({expected} without kills), {unanswered} callbacks accepted without a response",
        all.len(),
        runs.len(),
        calls.len(),
    );
}
