//! The steps of a run as lines on stderr: a permanent line for each step that ended and for each that waits for a
//! callback; and on a terminal a line for each open step, which is rewritten in place.
//!
//! What must stay true: a permanent line is never rewritten; no text of a document or a service can move the cursor.
//! Without a terminal only permanent lines are written, and also one for each sleep, so that a long silence is explained.

mod items;
mod steps;
#[cfg(test)]
mod tests;

use crate::{cli, duration};
use fermata_core::{Event, Failure, NodeId, Outcome, RunId, Timestamp};
use fermata_runtime::{
    Observer,
    clock::{Clock, SystemClock},
};
use fermata_store::runs::Attempt;
use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    io::{IsTerminal, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use items::ItemCounts;
pub use steps::Steps;
use tokio::sync::Notify;

/// At most this many open steps are shown.
const MOST_ACTIVE: usize = 12;
/// The longest message on a line.
const MOST_MESSAGE: usize = 300;

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const DIM: &str = "\x1b[2m";

/// Draws the progress of a run.
pub struct Progress {
    screen: Mutex<Screen>,
    /// Notified when the last step of the run was shown.
    over: Notify,
}

struct Screen {
    /// The run whose steps are shown: the first one of this process. Others are its child runs.
    root: Option<RunId>,
    steps: Steps,
    live: bool,
    color: bool,
    /// Whether only waits are shown.
    quiet: bool,
    /// The callback URLs of waits; `None` until they are known.
    addresses: Option<HashMap<NodeId, String>>,
    /// Waits that were shown.
    shown_waits: HashSet<NodeId>,
    active: Vec<Active>,
    /// The items of steps that run one child for each item of a list.
    items: HashMap<NodeId, ItemCounts>,
    /// How many steps have failed.
    failed: usize,
    /// Lines on the terminal that will be rewritten.
    drawn: usize,
}

/// The times of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    pub took: Option<Duration>,
    pub ended_at: Option<Timestamp>,
}

/// Finds the times of an attempt.
type Times<'a> = dyn Fn(&NodeId, u32) -> Option<Timing> + 'a;

/// An open step.
struct Active {
    node: NodeId,
    word: &'static str,
    note: String,
    since: Instant,
    /// When it ends at the latest.
    until: Option<Timestamp>,
}

impl Progress {
    /// Draws on stderr.
    pub fn new(steps: Steps) -> Progress {
        let stderr = std::io::stderr();
        let color = cli::colors(&stderr);
        // With NO_COLOR nothing is rewritten either.
        Progress::with(steps, stderr.is_terminal() && color, color)
    }

    /// For a run of this process. Its waits are shown once [`Progress::answer_at`] was called with their addresses. If
    /// `quiet`, nothing else is shown.
    pub fn of_own(steps: Steps, quiet: bool) -> Progress {
        let progress = Progress::new(steps);
        let mut screen = progress.screen();
        screen.addresses = None;
        screen.quiet = quiet;
        screen.live &= !quiet;
        drop(screen);
        progress
    }

    fn with(steps: Steps, live: bool, color: bool) -> Progress {
        let screen = Screen {
            root: None,
            steps,
            live,
            color,
            quiet: false,
            addresses: Some(HashMap::new()),
            shown_waits: HashSet::new(),
            active: Vec::new(),
            items: HashMap::new(),
            failed: 0,
            drawn: 0,
        };
        Progress {
            screen: Mutex::new(screen),
            over: Notify::new(),
        }
    }

    /// Shows events of a run in another process.
    pub fn replay(&self, events: &[Event], times: &Times) {
        let mut screen = self.screen();
        let mut lines = String::new();
        for event in events {
            // The start of an attempt is not an event, so an open step counts as running.
            if let Event::Opened { node, .. } = event {
                screen.activate(node, "running", String::new(), None);
            }
            screen.note(event, times, &mut lines);
        }
        if !events.is_empty() {
            screen.draw(&lines);
        }
    }

    /// Sets the callback URLs of waits. Waits that began earlier are shown by [`Progress::catch_up`].
    pub fn answer_at(&self, addresses: HashMap<NodeId, String>) {
        self.screen().addresses = Some(addresses);
    }

    /// Shows the waits that began in this part of a journal and were not shown yet.
    pub fn catch_up(&self, events: &[Event]) {
        let mut screen = self.screen();
        let settled: HashSet<&NodeId> = events.iter().filter_map(settles).collect();
        let mut lines = String::new();
        for event in events {
            if let Event::Opened { node, until, .. } = event
                && !settled.contains(node)
                && !screen.shown_waits.contains(node)
            {
                push(&mut lines, screen.open(node, *until));
            }
        }
        screen.draw(&lines);
    }

    /// Redraws the times of open steps.
    pub fn tick(&self) {
        let mut screen = self.screen();
        if screen.live && !screen.active.is_empty() {
            screen.draw("");
        }
    }

    /// Removes the lines of open steps; nothing is rewritten from now on.
    pub fn finish(&self) {
        let mut screen = self.screen();
        screen.active.clear();
        screen.draw("");
        screen.live = false;
    }

    /// Waits until the steps that the last commit ended are shown: the end of a run can be read a moment before.
    pub async fn shown(&self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.over.notified()).await;
    }

    /// How many steps have failed, not counting attempts that were repeated.
    pub fn failed(&self) -> usize {
        self.screen().failed
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Progress {
    fn started(&self, run: RunId, node: &NodeId, attempt: u32) {
        let mut screen = self.screen();
        if *screen.root.get_or_insert(run) != run {
            return;
        }
        let note = screen.attempt_note(node, attempt);
        screen.activate(node, "running", note, None);
        screen.draw("");
    }

    fn committed(&self, run: RunId, events: &[Event], attempts: &[Attempt]) {
        if *self.screen().root.get_or_insert(run) != run {
            return;
        }
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
        let mut lines = String::new();
        for event in events {
            screen.note(event, &times, &mut lines);
        }
        screen.draw(&lines);
        if events.iter().any(|event| matches!(event, Event::Ended { .. })) {
            self.over.notify_one();
        }
    }
}

impl Screen {
    /// Adds the line of an event, if it has one that is shown.
    fn note(&mut self, event: &Event, times: &Times, lines: &mut String) {
        let line = self.see(event, times);
        if !self.quiet || matches!(event, Event::Opened { .. }) {
            push(lines, line);
        }
    }

    /// Takes in an event; returns its permanent line, if it has one.
    fn see(&mut self, event: &Event, times: &Times) -> Option<String> {
        let took = |node: &NodeId, attempt: u32| times(node, attempt)?.took;
        self.steps.note(event);
        match event {
            Event::Finished {
                node,
                skipped: Some(skipped),
                ..
            } => {
                self.settle(node);
                let by = skipped.by.as_ref().map_or(String::new(), |by| format!("by {by}: "));
                let why = clean(&format!("{by}{}", skipped.reason));
                Some(self.line(YELLOW, "↷ skipped", node, None, &why))
            }
            Event::Finished {
                node, attempt, outcome, ..
            } => {
                self.settle(node);
                self.failed += usize::from(!outcome.is_success());
                let took = took(node, *attempt);
                let mut note = self.attempt_note(node, *attempt);
                if let Some(items) = self.items.remove(node) {
                    join(&mut note, &items.to_string());
                }
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
                ..
            } => {
                let mut note = match self.steps.most_attempts(node) {
                    Some(most) => format!("attempt {attempt}/{most}"),
                    None => format!("attempt {attempt}"),
                };
                join(&mut note, &reason(failure));
                let ended = times(node, *attempt).and_then(|timing| timing.ended_at);
                let pause = ended.map(|ended| pause(ended, *retry_at)).unwrap_or_default();
                let next = format!("for attempt {}{pause}", attempt + 1);
                self.activate(node, "pausing", next, None);
                Some(self.line(YELLOW, "↻ retrying", node, took(node, *attempt), &note))
            }
            Event::Skipped { node, reason, .. } => {
                self.settle(node);
                let why = clean(&self.steps.why_skipped(node, *reason));
                Some(self.line(DIM, "↷ skipped", node, None, &why))
            }
            Event::Routed { node, verdicts, .. } => {
                let failed = verdicts.iter().filter_map(|verdict| {
                    let error = verdict.error.as_ref()?;
                    let condition = self.steps.condition(node, verdict);
                    // Some errors begin with the condition itself.
                    let error = match error.split_once("`: ") {
                        Some((source, rest)) if condition.contains(source) => rest,
                        _ => error,
                    };
                    let result = self.steps.failed_condition(node);
                    let note = format!("{condition} could not be evaluated and {result}: {error}");
                    Some(self.line(YELLOW, "! condition", node, None, &clean(&note)))
                });
                let lines: Vec<String> = failed.collect();
                (!lines.is_empty()).then(|| lines.join("\n"))
            }
            Event::Slept { node, until, .. } => {
                self.activate(node, "sleeping", String::new(), Some(*until));
                let pause = left(*until).map_or(String::new(), |left| format!("for {}", duration::show(tenths(left))));
                (!self.live).then(|| self.line(CYAN, "⏸ sleeping", node, None, &pause))
            }
            Event::Opened { node, until, .. } => self.open(node, *until),
            Event::Requested {
                node,
                until,
                items: Some(total),
                ..
            } => {
                let items = ItemCounts::new(*total, *until);
                self.activate(node, "waiting", items.to_string(), *until);
                self.items.insert(node.clone(), items);
                let note = format!("for the children of {total} items");
                (!self.live).then(|| self.line(CYAN, "⏸ waiting", node, None, &note))
            }
            Event::ItemsEnded {
                node,
                succeeded,
                failed,
                ..
            } => {
                let items = self.items.get_mut(node)?;
                let is_next_tenth = items.add(succeeded.len(), failed.len());
                let (note, until) = (items.to_string(), items.until);
                if let Some(active) = self.active.iter_mut().find(|active| active.node == *node) {
                    active.note.clone_from(&note);
                    active.until = until;
                }
                (!self.live && is_next_tenth).then(|| self.line(CYAN, "⏸ waiting", node, None, &note))
            }
            Event::Requested { node, until, .. } => {
                let what = self.steps.awaited(node);
                self.activate(node, "waiting", what.to_owned(), *until);
                (!self.live).then(|| self.line(CYAN, "⏸ waiting", node, None, what))
            }
            Event::Paused { .. } => Some("⏸ paused: nothing new starts until the run is resumed".to_owned()),
            Event::Resumed { .. } => Some("▶ resumed".to_owned()),
            Event::Resent { node, failure, .. } => Some(match failure {
                None => self.line(CYAN, "⟳ sent again", node, None, ""),
                Some(failure) => self.line(YELLOW, "! not resent", node, None, &reason(failure)),
            }),
            Event::Started { .. }
            | Event::Reused(_)
            | Event::Resending { .. }
            | Event::Began { .. }
            | Event::Answered { .. }
            | Event::Stopping { .. }
            | Event::Ended { .. } => None,
        }
    }

    /// A wait is shown once, when its address is known.
    fn open(&mut self, node: &NodeId, until: Option<Timestamp>) -> Option<String> {
        if !self.steps.waits(node) {
            return None;
        }
        self.activate(node, "waiting", String::new(), until);
        let at = self.addresses.as_ref()?.get(node).cloned();
        if at.is_none() && self.live || !self.shown_waits.insert(node.clone()) {
            return None;
        }
        let note = at.map_or("for a callback".to_owned(), |at| format!("POST to {at}"));
        Some(self.line(CYAN, "⏸ waiting", node, None, &note))
    }

    fn activate(&mut self, node: &NodeId, word: &'static str, note: String, until: Option<Timestamp>) {
        self.settle(node);
        self.active.push(Active {
            node: node.clone(),
            word,
            note,
            since: Instant::now(),
            until,
        });
    }

    fn settle(&mut self, node: &NodeId) {
        self.active.retain(|active| active.node != *node);
    }

    /// `attempt 2/3`, from the second attempt on.
    fn attempt_note(&self, node: &NodeId, attempt: u32) -> String {
        match self.steps.most_attempts(node) {
            _ if attempt < 2 => String::new(),
            Some(1) => String::new(),
            Some(most) => format!("attempt {attempt}/{most}"),
            None => format!("attempt {attempt}"),
        }
    }

    fn line(&self, style: &str, head: &str, node: &NodeId, took: Option<Duration>, note: &str) -> String {
        let action = self.steps.action(node);
        let took = took.map(duration::show).unwrap_or_default();
        let (id_width, action_width) = self.steps.widths();
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

    /// Writes permanent lines, and the lines of open steps below them.
    fn draw(&mut self, lines: &str) {
        if !self.live {
            if !lines.is_empty() {
                let _ = std::io::stderr().lock().write_all(lines.as_bytes());
            }
            return;
        }
        let mut text = String::new();
        if self.drawn > 0 {
            let _ = write!(text, "\x1b[{}A\r\x1b[J", self.drawn);
        }
        text.push_str(lines);
        // Lines that are rewritten must not wrap, because the cursor moves up by lines of the terminal.
        text.push_str("\x1b[?7l");
        for active in self.active.iter().take(MOST_ACTIVE) {
            let head = format!("… {}", active.word);
            let mut note = active.note.clone();
            if let Some(left) = active.until.and_then(left) {
                join(&mut note, &format!("{} left", duration::show(left)));
            }
            let line = self.line(CYAN, &head, &active.node, Some(active.since.elapsed()), &note);
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

/// The node that an event settles.
fn settles(event: &Event) -> Option<&NodeId> {
    match event {
        Event::Finished { node, .. } | Event::Skipped { node, .. } => Some(node),
        _ => None,
    }
}

fn push(lines: &mut String, line: Option<String>) {
    if let Some(line) = line {
        lines.push_str(&line);
        lines.push('\n');
    }
}

/// The time until then, unless it has passed.
fn left(until: Timestamp) -> Option<Duration> {
    let micros = until.micros_since(SystemClock.now());
    (micros > 0).then(|| Duration::from_micros(micros))
}

/// To the nearest tenth of a second.
fn tenths(duration: Duration) -> Duration {
    Duration::from_millis((duration.as_millis() as u64).saturating_add(50) / 100 * 100)
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

/// Text for one line: without characters that move the cursor, and cut to a maximum length.
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
