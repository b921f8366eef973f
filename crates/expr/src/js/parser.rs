//! Parses a condition: operators, by precedence.
//!
//! What must stay true: every step into a deeper level of the source goes through [`Parser::nested`],
//! which bounds the recursion by [`MAX_NESTING`]; every node is made by [`Parser::node`], which
//! bounds the height of the tree. Errors name the construct and its position; "not covered" is only
//! used for what a full engine could run.

use super::{
    ast::{Binary, Item, Kind, Logical, MAX_TREE, Node, Unary},
    token::{Tok, Token, not_covered, tokenize},
};
use crate::{
    MAX_NESTING,
    error::{MAX_SOURCE, Span, SyntaxError},
};

/// Parses a whole condition: one expression and perhaps one `;`.
pub(super) fn parse(source: &str) -> Result<Node, SyntaxError> {
    if source.len() > MAX_SOURCE {
        let message = format!("the source is longer than {MAX_SOURCE} bytes");
        return Err(SyntaxError::invalid(Span::new(0, 0), message));
    }
    let mut parser = Parser {
        source,
        tokens: tokenize(source)?,
        at: 0,
        nesting: 0,
        scopes: Vec::new(),
    };
    parser.statement_start()?;
    let node = parser.expression()?;
    parser.statement_end()?;
    Ok(node)
}

pub(super) struct Parser<'s> {
    pub source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    /// Parameters of the arrow functions around, innermost last.
    pub scopes: Vec<Vec<Box<str>>>,
}

/// Keywords that begin a statement.
const STATEMENTS: [&str; 17] = [
    "if", "for", "while", "do", "switch", "try", "throw", "return", "var", "let", "const", "break", "continue",
    "debugger", "with", "import", "export",
];

impl Parser<'_> {
    pub fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    /// The token `ahead` of the next one; the end repeats itself.
    pub fn peek_at(&self, ahead: usize) -> &Token {
        &self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub fn bump(&mut self) -> Token {
        let token = self.peek().clone();
        if self.at < self.tokens.len() - 1 {
            self.at += 1;
        }
        token
    }

    pub fn is(&self, punct: &str) -> bool {
        matches!(&self.peek().tok, Tok::Punct(found) if *found == punct)
    }

    pub fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        if found {
            self.at += 1;
        }
        found
    }

    pub fn expect(&mut self, punct: &str, context: &str) -> Result<Span, SyntaxError> {
        let token = self.peek();
        if self.is(punct) {
            return Ok(self.bump().span);
        }
        let found = self.describe(token);
        let message = format!("expected `{punct}` {context}, found {found}");
        Err(SyntaxError::invalid(token.span, message))
    }

    pub fn text(&self, span: Span) -> &str {
        self.source.get(span.offset as usize..span.end()).unwrap_or_default()
    }

    pub fn describe(&self, token: &Token) -> String {
        match token.tok {
            Tok::End => "the end".to_owned(),
            _ => format!("`{}`", self.text(token.span)),
        }
    }

    pub fn node(&self, kind: Kind, span: Span) -> Result<Node, SyntaxError> {
        let depth = Node::height(&kind);
        self.node_of_height(kind, span, depth)
    }

    /// A node whose height is known.
    fn node_of_height(&self, kind: Kind, span: Span, depth: u16) -> Result<Node, SyntaxError> {
        if depth > MAX_TREE {
            return Err(not_covered(
                span,
                &format!("expressions of more than {MAX_TREE} levels are"),
            ));
        }
        Ok(Node {
            kind,
            span,
            depth,
            wrapped: false,
        })
    }

    /// Runs `parse` one level deeper.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, SyntaxError>) -> Result<T, SyntaxError> {
        if self.nesting >= MAX_NESTING {
            let what = format!("more than {MAX_NESTING} levels of nesting are");
            return Err(not_covered(self.peek().span, &what));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    fn statement_start(&self) -> Result<(), SyntaxError> {
        let token = self.peek();
        match &token.tok {
            Tok::Name(name) if STATEMENTS.contains(&&**name) => {
                Err(not_covered(token.span, &format!("statements (`{name}`) are")))
            }
            Tok::Punct("{") => {
                let message = "a source that begins with `{` is a block, and statements are not \
                               covered by the native expression subset; put parentheses around an \
                               object literal";
                Err(SyntaxError::not_covered(token.span, message))
            }
            Tok::Punct(";") => Err(not_covered(token.span, "empty statements are")),
            _ => Ok(()),
        }
    }

    fn statement_end(&mut self) -> Result<(), SyntaxError> {
        let ended = self.eat(";");
        let token = self.peek().clone();
        match &token.tok {
            Tok::End => Ok(()),
            _ if ended || (token.newline && !is_closing(&token.tok)) => {
                Err(not_covered(token.span, "several statements are"))
            }
            Tok::Punct(",") => Err(not_covered(token.span, "the comma operator is")),
            Tok::Punct(":") if self.at == 1 => Err(not_covered(token.span, "labels are")),
            tok => {
                let found = self.describe(&token);
                let message = if is_closing(tok) {
                    format!("{found} closes nothing")
                } else {
                    format!("expected an operator or the end, found {found}")
                };
                Err(SyntaxError::invalid(token.span, message))
            }
        }
    }

    /// An expression without the comma operator.
    pub fn expression(&mut self) -> Result<Node, SyntaxError> {
        self.nested(|parser| {
            if let Some(arrow) = parser.arrow()? {
                return Ok(arrow);
            }
            let test = parser.binary(0)?;
            if parser.eat("?") {
                return parser.conditional(test);
            }
            parser.refuse_assignment(&test)?;
            Ok(test)
        })
    }

    fn conditional(&mut self, test: Node) -> Result<Node, SyntaxError> {
        let then = self.expression()?;
        self.expect(":", "between the branches of `? :`")?;
        let otherwise = self.expression()?;
        let span = test.span.to(otherwise.span);
        self.node(Kind::Conditional(Box::new([test, then, otherwise])), span)
    }

    fn refuse_assignment(&self, target: &Node) -> Result<(), SyntaxError> {
        let token = self.peek();
        let Tok::Punct(punct) = token.tok else {
            return Ok(());
        };
        let assigns = punct.ends_with('=') && !matches!(punct, "==" | "===" | "!=" | "!==" | "<=" | ">=");
        if !assigns {
            return Ok(());
        }
        let assignable = matches!(
            target.kind,
            Kind::Global(_) | Kind::Local { .. } | Kind::Member { .. } | Kind::Index { .. }
        );
        if !assignable {
            let message = format!("`{punct}` cannot assign to this; to compare, write `===`");
            return Err(SyntaxError::invalid(token.span, message));
        }
        let message = format!(
            "assignments (`{punct}`) are not covered by the native expression subset; to compare, \
             write `===`"
        );
        Err(SyntaxError::not_covered(token.span, message))
    }

    /// Operators of at least this precedence.
    fn binary(&mut self, least: u8) -> Result<Node, SyntaxError> {
        let mut left = self.unary()?;
        while let Some((operator, precedence)) = self.operator()? {
            if precedence < least {
                break;
            }
            let token = self.bump();
            self.expect_operand(&token)?;
            left = match operator {
                Operator::Binary(Binary::Power) => {
                    self.refuse_unary_power(&left, token.span)?;
                    // Right associative.
                    let right = self.nested(|parser| parser.binary(precedence))?;
                    self.pair(Binary::Power, left, right)?
                }
                Operator::Binary(operator) => {
                    let right = self.nested(|parser| parser.binary(precedence + 1))?;
                    self.pair(operator, left, right)?
                }
                Operator::Logical(operator) => {
                    let right = self.nested(|parser| parser.binary(precedence + 1))?;
                    self.logical(operator, left, right, token.span)?
                }
            };
        }
        Ok(left)
    }

    fn pair(&self, operator: Binary, left: Node, right: Node) -> Result<Node, SyntaxError> {
        let span = left.span.to(right.span);
        self.node(Kind::Binary(operator, Box::new(left), Box::new(right)), span)
    }

    /// Chains of one operator become one node, so that their length does not cost depth.
    fn logical(&self, operator: Logical, left: Node, right: Node, at: Span) -> Result<Node, SyntaxError> {
        for side in [&left, &right] {
            if let Kind::Logical(other, _) = &side.kind
                && (*other == Logical::Coalesce) != (operator == Logical::Coalesce)
                && !side.wrapped
            {
                let message = "`??` cannot be mixed with `||` or `&&` without parentheses";
                return Err(SyntaxError::invalid(at, message));
            }
        }
        let span = left.span.to(right.span);
        match left.kind {
            Kind::Logical(same, mut operands) if same == operator => {
                // Computing the height from all operands for each new one would make long chains quadratic.
                let depth = left.depth.max(right.depth + 1);
                operands.push(right);
                self.node_of_height(Kind::Logical(operator, operands), span, depth)
            }
            kind => {
                let left = Node { kind, ..left };
                self.node(Kind::Logical(operator, vec![left, right]), span)
            }
        }
    }

    fn refuse_unary_power(&self, base: &Node, at: Span) -> Result<(), SyntaxError> {
        if matches!(base.kind, Kind::Unary(..)) && !base.wrapped {
            let message = "the left side of `**` needs parentheses here";
            return Err(SyntaxError::invalid(at, message));
        }
        Ok(())
    }

    fn expect_operand(&self, operator: &Token) -> Result<(), SyntaxError> {
        let token = self.peek();
        let missing = match &token.tok {
            Tok::End => true,
            tok => is_closing(tok) || matches!(tok, Tok::Punct("," | ";" | ":" | "?")),
        };
        if !missing {
            return Ok(());
        }
        let operator = self.text(operator.span);
        let message = format!("expected an expression after `{operator}`");
        Err(SyntaxError::invalid(token.span, message))
    }

    fn operator(&self) -> Result<Option<(Operator, u8)>, SyntaxError> {
        let token = self.peek();
        let punct = match &token.tok {
            Tok::Punct(punct) => punct,
            Tok::Name(name) if **name == *"in" => "in",
            Tok::Name(name) if **name == *"instanceof" => {
                return Err(not_covered(token.span, "`instanceof` is"));
            }
            _ => return Ok(None),
        };
        use Binary::*;
        let (operator, precedence) = match punct {
            "??" => return Ok(Some((Operator::Logical(Logical::Coalesce), 1))),
            "||" => return Ok(Some((Operator::Logical(Logical::Or), 2))),
            "&&" => return Ok(Some((Operator::Logical(Logical::And), 3))),
            "|" => (BitOr, 4),
            "^" => (BitXor, 5),
            "&" => (BitAnd, 6),
            "==" => (Equal, 7),
            "!=" => (NotEqual, 7),
            "===" => (StrictEqual, 7),
            "!==" => (StrictNotEqual, 7),
            "<" => (Less, 8),
            "<=" => (LessEqual, 8),
            ">" => (Greater, 8),
            ">=" => (GreaterEqual, 8),
            "in" => (In, 8),
            "<<" => (ShiftLeft, 9),
            ">>" => (ShiftRight, 9),
            ">>>" => (ShiftRightUnsigned, 9),
            "+" => (Add, 10),
            "-" => (Subtract, 10),
            "*" => (Multiply, 11),
            "/" => (Divide, 11),
            "%" => (Remainder, 11),
            "**" => (Power, 12),
            _ => return Ok(None),
        };
        Ok(Some((Operator::Binary(operator), precedence)))
    }

    fn unary(&mut self) -> Result<Node, SyntaxError> {
        let token = self.peek().clone();
        let operator = match &token.tok {
            Tok::Punct("!") => Unary::Not,
            Tok::Punct("-") => Unary::Minus,
            Tok::Punct("+") => Unary::Plus,
            Tok::Punct("~") => Unary::BitNot,
            Tok::Punct(punct @ ("++" | "--")) => {
                return Err(not_covered(token.span, &format!("`{punct}` is")));
            }
            Tok::Name(name) => match &**name {
                "typeof" => Unary::TypeOf,
                "void" => Unary::Void,
                "delete" | "await" | "yield" => {
                    return Err(not_covered(token.span, &format!("`{name}` is")));
                }
                _ => return self.postfix(),
            },
            _ => return self.postfix(),
        };
        self.bump();
        self.expect_operand(&token)?;
        let operand = self.nested(Self::unary)?;
        let span = token.span.to(operand.span);
        self.node(Kind::Unary(operator, Box::new(operand)), span)
    }

    /// Items up to `close`, which is consumed.
    pub fn items(&mut self, close: &'static str) -> Result<(Vec<Item>, Span), SyntaxError> {
        let mut items = Vec::new();
        while !self.is(close) {
            if self.is(",") && close == "]" {
                return Err(not_covered(self.peek().span, "holes in arrays are"));
            }
            let spread = self.eat("...");
            let node = self.expression()?;
            items.push(Item { node, spread });
            if !self.is(close) {
                self.expect(",", &format!("or `{close}`"))?;
            }
        }
        let span = self.bump().span;
        Ok((items, span))
    }
}

enum Operator {
    Binary(Binary),
    Logical(Logical),
}

fn is_closing(tok: &Tok) -> bool {
    matches!(tok, Tok::Punct(")" | "]" | "}")) || matches!(tok, Tok::Template { head: false, .. })
}
