//! Compiles a document of any dialect: the settings, the result, and the list of dialects.

use crate::dataworkflows;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, quote};
use crate::document::{Dialect, Document, DocumentLimits};
use crate::jsondagapi;
use crate::runlater;
use crate::secrets::NamedSecret;
use crate::tree::join;
use fermata_core::plan::{ContextPolicy, Templates};
use fermata_core::{Plan, Policies};
use fermata_expr::{SandboxLanguage, SyntaxError, nearest, template};
use serde_json::Value;

/// A document that compiled.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What the engine runs.
    pub plan: Plan,
    /// The `description` of the document.
    pub description: Option<String>,
    /// The `enabled` of the document: whether new runs may start.
    pub enabled: bool,
    /// Warnings. [`Document::report`] renders them.
    pub warnings: Vec<Diagnostic>,
    /// Conditions whose syntax only the sandbox can check.
    pub uncovered: Vec<Uncovered>,
    /// The secrets that templates insert, wherever they do, and those that signatures of webhooks are checked with.
    pub secrets: Vec<NamedSecret>,
}

/// A condition that no native parser covers: JavaScript beyond the subset, or CEL. The sandbox must check its syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// JSON pointer to the condition.
    pub pointer: String,
    /// The node it belongs to.
    pub node: String,
    /// Its language.
    pub language: SandboxLanguage,
    /// The source, in its language.
    pub source: String,
}

impl Uncovered {
    /// The diagnostic if the condition is not valid, with the code of conditions that are checked here.
    pub fn wrong(&self, document: &Document, error: &SyntaxError) -> Diagnostic {
        let what = format!("invalid condition in node {}", quote(&self.node));
        let span = document.locate_in_string(&self.pointer, error.offset, error.length);
        Diagnostic::error("CONDITION_SYNTAX", span, format!("{what}: {}", error.message)).at(&self.pointer)
    }

    /// The diagnostic if no engine could check it. The condition may be valid, but the document cannot be published.
    pub fn unchecked(&self, document: &Document, stage: Stage, why: &str) -> Diagnostic {
        let what = format!("a condition of node {} could not be checked: {why}", quote(&self.node));
        let span = document.locate(&self.pointer);
        Diagnostic::new(stage.readiness(), "CONDITION_UNCHECKED", span, what).at(&self.pointer)
    }
}

/// What the document is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// To save a draft: unknown actions are warnings.
    Save,
    /// To publish a version: unknown actions are errors.
    Publish,
    /// To run: the same checks as for publishing.
    Run,
    /// To compile a version that was published before plans were stored. Problems that prevent publishing are warnings.
    Settle,
}

impl Stage {
    /// The severity of problems that prevent running, but not saving.
    pub(crate) fn readiness(self) -> Severity {
        match self {
            Stage::Save | Stage::Settle => Severity::Warning,
            Stage::Publish | Stage::Run => Severity::Error,
        }
    }
}

/// The actions that documents can use.
pub trait Catalog {
    /// The action of this type, such as `http.request`.
    fn find(&self, action: &str) -> Option<CatalogEntry>;

    /// All action types, to suggest one of them.
    fn names(&self) -> Vec<String>;
}

/// An action of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// Whether it may be used.
    pub enabled: bool,
    /// For a deprecated action: why, and what to use instead.
    pub deprecation: Option<String>,
    /// JSON Schema of its parameters.
    pub parameter_schema: Option<Value>,
    /// Whether its parameters may contain secrets.
    pub takes_secrets: bool,
}

impl Default for CatalogEntry {
    fn default() -> Self {
        CatalogEntry {
            enabled: true,
            deprecation: None,
            parameter_schema: None,
            takes_secrets: true,
        }
    }
}

/// A catalog that accepts every action, to check only the document.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyAction;

impl Catalog for AnyAction {
    fn find(&self, _action: &str) -> Option<CatalogEntry> {
        Some(CatalogEntry::default())
    }

    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The longest id of a workflow or a node, in bytes. Control characters are not allowed in ids.
pub const MAX_ID_BYTES: usize = 255;

/// Limits and defaults of the engine. `Default` has the values of the specification.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits for reading a document; for callers of [`Document::parse`].
    pub document: DocumentLimits,
    /// The most nodes of a workflow.
    pub max_nodes: usize,
    /// Whether ids are refused that some databases cannot store ([`MAX_ID_BYTES`]).
    pub check_ids: bool,
    /// The default timeout and retries of nodes.
    pub policies: Policies,
    /// The default time limit of a run, parked time included. For a workflow that sleeps or waits it is at least 30 days.
    pub workflow_timeout_ms: Option<u64>,
    /// The default of what is kept of the context.
    pub context: ContextPolicy,
    /// What templates may use.
    pub templates: template::Options,
    /// Whether JSONLogic may use only the operators of the jsondagapi specification.
    pub strict_operators: bool,
    /// Whether a workflow may start itself, directly or through others.
    pub allow_recursion: bool,
    /// The most items of a node that starts one child for each item of a list.
    pub max_items: u32,
    /// Whether requests to services may go to registered callbacks only. Checked when a workflow is published and when the
    /// request is sent.
    pub require_registered_callbacks: bool,
    /// Whether templates are rendered once with placeholders, as a check.
    pub validate_parameter_templates: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            document: DocumentLimits::default(),
            max_nodes: 1000,
            check_ids: true,
            policies: Policies::default(),
            workflow_timeout_ms: Some(60 * 60 * 1000),
            context: ContextPolicy::default(),
            templates: template::Options::default(),
            strict_operators: true,
            allow_recursion: false,
            max_items: 10_000,
            require_registered_callbacks: false,
            validate_parameter_templates: false,
        }
    }
}

impl Settings {
    /// The settings for a version that is already published: limits apply when a document is saved and published, not when
    /// it runs.
    pub fn for_published(&self) -> Settings {
        Settings {
            document: DocumentLimits {
                max_bytes: usize::MAX,
                max_values: usize::MAX,
                max_depth: self.document.max_depth,
            },
            max_nodes: usize::MAX,
            check_ids: false,
            templates: template::Options {
                loops: true,
                functions: true,
                ..self.templates.clone()
            },
            ..self.clone()
        }
    }

    /// The template options that a version keeps.
    pub(crate) fn template_rules(&self) -> Templates {
        Templates {
            strict: self.templates.strict,
            null_text: self.templates.null_text.clone(),
            loops: self.templates.loops,
            functions: self.templates.functions,
            places: Vec::new(),
            secrets: Vec::new(),
        }
    }
}

/// Compiles `document`, or reports all of its errors.
pub fn compile(
    document: &Document,
    settings: &Settings,
    catalog: &dyn Catalog,
    stage: Stage,
) -> Result<Compiled, Diagnostics> {
    match document.dialect() {
        Some(Dialect::DataWorkflows) => dataworkflows::compile(document, settings, catalog, stage),
        Some(Dialect::Runlater) => runlater::compile(document, settings, catalog, stage),
        Some(Dialect::Jsondagapi) => jsondagapi::compile(document, settings, catalog, stage),
        Some(dialect @ Dialect::EngineJs) => {
            let name = dialect.name();
            let message = format!("this document is in the {name} dialect, which this version of Fermata cannot run");
            let pointer = format!("/{}", dialect.mark());
            let error = Diagnostic::error("DIALECT_NOT_SUPPORTED", document.locate_key(&pointer), message);
            let help = "write the workflow in the DataWorkflows, the Runlater or the jsondagapi dialect";
            Err(document.report(vec![error.at(pointer).help(help)]))
        }
        None => Err(document.report(vec![unknown_dialect(document)])),
    }
}

/// A document without the key that identifies its dialect.
fn unknown_dialect(document: &Document) -> Diagnostic {
    let help = "write `startNode` and `nodes` for a DataWorkflows document, `tasks` for a Runlater document, or `workflow_id`, `nodes` and `edges` for a jsondagapi document";
    let error = |message: String| Diagnostic::error("UNKNOWN_DIALECT", document.locate(""), message);
    let Some(members) = document.value().as_object() else {
        return error("a workflow document must be an object".to_owned()).help(help);
    };
    let misspelled = [Dialect::DataWorkflows, Dialect::Runlater, Dialect::Jsondagapi]
        .into_iter()
        .find_map(|dialect| {
            let key = nearest(dialect.mark(), members.keys().map(String::as_str))?;
            Some((dialect.mark(), key))
        });
    if let Some((mark, key)) = misspelled {
        let pointer = join("", key);
        let mut problem = error(format!("{} is not the key of a known dialect", quote(key)));
        problem.span = document.locate_key(&pointer);
        return problem.at(pointer).did_you_mean(Some(mark));
    }
    let message = "the dialect of this document is unknown: it has no `startNode`, no `tasks` and no `workflow_id` at its top level";
    error(message.to_owned()).help(help)
}

/// A whole number as JSON Schema defines it: `1000`, and also `1e3`. A number above the maximum counts as
/// the maximum.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number: f64 = value.as_number()?.as_str().parse().ok()?;
        (number >= 0.0).then_some(number as u64)
    })
}
