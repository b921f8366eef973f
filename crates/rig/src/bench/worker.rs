//! A runner process of the benchmark: an engine on a shared database, controlled by its parent.
//!
//! Orders arrive as JSON lines on standard input. Each is answered by one line on standard output. The end of the input ends the
//! process, so it cannot outlive its parent. The database URL may contain a password and is not in the process list.

use super::{
    PATIENCE,
    load::{Bench, Many, THREE, repeat},
};
use anyhow::{Context, bail, ensure};
use fermata_core::Status;
use fermata_runtime::{
    Engine, Request, Settings,
    clock::{Clock, SystemClock},
};
use fermata_store::{
    postgres::{PostgresSettings, PostgresStore},
    reads::Window,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{io::Write, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// An order to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Open this database.
    Open {
        url: String,
        committers: usize,
        parallel: usize,
        park_after: Duration,
    },
    /// Run the three steps to their end.
    Carry { runs: usize, concurrency: usize },
    /// Start runs without waiting for them.
    Start {
        workflow: String,
        trigger: Value,
        runs: usize,
        concurrency: usize,
    },
    /// Start runs one at a time, with a pause before each, and measure how long their first steps take to start.
    Begin { runs: usize },
    /// Report how many runs are held.
    Held,
}

/// The response to an order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Took { all: Duration, each: Vec<Duration> },
    Held(usize),
    Failed(String),
}

/// The parent's handle of a worker.
pub(super) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub async fn start(open: Order) -> anyhow::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "--worker"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let orders = child.stdin.take().context("no way to a worker")?;
        let answers = BufReader::new(child.stdout.take().context("no way from a worker")?).lines();
        let mut worker = Worker { child, orders, answers };
        worker.obey(open).await?;
        Ok(worker)
    }

    async fn ask(&mut self, order: Order) -> anyhow::Result<Answer> {
        let line = format!("{}\n", serde_json::to_string(&order)?);
        self.orders.write_all(line.as_bytes()).await?;
        let answer = self.answers.next_line().await?.context("a worker has ended")?;
        match serde_json::from_str(&answer)? {
            Answer::Failed(what) => bail!("a worker failed: {what}"),
            answer => Ok(answer),
        }
    }

    pub async fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        self.ask(order).await.map(drop)
    }

    /// The durations of an order.
    pub async fn took(&mut self, order: Order) -> anyhow::Result<Many> {
        match self.ask(order).await? {
            Answer::Took { all, each } => Ok(Many {
                count: each.len(),
                took: all,
                times: each,
            }),
            other => bail!("a worker answered {other:?}"),
        }
    }

    /// The number of runs that the worker holds.
    pub async fn held(&mut self) -> anyhow::Result<usize> {
        match self.ask(Order::Held).await? {
            Answer::Held(count) => Ok(count),
            other => bail!("a worker answered {other:?}"),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> anyhow::Result<String> {
        Ok(self.child.id().context("a worker has ended")?.to_string())
    }

    /// Ends the worker in order.
    pub async fn stop(self) -> anyhow::Result<()> {
        let Worker {
            mut child,
            orders,
            answers: _answers,
        } = self;
        drop(orders);
        let status = tokio::time::timeout(PATIENCE, child.wait())
            .await
            .context("a worker does not end")??;
        ensure!(status.success(), "a worker ended with {status}");
        Ok(())
    }
}

/// `fermata bench --worker`: executes orders until the input ends.
pub async fn work() -> anyhow::Result<()> {
    let mut bench = None;
    while let Some(line) = tokio::task::spawn_blocking(next_line).await?? {
        let answer = match obey(&mut bench, serde_json::from_str(&line)?).await {
            Ok(answer) => answer,
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&answer)?)?;
    }
    if let Some(bench) = bench {
        bench.close().await?;
    }
    Ok(())
}

fn next_line() -> std::io::Result<Option<String>> {
    std::io::stdin().lines().next().transpose()
}

async fn obey(bench: &mut Option<Bench>, order: Order) -> anyhow::Result<Answer> {
    if let Order::Open {
        url,
        committers,
        parallel,
        park_after,
    } = order
    {
        let store = PostgresSettings {
            committers,
            ..PostgresSettings::default()
        };
        let store = PostgresStore::connect(&url, store).await?;
        let settings = Settings {
            max_parallel_actions: parallel,
            park_after,
            ..Settings::default()
        };
        *bench = Some(Bench::on(Arc::new(store), settings, None)?);
        return Ok(Answer::Done);
    }
    let bench = bench.as_ref().context("no database was named")?;
    let took = |many: Many| Answer::Took {
        all: many.took,
        each: many.times,
    };
    Ok(match order {
        Order::Open { .. } => Answer::Done,
        Order::Carry { runs, concurrency } => took(bench.many(THREE, runs, concurrency).await?),
        Order::Begin { runs } => took(begin(&bench.engine, runs).await?),
        Order::Held => Answer::Held(bench.engine.active_runs()),
        Order::Start {
            workflow,
            trigger,
            runs,
            concurrency,
        } => {
            let (engine, request) = (bench.engine.clone(), request(&workflow, trigger));
            let start = move || {
                let (engine, request) = (engine.clone(), request.clone());
                async move { Ok(engine.start(request).await.map(drop)?) }
            };
            repeat(runs, concurrency.min(runs), start).await?;
            Answer::Done
        }
    })
}

fn request(workflow: &str, trigger: Value) -> Request {
    Request {
        workflow_id: workflow.to_owned(),
        trigger,
        ..Request::default()
    }
}

/// Starts runs one at a time on an idle system: the times from the request to the start of the first step, in whichever process.
/// Both times are from the clock of one machine.
pub(super) async fn begin(engine: &Engine, runs: usize) -> anyhow::Result<Many> {
    let mut times = Vec::with_capacity(runs);
    let began = std::time::Instant::now();
    for number in 0..runs {
        // Long enough to be idle, and not aligned with any polling interval.
        tokio::time::sleep(Duration::from_millis(10 + (number as u64 * 7) % 23)).await;
        let requested = SystemClock.now();
        let (accepted, ended) = engine.start_and_wait(request(THREE, json!({})), PATIENCE).await?;
        let status = ended.map(|ended| ended.status);
        ensure!(status == Some(Status::Succeeded), "a run ended as {status:?}");
        times.push(Duration::from_micros(
            first_step(engine, accepted.run).await?.micros_since(requested),
        ));
    }
    Ok(Many {
        count: runs,
        took: began.elapsed(),
        times,
    })
}

async fn first_step(engine: &Engine, run: fermata_core::RunId) -> anyhow::Result<fermata_core::Timestamp> {
    let window = Window { limit: 10, offset: 0 };
    let (attempts, _) = engine.reads().actions(run, window).await?;
    let first = attempts.iter().filter_map(|attempt| attempt.started_at).min();
    first.with_context(|| format!("no step of run {run} began"))
}

/// A document of one step.
pub(super) fn one_step(id: &str, action: &str, parameters: &Value) -> Value {
    json!({
        "id": id, "displayName": id, "startNode": "step",
        "nodes": [{ "id": "step", "actionType": action, "parameters": parameters }],
    })
}
