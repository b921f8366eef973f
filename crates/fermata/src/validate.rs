//! `fermata validate`: checks documents and reports all problems at once.

use crate::{
    cli::{self, Output, USAGE, Usage},
    config::Config,
};
use anyhow::Context;
use clap::Args;
use fermata_dialects::{Diagnostics, Settings, Severity, Stage};
use fermata_runtime::{Secrets, actions::Registry, check_document, sandbox::Sandbox};
use serde_json::{Value, json};
use std::{
    io::Read,
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Shown below `--help`.
pub const HELP: &str = "\
Examples:
  fermata validate order.json
  fermata validate workflows/ extra.yaml         folders are walked for .json, .jsonc, .yaml and .yml
  generate | fermata validate -                  from standard input
  fermata validate order.json -o json | jq .files[0].problems

Exit codes: 0 all are valid, 2 some are not (or the call is wrong).";

const ENDINGS: [&str; 4] = ["json", "jsonc", "yaml", "yml"];
/// Deeper than folders of documents are; ends loops of links.
const DEEPEST: usize = 32;

/// The arguments of `fermata validate`.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// Documents, folders of documents, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The result of checking one document.
struct Checked {
    name: String,
    workflow: Option<String>,
    /// Why the file could not be read.
    unreadable: Option<String>,
    problems: Option<Diagnostics>,
}

/// Checks documents as publishing would.
pub async fn validate(args: ValidateArgs, config: &Config) -> anyhow::Result<ExitCode> {
    let settings = config.settings();
    let sandbox = Sandbox::new(settings.sandbox);
    let (secrets, settings) = (settings.secrets, settings.dialects);
    let registry = Registry::builtin(&config.http()).context("the HTTP client cannot be made")?;
    let mut checked = Vec::new();
    for file in documents(&args.files)? {
        checked.push(check(&file, &settings, &registry, &sandbox, &secrets).await);
    }
    let valid = checked.iter().all(|file| file.errors() == 0);
    let answer = match args.output.is_json() {
        true => format!("{}\n", report(&checked)),
        false => draw(&checked, cli::colors(&std::io::stdout())),
    };
    cli::print(answer);
    Ok(match valid {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(USAGE),
    })
}

/// The files that arguments name; folders are walked, in order of file names.
pub fn documents(given: &[PathBuf]) -> Result<Vec<PathBuf>, Usage> {
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = in_folder(path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
        if found.is_empty() {
            let endings = ENDINGS.map(|ending| format!(".{ending}")).join(", ");
            return Err(Usage(format!("there is no document ({endings}) in {}", path.display())));
        }
        files.extend(found);
    }
    Ok(files)
}

/// The documents in a folder and below it, in order of their names. Mocks of dry runs (`order.mocks.json`) are none.
pub fn in_folder(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    walk(folder, 0, &mut files)?;
    Ok(files)
}

fn walk(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    for path in entries {
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_mocks = path
            .file_stem()
            .is_some_and(|stem| stem.as_encoded_bytes().ends_with(b".mocks"));
        if hidden || is_mocks {
            continue;
        } else if path.is_dir() {
            if depth < DEEPEST {
                walk(&path, depth + 1, files)?;
            }
        } else if ending.is_some_and(|ending| ENDINGS.contains(&ending.to_ascii_lowercase().as_str())) {
            files.push(path);
        }
    }
    Ok(())
}

/// The bytes of a document and the name to show for it; `-` is standard input.
pub fn read(path: &Path) -> Result<(Vec<u8>, String), String> {
    let (source, name) = if path == Path::new("-") {
        let mut source = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut source);
        (read.map(|_| source), "stdin".to_owned())
    } else {
        (std::fs::read(path), path.display().to_string())
    };
    match source {
        Ok(source) => Ok((source, name)),
        Err(error) => Err(format!("{name} cannot be read: {error}")),
    }
}

async fn check(path: &Path, settings: &Settings, registry: &Registry, sandbox: &Sandbox, secrets: &Secrets) -> Checked {
    let (source, name) = match read(path) {
        Ok(read) => read,
        Err(unreadable) => {
            return Checked {
                name: path.display().to_string(),
                workflow: None,
                unreadable: Some(unreadable),
                problems: None,
            };
        }
    };
    let checked = check_document(&source, &name, settings, registry, Stage::Publish, sandbox, secrets).await;
    let (workflow, problems) = match checked {
        Err(problems) => (None, Some(problems)),
        Ok((document, compiled)) => (
            Some(compiled.plan.workflow.clone()),
            Some(document.report(compiled.warnings)),
        ),
    };
    Checked {
        name,
        workflow,
        unreadable: None,
        problems,
    }
}

impl Checked {
    fn count(&self, severity: Severity) -> usize {
        let list = self.problems.iter().flat_map(Diagnostics::list);
        list.filter(|problem| problem.severity == severity).count()
    }

    fn errors(&self) -> usize {
        let errors = self.count(Severity::Error);
        // Errors are listed before warnings, so if errors are listed, the unlisted problems may be errors too.
        let unlisted = self.problems.as_ref().map_or(0, Diagnostics::more);
        errors + usize::from(self.unreadable.is_some()) + if errors > 0 { unlisted } else { 0 }
    }
}

fn draw(checked: &[Checked], color: bool) -> String {
    let mut text = String::new();
    for file in checked {
        if let Some(unreadable) = &file.unreadable {
            text.push_str(&format!("error: {unreadable}\n\n"));
        }
        if let Some(problems) = file.problems.as_ref().filter(|problems| !problems.list().is_empty()) {
            text.push_str(&problems.render(color));
            text.push('\n');
        }
    }
    text.push_str(&summary(checked));
    text.push('\n');
    text
}

/// Such as `3 files: 2 valid, 1 with 4 errors`.
fn summary(checked: &[Checked]) -> String {
    let errors: usize = checked.iter().map(Checked::errors).sum();
    let warnings: usize = checked.iter().map(|file| file.count(Severity::Warning)).sum();
    let invalid = checked.iter().filter(|file| file.errors() > 0).count();
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut text = format!("{}: {} valid", plural(checked.len(), "file"), checked.len() - invalid);
    if invalid > 0 {
        text.push_str(&format!(", {invalid} with {}", plural(errors, "error")));
    }
    if warnings > 0 {
        text.push_str(&format!(", {}", plural(warnings, "warning")));
    }
    text
}

fn report(checked: &[Checked]) -> Value {
    let file = |file: &Checked| {
        let mut entry = json!({
            "file": file.name,
            "valid": file.errors() == 0,
            "workflowId": file.workflow,
            "problems": file.problems,
            "more": file.problems.as_ref().map_or(0, Diagnostics::more),
        });
        if let Some(unreadable) = &file.unreadable {
            entry["problems"] = json!([{ "code": "UNREADABLE", "severity": "error", "message": unreadable }]);
        }
        entry
    };
    json!({
        "valid": checked.iter().all(|file| file.errors() == 0),
        "errors": checked.iter().map(Checked::errors).sum::<usize>(),
        "warnings": checked.iter().map(|file| file.count(Severity::Warning)).sum::<usize>(),
        "files": checked.iter().map(file).collect::<Vec<_>>(),
    })
}
