//! `fermata executions watch`: the steps of a run on a server, drawn as `fermata run` draws them.
//!
//! The server's events are the journal itself, so the lines show what was decided. The server is polled, less often
//! while nothing happens, and only for events that were not read yet.

use super::{Client, ClientError, LARGEST_PAGE, text, workflows::document_of};
use crate::{
    cli::{self, Format},
    duration,
    run::{Outcome, Progress, Steps, TIMED_OUT, Timing},
    signals::Signals,
};
use fermata_core::{Event, NodeId};
use fermata_dialects::{AnyAction, Document, Settings, Stage, compile};
use fermata_runtime::Mask;
use serde_json::Value;
use std::{collections::HashMap, process::ExitCode, sync::Arc, time::Duration};
use tokio::time::Instant;

const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Follows a run until its end.
pub(super) async fn watch(
    client: &Client,
    id: &str,
    timeout: Option<Duration>,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + timeout.unwrap_or(duration::LONGEST);
    let mut signals = Signals::listen()?;
    let first = client.get(&["executions", id], &[]).await?;
    let progress = match format {
        Format::Table => Some(Progress::new(steps(client, &first).await)),
        Format::Json => None,
    };
    let mut follower = Follower {
        client,
        id,
        events: 0,
        actions: 0,
        timings: HashMap::new(),
    };
    let mut pause = SHORTEST_PAUSE;
    let run = loop {
        let (run, events) = follower.changes().await?;
        if let Some(progress) = &progress {
            progress.replay(&events, &|node, attempt| {
                follower.timings.get(&(node.clone(), attempt)).copied()
            });
            progress.tick();
        }
        let over = matches!(run["status"].as_str(), Some("Succeeded" | "Failed" | "Cancelled"));
        if over && events.is_empty() {
            break run;
        }
        if Instant::now() >= deadline {
            if let Some(progress) = &progress {
                progress.finish();
            }
            let limit = timeout.map(duration::show).unwrap_or_default();
            cli::say(format_args!(
                "fermata: the run did not end within {limit}; it continues on the server"
            ));
            return Ok(ExitCode::from(TIMED_OUT));
        }
        pause = match events.is_empty() {
            true => (pause * 2).min(LONGEST_PAUSE),
            false => SHORTEST_PAUSE,
        };
        if over {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep_until((Instant::now() + pause).min(deadline)) => {}
            signal = signals.next() => {
                if let Some(progress) = &progress {
                    progress.finish();
                }
                return Ok(signal.exit_code());
            }
        }
    };
    if let Some(progress) = &progress {
        progress.finish();
    }
    let failed = progress.as_ref().map_or(0, Progress::failed);
    let outcome = Outcome {
        workflow: run["workflowId"].as_str().unwrap_or_default(),
        status: run["status"].as_str().unwrap_or_default(),
        reason: run["reason"].as_str(),
        error: &run["error"],
        outputs: &run["outputs"],
        took_ms: run["durationMs"].as_u64(),
        failed,
    };
    match format {
        Format::Table => outcome.show(),
        Format::Json => cli::print(format_args!("{run:#}\n")),
    }
    Ok(outcome.code())
}

/// The steps of the run's document; none if this program cannot compile it.
async fn steps(client: &Client, run: &Value) -> Steps {
    let (workflow, version) = (text(run, "workflowId"), text(run, "workflowVersion"));
    let query = [("version", version)];
    let Ok(definition) = client.get(&["workflows", &workflow], &query).await else {
        return Steps::default();
    };
    let source = document_of(&definition).to_string();
    let settings = Settings::default();
    let compiled = Document::parse(source.as_bytes(), "definition.json", &settings.document)
        .and_then(|document| compile(&document, &settings, &AnyAction, Stage::Save));
    compiled.map_or_else(
        |_| Steps::default(),
        |compiled| Steps::of(Arc::new(compiled.plan), Mask::default()),
    )
}

struct Follower<'a> {
    client: &'a Client,
    id: &'a str,
    /// The number of events and attempts that were read.
    events: u64,
    actions: u64,
    timings: HashMap<(NodeId, u32), Timing>,
}

impl Follower<'_> {
    /// The run as it is now, and its new events.
    async fn changes(&mut self) -> Result<(Value, Vec<Event>), ClientError> {
        let run = self.window("events", self.events).await?;
        let shown = run["events"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !shown.is_empty() {
            self.events += shown.len() as u64;
            self.times().await?;
        }
        let event = |entry: &Value| serde_json::from_value(entry["data"].clone()).ok();
        let events = shown.iter().filter_map(event).collect();
        Ok((run, events))
    }

    /// Reads the times of new attempts. Attempts are in the order of their ends.
    async fn times(&mut self) -> Result<(), ClientError> {
        loop {
            let run = self.window("actions", self.actions).await?;
            let attempts = run["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
            for attempt in attempts {
                let number = attempt["attempt"]
                    .as_u64()
                    .and_then(|number| u32::try_from(number).ok());
                let key = (NodeId::from(text(attempt, "nodeId").as_str()), number.unwrap_or(1));
                let timing = Timing {
                    took: attempt["durationMs"].as_u64().map(Duration::from_millis),
                    ended_at: None,
                };
                self.timings.insert(key, timing);
            }
            let seen = self.actions + attempts.len() as u64;
            let total = run["actionsTotal"].as_u64().unwrap_or(0);
            if attempts.is_empty() || seen >= total {
                // Attempts that end in the same microsecond may be in another order in the next answer, so the last ones
                // are read again.
                self.actions = seen.saturating_sub(OVERLAP);
                return Ok(());
            }
            self.actions = seen;
        }
    }

    async fn window(&self, what: &str, offset: u64) -> Result<Value, ClientError> {
        let query = [
            ("include", what.to_owned()),
            ("limit", LARGEST_PAGE.to_string()),
            ("offset", offset.to_string()),
        ];
        self.client.get(&["executions", self.id], &query).await
    }
}

const OVERLAP: u64 = 16;
