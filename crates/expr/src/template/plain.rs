//! Templates whose expressions are plain paths.
//!
//! What must stay true: a tag is `{{`, blanks, one path, blanks, `}}`. There are no strip marks, no
//! escapes and no literals, so a tag ends at the first `}}`.

use super::ast::{Block, Expr, Kind, Parsed, Uses};
use crate::{
    error::{Span, SyntaxError},
    paths,
};

/// The content of a tag, for messages.
const ALLOWED: &str = "a template is one path between `{{` and `}}`, such as `{{tasks.charge.body.id}}`";

pub(super) fn parse(source: &str) -> Result<Parsed, SyntaxError> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(open) = source[at..].find("{{").map(|found| at + found) {
        if open > at {
            blocks.push(Block::Text(source[at..open].to_owned()));
        }
        let inside = open + 2;
        let Some(length) = source[inside..].find("}}") else {
            let message = "this `{{` is not closed: `}}` is missing";
            return Err(SyntaxError::invalid(Span::new(open, inside), message));
        };
        at = inside + length;
        blocks.push(Block::Output(expression(source, inside, at)?));
        at += 2;
    }
    if at < source.len() {
        blocks.push(Block::Text(source[at..].to_owned()));
    }
    Ok(Parsed::new(source, blocks, Uses::default()))
}

/// The path between `start` and `end`, which must be the only thing there.
fn expression(source: &str, start: usize, end: usize) -> Result<Expr, SyntaxError> {
    let start = paths::skip_blanks(source, start);
    let inner = &source[..end];
    if start >= end {
        return Err(SyntaxError::invalid(
            Span::new(end, end + 2),
            format!("the path is missing; {ALLOWED}"),
        ));
    }
    let (segments, after) = paths::path(inner, start)?;
    let rest = paths::skip_blanks(inner, after);
    if rest < end {
        return Err(paths::unexpected(inner, rest, ALLOWED));
    }
    Ok(Expr {
        kind: Kind::Plain(segments),
        span: Span::new(start, after),
    })
}
