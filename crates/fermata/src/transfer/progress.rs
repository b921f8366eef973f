//! The progress of a transfer on stderr: a bar on a terminal, otherwise a line from time to time.

use crate::cli;
use fermata_store::transfer::Step;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use std::{
    fmt,
    io::IsTerminal,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// The time between two lines about the progress of one table.
const SILENCE: Duration = Duration::from_secs(10);

/// Shows the steps of a transfer.
pub struct Progress(Mutex<State>);

struct State {
    screen: Screen,
    /// Whether rows are being moved already.
    begun: bool,
    comparing: bool,
    rows: u64,
    done: u64,
    /// When the last line was written.
    last_line: Instant,
}

enum Screen {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// Shows progress on stderr.
    pub fn new(quiet: bool) -> Progress {
        let screen = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Screen::Nothing,
            (false, true) => Screen::Bar(bar()),
            (false, false) => Screen::Lines,
        };
        Progress(Mutex::new(State {
            screen,
            begun: false,
            comparing: false,
            rows: 0,
            done: 0,
            last_line: Instant::now(),
        }))
    }

    /// Whether rows are being moved already.
    pub fn has_begun(&self) -> bool {
        self.state().begun
    }

    /// Shows a step.
    pub fn note(&self, step: Step) {
        let mut state = self.state();
        state.count(step);
        match &state.screen {
            Screen::Bar(bar) => draw(bar, step, &state),
            Screen::Lines => {
                if let Some(line) = line(step, &state) {
                    cli::say(line);
                    state.last_line = Instant::now();
                }
            }
            Screen::Nothing => {}
        }
        state.comparing |= matches!(step, Step::Compares { .. });
    }

    /// Removes the bar.
    pub fn end(&self) {
        if let Screen::Bar(bar) = &self.state().screen {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, step: Step) {
        match step {
            Step::Begins { rows, before } => {
                self.begun = true;
                (self.rows, self.done) = (rows, before);
            }
            Step::Moved(rows) => self.done += rows,
            Step::Table { .. } | Step::Compares { .. } => {}
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::no_length();
    restyle(
        &bar,
        "{msg:23} {wide_bar} {human_pos} of {human_len} rows, {rate}/s, {eta} left",
    );
    bar
}

fn restyle(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", rate));
    }
}

/// Rounded to whole rows.
fn rate(state: &ProgressState, into: &mut dyn fmt::Write) {
    // Errors of the terminal are ignored.
    let _ = write!(into, "{}", HumanCount(state.per_sec() as u64));
}

fn draw(bar: &ProgressBar, step: Step, state: &State) {
    match step {
        Step::Begins { rows, before } => {
            bar.set_length(rows);
            bar.set_position(before);
            // Rows that were moved by an earlier call must not count for the estimate.
            bar.reset_eta();
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Step::Table { name, .. } => bar.set_message(name),
        Step::Moved(_) => bar.set_position(state.done),
        Step::Compares { name } => {
            if !state.comparing {
                restyle(bar, "{spinner} comparing {msg}");
            }
            bar.set_message(name);
        }
    }
}

fn line(step: Step, state: &State) -> Option<String> {
    match step {
        Step::Begins { rows, before: 0 } => Some(format!("moving {} rows", HumanCount(rows))),
        Step::Begins { rows, before } => Some(format!(
            "moving {} rows, {} of them were moved before",
            HumanCount(rows),
            HumanCount(before)
        )),
        Step::Table { name, rows } => Some(format!("{name}: {} rows", HumanCount(rows))),
        Step::Moved(_) if state.last_line.elapsed() < SILENCE => None,
        Step::Moved(_) => Some(format!(
            "{} of {} rows are moved",
            HumanCount(state.done),
            HumanCount(state.rows)
        )),
        Step::Compares { .. } if state.comparing => None,
        Step::Compares { .. } => Some("comparing both databases".to_owned()),
    }
}
