//! Nodes that send requests to services, of all dialects: to a registered callback, or to a URL.

use crate::diagnostics::{Diagnostic, Severity, quote};
use crate::document::Document;
use fermata_core::{Kind, Plan};
use serde_json::Value;

/// The action that sends requests and waits for their answers.
const CALLBACK: &str = "callback";

/// The diagnostic and failure of a callback that is not registered.
const NOT_REGISTERED: &str = fermata_core::code::CALLBACK_NOT_REGISTERED;

/// A request to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackReference {
    /// The node that sends it.
    pub node: String,
    /// The registered callback; `None` for a URL in the document.
    pub id: Option<String>,
    /// The position of the node in the plan and in the document.
    at: usize,
}

/// The services that a plan sends requests to.
pub fn callbacks(plan: &Plan) -> Vec<CallbackReference> {
    let reference = |(at, node): (usize, &fermata_core::Node)| {
        let (Kind::Request { action, parameters, .. } | Kind::Action { action, parameters }) = &node.kind else {
            return None;
        };
        let text = |name: &str| parameters.get(name).and_then(Value::as_str).map(str::to_owned);
        let id = text("callback_id");
        (action == CALLBACK && (id.is_some() || text("url").is_some())).then(|| CallbackReference {
            node: node.id.to_string(),
            id,
            at,
        })
    };
    plan.nodes.iter().enumerate().filter_map(reference).collect()
}

impl CallbackReference {
    /// The diagnostic if no callback has this id.
    pub fn not_registered(&self, document: &Document) -> Diagnostic {
        let id = quote(self.id.as_deref().unwrap_or_default());
        let message = format!(
            "node {} names the callback {id}, which is not registered",
            quote(&self.node)
        );
        self.diagnostic(document, "callback_id", message)
            .help("register it with `POST /api/v1/callbacks/register`, then publish again")
    }

    /// The diagnostic of a URL, if only registered callbacks are allowed.
    pub fn plain_url(&self, document: &Document) -> Diagnostic {
        let message = format!(
            "node {} sends its request to a URL, and only registered callbacks are allowed",
            quote(&self.node)
        );
        self.diagnostic(document, "url", message)
            .help("register the URL as a callback and name it with `callback_id`; see `callbacks.require_registered`")
    }

    /// The field is in the config of the executor, or in the callback of a condition.
    fn diagnostic(&self, document: &Document, field: &str, message: String) -> Diagnostic {
        let value = document.value();
        let edges = value.get("edges").and_then(Value::as_array).map_or(0, Vec::len);
        let of_edges = (0..edges).filter(|edge| {
            let from = value.pointer(&format!("/edges/{edge}/from"));
            from.and_then(Value::as_str) == Some(&self.node)
        });
        let in_executor = format!("/nodes/{}/executor/config/{field}", self.at);
        let pointers = of_edges.map(|edge| format!("/edges/{edge}/condition/callback/{field}"));
        let mut pointers = pointers.chain([in_executor]);
        let pointer = pointers.find(|pointer| value.pointer(pointer).is_some());
        let pointer = pointer.unwrap_or_else(|| format!("/nodes/{}", self.at));
        Diagnostic::new(Severity::Error, NOT_REGISTERED, document.locate(&pointer), message).at(pointer)
    }
}
