//! The tree of a template.
//!
//! What must stay true: chains (`??`, `&&`, `||`, member steps) are lists, so depth comes from
//! nesting in the source alone, which the parser bounds.

use serde_json::Value;

use super::function::Function;
use crate::error::Span;

#[derive(Debug)]
pub(super) enum Block {
    Text(String),
    Output(Expr),
    If {
        /// Conditions and what they show, in order.
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
    /// A name and what follows it.
    Path(String, Vec<Step>),
    /// Steps from the value of an expression in parentheses.
    Steps(Box<Expr>, Vec<Step>),
    /// The first that is neither `null` nor undefined.
    Coalesce(Vec<Expr>),
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    Compare(Comparison, Box<(Expr, Expr)>),
    Call(Function, Vec<Expr>),
}

#[derive(Debug)]
pub(super) enum Step {
    Key(String),
    Index(usize),
    Computed(Expr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// What a template needs switched on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Uses {
    pub loops: bool,
    pub functions: bool,
}
