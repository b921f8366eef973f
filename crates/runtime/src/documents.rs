//! Checking documents, including what only the sandbox can check.

use crate::{
    clock::{Clock, SystemClock},
    sandbox::{Sandbox, SandboxError, Source},
    secrets::Secrets,
};
use fermata_dialects::{
    Catalog, Compiled, Diagnostics, Document, MAX_SHOWN, Settings, Severity, Stage, compile, past_schedules,
};

/// Parses, compiles and checks a document completely, without an engine.
///
/// # Errors
/// All problems of the document.
pub async fn check_document(
    source: &[u8],
    name: &str,
    settings: &Settings,
    catalog: &(dyn Catalog + Sync),
    stage: Stage,
    sandbox: &Sandbox,
    secrets: &Secrets,
) -> Result<(Document, Compiled), Diagnostics> {
    let document = Document::parse(source, name, &settings.document)?;
    let compiled = compile(&document, settings, catalog, stage)?;
    let mut compiled = check_uncovered(&document, compiled, stage, sandbox).await?;
    secrets.warn(&document, &mut compiled, "");
    let past = past_schedules(&document, &compiled.plan, SystemClock.now());
    compiled.warnings.extend(past);
    Ok((document, compiled))
}

/// Checks the syntax of conditions that no native parser covers, in the sandbox.
pub(crate) async fn check_uncovered(
    document: &Document,
    mut compiled: Compiled,
    stage: Stage,
    sandbox: &Sandbox,
) -> Result<Compiled, Diagnostics> {
    let mut problems = Vec::new();
    for condition in &compiled.uncovered {
        let source = Source {
            language: condition.language,
            text: &condition.source,
        };
        match sandbox.check(source).await {
            Ok(()) => continue,
            Err(SandboxError::Syntax(error)) => problems.push(condition.wrong(document, &error)),
            Err(error) => problems.push(condition.unchecked(document, stage, &error.to_string())),
        }
        if problems.len() > MAX_SHOWN {
            break;
        }
    }
    let wrong = problems.iter().any(|problem| problem.severity == Severity::Error);
    compiled.warnings.append(&mut problems);
    match wrong {
        true => Err(document.report(compiled.warnings)),
        false => Ok(compiled),
    }
}
