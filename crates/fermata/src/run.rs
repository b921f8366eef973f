//! `fermata run`: runs a document to its end, without a server.
//!
//! It uses the real engine with a store in memory. Progress goes to stderr, the outputs to stdout.

mod dry;
mod outcome;
mod progress;
mod waits;

use crate::{
    cli::{self, Output, USAGE, Usage},
    config::Config,
    dev, duration, input,
    playground::{self, Playground},
    signals::{Signal, Signals},
    validate,
};
use anyhow::Context;
use clap::Args;
use fermata_core::{NodeId, RunId};
use fermata_dialects::{Compiled, Stage};
use fermata_runtime::{
    Ended, Engine, EngineError, Observer, Refusal, Request, Settings, actions::Registry, check_document,
    clock::SystemClock, sandbox::Sandbox,
};
use fermata_store::{
    memory::MemoryStore,
    reads::{RunRecord, Window},
};
pub use outcome::Outcome;
pub use progress::{Progress, Steps, Timing, clean};
use serde_json::{Value, json};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, MissedTickBehavior};
use waits::CallbackServer;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata run hello.json --input name=Ada --input order.id=7
  fermata run order.yaml --input @order.json --input urgent=true --var region=eu
  echo '{\"name\": \"Ada\"}' | fermata run hello.json --input -
  fermata run order.json -o json | jq .outputs
  fermata run checkout.yaml --callback 'payment={\"status\": \"paid\"}'
  fermata run onboarding.json --callback 'risk_decision={\"outcome\": \"approve\"}'
  fermata run parent.json --with child.json
  fermata run order.yaml --dry-run
  fermata run order.yaml --mock mocks.json

A step that waits for a webhook, or for the answer of a request, can be called while the run is in progress: its address
on this machine is printed when the wait begins. --callback answers it at once instead. Requests to http://playground.localhost go to an echo and
fault service that is part of this program and works offline.

With --mock or --dry-run no effect leaves the process. FILE says what steps return, by their names, such as
{\"charge\": {\"outputs\": {\"status\": 402}}, \"payment\": {\"timeout\": true}}; the rest is made up. Sleeps, waits and pauses between attempts take
no time, and the route is shown: each edge with its condition, the values it saw and the verdict.

A value that is valid JSON is JSON, any other value is text: n=42 is a number, n='\"42\"' is text.
Nothing is stored: the run and its history are lost when the command ends.

Exit codes:
  0    the run succeeded
  1    the run failed or was cancelled
  2    the document, the input or the call is wrong; nothing was run
  3    --timeout was reached before the run ended
  4    --timeout was reached while the run waited for a webhook
  130  Ctrl-C cancelled the run";

/// The exit code when `--timeout` was reached.
pub const TIMED_OUT: u8 = 3;
/// The exit code when `--timeout` was reached while the run waited for a callback.
const WAITING: u8 = 4;
/// How long a cancelled run may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often times on a terminal are redrawn.
const TICK: Duration = Duration::from_millis(100);
/// Attempts read at once.
const PAGE: u32 = 500;

/// The arguments of `fermata run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The document: JSON or YAML, or `-` for standard input.
    file: PathBuf,
    /// The trigger of the run: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE")]
    input: Vec<String>,
    /// A variable that expressions see as `vars`; overrides the configuration.
    #[arg(long, value_name = "KEY=VALUE")]
    var: Vec<String>,
    /// Answer a step that waits: for a webhook at once, for the answer of a request each time it is sent.
    #[arg(long, alias = "answer", value_name = "NAME=JSON")]
    callback: Vec<String>,
    /// Another document that this one starts.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Execute nothing that has effects, on a virtual clock: what steps return is in this file (JSON or YAML), or made up.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["callback", "with"])]
    mock: Option<PathBuf>,
    /// As --mock with an empty file: everything that has effects is made up.
    #[arg(long, conflicts_with_all = ["callback", "with", "mock"])]
    dry_run: bool,
    /// How long to wait for the end, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    output: Output,
}

/// How the wait for the end of the run ended.
enum Waited {
    Ended(Arc<Ended>),
    TimedOut,
    Interrupted(Signal),
}

/// Runs a document.
pub async fn run(args: RunArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("signals cannot be listened to")?;
    if args.file == Path::new("-") && args.input.iter().any(|input| input == "-") {
        return Err(Usage("the document and the input cannot both come from standard input".to_owned()).into());
    }
    if args.dry_run || args.mock.is_some() {
        return dry::run(&args, config).await;
    }
    let mut settings = config.settings();
    settings.ignore_flow_control = true;
    settings.vars = input::vars(settings.vars, &args.var).map_err(Usage)?;
    let (source, name) = validate::read(&args.file).map_err(Usage)?;
    let mut http = config.http();
    let texts = args.input.iter().chain(&args.var).map(String::as_bytes);
    let mut others = Vec::new();
    for file in &args.with {
        others.push(validate::read(file).map_err(Usage)?);
    }
    let documents = others.iter().map(|(source, _)| source.as_slice());
    let playground = open_playground(texts.chain([source.as_slice()]).chain(documents)).await?;
    if let Some(playground) = &playground {
        playground.stand_in(&mut http);
    }
    let registry = Registry::builtin(&http).context("the HTTP client cannot be made")?;
    let Some(compiled) = check(&source, &name, &settings, &registry).await else {
        return Ok(ExitCode::from(USAGE));
    };
    if compiled.plan.flow.is_some() {
        cli::say("`concurrency`, `rate`, `debounce` and `unique` have no effect here: this process runs one execution");
    }
    let trigger = input::value("--input", &args.input, &mut std::io::stdin().lock()).map_err(Usage)?;
    let answers = waits::read(&args.callback, &compiled.plan).map_err(Usage)?;
    let callbacks = CallbackServer::open(&compiled.plan).await?;
    if let Some(callbacks) = &callbacks {
        settings.public_url.clone_from(&callbacks.url);
    }

    let progress = Arc::new(Progress::of_own(
        Steps::of(Arc::new(compiled.plan.clone()), settings.mask.clone()),
        args.output.is_json(),
    ));
    let store = Arc::new(MemoryStore::new());
    let observer = Some(progress.clone() as Arc<dyn Observer>);
    let engine = Engine::with_observer(store, registry, settings, Arc::new(SystemClock), observer);
    let worker = engine.clone();
    tokio::spawn(async move { worker.run().await });
    let workflow = compiled.plan.workflow.clone();
    for (source, name) in &others {
        if let Err(error) = dev::publish(&engine, source, name).await {
            return Err(Usage(format!("{name}: {error}")).into());
        }
    }
    engine.workflows().save(&source, &name).await?;
    engine.workflows().publish(&workflow, true).await?;
    engine.ready().await; // so that the run starts at once, and its waits exist
    let request = Request {
        workflow_id: workflow,
        trigger,
        ..Request::default()
    };
    let accepted = match engine.start(request).await {
        Err(EngineError::Refused(Refusal::InvalidTrigger { problems, .. })) => return Err(unfit(&problems).into()),
        other => other?,
    };
    if let Some(callbacks) = callbacks {
        callbacks
            .serve(&engine, accepted.run, config.web(), answers, &compiled.plan, &progress)
            .await?;
    }
    let waited = wait(&engine, accepted.run, args.timeout, &progress, &mut signals).await?;
    if matches!(waited, Waited::Ended(_)) {
        progress.shown().await;
    }
    progress.finish();
    show(&engine, accepted.run, waited, &args, progress.failed()).await
}

/// Shows how a run ended; returns the exit code.
async fn show(engine: &Engine, run: RunId, waited: Waited, args: &RunArgs, failed: usize) -> anyhow::Result<ExitCode> {
    let record = engine.reads().run(run).await?;
    let waiting = match waited {
        Waited::TimedOut => waits::waiting(engine, run).await?,
        Waited::Ended(_) | Waited::Interrupted(_) => Vec::new(),
    };
    if args.output.is_json() {
        let report = report(engine, &record, &waiting).await?;
        cli::print(format_args!("{report}\n"));
    }
    Ok(match waited {
        Waited::Ended(ended) => {
            let outcome = Outcome {
                workflow: &record.workflow_id,
                status: ended.status.as_str(),
                reason: ended.reason.as_deref(),
                error: &json_of(ended.error.as_deref()),
                outputs: &json_of(record.outputs.as_deref()),
                took_ms: took_ms(record.started_at, record.ended_at),
                failed,
            };
            if !args.output.is_json() {
                outcome.show();
            }
            outcome.code()
        }
        Waited::TimedOut => {
            let limit = args.timeout.map(duration::show).unwrap_or_default();
            let (why, code) = match waiting.is_empty() {
                true => (String::new(), TIMED_OUT),
                false => {
                    let names: Vec<String> = waiting.iter().map(|node| clean(node.as_str())).collect();
                    (format!(" because no callback came for {}", names.join(", ")), WAITING)
                }
            };
            cli::say(format_args!(
                "fermata: the run did not end within {limit}{why}; it was stopped"
            ));
            ExitCode::from(code)
        }
        Waited::Interrupted(signal) => {
            cli::say("fermata: the run was cancelled");
            signal.exit_code()
        }
    })
}

/// Starts the playground if the document, its input or its variables name it.
async fn open_playground<'a>(mut texts: impl Iterator<Item = &'a [u8]>) -> anyhow::Result<Option<Playground>> {
    let host = playground::HOST.as_bytes();
    match texts.any(|text| text.windows(host.len()).any(|window| window == host)) {
        true => Ok(Some(
            Playground::open().await.context("the playground cannot be opened")?,
        )),
        false => Ok(None),
    }
}

/// Compiles the document; `None` if it has errors, which are printed.
async fn check(source: &[u8], name: &str, settings: &Settings, registry: &Registry) -> Option<Compiled> {
    let sandbox = Sandbox::new(settings.sandbox.clone());
    let (dialects, secrets) = (&settings.dialects, &settings.secrets);
    let checked = check_document(source, name, dialects, registry, Stage::Publish, &sandbox, secrets).await;
    let problems = match checked {
        Err(problems) => problems,
        Ok((document, mut compiled)) => {
            compiled.warnings = document.report(compiled.warnings).into_list();
            return Some(compiled);
        }
    };
    cli::say(problems.render(cli::colors(&std::io::stderr())).trim_end());
    None
}

fn unfit(problems: &[(String, String)]) -> Usage {
    let mut text = "the input does not fit the document's triggerSchema".to_owned();
    for (pointer, what) in problems {
        let place = match pointer.as_str() {
            "" => "the whole input",
            pointer => pointer,
        };
        text.push_str(&format!("\n  {place}: {}", clean(what)));
    }
    text.push_str("\ngive values with --input NAME=VALUE, or all of them with --input @FILE");
    Usage(text)
}

/// Waits for the end. A signal cancels the run; a second signal, or [`CANCEL_TIMEOUT`], ends the wait.
async fn wait(
    engine: &Engine,
    run: RunId,
    timeout: Option<Duration>,
    progress: &Progress,
    signals: &mut Signals,
) -> anyhow::Result<Waited> {
    let end = engine.wait(run, duration::LONGEST);
    tokio::pin!(end);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut deadline = Instant::now() + timeout.unwrap_or(duration::LONGEST);
    let mut interrupted = None;
    loop {
        tokio::select! {
            ended = &mut end => return Ok(match (interrupted, ended?) {
                (Some(signal), _) => Waited::Interrupted(signal),
                (None, Some(ended)) => Waited::Ended(ended),
                (None, None) => Waited::TimedOut,
            }),
            signal = signals.next() => {
                if interrupted.is_some() {
                    return Ok(Waited::Interrupted(signal));
                }
                interrupted = Some(signal);
                deadline = Instant::now() + CANCEL_TIMEOUT;
                engine.cancel(run, "cancelled").await?;
            }
            () = tokio::time::sleep_until(deadline) => return Ok(match interrupted {
                Some(signal) => Waited::Interrupted(signal),
                None => Waited::TimedOut,
            }),
            _ = tick.tick() => progress.tick(),
        }
    }
}

/// The run as one JSON object.
async fn report(engine: &Engine, record: &RunRecord, waiting: &[NodeId]) -> anyhow::Result<Value> {
    let reads = engine.reads();
    let mut steps = Vec::new();
    loop {
        let window = Window {
            limit: PAGE,
            offset: steps.len() as u32,
        };
        let (page, total) = reads.actions(record.id, window).await?;
        let more = !page.is_empty();
        steps.extend(page.into_iter().map(|step| {
            json!({
                "nodeId": step.node,
                "actionType": step.action_type,
                "status": step.status.as_str(),
                "attempt": step.attempt,
                "durationMs": took_ms(step.started_at, Some(step.ended_at)),
                "error": json_of(step.error.as_deref()),
            })
        }));
        if !more || steps.len() as u64 >= total {
            break;
        }
    }
    let overview = reads.overview(record.id).await?;
    let skipped = overview.nodes.iter().filter_map(|node| {
        let reason = node.skip_reason.as_ref()?;
        Some(json!({ "nodeId": node.node, "reason": reason }))
    });
    let skipped: Vec<Value> = skipped.collect();
    let mut report = json!({
        "executionId": record.id.to_string(),
        "workflowId": record.workflow_id,
        "status": record.status.as_str(),
        "reason": record.reason,
        "error": json_of(record.error.as_deref()),
        "outputs": json_of(record.outputs.as_deref()),
        "durationMs": took_ms(record.started_at, record.ended_at),
        "steps": steps,
        "skipped": skipped,
        "failedTasks": overview.failed_nodes,
    });
    if !waiting.is_empty() {
        report["waiting"] = json!(waiting);
    }
    Ok(report)
}

fn took_ms(from: Option<fermata_core::Timestamp>, to: Option<fermata_core::Timestamp>) -> Option<u64> {
    Some(to?.micros_since(from?) / 1000)
}

fn json_of(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}
