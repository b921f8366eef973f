//! From a document of any dialect to a plan: what is asked for, what comes back, and the list of
//! dialects.

use crate::dataworkflows;
use crate::diagnostics::{Diagnostic, Diagnostics, Severity, quote};
use crate::document::{Dialect, Document, DocumentLimits};
use crate::nearest::nearest;
use crate::runlater;
use crate::tree::join;
use fermata_core::plan::{ContextPolicy, Templates};
use fermata_core::{Plan, Policies};
use fermata_expr::{SyntaxError, nearest, template};
use serde_json::Value;

/// A document that compiled.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// What the engine runs.
    pub plan: Plan,
    /// What the document says about itself.
    pub description: Option<String>,
    /// Whether the document wants new runs to start.
    pub enabled: bool,
    /// What somebody should look at. Draw it with [`Document::report`].
    pub warnings: Vec<Diagnostic>,
    /// Conditions whose syntax was not checked, because only a full JavaScript engine can.
    pub uncovered: Vec<Uncovered>,
}

/// A condition that the native subset does not cover. Whether it is JavaScript at all is for another engine to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// JSON pointer to the condition.
    pub pointer: String,
    /// The node it belongs to.
    pub node: String,
    /// The condition.
    pub source: String,
}

impl Uncovered {
    /// What to say if the condition is no JavaScript: the same as of conditions that were checked here.
    pub fn wrong(&self, document: &Document, error: &SyntaxError) -> Diagnostic {
        let what = format!("invalid condition in node {}", quote(&self.node));
        let span = document.locate_in_string(&self.pointer, error.offset, error.length);
        Diagnostic::error("CONDITION_SYNTAX", span, format!("{what}: {}", error.message)).at(&self.pointer)
    }

    /// What to say if nobody could tell: nothing is known to be wrong, but it cannot be published like this.
    pub fn unchecked(&self, document: &Document, stage: Stage, why: &str) -> Diagnostic {
        let what = format!("a condition of node {} could not be checked: {why}", quote(&self.node));
        let span = document.locate(&self.pointer);
        Diagnostic::new(stage.readiness(), "CONDITION_UNCHECKED", span, what).at(&self.pointer)
    }
}

/// What the document is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// To be kept as a draft: actions that are not there yet are warned about.
    Save,
    /// To become a version: they are errors.
    Publish,
    /// To be run: as for publishing.
    Run,
    /// A version that was published before plans were stored: what keeps new documents from being published is no
    /// reason to refuse it.
    Settle,
}

impl Stage {
    /// How bad it is what keeps a workflow from running, but not from being saved.
    pub(crate) fn readiness(self) -> Severity {
        match self {
            Stage::Save | Stage::Settle => Severity::Warning,
            Stage::Publish | Stage::Run => Severity::Error,
        }
    }
}

/// The actions there are.
pub trait Catalog {
    /// The action of this type, such as `http.request`.
    fn find(&self, action: &str) -> Option<CatalogEntry>;

    /// All action types, to suggest one of them.
    fn names(&self) -> Vec<String>;
}

/// What the catalog says about an action.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogEntry {
    /// Whether it may be used.
    pub enabled: bool,
    /// Why it should not be used any more, and what to use instead.
    pub deprecation: Option<String>,
    /// JSON Schema of its parameters.
    pub parameter_schema: Option<Value>,
}

impl Default for CatalogEntry {
    fn default() -> Self {
        CatalogEntry {
            enabled: true,
            deprecation: None,
            parameter_schema: None,
        }
    }
}

/// A catalog that has every action, for checks of the document alone.
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

/// The most bytes of an id: of a workflow, and of a node. Control characters are not allowed in either.
pub const MAX_ID_BYTES: usize = 255;

/// What the engine is configured to. The default is what the specification says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a document may cost to read; for callers of [`Document::parse`].
    pub document: DocumentLimits,
    /// Nodes a workflow may have.
    pub max_nodes: usize,
    /// Whether ids that not every database can store are refused ([`MAX_ID_BYTES`]).
    pub check_ids: bool,
    /// Time limit and retries of nodes that do not say.
    pub policies: Policies,
    /// How long a run may take, parked time included, if the document does not say. One that sleeps or waits may take 30
    /// days at least.
    pub workflow_timeout_ms: Option<u64>,
    /// What is kept of the context, if the document does not say.
    pub context: ContextPolicy,
    /// What templates may use.
    pub templates: template::Options,
    /// Whether templates are rendered once, with placeholders for what is not known yet.
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
            validate_parameter_templates: false,
        }
    }
}

impl Settings {
    /// The same for a version that was published before: limits count when a document is saved and published, not when it
    /// runs.
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

    /// What the templates of a version may do for all its life.
    pub(crate) fn template_rules(&self) -> Templates {
        Templates {
            strict: self.templates.strict,
            null_text: self.templates.null_text.clone(),
            loops: self.templates.loops,
            functions: self.templates.functions,
            places: Vec::new(),
        }
    }
}

/// Compiles `document`, or reports everything that is wrong with it.
pub fn compile(
    document: &Document,
    settings: &Settings,
    catalog: &dyn Catalog,
    stage: Stage,
) -> Result<Compiled, Diagnostics> {
    match document.dialect() {
        Some(Dialect::DataWorkflows) => dataworkflows::compile(document, settings, catalog, stage),
        Some(Dialect::Runlater) => runlater::compile(document, settings, catalog, stage),
        Some(dialect @ (Dialect::Jsondagapi | Dialect::EngineJs)) => {
            let name = dialect.name();
            let message = format!("this is a {name} document; this version of Fermata does not run the {name} dialect");
            let pointer = format!("/{}", dialect.mark());
            let error = Diagnostic::error("DIALECT_NOT_SUPPORTED", document.locate_key(&pointer), message);
            let help = "write the workflow in the DataWorkflows or the Runlater dialect";
            Err(document.report(vec![error.at(pointer).help(help)]))
        }
        None => Err(unknown_dialect(document)),
    }
}

/// The keys that identify a dialect that can be run.
const DIALECT_KEYS: &str =
    "a DataWorkflows document has `startNode` and `nodes`; a Runlater document has `name` and `tasks`";

/// Names the keys that identify a dialect, and the key that was probably meant to be one of them.
fn unknown_dialect(document: &Document) -> Diagnostics {
    let Some(members) = document.value().as_object() else {
        let message = "a workflow document must be an object with keys and values";
        let error = Diagnostic::error("UNKNOWN_DIALECT", document.locate(""), message);
        return document.report(vec![error.help(DIALECT_KEYS)]);
    };
    let message = "the dialect cannot be recognised: the top level has neither `startNode` nor `tasks`";
    let marks = [Dialect::DataWorkflows, Dialect::Runlater].map(Dialect::mark);
    let misspelled = |key: &String| nearest(key, marks).map(|mark| (key.clone(), mark));
    let error = match members.keys().find_map(misspelled) {
        Some((key, mark)) => {
            let pointer = join("", &key);
            let error = Diagnostic::error("UNKNOWN_DIALECT", document.locate_key(&pointer), message);
            error.at(pointer).did_you_mean(Some(mark))
        }
        None if members.contains_key("nodes") => {
            let error = Diagnostic::error("UNKNOWN_DIALECT", document.locate_key("/nodes"), message);
            error
                .at("/nodes")
                .help("a DataWorkflows document with `nodes` also needs `startNode`, the id of its first node")
        }
        None => Diagnostic::error("UNKNOWN_DIALECT", document.locate(""), message).help(DIALECT_KEYS),
    };
    document.report(vec![error])
}
