//! Secrets in templates. `{{ secrets.NAME }}` inserts a *reference*: the rendered text has `{{ secrets.NAME }}` at its place,
//! and [`Rendered`] remembers the position. Only a caller that has the values replaces the references ([`Rendered::resolve`]).
//!
//! What must stay true:
//!
//! * A reference is a position that the parser found in the template. Data that contains `{{ secrets.NAME }}` is only text.
//! * A template cannot do anything with a secret but insert it: no function, comparison, choice or index reads it. So the
//!   rendered value does not depend on any secret.

use super::{
    Place,
    ast::{Block, Expr, Kind, Parsed, Step},
    place::in_url,
};
use crate::{
    data::Segment,
    error::{Span, SyntaxError},
};
use serde_json::Value;
use std::ops::Range;

/// The root name of secrets in templates.
pub const ROOT: &str = "secrets";
/// The longest name of a secret, in bytes.
const LONGEST_NAME: usize = 128;
const HOW: &str = "a template can only insert a secret: write `{{ secrets.NAME }}`";

/// A secret that a template inserts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretUse {
    /// The name of the secret.
    pub name: String,
    /// The position of the expression in the template, in bytes.
    pub offset: usize,
    /// The length of the expression, in bytes.
    pub length: usize,
}

/// Whether a secret can have this name: letters, digits and `_`, not beginning with a digit.
pub fn is_secret_name(name: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= LONGEST_NAME
        && name.chars().all(in_name)
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// Turns the expressions that read a secret into references, and refuses every other use of a secret.
pub(super) fn extract(parsed: &mut Parsed) -> Result<Vec<SecretUse>, SyntaxError> {
    let mut found = Vec::new();
    blocks(&mut parsed.blocks, &mut found)?;
    Ok(found)
}

fn blocks(list: &mut [Block], found: &mut Vec<SecretUse>) -> Result<(), SyntaxError> {
    for block in list {
        match block {
            Block::Text(_) | Block::Secret(_) => {}
            Block::Output(expression) => match path_to_secret(&expression.kind) {
                Some(path) => {
                    let name = name_of(path, expression.span)?;
                    found.push(SecretUse {
                        name: name.clone(),
                        offset: expression.span.offset as usize,
                        length: expression.span.end() - expression.span.offset as usize,
                    });
                    *block = Block::Secret(name);
                }
                None => without_secrets(expression)?,
            },
            Block::If { branches, otherwise } => {
                for (test, body) in branches {
                    without_secrets(test)?;
                    blocks(body, found)?;
                }
                blocks(otherwise, found)?;
            }
            Block::For { name, list, body } => {
                without_secrets(list)?;
                if name == ROOT {
                    let message = "the variable of a `for` block cannot be called `secrets`";
                    return Err(SyntaxError::invalid(list.span, message));
                }
                blocks(body, found)?;
            }
        }
    }
    Ok(())
}

/// The names after `secrets`, if the whole expression is such a path. A step that is not a name is `None`.
fn path_to_secret<'k>(kind: &'k Kind) -> Option<Vec<Option<&'k str>>> {
    match kind {
        Kind::Path(root, steps) if root == ROOT => {
            let name = |step: &'k Step| match step {
                Step::Key(key) => Some(key.as_str()),
                Step::Index(_) | Step::Computed(_) => None,
            };
            Some(steps.iter().map(name).collect())
        }
        Kind::Plain(segments) if is_root(segments) => {
            let name = |segment: &'k Segment| match segment {
                Segment::Key(key) => Some(key.as_str()),
                Segment::Index(_) => None,
            };
            Some(segments[1..].iter().map(name).collect())
        }
        _ => None,
    }
}

fn name_of(path: Vec<Option<&str>>, span: Span) -> Result<String, SyntaxError> {
    match path.as_slice() {
        [Some(name)] if is_secret_name(name) => Ok((*name).to_owned()),
        [Some(name)] => {
            let name = name.escape_debug();
            let message = format!("`{name}` cannot be the name of a secret: a name has letters, digits and `_`");
            Err(SyntaxError::invalid(span, message))
        }
        _ => Err(SyntaxError::invalid(span, HOW)),
    }
}

fn is_root(segments: &[Segment]) -> bool {
    matches!(segments.first(), Some(Segment::Key(root)) if root == ROOT)
}

/// Refuses an expression that reads a secret in any other way.
fn without_secrets(expression: &Expr) -> Result<(), SyntaxError> {
    let refused = || Err(SyntaxError::invalid(expression.span, HOW));
    let steps_without = |steps: &[Step]| {
        steps.iter().try_for_each(|step| match step {
            Step::Computed(key) => without_secrets(key),
            Step::Key(_) | Step::Index(_) => Ok(()),
        })
    };
    match &expression.kind {
        Kind::Literal(_) => Ok(()),
        Kind::Plain(segments) if is_root(segments) => refused(),
        Kind::Plain(_) => Ok(()),
        Kind::Path(root, _) if root == ROOT => refused(),
        Kind::Path(_, steps) => steps_without(steps),
        Kind::Steps(base, steps) => {
            without_secrets(base)?;
            steps_without(steps)
        }
        Kind::Coalesce(operands) | Kind::And(operands) | Kind::Or(operands) | Kind::Call(_, operands) => {
            operands.iter().try_for_each(without_secrets)
        }
        Kind::Not(operand) => without_secrets(operand),
        Kind::Compare(_, sides) => {
            without_secrets(&sides.0)?;
            without_secrets(&sides.1)
        }
    }
}

/// The text of a reference in rendered values.
pub(super) fn reference_text(name: &str) -> String {
    format!("{{{{ {ROOT}.{name} }}}}")
}

/// The position of a reference in a rendered value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretReference {
    /// The name of the secret.
    pub name: String,
    /// JSON pointer to the string inside the value.
    pub(super) pointer: String,
    /// The bytes of the string that the secret replaces.
    pub(super) range: Range<usize>,
    pub(super) place: Place,
}

/// A rendered value. Where secrets belong it has their references as text, so it can be recorded and shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    /// The value.
    pub value: Value,
    /// Where secrets belong, in the order of the value.
    pub(super) references: Vec<SecretReference>,
}

impl From<Value> for Rendered {
    fn from(value: Value) -> Rendered {
        let references = Vec::new();
        Rendered { value, references }
    }
}

impl Rendered {
    /// Whether secrets belong into the value.
    pub fn has_secrets(&self) -> bool {
        !self.references.is_empty()
    }

    /// The names of the secrets, sorted, each once.
    pub fn secret_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .references
            .iter()
            .map(|reference| reference.name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The value with the secrets in their places. In a URL they are encoded like other values. The secrets may add at most
    /// `max_bytes` bytes.
    ///
    /// # Errors
    /// What cannot be done, without the value of any secret.
    pub fn resolve<'s>(mut self, max_bytes: usize, find: impl Fn(&str) -> Option<&'s str>) -> Result<Value, String> {
        let mut left = max_bytes;
        for references in self.references.chunk_by(|one, other| one.pointer == other.pointer) {
            let Some(Value::String(text)) = self.value.pointer_mut(&references[0].pointer) else {
                unreachable!("a reference is the position of a string");
            };
            let mut resolved = String::new();
            let mut copied = 0;
            for reference in references {
                resolved.push_str(&text[copied..reference.range.start]);
                copied = reference.range.end;
                let name = &reference.name;
                let secret = find(name).ok_or_else(|| format!("the secret `{name}` is unknown"))?;
                left = left
                    .checked_sub(secret.len())
                    .ok_or_else(|| format!("the secrets in the parameters are longer than {max_bytes} bytes"))?;
                match reference.place {
                    Place::Url => {
                        let encoded = in_url(&resolved, 0, secret);
                        resolved.push_str(&encoded.map_err(|why| format!("{} {why}", reference_text(name)))?);
                    }
                    Place::Any | Place::Text => resolved.push_str(secret),
                }
            }
            resolved.push_str(&text[copied..]);
            *text = resolved;
        }
        Ok(self.value)
    }
}

#[cfg(test)]
mod tests;
