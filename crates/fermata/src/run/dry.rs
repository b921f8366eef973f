//! `fermata run --mock FILE` and `--dry-run`: runs a document without effects and shows the route it took.

use super::{Outcome, RunArgs, TIMED_OUT, check, clean, unfit};
use crate::{
    cli::{self, USAGE, Usage},
    config::Config,
    duration, input, validate,
};
use anyhow::Context;
use fermata_dialects::Document;
use fermata_runtime::{
    EngineError, Refusal,
    actions::Registry,
    dry_run::{DryRun, DryRunEdge, DryRunGuard, DryRunNode, DryRunReport, Made, dry_run},
    sandbox::Sandbox,
};
use serde_json::{Map, Value, json};
use std::{fmt::Write, path::Path, process::ExitCode, time::Duration};

const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
/// The widest that a column gets.
const WIDEST: usize = 40;

/// Runs a document without effects.
pub(super) async fn run(args: &RunArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let files = [Some(&args.file), args.mock.as_ref()];
    let from_stdin = files
        .into_iter()
        .flatten()
        .filter(|file| file.as_path() == Path::new("-"));
    if from_stdin.count() + args.input.iter().filter(|input| *input == "-").count() > 1 {
        let message = "only one of the document, the mocks and the input can come from standard input";
        return Err(Usage(message.to_owned()).into());
    }
    let mut settings = config.settings();
    settings.vars = input::vars(settings.vars, &args.var).map_err(Usage)?;
    let registry = Registry::builtin(&config.http()).context("the HTTP client cannot be made")?;
    let (source, name) = validate::read(&args.file).map_err(Usage)?;
    let Some(compiled) = check(&source, &name, &settings, &registry).await else {
        return Ok(ExitCode::from(USAGE));
    };
    let mocks = match &args.mock {
        Some(file) => mocks(file, config)?,
        None => json!({}),
    };
    let request = DryRun {
        trigger: input::value("--input", &args.input, &mut std::io::stdin().lock()).map_err(Usage)?,
        mocks,
        ..DryRun::default()
    };
    let sandbox = Sandbox::new(settings.sandbox.clone());
    let limit = args.timeout.unwrap_or(duration::LONGEST);
    let run = dry_run(&compiled.plan, request, &registry, &settings, sandbox);
    let report = match tokio::time::timeout(limit, run).await {
        Ok(Ok(report)) => report,
        Ok(Err(EngineError::Refused(Refusal::InvalidTrigger { problems, .. }))) => return Err(unfit(&problems).into()),
        Ok(Err(EngineError::Refused(refusal @ Refusal::InvalidMocks(_)))) => return Err(wrong_mocks(refusal).into()),
        Ok(Err(EngineError::Refused(refusal @ Refusal::DryRunTooLong(_)))) => {
            cli::say(format_args!("fermata: {refusal}"));
            return Ok(ExitCode::from(TIMED_OUT));
        }
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => {
            let limit = duration::show(limit);
            cli::say(format_args!(
                "fermata: the dry run did not end within {limit}; it was stopped"
            ));
            return Ok(ExitCode::from(TIMED_OUT));
        }
    };
    let outcome = Outcome {
        workflow: &report.workflow_id,
        status: &report.status,
        reason: report.reason.as_deref(),
        error: report.error.as_ref().unwrap_or(&Value::Null),
        outputs: &report.outputs,
        took_ms: Some(report.virtual_duration_ms),
        failed: report.nodes.iter().filter(|node| has_failed(node)).count(),
    };
    if args.output.is_json() {
        let mut shown = serde_json::to_value(&report)?;
        shown["warnings"] = serde_json::to_value(&compiled.warnings)?;
        cli::print(format_args!("{shown}\n"));
    } else {
        cli::say(drawn(&report, cli::colors(&std::io::stderr())).trim_end());
        outcome.show();
    }
    Ok(outcome.code())
}

/// The mocks in a file: JSON or YAML.
fn mocks(file: &Path, config: &Config) -> anyhow::Result<Value> {
    let (source, name) = validate::read(file).map_err(Usage)?;
    match Document::parse(&source, &name, &config.settings().dialects.document) {
        Ok(document) => Ok(document.value().clone()),
        Err(problems) => Err(Usage(format!("--mock {name}: {problems}")).into()),
    }
}

fn wrong_mocks(refusal: Refusal) -> Usage {
    let mut text = refusal.to_string();
    if let Refusal::InvalidMocks(problems) = refusal {
        for (pointer, what) in problems {
            let place = match pointer.as_str() {
                "" => "the whole file",
                pointer => pointer,
            };
            let _ = write!(text, "\n  {}: {}", clean(place), clean(&what));
        }
    }
    Usage(text)
}

fn has_failed(node: &DryRunNode) -> bool {
    node.error.is_some() && node.skip_reason.is_none()
}

/// A line for each node and attempt, and below each node its edges.
fn drawn(report: &DryRunReport, color: bool) -> String {
    let mut text = String::new();
    let width = |of: fn(&DryRunNode) -> &str| {
        let widths = report.nodes.iter().map(|node| of(node).chars().count());
        widths.max().unwrap_or(0).min(WIDEST)
    };
    let lines = Lines {
        color,
        id_width: width(|node| &node.node_id),
        action_width: width(|node| &node.action_type),
    };
    for node in &report.nodes {
        lines.node(node, &mut text);
    }
    text
}

struct Lines {
    color: bool,
    id_width: usize,
    action_width: usize,
}

impl Lines {
    fn node(&self, node: &DryRunNode, text: &mut String) {
        for attempt in node.attempt_history.iter().rev().skip(1).rev() {
            let mut note = format!("attempt {}", attempt.attempt);
            push(&mut note, &at(attempt.started_after_ms));
            push(&mut note, &reason(attempt.error.as_ref()));
            self.line(YELLOW, "↻ retrying", node, None, &note, text);
        }
        let took = node.ended_after_ms.zip(node.started_after_ms);
        let took = took.map(|(end, start)| Duration::from_millis(end.saturating_sub(start)));
        let mut note = at(node.started_after_ms);
        if node.attempts > 1 {
            push(&mut note, &format!("attempt {}", node.attempts));
        }
        push(
            &mut note,
            match node.mock {
                Some(Made::Given) => "mocked",
                Some(Made::Made) => "made up",
                None => "",
            },
        );
        let is_settled = node.ended_after_ms.is_some();
        match (&node.skip_reason, &node.error) {
            (Some(why), _) => self.line(DIM, "↷ skipped", node, None, &clean(why), text),
            (None, Some(error)) => {
                push(&mut note, &reason(Some(error)));
                self.line(RED, "✗ failed", node, took, &note, text);
            }
            (None, None) if is_settled => self.line(GREEN, "✓ succeeded", node, took, &note, text),
            (None, None) => self.line(DIM, "· not run", node, None, "the run did not reach it", text),
        }
        if let Some(guard) = node.guard.as_ref().filter(|_| node.skip_reason.is_none()) {
            let _ = writeln!(text, "             its {}", clean(&of_guard(guard)));
        }
        for edge in &node.edges {
            let _ = writeln!(text, "             {}", self.edge(edge));
        }
    }

    fn line(&self, style: &str, head: &str, node: &DryRunNode, took: Option<Duration>, note: &str, text: &mut String) {
        let (id_width, action_width) = (self.id_width, self.action_width);
        let took = took.map(duration::show).unwrap_or_default();
        let (id, action) = (clean(&node.node_id), clean(&node.action_type));
        let head = self.paint(style, &format!("{head:<11}"));
        let rest = format!("  {id:<id_width$}  {action:<action_width$}  {took:>10}  {note}");
        let _ = writeln!(text, "{head}{}", rest.trim_end());
    }

    fn edge(&self, edge: &DryRunEdge) -> String {
        let to = clean(&edge.to);
        if !edge.taken {
            let why = clean(edge.reason.as_deref().unwrap_or("not taken"));
            return self.paint(DIM, &format!("✗ {to}: {why}"));
        }
        let mut why = match edge.when {
            "success" => String::new(),
            other => format!("when {other}"),
        };
        if let Some(outcome) = &edge.outcome {
            push(&mut why, &format!("outcome `{outcome}`"));
        }
        if let Some(condition) = &edge.condition {
            push(
                &mut why,
                &format!("condition `{condition}` is true{}", seen(&edge.values)),
            );
        }
        match why.is_empty() {
            true => format!("→ {to}"),
            false => format!("→ {to}: {}", clean(&why)),
        }
    }

    fn paint(&self, style: &str, text: &str) -> String {
        match self.color {
            true => format!("{style}{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

fn of_guard(guard: &DryRunGuard) -> String {
    format!(
        "condition `{}` is {}{}",
        guard.condition,
        guard.verdict,
        seen(&guard.values)
    )
}

/// `: a is 1, b is 2`
fn seen(values: &Map<String, Value>) -> String {
    let values: Vec<String> = values
        .iter()
        .map(|(path, value)| format!("{path} is {value}"))
        .collect();
    match values.is_empty() {
        true => String::new(),
        false => format!(": {}", values.join(", ")),
    }
}

fn at(after_ms: Option<u64>) -> String {
    match after_ms {
        None | Some(0) => String::new(),
        Some(millis) => format!("after {}", duration::show(Duration::from_millis(millis))),
    }
}

fn reason(error: Option<&Value>) -> String {
    let Some(error) = error else {
        return String::new();
    };
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    clean(&format!("{}: {}", text("code"), text("message")))
}

fn push(note: &mut String, more: &str) {
    if !note.is_empty() && !more.is_empty() {
        note.push_str(", ");
    }
    note.push_str(more);
}
