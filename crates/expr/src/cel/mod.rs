//! CEL expressions before they reach the sandbox: limits, and the data they read.
//!
//! CEL is parsed and evaluated only in the sandbox. Parsers of CEL recurse over the source, so a long chain of operators or
//! deep nesting can overflow the stack. This module scans the source once, without recursion, and refuses what is too long,
//! nests too deeply or chains too many operators, before anything is sent. It does not check the syntax: the sandbox does.
//!
//! What must stay true: the scan may find more reads than there are (the variables of `all` or `map` look like names of the
//! data), but never fewer.

mod scan;

#[cfg(test)]
mod tests;

use crate::{
    data::{ReadPath, Segment, merge_reads},
    error::{Span, SyntaxError},
};
use scan::{Scanner, Token};

/// The longest source, in bytes.
pub const MAX_SOURCE: usize = 1024;
/// The deepest nesting of parentheses, brackets and braces.
pub const MAX_NESTING: usize = 40;
/// The most operators and selections (`a + b`, `!a`, `a ? b : c`, `a.b`): a chain of them is as deep as it is long.
pub const MAX_OPERATORS: usize = 128;
/// How deeply comprehensions (`all`, `exists`, `exists_one`, `map`, `filter`) may nest: each level multiplies the work.
pub const MAX_COMPREHENSIONS: usize = 3;

/// The name of the whole data, for keys that may be missing: `has(state.score)`.
pub const STATE: &str = "state";

const COMPREHENSIONS: [&str; 9] = [
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "transformList",
    "transformMap",
    "transformMapEntry",
];

/// A source within the limits. Its syntax is not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    source: String,
    reads: Vec<ReadPath>,
}

impl Expression {
    /// Checks the limits of a source.
    ///
    /// # Errors
    /// A limit is exceeded, or a bracket is not closed.
    pub fn parse(source: &str) -> Result<Expression, SyntaxError> {
        if source.len() > MAX_SOURCE {
            let message = format!("the expression has {} bytes; {MAX_SOURCE} are allowed", source.len());
            return Err(SyntaxError::invalid(Span::new(MAX_SOURCE, source.len()), message));
        }
        if source.trim().is_empty() {
            return Err(SyntaxError::invalid(Span::default(), "the expression is empty"));
        }
        let tokens: Vec<(Token<'_>, Span)> = Scanner::new(source).collect();
        limits(&tokens)?;
        Ok(Expression {
            source: source.to_owned(),
            reads: reads(&tokens),
        })
    }

    /// The source as it was given.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The paths of the data that the expression may read, sorted, each once. A path without steps is the whole data.
    pub fn reads(&self) -> &[ReadPath] {
        &self.reads
    }
}

fn limits(tokens: &[(Token<'_>, Span)]) -> Result<(), SyntaxError> {
    // The open brackets: whether each one belongs to a comprehension, and where it is.
    let mut open: Vec<(char, bool, Span)> = Vec::new();
    let mut operators = 0;
    for (at, (token, span)) in tokens.iter().enumerate() {
        let before = |steps: usize| at.checked_sub(steps).map(|at| tokens[at].0);
        match *token {
            Token::Open(bracket) => {
                let name = before(1).filter(|_| before(2) == Some(Token::Dot));
                let comprehension = matches!(name, Some(Token::Name(name)) if COMPREHENSIONS.contains(&name));
                open.push((bracket, bracket == '(' && comprehension, *span));
                // An index or a call.
                operators += usize::from(before(1).is_some_and(Token::ends_operand));
                if open.len() > MAX_NESTING {
                    let message = format!("brackets nest deeper than {MAX_NESTING} levels");
                    return Err(SyntaxError::invalid(*span, message));
                }
                if open.iter().filter(|(_, comprehension, _)| *comprehension).count() > MAX_COMPREHENSIONS {
                    let message = format!("comprehensions nest deeper than {MAX_COMPREHENSIONS} levels");
                    return Err(SyntaxError::invalid(*span, message));
                }
            }
            Token::Close(bracket) => match open.pop() {
                Some((opened, ..)) if closes(opened, bracket) => {}
                _ => return Err(SyntaxError::invalid(*span, format!("`{bracket}` closes nothing"))),
            },
            Token::Operator | Token::Dot | Token::Name("in") => operators += 1,
            Token::Unclosed => return Err(SyntaxError::invalid(*span, "the string is not closed")),
            Token::Name(_) | Token::Literal | Token::Separator => {}
        }
        if operators > MAX_OPERATORS {
            let message = format!("the expression has more than {MAX_OPERATORS} operators and selections");
            return Err(SyntaxError::invalid(*span, message));
        }
    }
    match open.pop() {
        Some((bracket, _, span)) => Err(SyntaxError::invalid(span, format!("`{bracket}` is not closed"))),
        None => Ok(()),
    }
}

fn closes(opened: char, closed: char) -> bool {
    matches!((opened, closed), ('(', ')') | ('[', ']') | ('{', '}'))
}

/// The names of the data in a source, with the members that follow: `order.items` of `order.items.size() > 0`.
fn reads(tokens: &[(Token<'_>, Span)]) -> Vec<ReadPath> {
    let token = |at: usize| tokens.get(at).map(|(token, _)| *token);
    let mut reads = Vec::new();
    for (at, (name, _)) in tokens.iter().enumerate() {
        let Token::Name(name) = *name else { continue };
        let before = |steps: usize| at.checked_sub(steps).and_then(token);
        // A dot after an operand selects a member. Any other dot begins an absolute name.
        let selected = before(1) == Some(Token::Dot) && before(2).is_some_and(|token| token.ends_operand());
        let called = token(at + 1) == Some(Token::Open('('));
        if selected || called || matches!(name, "true" | "false" | "null" | "in") {
            continue;
        }
        let mut segments = vec![Segment::Key(name.to_owned())];
        let mut next = at + 1;
        while let (Some(Token::Dot), Some(Token::Name(member))) = (token(next), token(next + 1)) {
            if token(next + 2) == Some(Token::Open('(')) {
                break;
            }
            segments.push(Segment::Key(member.to_owned()));
            next += 2;
        }
        if name == STATE {
            reads.push(path(&segments[1..]));
        }
        reads.push(path(&segments));
    }
    match reads.iter().any(|read| read.segments.is_empty()) {
        true => vec![path(&[])],
        false => merge_reads(reads),
    }
}

fn path(segments: &[Segment]) -> ReadPath {
    ReadPath {
        segments: segments.to_vec(),
        open: segments.is_empty(),
    }
}
