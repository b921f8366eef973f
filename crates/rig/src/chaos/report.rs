//! The output of the rig: a line for each fault while it runs, and a summary.

use super::{
    check::{Rule, Violation, lost_calls, taken_over},
    evidence::{Evidence, Note},
    faults::Kind,
    fleet::Fleet,
};
use fermata_core::Status;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

/// How many violations of each rule the table shows. The JSON report has all of them.
const SHOWN: usize = 5;

/// Prints progress and counts faults.
pub struct Progress {
    begun: Instant,
    counts: Mutex<BTreeMap<Kind, u32>>,
}

impl Progress {
    pub fn new() -> Progress {
        Progress {
            begun: Instant::now(),
            counts: Mutex::default(),
        }
    }

    /// Prints a line with the elapsed time.
    pub fn say(&self, what: &str) {
        eprintln!("[{:7.2} s] {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Counts and prints a fault.
    pub fn fault(&self, kind: Kind, what: &str) {
        *self
            .counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(kind)
            .or_default() += 1;
        self.say(&format!("{kind:<8} {what}"));
    }

    pub fn counts(&self) -> BTreeMap<Kind, u32> {
        self.counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}

/// The summary.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    seed: u64,
    /// The command that repeats the load and the faults.
    command: String,
    runs: BTreeMap<&'static str, usize>,
    /// How many of the runs are children of others.
    children: usize,
    /// How many instants of the schedule fired.
    instants: usize,
    acknowledged: Acknowledged,
    effects: usize,
    repeated_effects: usize,
    journal_rows: usize,
    takeovers: usize,
    faults: BTreeMap<Kind, u32>,
    /// The process whose clock is an hour ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    wrong_clock: Option<&'static str>,
    dropped_after_commit: u64,
    /// How long it took after the last fault until all runs had ended, if they did.
    settled_after_ms: Option<u64>,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
    /// The folder with logs, if it was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Acknowledged {
    starts: usize,
    cancels: usize,
    callbacks: usize,
    claims: usize,
    tasks: usize,
    /// Webhooks and events.
    occurrences: usize,
}

/// Facts that are not in the evidence.
pub struct Circumstances {
    pub seed: u64,
    pub command: String,
    pub faults: BTreeMap<Kind, u32>,
    pub dropped_after_commit: u64,
    pub settled_after: Option<Duration>,
}

impl Report {
    pub(super) fn new(evidence: &Evidence, violations: Vec<Violation>, known: Circumstances) -> Report {
        let mut acknowledged = Acknowledged::default();
        for note in &evidence.notes {
            match note {
                Note::Started { .. } => acknowledged.starts += 1,
                Note::Cancelled { .. } => acknowledged.cancels += 1,
                Note::Called { .. } => acknowledged.callbacks += 1,
                Note::Claimed { .. } => acknowledged.claims += 1,
                Note::Completed { .. } => acknowledged.tasks += 1,
                Note::Occurred { .. } => acknowledged.occurrences += 1,
                _ => {}
            }
        }
        let mut runs: BTreeMap<&'static str, usize> = BTreeMap::new();
        for status in Status::ALL {
            let count = evidence.runs.values().filter(|run| run.status == status).count();
            if count > 0 {
                runs.insert(status.as_str(), count);
            }
        }
        Report {
            seed: known.seed,
            command: known.command,
            runs,
            children: evidence.runs.values().filter(|run| run.parent.is_some()).count(),
            instants: evidence.deliveries.iter().filter_map(|row| row.instant).count(),
            acknowledged,
            effects: evidence.effects.len(),
            repeated_effects: lost_calls(evidence),
            journal_rows: evidence.written.len(),
            takeovers: taken_over(evidence).values().map(Vec::len).sum(),
            faults: known.faults,
            wrong_clock: Fleet::WRONG_CLOCK,
            dropped_after_commit: known.dropped_after_commit,
            settled_after_ms: known.settled_after.map(|time| time.as_millis() as u64),
            violations,
            folder: None,
        }
    }

    /// The report as a table.
    pub fn text(&self) -> String {
        let counts = |counts: Vec<(String, String)>| {
            let words: Vec<String> = counts
                .into_iter()
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            words.join(", ")
        };
        let faults = self
            .faults
            .iter()
            .map(|(kind, count)| (kind.to_string(), count.to_string()));
        let runs = self
            .runs
            .iter()
            .map(|(status, count)| ((*status).to_owned(), count.to_string()));
        let acknowledged = &self.acknowledged;
        let settled = match self.settled_after_ms {
            Some(millis) => format!("{:.1} s after the last fault", millis as f64 / 1000.0),
            None => "not in time".to_owned(),
        };
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<14} {value}"); // writing to a String cannot fail
        };
        line("seed", self.seed.to_string());
        line("faults", counts(faults.collect()));
        line(
            "",
            format!("{} connections dropped after COMMIT", self.dropped_after_commit),
        );
        if let Some(process) = self.wrong_clock {
            line("", format!("the clock of {process} is an hour ahead"));
        }
        line(
            "acknowledged",
            format!(
                "{} starts, {} cancels, {} callbacks, {} claims of tasks, {} answers to tasks, {} webhooks and events",
                acknowledged.starts,
                acknowledged.cancels,
                acknowledged.callbacks,
                acknowledged.claims,
                acknowledged.tasks,
                acknowledged.occurrences
            ),
        );
        line("runs", counts(runs.collect()));
        line("", format!("{} of them are children", self.children));
        line("", format!("{} instants of the schedule fired", self.instants));
        line("settled", settled);
        line(
            "effects",
            format!(
                "{}, of which {} were repeated in crash windows",
                self.effects, self.repeated_effects
            ),
        );
        line("journal rows", self.journal_rows.to_string());
        line("takeovers", self.takeovers.to_string());
        line("violations", self.violations.len().to_string());
        self.violations_into(&mut text);
        text
    }

    fn violations_into(&self, text: &mut String) {
        let mut rules: BTreeMap<Rule, Vec<&Violation>> = BTreeMap::new();
        for violation in &self.violations {
            rules.entry(violation.rule).or_default().push(violation);
        }
        for (rule, violations) in rules {
            let _ = writeln!(text, "\n{rule:?}: {}", violations.len());
            for violation in violations.iter().take(SHOWN) {
                let run = violation.run.map_or(String::new(), |run| format!("{run}: "));
                let _ = writeln!(text, "  {run}{}", violation.what);
            }
        }
        if let Some(folder) = &self.folder {
            let _ = writeln!(
                text,
                "\nRepeat it with\n  {}\nLogs of all processes, what clients received (acknowledged.log),\n\
                 what the service received (effects.log) and the journals of these runs (runs.json) are in\n  {}",
                self.command,
                folder.display()
            );
        }
    }
}
