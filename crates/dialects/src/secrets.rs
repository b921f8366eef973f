//! The secrets that templates insert: where they may be used, and what to say about unknown ones.
//!
//! What must stay true: a secret only gets into parameters that are not recorded. Children, requests whose answer is awaited,
//! and pauses record what they get, so they have no secrets.

use crate::check::Check;
use crate::compile::Catalog;
use crate::diagnostics::{Diagnostic, MAX_SHOWN, Severity, quote};
use crate::document::Document;
use fermata_core::{Kind, Plan};
use fermata_expr::template::Template;

/// A secret, and where a template inserts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSecret {
    /// Its name.
    pub name: String,
    /// The node with the template, or the trigger whose signature is checked with it.
    pub node: String,
    /// JSON pointer to the text with it.
    pub pointer: String,
    offset: usize,
    length: usize,
}

impl NamedSecret {
    /// A secret whose name is the whole text at `pointer`.
    pub(crate) fn whole(name: &str, owner: &str, pointer: &str) -> NamedSecret {
        NamedSecret {
            name: name.to_owned(),
            node: owner.to_owned(),
            pointer: pointer.to_owned(),
            offset: 0,
            length: name.len(),
        }
    }

    /// The warning if the secret is not known. `help` says how to make it known.
    pub fn unknown(&self, document: &Document, help: &str) -> Diagnostic {
        let message = format!("the secret {} is not known here", quote(&self.name));
        let problem = Diagnostic::new(Severity::Warning, "UNKNOWN_SECRET", self.span(document), message);
        problem.at(&self.pointer).help(help)
    }

    fn span(&self, document: &Document) -> crate::source::Span {
        document.locate_in_string(&self.pointer, self.offset, self.length)
    }

    /// Whether its node may use secrets.
    pub(crate) fn is_allowed(&self, plan: &Plan, catalog: &dyn Catalog) -> bool {
        let kind = plan.find(&self.node).map(|ix| &plan.node(ix).kind);
        match kind {
            Some(Kind::Action { action, .. }) => catalog.find(action).is_none_or(|entry| entry.takes_secrets),
            Some(Kind::Sleep { .. } | Kind::Wait { .. } | Kind::Request { .. } | Kind::Pass) => false,
            None => true,
        }
    }
}

/// Notes the secrets of a template of `node`.
pub(crate) fn note(check: &mut Check, node: &str, pointer: &str, template: &Template) {
    check
        .secrets
        .extend(template.secrets().iter().map(|secret| NamedSecret {
            name: secret.name.clone(),
            node: node.to_owned(),
            pointer: pointer.to_owned(),
            offset: secret.offset,
            length: secret.length,
        }));
}

/// The errors for secrets in parameters that would be recorded.
pub(crate) fn misplaced(
    document: &Document,
    secrets: &[NamedSecret],
    plan: &Plan,
    catalog: &dyn Catalog,
) -> Vec<Diagnostic> {
    let wrong = secrets.iter().filter(|secret| !secret.is_allowed(plan, catalog));
    let problem = |secret: &NamedSecret| {
        let (node, name) = (quote(&secret.node), quote(&secret.name));
        let message = format!("node {node} cannot use the secret {name}: what it gets is recorded");
        let problem = Diagnostic::error("SECRET_NOT_ALLOWED", secret.span(document), message);
        problem
            .at(&secret.pointer)
            .help("use secrets only in requests whose response is the result, such as `http.request`")
    };
    wrong.map(problem).take(MAX_SHOWN + 1).collect()
}
