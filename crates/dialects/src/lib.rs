//! Compiles documents of all dialects into plans, or reports diagnostics with positions.
//!
//! [`Document::parse`] reads JSON (with comments) or YAML and records the position of every value.
//! [`compile`] compiles a document into a [`Plan`](fermata_core::Plan), or reports all of its
//! problems at once. A dialect is one module, such as [`dataworkflows`] or [`jsondagapi`], and one line
//! in [`compile`]. The other crates do not depend on dialects.
//!
//! ```
//! use fermata_dialects::{AnyAction, Document, DocumentLimits, Settings, Stage, compile};
//!
//! let source = br#"{ "id": "hello", "displayName": "Hello", "startNode": "greet", "nodes": [
//!   { "id": "greet", "actionType": "core.echo", "edges": [{ "targetNode": "gret" }] } ] }"#;
//! let document = Document::parse(source, "hello.json", &DocumentLimits::default()).unwrap();
//! let problems = compile(&document, &Settings::default(), &AnyAction, Stage::Save).unwrap_err();
//! assert_eq!(problems.list()[0].code, "UNKNOWN_NODE");
//! assert_eq!(problems.list()[0].suggestion.as_deref(), Some("did you mean `greet`?"));
//! ```
//!
//! What must stay true: no input makes this crate panic or exhaust the stack or the memory; every
//! problem has a position in the source; the same document always gets the same result.

mod callback;
mod check;
mod child;
mod compile;
pub mod dataworkflows;
mod diagnostics;
mod document;
mod explain;
mod flow;
mod for_each;
mod graph;
mod http_request;
pub mod inspect;
mod json;
pub mod jsondagapi;
mod labels;
mod render;
pub mod runlater;
mod secrets;
mod source;
mod structure;
mod tree;
mod trigger_schema;
mod triggers;
mod yaml;

pub use callback::{CallbackReference, callbacks};
pub use child::{ChildReference, children};
pub use compile::{AnyAction, Catalog, CatalogEntry, Compiled, MAX_ID_BYTES, Settings, Stage, Uncovered, compile};
pub use diagnostics::{Diagnostic, Diagnostics, MAX_SHOWN, Related, Severity};
pub use document::{Dialect, Document, DocumentLimits, Format};
pub use secrets::NamedSecret;
pub use source::{Position, Span};
pub use triggers::past_schedules;
