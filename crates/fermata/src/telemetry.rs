//! Sends spans to an OpenTelemetry collector over OTLP (HTTP, protobuf).
//!
//! What must stay true:
//! * The engine never waits for this. It puts spans into a bounded queue and drops what does not fit (`fermata_runtime::trace`).
//! * A batch is tried a few times and then given up. While it is tried, the queue may fill up.
//! * The address may contain credentials, and headers contain them: neither is logged.

mod otlp;

use fermata_runtime::{
    SpanMetrics,
    trace::{Span, Tracer},
};
use otlp::Resource;
use reqwest::{
    Client, Url,
    header::{CONTENT_TYPE, HeaderMap},
    redirect::Policy,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// Spans that wait for the collector. Beyond it, spans are dropped.
const QUEUE: usize = 16_384;
/// The most spans of one request.
const BATCH: usize = 512;
/// How long a span waits for others to share its request.
const LINGER: Duration = Duration::from_secs(1);
/// A collector that takes longer has not accepted the spans.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before a batch is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// How long the last spans may take when the process stops.
const LAST: Duration = Duration::from_secs(2);

/// Where spans go, and which.
#[derive(Debug, Clone)]
pub struct Traces {
    /// The address for spans.
    pub url: Url,
    /// Sent with each request.
    pub headers: HeaderMap,
    /// The name of this service in traces.
    pub service: String,
    /// The share of runs without a caller's trace that are kept.
    pub ratio: f64,
}

/// Spans that are not being sent yet.
pub struct Queue {
    traces: Traces,
    spans: mpsc::Receiver<Span>,
}

/// A task that sends spans.
pub struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Queue {
    /// The tracer for the engine, and the queue that it fills.
    pub fn new(traces: Traces) -> (Tracer, Queue) {
        let (tracer, spans) = Tracer::new(QUEUE, traces.ratio);
        (tracer, Queue { traces, spans })
    }

    /// Starts sending. `instance` identifies this process.
    pub fn send(self, instance: &str, metrics: Arc<SpanMetrics>) -> anyhow::Result<Exporter> {
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(ANSWER_TIMEOUT)
            .build()?;
        let sender = Sender {
            client,
            resource: Resource {
                service: self.traces.service.clone(),
                version: env!("CARGO_PKG_VERSION"),
                instance: instance.to_owned(),
            },
            traces: self.traces,
            metrics,
            is_failing: false,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(sender.run(self.spans, stopped));
        Ok(Exporter { stop, task })
    }
}

impl Exporter {
    /// Sends what is queued, for a short time, and ends.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let mut task = self.task;
        if timeout(LAST, &mut task).await.is_err() {
            task.abort();
        }
    }
}

struct Sender {
    client: Client,
    traces: Traces,
    resource: Resource,
    metrics: Arc<SpanMetrics>,
    /// Whether the last batch was not accepted.
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>, stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH);
        tokio::select! {
            () = async {
                while gather(&mut spans, &mut batch).await {
                    self.deliver(&mut batch, &PAUSES).await;
                }
            } => {}
            _ = stopped => {}
        }
        // The batch that was being sent may have been accepted. Then it is sent twice, with the same ids.
        spans.close();
        loop {
            let room = BATCH.saturating_sub(batch.len()).max(1);
            let more = spans.recv_many(&mut batch, room).await;
            if batch.is_empty() {
                return;
            }
            if more == 0 || batch.len() >= BATCH {
                self.deliver(&mut batch, &[]).await;
            }
        }
    }

    /// Sends a batch, trying again after each pause. It is empty afterwards.
    async fn deliver(&mut self, batch: &mut Vec<Span>, pauses: &[Duration]) {
        let body = otlp::request(&self.resource, batch);
        let mut pauses = pauses.iter();
        let failure = loop {
            let failure = match self.post(body.clone()).await {
                Ok(()) => break None,
                Err(failure) => failure,
            };
            match pauses.next().filter(|_| failure.may_pass) {
                Some(pause) => sleep(*pause).await,
                None => break Some(failure.what),
            }
        };
        let count = batch.len() as u64;
        batch.clear();
        match failure {
            None => {
                self.metrics.sent.add(count);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the collector accepts spans again");
                }
            }
            Some(what) => {
                self.metrics.failed.add(count);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        collector = self.traces.url.host_str(),
                        "spans are lost: {what}. Runs are not affected; this is logged once until the collector accepts spans again"
                    );
                }
            }
        }
    }

    async fn post(&self, body: Vec<u8>) -> Result<(), Failure> {
        let request = self
            .client
            .post(self.traces.url.clone())
            .headers(self.traces.headers.clone())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(body);
        match request.send().await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => Err(Failure {
                what: format!("the collector answered with status {}", answer.status().as_u16()),
                may_pass: matches!(answer.status().as_u16(), 429 | 502..=504),
            }),
            Err(error) => Err(Failure {
                what: match error.is_timeout() {
                    true => "the collector did not answer in time".to_owned(),
                    false => "the collector cannot be reached".to_owned(),
                },
                may_pass: true,
            }),
        }
    }
}

/// Why a batch was not accepted.
struct Failure {
    what: String,
    /// Whether it may be accepted later.
    may_pass: bool,
}

/// Waits for spans, and a little longer for more. False when there will be no more.
async fn gather(spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) -> bool {
    if spans.recv_many(batch, BATCH).await == 0 {
        return false;
    }
    let more = async { while batch.len() < BATCH && spans.recv_many(batch, BATCH - batch.len()).await > 0 {} };
    let _ = timeout(LINGER, more).await;
    true
}
