//! `fermata eval`: one expression, or many as JSON lines.
//!
//! The answer is data: a value, or an error with its kind and place. What a language does not cover natively goes
//! to the sandbox ([`beyond`]), as in the server.

mod batch;

use crate::{
    cli::{self, Output, USAGE, Usage},
    config::Config,
    excerpt::{self, Place},
    input,
};
use clap::{Args, ValueEnum};
use fermata_expr::{
    Data, EvalError, EvalErrorKind, Limits, SyntaxError, SyntaxKind,
    js::Expression,
    jsonlogic::{Operators, Rule, RuleError},
    template::{Options, Template},
};
use fermata_runtime::sandbox::{Sandbox, SandboxError, Source};
use serde::Deserialize;
use serde_json::Value;
use std::process::ExitCode;

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata eval js 'trigger.amount > 100' --data trigger.amount=120
  fermata eval template 'Hello {{ trigger.name }}' --data @data.json
  fermata eval jsonlogic '{\"<\": [{\"var\": \"score\"}, 0.8]}' --data score=0.5
  fermata eval cel 'has(state.score) && score < 0.8' --data score=0.5
  echo '{\"language\": \"js\", \"expression\": \"1 + a\", \"data\": {\"a\": 2}}' | fermata eval --batch

--batch reads one JSON object per line and answers each with one line: {\"value\": …}, {\"value\": null, \"undefined\": true}
or {\"error\": {\"kind\", \"message\", \"offset\"}}. A line that cannot be read is answered with kind BadRequest.

Exit codes: 0 there is a value, 1 the evaluation failed, 2 the expression is not written correctly (or the call is wrong).";

/// The arguments of `fermata eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The language: `js` as in conditions, `template` as in parameters, `jsonlogic`, or `cel`.
    #[arg(value_enum, required_unless_present = "batch")]
    language: Option<Language>,
    /// The expression or template.
    #[arg(required_unless_present = "batch", allow_hyphen_values = true)]
    expression: Option<String>,
    /// What it sees: key=value (dots make objects), {…}, @file.json, or - for JSON on standard input.
    #[arg(long, short, value_name = "KEY=VALUE", conflicts_with = "batch")]
    data: Vec<String>,
    /// Of JSONLogic, accept only the operators that documents may use by default.
    #[arg(long, conflicts_with = "batch")]
    strict: bool,
    /// Read JSON lines {"language", "expression", "data"} from standard input; answer each with one line.
    #[arg(long, conflicts_with_all = ["language", "expression"])]
    batch: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
enum Language {
    Js,
    Template,
    JsonLogic,
    Cel,
}

/// What expressions may do and use.
struct Rules {
    limits: Limits,
    templates: Options,
    sandbox: Sandbox,
}

/// An evaluation that gave no value.
struct EvalFailure {
    kind: &'static str,
    message: String,
    offset: usize,
    length: usize,
    /// Whether the source is wrong, rather than what happened with this data.
    syntax: bool,
}

impl EvalFailure {
    fn code(&self) -> ExitCode {
        match self.syntax {
            true => ExitCode::from(USAGE),
            false => ExitCode::FAILURE,
        }
    }
}

/// Runs the command.
pub async fn eval(args: EvalArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let settings = config.settings();
    let rules = Rules {
        limits: settings.conditions,
        templates: settings.dialects.templates,
        sandbox: Sandbox::new(settings.sandbox),
    };
    let (Some(language), Some(expression)) = (args.language, &args.expression) else {
        batch::run(&rules, &mut std::io::stdin().lock(), &mut std::io::stdout().lock()).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let data = input::value("--data", &args.data, &mut std::io::stdin().lock()).map_err(Usage)?;
    let evaluated = evaluate(language, expression, &data, operators(args.strict), &rules).await;
    if args.output.is_json() {
        cli::print(format_args!("{}\n", batch::as_json(&evaluated)));
        return Ok(match evaluated {
            Ok(_) => ExitCode::SUCCESS,
            Err(failure) => failure.code(),
        });
    }
    match evaluated {
        Ok(Some(value)) => {
            cli::print(format_args!("{value}\n"));
            Ok(ExitCode::SUCCESS)
        }
        Ok(None) => {
            cli::say("fermata: the value is undefined");
            cli::print("null\n");
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let place = Place::of(expression, failure.offset, failure.length);
            let (line, column) = (place.line, place.column);
            cli::say(format_args!("error[{}]: {}", failure.kind, failure.message));
            cli::say(format_args!(" --> expression:{line}:{column}"));
            cli::say(excerpt::draw(expression, place).trim_end());
            Ok(failure.code())
        }
    }
}

fn operators(strict: bool) -> Operators {
    match strict {
        true => Operators::Subset,
        false => Operators::All,
    }
}

/// The value of a rule of JSONLogic.
async fn jsonlogic(
    rule: Result<Rule, Vec<RuleError>>,
    data: &Value,
    rules: &Rules,
) -> Result<Option<Value>, EvalFailure> {
    let rule = rule.map_err(EvalFailure::from)?;
    match rule.evaluate(&Data::Json(data)) {
        Err(error) if error.kind == EvalErrorKind::NotCovered => {
            sandboxed(Source::jsonlogic(rule.source()), data, rules, "Thrown").await
        }
        evaluated => Ok(Some(evaluated?)),
    }
}

/// The value; `None` is JavaScript's `undefined`.
async fn evaluate(
    language: Language,
    source: &str,
    data: &Value,
    operators: Operators,
    rules: &Rules,
) -> Result<Option<Value>, EvalFailure> {
    let scope = Data::Json(data);
    let outcome = match language {
        Language::Js => Expression::parse(source)
            .map_err(EvalFailure::from)
            .and_then(|expression| Ok(expression.evaluate(&scope, &rules.limits)?)),
        Language::Template => Template::parse(source, &rules.templates)
            .map_err(EvalFailure::from)
            .and_then(|template| Ok(Some(template.render(&scope, &rules.templates)?))),
        Language::JsonLogic => return jsonlogic(Rule::parse_text(source, operators), data, rules).await,
        Language::Cel => return beyond(Source::cel(source), data, rules).await,
    };
    match outcome {
        Err(failure) if failure.kind == NOT_COVERED && language == Language::Js => {
            beyond(Source::from(source), data, rules).await
        }
        outcome => outcome,
    }
}

/// What this process does not evaluate itself. Its names are the members of the data.
async fn beyond(source: Source<'_>, data: &Value, rules: &Rules) -> Result<Option<Value>, EvalFailure> {
    let nothing = Value::Object(serde_json::Map::new());
    let data = if data.is_object() { data } else { &nothing };
    sandboxed(source, data, rules, NOT_COVERED).await
}

/// The value by the sandbox. `otherwise` is the kind of an error for which the expression is not to blame.
async fn sandboxed(
    source: Source<'_>,
    data: &Value,
    rules: &Rules,
    otherwise: &'static str,
) -> Result<Option<Value>, EvalFailure> {
    let value = rules.sandbox.evaluate(source, data, &rules.limits).await;
    value.map_err(|error| match error {
        SandboxError::Syntax(error) => EvalFailure::from(error),
        SandboxError::Failed(error) => EvalFailure::from(error),
        other => EvalFailure {
            kind: match &other {
                SandboxError::Killed(_) => "Timeout",
                // The process has ended: it needed more memory or stack than it may use.
                SandboxError::Crashed(_) => "MemoryLimit",
                _ => otherwise,
            },
            message: other.to_string(),
            offset: 0,
            length: source.text.len(),
            syntax: false,
        },
    })
}

const NOT_COVERED: &str = "NotCovered";

impl From<SyntaxError> for EvalFailure {
    fn from(error: SyntaxError) -> EvalFailure {
        EvalFailure {
            kind: match error.kind {
                SyntaxKind::Invalid => "Syntax",
                SyntaxKind::NotCovered => NOT_COVERED,
            },
            message: error.message,
            offset: error.offset,
            length: error.length,
            syntax: true,
        }
    }
}

impl From<Vec<RuleError>> for EvalFailure {
    /// All problems, each with its place in the rule.
    fn from(errors: Vec<RuleError>) -> EvalFailure {
        let only_left_out = errors.iter().all(|error| error.kind == SyntaxKind::NotCovered);
        let text = |error: &RuleError| {
            let place = if error.pointer.is_empty() { "" } else { " at " };
            let suggestion = error
                .suggestion
                .as_ref()
                .map(|text| format!("; {text}"))
                .unwrap_or_default();
            format!("{}{place}{}{suggestion}", error.message, error.pointer)
        };
        EvalFailure {
            kind: if only_left_out { NOT_COVERED } else { "Syntax" },
            message: errors.iter().map(text).collect::<Vec<_>>().join("\n"),
            offset: 0,
            length: 0,
            syntax: true,
        }
    }
}

impl From<EvalError> for EvalFailure {
    fn from(error: EvalError) -> EvalFailure {
        EvalFailure {
            kind: match error.kind {
                EvalErrorKind::Thrown => "Thrown",
                EvalErrorKind::Undefined => "Undefined",
                EvalErrorKind::NotCovered => NOT_COVERED,
                EvalErrorKind::StatementLimit => "StatementLimit",
                EvalErrorKind::DepthLimit => "DepthLimit",
                EvalErrorKind::MemoryLimit => "MemoryLimit",
                EvalErrorKind::OutputLimit => "OutputLimit",
                EvalErrorKind::Timeout => "Timeout",
                EvalErrorKind::Disabled => "Disabled",
            },
            message: error.message,
            offset: error.offset,
            length: error.length,
            syntax: false,
        }
    }
}
