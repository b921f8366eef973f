//! Templates: the Scriban subset of parameters and documents, strict and typed.
//!
//! A template is text with `{{ expression }}` in it. An expression is a member path (`a.b`, `a['b-c']`, `a[0]`,
//! `a[b.c]`, `.length`/`.size` of arrays and strings), a literal, a choice (`a ?? b`), or one of
//! these in parentheses. [`Options`] switch on blocks (`if`, `for`, with comparisons and `&& || !`)
//! and functions (pipes). `{{-`, `-}}`, `{{~`, `~}}` strip white space as in Scriban;
//! `{%{ … }%}` is copied unchanged.
//!
//! With [`Syntax::Paths`] an expression is exactly one plain path: `{{tasks.charge.body.id}}`.
//!
//! What must stay true:
//!
//! * Rendering never parses its own output: data is copied, whatever it contains.
//! * A string that is exactly one `{{ expression }}` becomes the value itself, with its type and
//!   its exact number; in longer text the value is written out.
//! * `{{ secrets.NAME }}` renders as itself; [`Rendered`] knows where it is ([`secrets`]).
//! * Undefined is an error in strict mode, except on the left of `??`.

mod ast;
mod compare;
mod function;
mod lexer;
mod missing;
mod output;
mod parser;
mod place;
mod plain;
mod reads;
mod render;
mod secrets;
mod value;

#[cfg(test)]
mod tests;

use std::time::Duration;

use serde_json::Value;

use crate::{
    data::{Data, ReadPath},
    error::{EvalError, SyntaxError},
};
use render::Renderer;

pub use place::Place;
pub use secrets::{ROOT as SECRETS, Rendered, SecretReference, SecretUse, is_secret_name};
pub use value::ValueTemplate;

/// The syntax of the expressions in templates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Syntax {
    /// The Scriban subset.
    #[default]
    Scriban,
    /// An expression is exactly one path of [`paths`](crate::paths), and always strict: a path that does not
    /// exist, and `null` in longer text, is an error.
    Paths,
}

/// Options of templates. The default has the values of the specification for parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Whether reading a path that does not exist is an error; otherwise it is `null`.
    pub strict: bool,
    /// What `null` becomes inside longer text.
    pub null_text: String,
    /// Whether the blocks `if` and `for` are allowed, and with them comparisons and `&& || !`.
    pub loops: bool,
    /// Whether functions and pipes are allowed.
    pub functions: bool,
    /// Whether `{{ secrets.NAME }}` is a reference to a secret; otherwise `secrets` is a name like any other.
    pub secrets: bool,
    /// The syntax of expressions.
    pub syntax: Syntax,
    /// How long rendering may take.
    pub timeout: Duration,
    /// The longest output, in bytes of JSON.
    pub max_output_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            strict: true,
            null_text: String::new(),
            loops: false,
            functions: false,
            secrets: true,
            syntax: Syntax::default(),
            timeout: Duration::from_secs(2),
            max_output_bytes: 10 * 1024 * 1024,
        }
    }
}

/// A parsed template: one string.
///
/// ```
/// use fermata_expr::{Data, template::{Options, Template}};
///
/// let trigger = serde_json::json!({ "items": [1, 2], "name": "{{ not read }}" });
/// let scope = Data::object([("trigger", Data::Json(&trigger))]);
/// let options = Options::default();
/// let typed = Template::parse("{{ trigger.items }}", &options)?;
/// assert_eq!(typed.render(&scope, &options)?, serde_json::json!([1, 2]));
/// let text = Template::parse("{{ trigger.name }}: {{ trigger.items.length }}", &options)?;
/// assert_eq!(text.render(&scope, &options)?, "{{ not read }}: 2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Template {
    source: String,
    blocks: Vec<ast::Block>,
    /// Whether the source is exactly one expression.
    typed: bool,
    uses: ast::Uses,
    reads: Vec<ReadPath>,
    secrets: Vec<SecretUse>,
    place: Place,
}

impl Template {
    /// Parses one string.
    ///
    /// # Errors
    /// The source is not a template, or uses something that the options disable.
    pub fn parse(source: &str, options: &Options) -> Result<Self, SyntaxError> {
        let mut parsed = parser::parse(source, options)?;
        let secrets = match options.secrets {
            true => secrets::extract(&mut parsed)?,
            false => Vec::new(),
        };
        Ok(Self {
            source: source.to_owned(),
            secrets,
            reads: reads::reads(&parsed.blocks),
            blocks: parsed.blocks,
            typed: parsed.typed,
            uses: parsed.uses,
            place: Place::Any,
        })
    }

    /// The source as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The paths of the scope that the template may read, sorted, each once.
    pub fn reads(&self) -> &[ReadPath] {
        &self.reads
    }

    /// The secrets that the template inserts.
    pub fn secrets(&self) -> &[SecretUse] {
        &self.secrets
    }

    /// Whether the output does not depend on any data.
    pub fn is_literal(&self) -> bool {
        self.blocks.iter().all(|block| matches!(block, ast::Block::Text(_)))
    }

    /// The text of a template that is literal.
    fn literal(&self) -> Value {
        let texts = self.blocks.iter().map(|block| match block {
            ast::Block::Text(text) => text.as_str(),
            _ => "",
        });
        Value::String(texts.collect())
    }

    /// The value for this scope. Secrets are references in it.
    ///
    /// # Errors
    /// A path is not defined (in strict mode), a value has the wrong type, or a limit was reached.
    pub fn render(&self, scope: &Data<'_>, options: &Options) -> Result<Value, EvalError> {
        Renderer::new(scope, options).template(self)
    }
}
