//! The tree of a condition.
//!
//! What must stay true: names are resolved while parsing (a local by position, a built-in by
//! identity), so evaluation looks up only data. `depth` is the height of the subtree and is
//! bounded by [`MAX_TREE`], so evaluating and dropping a tree cannot overflow the stack.

use super::builtin::Builtin;
use super::method::Method;
use crate::error::Span;

/// The highest tree that is accepted. Higher than the nesting limit, because `a + b + c + …` nests
/// in the tree but not in the source.
pub(super) const MAX_TREE: u16 = 200;

/// A string in the source; wide only if it contains a lone surrogate.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Text(Box<str>),
    Wide(Box<[u16]>),
}

#[derive(Debug)]
pub(super) struct Node {
    pub kind: Kind,
    pub span: Span,
    pub depth: u16,
    /// Whether it is in parentheses, which matters for `??`, `**` and `?.`.
    pub wrapped: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Literal),
    /// A name of the scope.
    Global(Box<str>),
    /// A parameter: of the arrow function `up` levels out, the `slot`th.
    Local {
        up: u16,
        slot: u16,
    },
    Builtin(Builtin),
    Member {
        object: Box<Node>,
        name: Box<str>,
        method: Option<Method>,
        optional: bool,
    },
    Index {
        object: Box<Node>,
        key: Box<Node>,
        optional: bool,
    },
    Call {
        callee: Box<Node>,
        arguments: Vec<Item>,
        optional: bool,
    },
    /// Where the short circuit of `?.` ends.
    Chain(Box<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    /// Two or more operands of the same operator.
    Logical(Logical, Vec<Node>),
    Conditional(Box<[Node; 3]>),
    /// `texts` is one longer than `parts`.
    Template {
        texts: Vec<Literal>,
        parts: Vec<Node>,
    },
    Array(Vec<Item>),
    Object(Vec<Property>),
    Arrow(Box<Arrow>),
}

/// An argument or an element.
#[derive(Debug)]
pub(super) struct Item {
    pub node: Node,
    pub spread: bool,
}

#[derive(Debug)]
pub(super) enum Property {
    Named(Literal, Node),
    Computed(Node, Node),
    Spread(Node),
}

#[derive(Debug)]
pub(super) struct Arrow {
    pub parameters: u16,
    pub body: Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Plus,
    BitNot,
    TypeOf,
    Void,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logical {
    And,
    Or,
    Coalesce,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    StrictEqual,
    StrictNotEqual,
    In,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    ShiftRightUnsigned,
}

impl Node {
    /// The height of a tree with this root.
    pub fn height(kind: &Kind) -> u16 {
        let highest = match kind {
            Kind::Member { object, .. } => object.depth,
            Kind::Index { object, key, .. } => object.depth.max(key.depth),
            Kind::Call { callee, arguments, .. } => callee.depth.max(highest_item(arguments)),
            Kind::Chain(inner) | Kind::Unary(_, inner) => inner.depth,
            Kind::Binary(_, left, right) => left.depth.max(right.depth),
            Kind::Logical(_, nodes) | Kind::Template { parts: nodes, .. } => {
                nodes.iter().map(|node| node.depth).max().unwrap_or(0)
            }
            Kind::Conditional(nodes) => nodes.iter().map(|node| node.depth).max().unwrap_or(0),
            Kind::Array(items) => highest_item(items),
            Kind::Object(properties) => properties
                .iter()
                .map(|property| match property {
                    Property::Named(_, value) | Property::Spread(value) => value.depth,
                    Property::Computed(key, value) => key.depth.max(value.depth),
                })
                .max()
                .unwrap_or(0),
            Kind::Arrow(arrow) => arrow.body.depth,
            Kind::Undefined
            | Kind::Null
            | Kind::Bool(_)
            | Kind::Number(_)
            | Kind::Text(_)
            | Kind::Global(_)
            | Kind::Local { .. }
            | Kind::Builtin(_) => 0,
        };
        highest + 1
    }
}

fn highest_item(items: &[Item]) -> u16 {
    items.iter().map(|item| item.node.depth).max().unwrap_or(0)
}
