//! A parsed document: source, format, dialect, value, and the position of every value.
//!
//! Parsing never panics and never exhausts the stack or the memory, whatever the input: size, depth
//! and number of values are limited before anything is built.

use crate::diagnostics::{Diagnostic, Diagnostics, quote};
use crate::jsondagapi::version::{self, TooSmall};
use crate::source::{BOM, Source, Span};
use crate::tree::{self, Located, Shape};
use crate::{json, yaml};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Limits of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DocumentLimits {
    /// Its size.
    pub max_bytes: usize,
    /// Levels of nesting. serde_json reads at most 127, and a document may be embedded in other values.
    pub max_depth: usize,
    /// The number of values, with YAML aliases expanded.
    pub max_values: usize,
}

impl Default for DocumentLimits {
    fn default() -> Self {
        DocumentLimits {
            max_bytes: 5 * 1024 * 1024,
            max_depth: 100,
            max_values: 1_000_000,
        }
    }
}

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    /// JSON, comments and trailing commas allowed.
    Json,
    /// YAML 1.2.
    Yaml,
}

/// The workflow languages that are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Dialect {
    /// Nodes that carry their edges; has `startNode`.
    DataWorkflows,
    /// Named tasks with `needs`; has `tasks`.
    Runlater,
    /// Lists of nodes and edges; has `workflow_id` and `nodes` or `edges`.
    Jsondagapi,
    /// Triggers and steps; has `steps`.
    EngineJs,
}

impl Dialect {
    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::DataWorkflows => "DataWorkflows",
            Dialect::Runlater => "Runlater",
            Dialect::Jsondagapi => "jsondagapi",
            Dialect::EngineJs => "EngineJS",
        }
    }

    /// The dialect of this name, in any case.
    pub fn parse(name: &str) -> Option<Dialect> {
        let all = [
            Dialect::DataWorkflows,
            Dialect::Runlater,
            Dialect::Jsondagapi,
            Dialect::EngineJs,
        ];
        all.into_iter()
            .find(|dialect| dialect.name().eq_ignore_ascii_case(name))
    }

    /// Whether saved documents are drafts that must be published. Documents of other dialects are published at once.
    pub fn has_drafts(self) -> bool {
        match self {
            Dialect::DataWorkflows => true,
            Dialect::Runlater | Dialect::Jsondagapi | Dialect::EngineJs => false,
        }
    }

    /// The key of a document that holds the id of its workflow.
    pub fn id_key(self) -> &'static str {
        match self {
            Dialect::DataWorkflows => "id",
            Dialect::Runlater | Dialect::EngineJs => "name",
            Dialect::Jsondagapi => "workflow_id",
        }
    }

    /// The version that a document has by its own account; only in dialects whose documents have one.
    pub fn version_of(self, document: &Value) -> Option<&str> {
        match self {
            Dialect::Jsondagapi => document.get("version")?.as_str(),
            Dialect::DataWorkflows | Dialect::Runlater | Dialect::EngineJs => None,
        }
    }

    /// Checks that the version of a changed document is high enough.
    ///
    /// # Errors
    /// It is too low.
    pub fn check_revision(self, old: &Value, new: &Value) -> Result<(), TooSmall> {
        match self {
            Dialect::Jsondagapi => version::check(old, new),
            Dialect::DataWorkflows | Dialect::Runlater | Dialect::EngineJs => Ok(()),
        }
    }

    /// The key that identifies the dialect.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Dialect::DataWorkflows => "startNode",
            Dialect::Runlater => "tasks",
            Dialect::Jsondagapi => "workflow_id",
            Dialect::EngineJs => "steps",
        }
    }

    /// Recognises the dialect of a document by its keys.
    pub fn recognise(value: &Value) -> Option<Dialect> {
        let has = |key: &str| value.get(key).is_some();
        if has("startNode") {
            Some(Dialect::DataWorkflows)
        } else if has("tasks") {
            Some(Dialect::Runlater)
        } else if has("workflow_id") && (has("edges") || has("nodes")) {
            Some(Dialect::Jsondagapi)
        } else if has("steps") {
            Some(Dialect::EngineJs)
        } else {
            None
        }
    }
}

/// A parsed document.
///
/// ```
/// use fermata_dialects::{Document, DocumentLimits};
///
/// let document = Document::parse(b"{\n  \"a\": [1, true] // why\n}", "x.jsonc", &DocumentLimits::default()).unwrap();
/// let span = document.locate("/a/1");
/// assert_eq!(&document.source()[span.start..span.end], b"true");
/// assert_eq!(document.canonical_json(), r#"{"a":[1,true]}"#);
/// ```
#[derive(Debug, Clone)]
pub struct Document {
    source: Arc<Source>,
    format: Format,
    dialect: Option<Dialect>,
    located: Located,
}

impl Document {
    /// Parses `source`. `name` is the file name, or `request`. Diagnostics show it, and its extension
    /// decides the format if it is a known one.
    pub fn parse(source: &[u8], name: &str, limits: &DocumentLimits) -> Result<Document, Diagnostics> {
        let text = read_text(source, name, limits)?;
        let source = Arc::new(Source::new(name, text));
        let base = if source.text.starts_with(BOM) { BOM.len() } else { 0 };
        let format = format_of(&source.text[base..], name);
        let outcome = match format {
            Format::Json => json::parse(&source.text, base, limits),
            Format::Yaml => yaml::parse(&source.text[base..], base, limits),
        };
        match outcome {
            Ok(located) => Ok(Document {
                dialect: Dialect::recognise(&located.value),
                source,
                format,
                located,
            }),
            Err(problems) => Err(Diagnostics::new(source, problems)),
        }
    }

    /// The file name, or `request`.
    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The source.
    pub fn source(&self) -> &[u8] {
        self.source.text.as_bytes()
    }

    /// The format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The dialect, if it was recognised.
    pub fn dialect(&self) -> Option<Dialect> {
        self.dialect
    }

    /// Its value.
    pub fn value(&self) -> &Value {
        &self.located.value
    }

    /// The position of the value at a JSON pointer. For a value that does not exist: the nearest
    /// container that does.
    pub fn locate(&self, pointer: &str) -> Span {
        self.nearest(pointer).0
    }

    /// The position of the key of the value at a JSON pointer, or of the value if it has no key.
    pub fn locate_key(&self, pointer: &str) -> Span {
        let (span, key) = self.nearest(pointer);
        key.unwrap_or(span)
    }

    fn nearest(&self, pointer: &str) -> (Span, Option<Span>) {
        let mut pointer = pointer;
        loop {
            match (self.located.tree.find(pointer), pointer.rfind('/')) {
                (Some((tree, key)), _) => return (tree.span, key),
                (None, Some(end)) => pointer = &pointer[..end],
                (None, None) => return (self.located.tree.span, None),
            }
        }
    }

    /// The position in the source of `length` bytes from `offset` of the string at a JSON pointer, taking
    /// escapes and folded lines into account; the whole string if it cannot be determined.
    pub fn locate_in_string(&self, pointer: &str, offset: usize, length: usize) -> Span {
        let whole = self.locate(pointer);
        let found = self.located.tree.find(pointer);
        let (Some(text), Some((tree, _))) = (self.value().pointer(pointer).and_then(Value::as_str), found) else {
            return whole;
        };
        let Shape::Scalar(style) = tree.shape else { return whole };
        let Some(raw) = self.source.text.get(whole.start..whole.end) else {
            return whole;
        };
        let offset = text.floor_char_boundary(offset);
        let end = text.ceil_char_boundary(offset.saturating_add(length).min(text.len()));
        let place = |offset| tree::offset_in_raw(style, raw, text, offset).map(|at| whole.start + at);
        match (place(offset), place(end)) {
            (Some(start), Some(end)) => Span::new(start, end.max(start)),
            (Some(start), None) => Span::new(start, start),
            _ => whole,
        }
    }

    /// A canonical form: the same value always has the same bytes. Keys are sorted, there is no white space,
    /// and numbers keep their text.
    pub fn canonical_json(&self) -> String {
        let mut out = String::new();
        canonical(self.value(), &mut out);
        out
    }

    /// The SHA-256 of [`canonical_json`](Self::canonical_json), in lower-case hexadecimal.
    pub fn checksum(&self) -> String {
        let digest = Sha256::digest(self.canonical_json().as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Diagnostics of this document, ready to be rendered.
    pub fn report(&self, list: Vec<Diagnostic>) -> Diagnostics {
        Diagnostics::new(self.source.clone(), list)
    }

    pub(crate) fn report_with_more(&self, list: Vec<Diagnostic>, dropped: usize) -> Diagnostics {
        Diagnostics::with_more(self.source.clone(), list, dropped)
    }
}

fn read_text(source: &[u8], name: &str, limits: &DocumentLimits) -> Result<String, Diagnostics> {
    if source.len() > limits.max_bytes {
        let (size, most) = (source.len(), limits.max_bytes);
        let message = format!("the document has {size} bytes; at most {most} are allowed");
        let error = Diagnostic::error("DOCUMENT_TOO_LARGE", Span::default(), message);
        return Err(Diagnostics::new(
            Arc::new(Source::new(name, String::new())),
            vec![error],
        ));
    }
    match std::str::from_utf8(source) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => {
            let at = error.valid_up_to();
            let message = format!(
                "the document is not UTF-8: the byte at offset {at} ({:#04x}) is invalid",
                source[at]
            );
            let error = Diagnostic::error("NOT_UTF8", Span::new(at, at + '\u{fffd}'.len_utf8()), message)
                .help("save the file as UTF-8");
            let text = String::from_utf8_lossy(source).into_owned();
            Err(Diagnostics::new(Arc::new(Source::new(name, text)), vec![error]))
        }
    }
}

fn format_of(text: &str, name: &str) -> Format {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    match ending.as_deref() {
        Some("json" | "jsonc") => Format::Json,
        Some("yaml" | "yml") => Format::Yaml,
        _ if skip_comments(text).starts_with('{') => Format::Json,
        _ => Format::Yaml,
    }
}

/// The text after leading white space and JSON comments.
fn skip_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        let end = if text.starts_with("//") {
            text.find('\n')
        } else if let Some(comment) = text.strip_prefix("/*") {
            comment.find("*/").map(|end| end + 4)
        } else {
            return text;
        };
        match end {
            Some(end) => text = &text[end..],
            None => return "",
        }
    }
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                canonical(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(value, out);
            }
            out.push('}');
        }
        // Numbers keep their text: templates write the digits, so 2.0 and 2 are different documents.
        _ => out.push_str(&value.to_string()),
    }
}

/// The remaining budget of values and bytes of a document.
pub(crate) struct Budget {
    values: usize,
    bytes: usize,
    max_values: usize,
    max_bytes: usize,
}

impl Budget {
    pub(crate) fn new(limits: &DocumentLimits) -> Budget {
        let (max_values, max_bytes) = (limits.max_values, limits.max_bytes);
        Budget {
            values: max_values,
            bytes: max_bytes,
            max_values,
            max_bytes,
        }
    }

    pub(crate) fn take(&mut self, values: usize, bytes: usize) -> Result<(), String> {
        if values > self.values {
            return Err(format!("the document has more than {} values", self.max_values));
        }
        if bytes > self.bytes {
            return Err(format!(
                "with its aliases expanded, the document has more than {} bytes",
                self.max_bytes
            ));
        }
        self.values -= values;
        self.bytes -= bytes;
        Ok(())
    }
}

pub(crate) fn too_deep(span: Span, max_depth: usize) -> Diagnostic {
    let message = format!("the document is nested more than {max_depth} levels deep");
    Diagnostic::error("TOO_DEEP", Span::new(span.start, span.end.max(span.start + 1)), message)
}

/// Whether serde_json uses this key internally: a value with it could not be read back.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with("$serde_json::private::")
}

pub(crate) fn reserved_key(name: &str, key: Span) -> Diagnostic {
    let message = format!("the key {} is reserved", quote(name));
    Diagnostic::error("INVALID_KEY", key, message).help("rename it")
}

pub(crate) fn duplicate_key(name: &str, key: Span, first: Option<Span>, pointer: &str) -> Diagnostic {
    let message = format!("the key {} occurs twice", quote(name));
    let error = Diagnostic::error("DUPLICATE_KEY", key, message).at(pointer);
    match first {
        Some(first) => error
            .related("it first occurs here", first)
            .help("remove or rename one of them"),
        None => error,
    }
}
