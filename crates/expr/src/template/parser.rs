//! Parses a template: blocks first, then the expression in each tag.
//!
//! What must stay true: [`Parser::nested`] bounds every recursion by [`MAX_NESTING`]. Constructs of
//! Scriban that the subset does not have are refused by name and position.

use serde_json::Value;

use super::{
    Options, Syntax,
    ast::{Block, Expr, Kind, Parsed, Step, Uses},
    function::Function,
    lexer::{Piece, Tok, Token, pieces},
    plain,
};
use crate::{
    MAX_NESTING,
    compare::Operator,
    error::{MAX_SOURCE, Span, SyntaxError},
};

pub(super) fn parse(source: &str, options: &Options) -> Result<Parsed, SyntaxError> {
    if source.len() > MAX_SOURCE {
        let message = format!("the template is longer than {MAX_SOURCE} bytes");
        return Err(SyntaxError::invalid(Span::new(0, 0), message));
    }
    if options.syntax == Syntax::Paths {
        return plain::parse(source);
    }
    let pieces = pieces(source)?;
    let mut parser = Parser {
        source,
        options,
        pieces: pieces.into_iter(),
        tokens: Vec::new(),
        at: 0,
        nesting: 0,
        uses: Uses::default(),
    };
    let (blocks, end) = parser.blocks()?;
    if let Some((keyword, span)) = end {
        let message = format!("`{keyword}` without an `if` or `for` before it");
        return Err(SyntaxError::invalid(span, message));
    }
    Ok(Parsed::new(source, blocks, parser.uses))
}

struct Parser<'s> {
    source: &'s str,
    options: &'s Options,
    pieces: std::vec::IntoIter<Piece>,
    /// The tokens of the current tag.
    tokens: Vec<Token>,
    at: usize,
    nesting: usize,
    uses: Uses,
}

/// A tag that ends or divides a block: `else` or `end`.
type BlockEnd = Option<(&'static str, Span)>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn bump(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn is(&self, punct: &str) -> bool {
        matches!(&self.peek().tok, Tok::Punct(found) if *found == punct)
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        self.at += usize::from(found);
        found
    }

    fn keyword(&self) -> Option<&str> {
        match &self.peek().tok {
            Tok::Name(name) => Some(name),
            _ => None,
        }
    }

    fn describe(&self, token: &Token) -> String {
        match token.tok {
            Tok::End => "the end of the tag".to_owned(),
            _ => {
                let range = token.span.offset as usize..token.span.end();
                format!("`{}`", self.source.get(range).unwrap_or_default())
            }
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T, SyntaxError> {
        let token = self.peek();
        let message = format!("expected {what}, found {}", self.describe(token));
        Err(SyntaxError::invalid(token.span, message))
    }

    fn expect(&mut self, punct: &str) -> Result<Span, SyntaxError> {
        if self.is(punct) {
            return Ok(self.bump().span);
        }
        self.expected(&format!("`{punct}`"))
    }

    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, SyntaxError>) -> Result<T, SyntaxError> {
        if self.nesting >= MAX_NESTING {
            let span = self.tokens.get(self.at).map_or(Span::new(0, 0), |t| t.span);
            let message = format!("more than {MAX_NESTING} levels of nesting");
            return Err(SyntaxError::not_covered(span, message));
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    /// Blocks up to `else`, `end` or the end of the template.
    fn blocks(&mut self) -> Result<(Vec<Block>, BlockEnd), SyntaxError> {
        let mut blocks = Vec::new();
        while let Some(piece) = self.pieces.next() {
            let (tokens, span) = match piece {
                Piece::Text(text) => {
                    blocks.push(Block::Text(text));
                    continue;
                }
                Piece::Tag(tokens, span) => (tokens, span),
            };
            self.tokens = tokens;
            self.at = 0;
            let block = match self.keyword() {
                Some("else") => {
                    self.bump();
                    return Ok((blocks, Some(("else", span))));
                }
                Some("end") => {
                    self.bump();
                    self.tag_end()?;
                    return Ok((blocks, Some(("end", span))));
                }
                Some("if") => self.nested(|parser| parser.if_block(span))?,
                Some("for") => self.nested(|parser| parser.for_block(span))?,
                _ => {
                    let expression = self.pipeline()?;
                    self.tag_end()?;
                    Block::Output(expression)
                }
            };
            blocks.push(block);
        }
        Ok((blocks, None))
    }

    fn require_loops(&mut self, span: Span, what: &str) -> Result<(), SyntaxError> {
        self.uses.loops = true;
        if self.options.loops {
            return Ok(());
        }
        let message = format!("{what} disabled: `templates.enable_loops` in the configuration enables them");
        Err(SyntaxError::not_covered(span, message))
    }

    fn require_functions(&mut self, span: Span) -> Result<(), SyntaxError> {
        self.uses.functions = true;
        if self.options.functions {
            return Ok(());
        }
        let message =
            "functions and pipes are disabled: `templates.enable_functions` in the configuration enables them";
        Err(SyntaxError::not_covered(span, message))
    }

    fn if_block(&mut self, span: Span) -> Result<Block, SyntaxError> {
        let keyword = self.bump();
        self.require_loops(keyword.span, "`if` blocks are")?;
        let mut branches = Vec::new();
        let mut otherwise = Vec::new();
        let mut test = Some(self.pipeline()?);
        self.tag_end()?;
        loop {
            let (body, end) = self.blocks()?;
            let last = test.is_none();
            match test.take() {
                Some(test) => branches.push((test, body)),
                None => otherwise = body,
            }
            match end {
                Some(("end", _)) => return Ok(Block::If { branches, otherwise }),
                Some((_, at)) if last => {
                    let message = "a second `else` is not allowed";
                    return Err(SyntaxError::invalid(at, message));
                }
                Some(_) if self.keyword() == Some("if") => {
                    self.bump();
                    test = Some(self.pipeline()?);
                    self.tag_end()?;
                }
                Some(_) => self.tag_end()?,
                None => return Err(unclosed("if", span)),
            }
        }
    }

    fn for_block(&mut self, span: Span) -> Result<Block, SyntaxError> {
        let keyword = self.bump();
        self.require_loops(keyword.span, "`for` blocks are")?;
        let Tok::Name(name) = self.peek().tok.clone() else {
            return self.expected("a name after `for`");
        };
        self.bump();
        if self.keyword() != Some("in") {
            return self.expected("`in`");
        }
        self.bump();
        let list = self.pipeline()?;
        self.tag_end()?;
        let (body, end) = self.blocks()?;
        match end {
            Some(("end", _)) => Ok(Block::For { name, list, body }),
            Some((_, at)) => Err(SyntaxError::not_covered(at, "`else` is not supported in `for` blocks")),
            None => Err(unclosed("for", span)),
        }
    }

    /// Refuses anything before the end of the tag, and names what it is if it is known.
    fn tag_end(&self) -> Result<(), SyntaxError> {
        let token = self.peek();
        let what = match &token.tok {
            Tok::End => return Ok(()),
            Tok::Punct("=" | "++" | "--") => "assignments are",
            Tok::Punct("+" | "-" | "*" | "/") => "arithmetic is",
            Tok::Punct("?") => "the operator `? :` is",
            Tok::Punct(";") => "several statements in one tag are",
            Tok::Punct("{") => "objects are",
            Tok::Punct("?.") => "`?.` is",
            Tok::Name(_) | Tok::Literal(_) | Tok::Punct("(") => "functions of this name are",
            _ => return self.expected("an operator or `}}`"),
        };
        let message = format!("{what} not supported in templates");
        Err(SyntaxError::not_covered(token.span, message))
    }

    /// An expression and the functions it is piped through.
    fn pipeline(&mut self) -> Result<Expr, SyntaxError> {
        self.nested(|parser| {
            let mut value = parser.coalesce()?;
            let mut pipes = 0;
            while parser.is("|") || parser.is("|>") {
                let pipe = parser.bump().span;
                parser.require_functions(pipe)?;
                pipes += 1;
                if pipes > MAX_NESTING {
                    return Err(SyntaxError::not_covered(pipe, "too many pipes"));
                }
                let Some((function, span)) = parser.function() else {
                    return parser.expected("the name of a function after `|`");
                };
                value = parser.call(function, span, Some(value))?;
            }
            Ok(value)
        })
    }

    /// The function whose name is next, if there is one; consumes it.
    fn function(&mut self) -> Option<(Function, Span)> {
        let name = |at: usize| match self.tokens.get(at).map(|token| &token.tok) {
            Some(Tok::Name(name)) => Some(name.as_str()),
            _ => None,
        };
        let dot = |at: usize| matches!(self.tokens.get(at).map(|token| &token.tok), Some(Tok::Punct(".")));
        let first = name(self.at)?;
        let start = self.peek().span;
        if dot(self.at + 1) {
            let function = Function::from_name(Some(first), name(self.at + 2)?)?;
            let span = start.to(self.tokens.get(self.at + 2)?.span);
            self.at += 3;
            return Some((function, span));
        }
        let function = Function::from_name(None, first)?;
        self.at += 1;
        Some((function, start))
    }

    fn call(&mut self, function: Function, name: Span, piped: Option<Expr>) -> Result<Expr, SyntaxError> {
        self.require_functions(name)?;
        let mut arguments: Vec<Expr> = piped.into_iter().collect();
        let mut span = arguments.first().map_or(name, |first| first.span.to(name));
        while matches!(self.peek().tok, Tok::Name(_) | Tok::Literal(_) | Tok::Punct("(")) {
            let argument = self.nested(Self::postfix)?;
            span = span.to(argument.span);
            arguments.push(argument);
        }
        if arguments.len() != function.arity() {
            let message = format!(
                "this function takes {} argument(s), not {}",
                function.arity(),
                arguments.len()
            );
            return Err(SyntaxError::invalid(name, message));
        }
        Ok(Expr {
            kind: Kind::Call(function, arguments),
            span,
        })
    }

    fn coalesce(&mut self) -> Result<Expr, SyntaxError> {
        self.chain(&["??"], Kind::Coalesce, Self::or)
    }

    fn or(&mut self) -> Result<Expr, SyntaxError> {
        self.chain(&["||"], Kind::Or, Self::and)
    }

    fn and(&mut self) -> Result<Expr, SyntaxError> {
        self.chain(&["&&"], Kind::And, Self::comparison)
    }

    /// Operands of one operator, as one node.
    fn chain(
        &mut self,
        operators: &[&str],
        make: fn(Vec<Expr>) -> Kind,
        operand: fn(&mut Self) -> Result<Expr, SyntaxError>,
    ) -> Result<Expr, SyntaxError> {
        let first = operand(self)?;
        let mut operands = vec![first];
        while operators.iter().any(|operator| self.is(operator)) {
            let token = self.bump();
            if token.tok != Tok::Punct("??") {
                self.require_loops(token.span, "`&&` and `||` are")?;
            }
            operands.push(operand(self)?);
        }
        match operands.len() {
            1 => Ok(operands.remove(0)),
            last => {
                let span = operands[0].span.to(operands[last - 1].span);
                Ok(Expr {
                    kind: make(operands),
                    span,
                })
            }
        }
    }

    fn comparison(&mut self) -> Result<Expr, SyntaxError> {
        let left = self.unary()?;
        let Tok::Punct(punct) = self.peek().tok else {
            return Ok(left);
        };
        let Some(operator) = Operator::from_sign(punct) else {
            return Ok(left);
        };
        let sign = self.bump().span;
        self.require_loops(sign, "comparisons are")?;
        let right = self.unary()?;
        let span = left.span.to(right.span);
        Ok(Expr {
            kind: Kind::Compare(operator, Box::new((left, right))),
            span,
        })
    }

    fn unary(&mut self) -> Result<Expr, SyntaxError> {
        if !self.is("!") {
            return self.postfix();
        }
        let operator = self.bump().span;
        self.require_loops(operator, "`!` is")?;
        let operand = self.nested(Self::unary)?;
        let span = operator.to(operand.span);
        Ok(Expr {
            kind: Kind::Not(Box::new(operand)),
            span,
        })
    }

    /// A primary expression and the steps after it.
    fn postfix(&mut self) -> Result<Expr, SyntaxError> {
        let token = self.peek().clone();
        match token.tok {
            Tok::Name(name) => self.named(name, token.span),
            Tok::Literal(value) => {
                self.bump();
                Ok(Expr {
                    kind: Kind::Literal(value),
                    span: token.span,
                })
            }
            Tok::Punct("(") => {
                self.bump();
                let inner = self.pipeline()?;
                let close = self.expect(")")?;
                let (steps, end) = self.steps(close)?;
                if steps.is_empty() {
                    let span = token.span.to(close);
                    return Ok(Expr { span, ..inner });
                }
                Ok(Expr {
                    kind: Kind::Steps(Box::new(inner), steps),
                    span: token.span.to(end),
                })
            }
            Tok::Punct("{") => Err(not_supported(token.span, "objects are")),
            Tok::Punct("[") => Err(not_supported(token.span, "arrays are")),
            Tok::Punct("+" | "-" | "*" | "/") => Err(not_supported(token.span, "arithmetic is")),
            _ => self.expected("an expression"),
        }
    }

    fn named(&mut self, name: String, start: Span) -> Result<Expr, SyntaxError> {
        let literal = match name.as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            "func" | "ret" | "do" => return Err(not_supported(start, "custom functions are")),
            "include" | "include_join" | "import" => {
                return Err(not_supported(start, &format!("`{name}` is")));
            }
            "capture" | "with" | "wrap" | "case" | "when" | "while" | "tablerow" | "break" | "continue"
            | "readonly" | "this" | "empty" | "in" | "for" | "if" | "else" | "end" => {
                return Err(not_supported(start, &format!("`{name}` here is")));
            }
            _ => None,
        };
        if let Some(value) = literal {
            self.bump();
            return Ok(Expr {
                kind: Kind::Literal(value),
                span: start,
            });
        }
        if let Some((function, span)) = self.function() {
            return self.call(function, span, None);
        }
        self.bump();
        let (steps, end) = self.steps(start)?;
        Ok(Expr {
            kind: Kind::Path(name, steps),
            span: start.to(end),
        })
    }

    /// `.name`, `[0]`, `['name']`, `[expression]`, and where the last one ends.
    fn steps(&mut self, start: Span) -> Result<(Vec<Step>, Span), SyntaxError> {
        let mut steps = Vec::new();
        let mut end = start;
        loop {
            if self.eat(".") {
                let Tok::Name(name) = self.peek().tok.clone() else {
                    return self.expected("a name after `.`");
                };
                end = self.bump().span;
                steps.push(Step::Key(name));
            } else if self.eat("[") {
                let key = self.pipeline()?;
                end = self.expect("]")?;
                steps.push(match key.kind {
                    Kind::Literal(Value::String(name)) => Step::Key(name),
                    Kind::Literal(Value::Number(number)) => {
                        let index = number.as_u64().and_then(|index| usize::try_from(index).ok());
                        let Some(index) = index else {
                            let message = "an index must be a whole number, 0 or greater";
                            return Err(SyntaxError::invalid(key.span, message));
                        };
                        Step::Index(index)
                    }
                    kind => Step::Computed(Expr { kind, span: key.span }),
                });
            } else {
                return Ok((steps, end));
            }
        }
    }
}

fn not_supported(span: Span, what: &str) -> SyntaxError {
    SyntaxError::not_covered(span, format!("{what} not supported in templates"))
}

fn unclosed(keyword: &str, span: Span) -> SyntaxError {
    SyntaxError::invalid(span, format!("this `{keyword}` is not closed: `end` is missing"))
}
