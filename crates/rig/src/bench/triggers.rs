//! Runs that triggers start: webhooks beside plain starts, and the lateness of schedules.
//!
//! Webhooks and plain starts are requests to the engine of this process, with the same payload, for the same workflow of three steps
//! that do nothing. Both wait for the end of each run in the same way.
//!
//! Of all schedules, some have the same fire time and the others are due at least an hour later. Measured are the lateness of firing, from
//! the fire time to the moment when the occurrence is durable, and the lateness of the run, to its first step, which begins after the
//! start of the run is stored.
//!
//! What must stay true: the workflow of the schedules is a new one in each measurement, so schedules that an earlier one left in a
//! database are not counted.

use super::{
    Options, PATIENCE,
    load::{Bench, Many, THREE, repeat, three_steps},
    report::{Latency, rounded},
};
use anyhow::{Context, bail, ensure};
use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, header::CONTENT_TYPE},
};
use fermata_core::{Event, NodeId, RunId, Status, Timestamp};
use fermata_runtime::{
    Engine, Observer, Request, Settings,
    clock::{Clock, SystemClock},
    triggers::{NewTrigger, Received, Trigger, TriggerDelivery, TriggerType, WebhookRequest},
};
use fermata_store::{Store, runs::Attempt};
use serde::Serialize;
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use uuid::Uuid;

const MOST_SCHEDULES: usize = 100_000;
const MOST_DUE: usize = 1_000;
/// Schedules that are created at the same time: those of one commit share its write to the disk.
const WRITERS: usize = 256;
/// The time from the creation of the schedules that fire to their fire time.
const LEAD: Duration = Duration::from_secs(5);
/// In the units of [`Timestamp`].
const SECOND: i64 = 1_000_000;
/// The other schedules are due from an hour from now,
const FIRST_OTHER: i64 = 3600 * SECOND;
/// for 22 hours: each of them fires once a day.
const OTHER_SECONDS: usize = 22 * 3600;

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Triggered {
    webhooks: Webhooks,
    schedules: Schedules,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Webhooks {
    webhooks: usize,
    concurrency: usize,
    webhooks_per_second: f64,
    plain_starts_per_second: f64,
    ratio: f64,
    /// From the request to the end of its run.
    #[serde(flatten)]
    latency: Latency,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Schedules {
    schedules: usize,
    /// How many of them have the fire time that is measured.
    due: usize,
    created_per_second: f64,
    /// How many of their runs succeeded.
    succeeded: usize,
    /// Until the occurrence is durable.
    firing: Lateness,
    /// Until the first step of the run.
    start: Lateness,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lateness {
    #[serde(flatten)]
    latency: Latency,
    max_ms: f64,
}

impl Lateness {
    fn of(late: &mut [Duration]) -> Lateness {
        Lateness {
            max_ms: late.iter().max().map_or(0.0, |late| late.as_micros() as f64 / 1000.0),
            latency: Latency::of(late),
        }
    }
}

/// Measures both on an engine of its own, and closes the store.
pub(super) async fn measure(store: Arc<dyn Store>, options: &Options) -> anyhow::Result<Triggered> {
    let (sender, begun) = mpsc::unbounded_channel();
    let name = format!("bench-scheduled-{}", Uuid::new_v4());
    let (fired, firings) = mpsc::unbounded_channel();
    let observer = Arc::new(Beginnings {
        store: store.clone(),
        node: NodeId::from(name.as_str()),
        begun: sender,
        fired,
    });
    let bench = Bench::on(store, Settings::default(), Some(observer))?;
    let webhooks = webhooks(&bench, options).await?;
    let schedules = schedules(&bench, &name, Seen { begun, firings }, options).await?;
    bench.close().await?;
    Ok(Triggered { webhooks, schedules })
}

/// Sends `--workflows` webhooks and as many plain starts, `--concurrency` at a time: plain starts before and after.
async fn webhooks(bench: &Bench, options: &Options) -> anyhow::Result<Webhooks> {
    let (count, concurrency) = (options.workflows.max(1), options.concurrency.max(1));
    options.report_progress(&format!("{count} webhooks, {concurrency} at a time"));
    bench.engine.ready().await;
    if bench.store().workflow("", THREE).await?.is_none() {
        bench.publish(&three_steps()).await?;
    }
    let trigger = create(bench, THREE, TriggerType::Webhook, json!({})).await?;
    let segment = trigger.segment.context("a webhook without a path segment")?.to_string();
    let (half, few) = ((count / 2).max(1), (count / 10).max(1));
    start_plain(bench, few, concurrency).await?; // warm up
    send(bench, &segment, few, concurrency).await?;
    let before = start_plain(bench, half, concurrency).await?;
    let mut sent = send(bench, &segment, count, concurrency).await?;
    let after = start_plain(bench, half, concurrency).await?;
    let plain = (before.count + after.count) as f64 / (before.took + after.took).as_secs_f64();
    Ok(Webhooks {
        webhooks: count,
        concurrency,
        webhooks_per_second: rounded(sent.per_second()),
        plain_starts_per_second: rounded(plain),
        ratio: rounded(sent.per_second() / plain),
        latency: Latency::of(&mut sent.times),
    })
}

async fn send(bench: &Bench, segment: &str, count: usize, concurrency: usize) -> anyhow::Result<Many> {
    let (engine, segment): (Engine, Arc<str>) = (bench.engine.clone(), segment.into());
    repeat(count, concurrency, move || {
        let (engine, segment) = (engine.clone(), segment.clone());
        async move {
            let json = HeaderValue::from_static("application/json");
            let request = WebhookRequest {
                method: "POST".to_owned(),
                headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
                query: None,
                body: Bytes::from_static(br#"{"order":7}"#),
                memory: None,
            };
            let Received::Accepted(occurred) = engine.receive_webhook(&segment, request).await? else {
                bail!("a webhook has another answer than that it is accepted");
            };
            match occurred.run {
                Some(run) => succeeded(&engine, run).await,
                None => bail!("a webhook is {:?}: {:?}", occurred.state, occurred.reason),
            }
        }
    })
    .await
}

async fn start_plain(bench: &Bench, count: usize, concurrency: usize) -> anyhow::Result<Many> {
    let engine = bench.engine.clone();
    repeat(count, concurrency, move || {
        let engine = engine.clone();
        async move {
            let request = Request {
                workflow_id: THREE.to_owned(),
                trigger: json!({ "order": 7 }),
                ..Request::default()
            };
            let accepted = engine.start(request).await?;
            succeeded(&engine, accepted.run).await
        }
    })
    .await
}

/// Waits for the end of a run.
async fn succeeded(engine: &Engine, run: RunId) -> anyhow::Result<()> {
    let ended = engine.wait(run, PATIENCE).await?;
    let status = ended.map(|ended| ended.status);
    ensure!(status == Some(Status::Succeeded), "run {run} is {status:?}");
    Ok(())
}

/// Creates the schedules of the workflow `name`, and observes those that fire.
async fn schedules(
    bench: &Bench,
    name: &str,
    Seen { mut begun, mut firings }: Seen,
    options: &Options,
) -> anyhow::Result<Schedules> {
    let usual = options.workflows.max(1).saturating_mul(5).min(MOST_SCHEDULES);
    let count = options.schedules.unwrap_or(usual).max(2);
    let due = (count / 10).clamp(1, MOST_DUE);
    let others = count - due;
    options.report_progress(&format!("{count} schedules, of which {due} fire in the same second"));
    let document = json!({
        "id": name, "displayName": "Scheduled", "startNode": name,
        "nodes": [{ "id": name, "actionType": "core.echo" }],
    });
    bench.publish(&document).await?;
    bench.many(name, 1, 1).await?; // warm up
    first(&mut begun, 1, PATIENCE).await?;

    let first_other = whole_second(now(bench.store())).0 + FIRST_OTHER;
    let spread = move |number: usize| Timestamp(first_other + (number * OTHER_SECONDS / others) as i64 * SECOND);
    let template = create(bench, name, TriggerType::Schedule, daily(spread(0))).await?;
    ensure!(
        template.next_fire_at == Some(spread(0)),
        "a schedule is due at {:?} instead of {:?}",
        template.next_fire_at,
        spread(0)
    );
    let created = copy(bench.store(), &template, others - 1, move |number| spread(number + 1)).await?;

    let fire_time = whole_second(now(bench.store()).plus_millis(LEAD.as_millis() as u64));
    copy(bench.store(), &template, due, move |_| fire_time).await?;
    ensure!(
        now(bench.store()) < fire_time,
        "{due} schedules cannot be created within {LEAD:?} here; take fewer --workflows"
    );
    let late = |run: RunId, at: Timestamp| {
        ensure!(at >= fire_time, "run {run} began before its fire time");
        Ok(Duration::from_micros(at.micros_since(fire_time)))
    };
    let (mut starts, mut fired) = (Vec::with_capacity(due), Vec::with_capacity(due));
    let mut runs = HashSet::with_capacity(due);
    for (run, at) in first(&mut begun, due, LEAD + PATIENCE).await? {
        starts.push(late(run, at)?);
        succeeded(&bench.engine, run).await?;
        runs.insert(run);
    }
    for (run, at) in first(&mut firings, due, PATIENCE).await? {
        fired.push(late(run, at)?);
    }
    Ok(Schedules {
        schedules: count,
        due,
        created_per_second: rounded(created.per_second()),
        succeeded: runs.len(),
        firing: Lateness::of(&mut fired),
        start: Lateness::of(&mut starts),
    })
}

async fn create(bench: &Bench, workflow: &str, kind: TriggerType, config: Value) -> anyhow::Result<Trigger> {
    let new = NewTrigger {
        workflow: workflow.to_owned(),
        kind,
        config,
        condition: None,
        enabled: true,
    };
    Ok(bench.engine.triggers().create(new).await?)
}

/// Stores schedules like `template`. `due` returns the fire time of the nth.
async fn copy(
    store: &Arc<dyn Store>,
    template: &Trigger,
    count: usize,
    due: impl Fn(usize) -> Timestamp + Copy + Send + 'static,
) -> anyhow::Result<Many> {
    let (store, template) = (store.clone(), Arc::new(template.clone()));
    let numbers = Arc::new(AtomicUsize::new(0));
    repeat(count, WRITERS.min(count), move || {
        let (store, template) = (store.clone(), template.clone());
        let at = due(numbers.fetch_add(1, Ordering::Relaxed));
        async move {
            let trigger = Trigger {
                id: Uuid::new_v4(),
                config: daily(at).to_string(),
                next_fire_at: Some(at),
                ..Trigger::clone(&template)
            };
            let is_stored = store.create_trigger(trigger).await?;
            ensure!(is_stored, "the workflow of the schedules is missing");
            Ok(())
        }
    })
    .await
}

/// A schedule that fires once a day, at the time of day of this instant.
fn daily(at: Timestamp) -> Value {
    let second = at.0.div_euclid(SECOND).rem_euclid(24 * 3600);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    json!({ "cron": format!("{second} {minute} {hour} * * *") })
}

/// The next whole second.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp((at.0.div_euclid(SECOND) + 1) * SECOND)
}

/// The clock of the engine.
fn now(store: &Arc<dyn Store>) -> Timestamp {
    store.now().unwrap_or_else(|| SystemClock.now())
}

/// The next `count` runs that begin.
async fn first(
    begun: &mut UnboundedReceiver<(RunId, Timestamp)>,
    count: usize,
    limit: Duration,
) -> anyhow::Result<Vec<(RunId, Timestamp)>> {
    let mut all = Vec::with_capacity(count);
    let receiving = async {
        while all.len() < count {
            all.push(begun.recv().await.context("the engine has ended")?);
        }
        anyhow::Ok(())
    };
    let received = tokio::time::timeout(limit, receiving).await;
    received.with_context(|| format!("only {} of {count} runs began within {limit:?}", all.len()))??;
    Ok(all)
}

/// What the observer reports: runs, and when.
struct Seen {
    begun: UnboundedReceiver<(RunId, Timestamp)>,
    firings: UnboundedReceiver<(RunId, Timestamp)>,
}

/// Reports when occurrences are durable, and when runs begin their node `node`.
struct Beginnings {
    store: Arc<dyn Store>,
    node: NodeId,
    begun: UnboundedSender<(RunId, Timestamp)>,
    fired: UnboundedSender<(RunId, Timestamp)>,
}

impl Observer for Beginnings {
    fn started(&self, run: RunId, node: &NodeId, _: u32) {
        if *node == self.node {
            // Nothing receives it after an error of the measurement.
            let _ = self.begun.send((run, now(&self.store)));
        }
    }

    fn fired(&self, delivery: &TriggerDelivery) {
        let _ = self.fired.send((delivery.run, now(&self.store)));
    }

    fn committed(&self, _: RunId, _: &[Event], _: &[Attempt]) {}
}
