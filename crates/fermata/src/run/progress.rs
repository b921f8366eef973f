//! The steps of a run as lines on stderr: one for each step that settled, and on a terminal one for each that has
//! not, rewritten in place.
//!
//! What must stay true: a settled line is never touched again; nothing that comes from a document or a service
//! can move the cursor; without a terminal only settled lines are written.

use crate::{cli, duration};
use fermata_core::{Event, Failure, NodeId, Outcome, Plan, RunId, SkipReason, Timestamp};
use fermata_runtime::Observer;
use fermata_store::runs::Attempt;
use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// At most this many unsettled steps are shown.
const MOST_ACTIVE: usize = 12;
/// The longest message on a line.
const MOST_MESSAGE: usize = 300;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";

/// Draws what happens to a run.
pub struct Progress {
    screen: Mutex<Screen>,
}

struct Screen {
    steps: Steps,
    live: bool,
    color: bool,
    active: Vec<Active>,
    /// Lines on the terminal that will be rewritten.
    drawn: usize,
}

/// What a plan says of its steps; lines can be drawn without it, only less neatly.
#[derive(Default)]
pub struct Steps {
    by_id: HashMap<NodeId, Step>,
    id_width: usize,
    action_width: usize,
}

impl Steps {
    /// The steps of `plan`.
    pub fn of(plan: &Plan) -> Steps {
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).min(40);
        let step = |node: &fermata_core::Node| {
            let step = Step {
                action: clean(node.kind.action_type()),
                max_attempts: node.policies.retry.max_attempts.max(1),
            };
            (node.id.clone(), step)
        };
        let by_id: HashMap<_, _> = plan.nodes.iter().map(step).collect();
        Steps {
            id_width: width(&mut by_id.keys().map(|id| id.as_str().chars().count())),
            action_width: width(&mut by_id.values().map(|step| step.action.chars().count())),
            by_id,
        }
    }
}

/// What is known of an attempt's time.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub took: Option<Duration>,
    pub ended_at: Option<Timestamp>,
}

/// Finds an attempt's time.
type Times<'a> = dyn Fn(&NodeId, u32) -> Option<Timing> + 'a;

/// What the plan says of a step.
struct Step {
    action: String,
    max_attempts: u32,
}

/// A step that has not settled.
struct Active {
    node: NodeId,
    word: &'static str,
    note: String,
    since: Instant,
}

impl Progress {
    /// For some steps, on this process's stderr.
    pub fn new(steps: Steps) -> Progress {
        let stderr = std::io::stderr();
        let color = cli::colors(&stderr);
        // NO_COLOR is for people who want plain lines, so nothing is rewritten either.
        Progress::with(steps, stderr.is_terminal() && color, color)
    }

    fn with(steps: Steps, live: bool, color: bool) -> Progress {
        let screen = Screen {
            steps,
            live,
            color,
            active: Vec::new(),
            drawn: 0,
        };
        Progress {
            screen: Mutex::new(screen),
        }
    }

    /// Shows events of a run that happens elsewhere.
    pub fn replay(&self, events: &[Event], times: &Times) {
        let mut screen = self.screen();
        let mut settled = String::new();
        for event in events {
            if let Event::Opened { node, .. } = event {
                screen.activate(node, "running", String::new());
            }
            if let Some(line) = screen.see(event, times) {
                settled.push_str(&line);
                settled.push('\n');
            }
        }
        if !events.is_empty() {
            screen.draw(&settled);
        }
    }

    /// Brings the times of unsettled steps up to date.
    pub fn tick(&self) {
        let mut screen = self.screen();
        if screen.live && !screen.active.is_empty() {
            screen.draw("");
        }
    }

    /// Takes unsettled steps away; nothing more will be drawn over what comes next.
    pub fn finish(&self) {
        let mut screen = self.screen();
        screen.active.clear();
        screen.draw("");
        screen.live = false;
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Progress {
    fn started(&self, _: RunId, node: &NodeId, attempt: u32) {
        let mut screen = self.screen();
        let note = screen.attempt_note(node, attempt);
        screen.activate(node, "running", note);
        screen.draw("");
    }

    fn committed(&self, _: RunId, events: &[Event], attempts: &[Attempt]) {
        let times = |node: &NodeId, attempt: u32| {
            let row = attempts
                .iter()
                .find(|row| row.node == *node && row.attempt == attempt)?;
            Some(Timing {
                took: row
                    .started_at
                    .map(|start| Duration::from_micros(row.ended_at.micros_since(start))),
                ended_at: Some(row.ended_at),
            })
        };
        let mut screen = self.screen();
        let mut settled = String::new();
        for event in events {
            if let Some(line) = screen.see(event, &times) {
                settled.push_str(&line);
                settled.push('\n');
            }
        }
        screen.draw(&settled);
    }
}

impl Screen {
    /// What an event changes; a line if something settled by it.
    fn see(&mut self, event: &Event, times: &Times) -> Option<String> {
        let took = |node: &NodeId, attempt: u32| times(node, attempt)?.took;
        match event {
            Event::Finished { node, attempt, outcome } => {
                self.settle(node);
                let took = took(node, *attempt);
                let mut note = self.attempt_note(node, *attempt);
                Some(match outcome {
                    Outcome::Succeeded(_) => self.line(GREEN, "✓ succeeded", node, took, &note),
                    Outcome::Failed(failure) => {
                        join(&mut note, &reason(failure));
                        self.line(RED, "✗ failed", node, took, &note)
                    }
                })
            }
            Event::Retried {
                node,
                attempt,
                failure,
                retry_at,
            } => {
                let mut note = match self.most_attempts(node) {
                    Some(most) => format!("attempt {attempt}/{most}"),
                    None => format!("attempt {attempt}"),
                };
                join(&mut note, &reason(failure));
                let ended = times(node, *attempt).and_then(|timing| timing.ended_at);
                let pause = ended.map(|ended| pause(ended, *retry_at)).unwrap_or_default();
                let next = format!("for attempt {}{pause}", attempt + 1);
                self.activate(node, "waiting", next);
                Some(self.line(YELLOW, "↻ retrying", node, took(node, *attempt), &note))
            }
            Event::Skipped { node, reason, .. } => {
                self.settle(node);
                let why = match reason {
                    SkipReason::DeadPath => "no path led to it",
                    SkipReason::Guard => "its condition is false",
                    SkipReason::Stopped => "the run is stopping",
                };
                Some(self.line(DIM, "↷ skipped", node, None, why))
            }
            Event::Slept { node, .. } => {
                self.activate(node, "sleeping", String::new());
                None
            }
            Event::Opened { .. }
            | Event::Started { .. }
            | Event::Answered { .. }
            | Event::Routed { .. }
            | Event::Stopping { .. }
            | Event::Ended { .. } => None,
        }
    }

    fn activate(&mut self, node: &NodeId, word: &'static str, note: String) {
        self.settle(node);
        self.active.push(Active {
            node: node.clone(),
            word,
            note,
            since: Instant::now(),
        });
    }

    fn settle(&mut self, node: &NodeId) {
        self.active.retain(|active| active.node != *node);
    }

    /// `attempt 2/3`, where it matters.
    fn attempt_note(&self, node: &NodeId, attempt: u32) -> String {
        match self.most_attempts(node) {
            _ if attempt < 2 => String::new(),
            Some(1) => String::new(),
            Some(most) => format!("attempt {attempt}/{most}"),
            None => format!("attempt {attempt}"),
        }
    }

    fn most_attempts(&self, node: &NodeId) -> Option<u32> {
        self.steps.by_id.get(node).map(|step| step.max_attempts)
    }

    fn line(&self, style: &str, head: &str, node: &NodeId, took: Option<Duration>, note: &str) -> String {
        let action = self.steps.by_id.get(node).map_or("", |step| step.action.as_str());
        let took = took.map(duration::show).unwrap_or_default();
        let (id_width, action_width) = (self.steps.id_width, self.steps.action_width);
        let head = self.paint(style, &format!("{head:<11}"));
        let rest = format!(
            "  {:<id_width$}  {action:<action_width$}  {took:>10}  {note}",
            clean(node.as_str())
        );
        format!("{head}{}", rest.trim_end())
    }

    fn paint(&self, style: &str, text: &str) -> String {
        match self.color {
            true => format!("{style}{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// Writes settled lines for good and unsettled ones below them.
    fn draw(&mut self, settled: &str) {
        if !self.live {
            if !settled.is_empty() {
                let _ = std::io::stderr().lock().write_all(settled.as_bytes());
            }
            return;
        }
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A\r\x1b[J", self.drawn);
        }
        text.push_str(settled);
        // Lines that will be rewritten must not wrap, or the cursor would not come back to their beginning.
        text.push_str("\x1b[?7l");
        for active in self.active.iter().take(MOST_ACTIVE) {
            let head = format!("… {}", active.word);
            let line = self.line(CYAN, &head, &active.node, Some(active.since.elapsed()), &active.note);
            text.push_str(&line);
            text.push('\n');
        }
        let hidden = self.active.len().saturating_sub(MOST_ACTIVE);
        if hidden > 0 {
            let _ = writeln!(text, "… and {hidden} more");
        }
        text.push_str("\x1b[?7h");
        self.drawn = self.active.len().min(MOST_ACTIVE) + usize::from(hidden > 0);
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

fn reason(failure: &Failure) -> String {
    clean(&format!("{}: {}", failure.code, failure.message))
}

fn join(note: &mut String, more: &str) {
    if !note.is_empty() {
        note.push_str("  ");
    }
    note.push_str(more);
}

fn pause(from: Timestamp, until: Timestamp) -> String {
    let pause = Duration::from_micros(until.micros_since(from));
    format!(" in {}", duration::show(pause))
}

/// Text for one line: nothing that moves the cursor, and not too much of it.
pub fn clean(text: &str) -> String {
    let safe = text.chars().map(|c| match c {
        c if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
        {
            ' '
        }
        c => c,
    });
    let mut short: String = safe.take(MOST_MESSAGE).collect();
    if text.chars().nth(MOST_MESSAGE).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use fermata_dialects::{AnyAction, Document, DocumentLimits, Settings, Stage, compile};

    fn screen() -> Progress {
        let source = br#"{ "id": "w", "displayName": "W", "startNode": "fetch", "nodes": [
            { "id": "fetch", "actionType": "http.request", "policies": { "retry": { "maxAttempts": 3 } },
              "edges": [{ "targetNode": "b" }] },
            { "id": "b", "actionType": "core.echo" } ] }"#;
        let document = Document::parse(source, "w.json", &DocumentLimits::default()).unwrap();
        let compiled = compile(&document, &Settings::default(), &AnyAction, Stage::Save).unwrap();
        Progress::with(Steps::of(&compiled.plan), false, false)
    }

    fn times(_: &NodeId, _: u32) -> Option<Timing> {
        Some(Timing {
            took: Some(Duration::from_millis(1300)),
            ended_at: Some(Timestamp(2_300_000)),
        })
    }

    #[test]
    fn a_settled_step_is_one_plain_line() {
        let progress = screen();
        let mut screen = progress.screen();
        let failure = Failure::retriable("HTTP_500", "the service said\n\x1b[2Jno");
        let retried = Event::Retried {
            node: NodeId::from("fetch"),
            attempt: 2,
            failure: failure.clone(),
            retry_at: Timestamp(2_800_000),
        };
        let line = screen.see(&retried, &times).unwrap();
        assert_eq!(
            line,
            "↻ retrying   fetch  http.request       1.3 s  attempt 2/3  HTTP_500: the service said  [2Jno"
        );
        assert_eq!(screen.active[0].note, "for attempt 3 in 500 ms");
        let finished = Event::Finished {
            node: NodeId::from("fetch"),
            attempt: 3,
            outcome: Outcome::Failed(failure),
        };
        let line = screen.see(&finished, &times).unwrap();
        assert!(
            line.starts_with("✗ failed     fetch  http.request       1.3 s  attempt 3/3"),
            "{line}"
        );
        assert!(screen.active.is_empty());
        let skipped = Event::Skipped {
            node: NodeId::from("b"),
            reason: SkipReason::DeadPath,
            verdict: None,
        };
        let line = screen.see(&skipped, &times).unwrap();
        assert_eq!(line, "↷ skipped    b      core.echo                 no path led to it");
    }
}
