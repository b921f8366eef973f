//! `fermata executions watch`: the steps of a run on a server, drawn as `fermata run` draws them.
//!
//! The events come from the stream of the run: they are the journal itself, so the lines show what was decided. After a broken
//! connection the stream continues, at any process, after the last journal row that was read.

use super::{Client, ClientError, LARGEST_PAGE, stream::Stream, text, workflows::with_definition};
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

/// How often the times of open steps are drawn again.
const TICK: Duration = Duration::from_secs(1);

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
        actions: 0,
        timings: HashMap::new(),
    };
    let mut stream = Stream::new(client, &["executions", id, "stream"]);
    loop {
        let tick = (Instant::now() + TICK).min(deadline);
        let message = tokio::select! {
            message = stream.next() => Some(message?),
            () = tokio::time::sleep_until(tick) => None,
            signal = signals.next() => {
                if let Some(progress) = &progress {
                    progress.finish();
                }
                return Ok(signal.exit_code());
            }
        };
        match message {
            Some(message) if message.event == "end" => break,
            Some(message) => {
                if let Some(progress) = &progress {
                    // If the server stops at this moment, the stream connects again, and these times are not shown.
                    follower.times().await.or_else(ClientError::unless_passing)?;
                    progress.replay(&events(&message.data), &|node, attempt| {
                        follower.timings.get(&(node.clone(), attempt)).copied()
                    });
                }
            }
            None => progress.iter().for_each(Progress::tick),
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
    }
    let run = client.get(&["executions", id], &[]).await?;
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
    let Ok(shown) = with_definition(client, &workflow, Some(version)).await else {
        return Steps::default();
    };
    let source = shown["definition"].to_string();
    let settings = Settings::default();
    let compiled = Document::parse(source.as_bytes(), "definition.json", &settings.document)
        .and_then(|document| compile(&document, &settings, &AnyAction, Stage::Save));
    compiled.map_or_else(
        |_| Steps::default(),
        |compiled| Steps::of(Arc::new(compiled.plan), Mask::default()),
    )
}

/// The events of a message: those of one journal row.
fn events(data: &str) -> Vec<Event> {
    let entries: Vec<Value> = serde_json::from_str(data).unwrap_or_default();
    let event = |mut entry: Value| serde_json::from_value(entry["data"].take()).ok();
    entries.into_iter().filter_map(event).collect()
}

struct Follower<'a> {
    client: &'a Client,
    id: &'a str,
    /// The number of attempts that were read.
    actions: u64,
    timings: HashMap<(NodeId, u32), Timing>,
}

impl Follower<'_> {
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
