//! The tree of a template.
//!
//! What must stay true: chains (`??`, `&&`, `||`, member steps) are lists, so depth comes from
//! nesting in the source alone, which the parser bounds.

use serde_json::Value;

use super::function::Function;
use crate::{compare::Operator, data::Segment, error::Span};

/// A parsed template.
pub(super) struct Parsed {
    pub blocks: Vec<Block>,
    /// Whether the source is exactly one expression.
    pub typed: bool,
    pub uses: Uses,
}

impl Parsed {
    pub fn new(source: &str, blocks: Vec<Block>, uses: Uses) -> Self {
        let typed = matches!(&blocks[..], [Block::Output(_)]) && source.starts_with("{{") && source.ends_with("}}");
        Self { blocks, typed, uses }
    }
}

#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Output(Expr),
    /// A reference to the secret of this name.
    Secret(String),
    If {
        /// Conditions and their blocks, in order.
        branches: Vec<(Expr, Vec<Block>)>,
        otherwise: Vec<Block>,
    },
    For {
        name: String,
        list: Expr,
        body: Vec<Block>,
    },
}

#[derive(Debug)]
pub(super) struct Expr {
    pub kind: Kind,
    pub span: Span,
}

#[derive(Debug)]
pub(super) enum Kind {
    Literal(Value),
    /// A plain path: its result is exactly the value at the path.
    Plain(Vec<Segment>),
    /// A name and the steps after it.
    Path(String, Vec<Step>),
    /// Steps from the value of an expression in parentheses.
    Steps(Box<Expr>, Vec<Step>),
    /// The first that is neither `null` nor undefined.
    Coalesce(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Compare(Operator, Box<(Expr, Expr)>),
    Call(Function, Vec<Expr>),
}

#[derive(Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
    Computed(Expr),
}

/// The options that a template needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub loops: bool,
    pub functions: bool,
}
