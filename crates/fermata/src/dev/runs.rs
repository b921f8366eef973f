//! The runs of a `dev` server as lines on stderr, while they happen: one when a run starts, one when it ends.
//!
//! The engine calls the observer after each commit; looking up names and writing lines is left to a task of its own, so
//! that a slow terminal delays no run. Under load most lines are left out and counted.

use crate::{cli, duration, run::clean};
use fermata_core::{Event, NodeId, RunId, Status};
use fermata_runtime::{Engine, Observer};
use fermata_store::runs::Attempt;
use serde_json::Value;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::Instant,
};

/// At most this many lines in [`WINDOW`].
const MOST_LINES: usize = 25;
const WINDOW: Duration = Duration::from_secs(1);

/// What happened to a run.
#[derive(Debug, Clone, Copy)]
enum Change {
    Started,
    Ended { failed_steps: usize },
}

/// Takes in what the engine does.
pub struct RunObserver {
    changes: UnboundedSender<(RunId, Change)>,
    /// The runs in flight, with the number of their steps that failed.
    runs: Mutex<HashMap<RunId, usize>>,
}

/// The other end: writes the lines.
pub struct RunLog {
    changes: UnboundedReceiver<(RunId, Change)>,
}

pub fn channel() -> (RunObserver, RunLog) {
    let (sender, receiver) = unbounded_channel();
    let observer = RunObserver {
        changes: sender,
        runs: Mutex::default(),
    };
    (observer, RunLog { changes: receiver })
}

impl RunObserver {
    /// The start of a run is stored by the request that starts it, so the first attempt or commit shows that it started.
    fn see(&self, run: RunId, failed: usize) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let known = runs.entry(run).or_insert_with(|| {
            // The receiver is dropped only when the process ends.
            let _ = self.changes.send((run, Change::Started));
            0
        });
        *known += failed;
    }
}

impl Observer for RunObserver {
    fn started(&self, run: RunId, _: &NodeId, _: u32) {
        self.see(run, 0);
    }

    fn committed(&self, run: RunId, events: &[Event], _: &[Attempt]) {
        let failed = |event: &&Event| matches!(event, Event::Finished { outcome, .. } if !outcome.is_success());
        self.see(run, events.iter().filter(failed).count());
        if events.iter().any(|event| matches!(event, Event::Ended { .. })) {
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let failed_steps = runs.remove(&run).unwrap_or(0);
            let _ = self.changes.send((run, Change::Ended { failed_steps }));
        }
    }
}

impl RunLog {
    /// Writes lines for as long as the engine lives.
    pub async fn write(mut self, engine: Engine) {
        let (mut began, mut written, mut left_out) = (Instant::now(), 0, 0);
        loop {
            let next = tokio::time::timeout_at(began + WINDOW, self.changes.recv()).await;
            if began.elapsed() >= WINDOW {
                if left_out > 0 {
                    cli::say(format_args!("… {left_out} more runs started or ended"));
                }
                (began, written, left_out) = (Instant::now(), 0, 0);
            }
            match next {
                Ok(Some(_)) if written >= MOST_LINES => left_out += 1,
                Ok(Some((run, change))) => {
                    written += 1;
                    if let Some(line) = line(&engine, run, change).await {
                        cli::say(line);
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
        }
    }
}

/// Such as `✓ order  succeeded after 12 ms  0199a7c2-…`; `None` if the run cannot be read.
async fn line(engine: &Engine, id: RunId, change: Change) -> Option<String> {
    let run = engine.reads().run_row(id).await.ok().flatten()?;
    let workflow = clean(&run.workflow_id);
    let Change::Ended { failed_steps } = change else {
        return Some(format!("→ {workflow}  started  {id}"));
    };
    let took = run.ended_at.zip(run.started_at).map_or(String::new(), |(end, start)| {
        format!(
            " after {}",
            duration::show(Duration::from_micros(end.micros_since(start)))
        )
    });
    let error: Value = run
        .error
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let why = match (error["message"].as_str(), &run.reason) {
        (Some(message), _) => format!("  {}", clean(message)),
        (None, Some(reason)) => format!("  {}", clean(reason)),
        (None, None) => String::new(),
    };
    let at = error["node"]
        .as_str()
        .map_or(String::new(), |node| format!(" at {}", clean(node)));
    Some(match run.status {
        Status::Succeeded => {
            let failed = match failed_steps {
                0 => String::new(),
                1 => "; 1 task failed".to_owned(),
                count => format!("; {count} tasks failed"),
            };
            format!("✓ {workflow}  succeeded{took}{failed}  {id}")
        }
        Status::Cancelled => format!("✗ {workflow}  was cancelled{took}  {id}{why}"),
        _ => format!("✗ {workflow}  failed{took}{at}  {id}{why}"),
    })
}
