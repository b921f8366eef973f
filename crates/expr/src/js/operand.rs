//! Parses the operands of a condition: literals, names, member chains, calls and arrow functions.
//!
//! What must stay true: a name is resolved here and only here: parameters first, then built-ins,
//! then the scope. Names that could reach the engine (`constructor`, `__proto__`, `prototype`) do not
//! parse.

use super::{
    ast::{Arrow, Kind, Literal, Node, Property},
    builtin,
    method::{self, Method},
    parser::Parser,
    token::{Tok, Token, not_covered},
};
use crate::{
    error::{Span, SyntaxError},
    number,
};

impl Parser<'_> {
    /// An operand with everything that follows it: members, indices, calls.
    pub fn postfix(&mut self) -> Result<Node, SyntaxError> {
        let mut node = self.primary()?;
        let mut optional_seen = false;
        loop {
            let token = self.peek().clone();
            let optional = matches!(token.tok, Tok::Punct("?."));
            if optional {
                self.bump();
                optional_seen = true;
            }
            let next = if optional { self.peek().clone() } else { token.clone() };
            node = match &next.tok {
                Tok::Punct(".") if !optional => {
                    self.bump();
                    self.member(node, false)?
                }
                Tok::Name(_) if optional => self.member(node, true)?,
                Tok::Punct("[") => self.index(node, optional)?,
                Tok::Punct("(") => self.call(node, optional)?,
                Tok::Template { head: true, .. } => {
                    return Err(not_covered(next.span, "tagged templates are"));
                }
                Tok::Punct(punct @ ("++" | "--")) if !next.newline && !optional => {
                    return Err(not_covered(next.span, &format!("`{punct}` is")));
                }
                _ if optional => {
                    let found = self.describe(&next);
                    let message = format!("expected a name, `[` or `(` after `?.`, found {found}");
                    return Err(SyntaxError::invalid(next.span, message));
                }
                _ => break,
            };
        }
        if optional_seen {
            let span = node.span;
            node = self.node(Kind::Chain(Box::new(node)), span)?;
        }
        Ok(node)
    }

    fn member(&mut self, object: Node, optional: bool) -> Result<Node, SyntaxError> {
        let token = self.bump();
        let Tok::Name(name) = &token.tok else {
            let found = self.describe(&token);
            let message = format!("expected a name after `.`, found {found}");
            return Err(SyntaxError::invalid(token.span, message));
        };
        self.named_member(object, name, token.span, optional)
    }

    fn named_member(&self, object: Node, name: &str, at: Span, optional: bool) -> Result<Node, SyntaxError> {
        if method::leads_out(name) {
            return Err(not_covered(at, &format!("access to `{name}` is")));
        }
        let span = object.span.to(at);
        let kind = Kind::Member {
            object: Box::new(object),
            name: name.into(),
            method: Method::from_name(name),
            optional,
        };
        self.node(kind, span)
    }

    fn index(&mut self, object: Node, optional: bool) -> Result<Node, SyntaxError> {
        self.bump();
        let key = self.expression()?;
        let close = self.close("]", "after the index")?;
        if let Kind::Text(Literal::Text(name)) = &key.kind {
            let mut node = self.named_member(object, name, key.span, optional)?;
            node.span = node.span.to(close);
            return Ok(node);
        }
        let span = object.span.to(close);
        let kind = Kind::Index {
            object: Box::new(object),
            key: Box::new(key),
            optional,
        };
        self.node(kind, span)
    }

    fn call(&mut self, callee: Node, optional: bool) -> Result<Node, SyntaxError> {
        if let Kind::Member { name, .. } = &callee.kind
            && method::is_uncovered_call(name)
        {
            return Err(not_covered(callee.span, &format!("the method `{name}` is")));
        }
        self.bump();
        let (arguments, close) = self.items(")")?;
        let span = callee.span.to(close);
        let kind = Kind::Call {
            callee: Box::new(callee),
            arguments,
            optional,
        };
        self.node(kind, span)
    }

    /// A closing bracket; a comma in its place is the comma operator.
    fn close(&mut self, punct: &str, context: &str) -> Result<Span, SyntaxError> {
        if self.is(",") {
            return Err(not_covered(self.peek().span, "the comma operator is"));
        }
        self.expect(punct, context)
    }

    fn primary(&mut self) -> Result<Node, SyntaxError> {
        let token = self.bump();
        let span = token.span;
        match token.tok {
            Tok::Number(number) => self.node(Kind::Number(number), span),
            Tok::Text(text) => self.node(Kind::Text(text), span),
            Tok::Template { text, head: true, tail } => self.template(text, tail, span),
            Tok::Name(ref name) => self.name(name, span),
            Tok::Punct("(") => {
                let mut node = self.expression()?;
                let close = self.close(")", "to close the parenthesis")?;
                node.span = span.to(close);
                node.wrapped = true;
                Ok(node)
            }
            Tok::Punct("[") => {
                let (items, close) = self.items("]")?;
                self.node(Kind::Array(items), span.to(close))
            }
            Tok::Punct("{") => self.object(span),
            _ => {
                let found = self.describe(&token);
                let message = format!("expected an expression, found {found}");
                Err(SyntaxError::invalid(span, message))
            }
        }
    }

    fn template(&mut self, first: Literal, tail: bool, start: Span) -> Result<Node, SyntaxError> {
        let mut texts = vec![first];
        let mut parts = Vec::new();
        let mut span = start;
        let mut ended = tail;
        while !ended {
            parts.push(self.expression()?);
            let token = self.bump();
            let Tok::Template {
                text,
                head: false,
                tail,
            } = token.tok
            else {
                let found = self.describe(&token);
                let message = format!("expected `}}` to close `${{`, found {found}");
                return Err(SyntaxError::invalid(token.span, message));
            };
            texts.push(text);
            span = start.to(token.span);
            ended = tail;
        }
        self.node(Kind::Template { texts, parts }, span)
    }

    /// A name as an operand.
    fn name(&mut self, name: &str, span: Span) -> Result<Node, SyntaxError> {
        let kind = match name {
            "true" => Kind::Bool(true),
            "false" => Kind::Bool(false),
            "null" => Kind::Null,
            "this" | "new" | "super" => {
                return Err(not_covered(span, &format!("`{name}` is")));
            }
            "function" => return Err(not_covered(span, "`function` is")),
            "class" => return Err(not_covered(span, "classes are")),
            "import" => return Err(not_covered(span, "imports are")),
            "async"
                if matches!(self.peek().tok, Tok::Name(_))
                    || (self.is("(") && self.arrow_follows(self.past_parenthesis())) =>
            {
                return Err(not_covered(span, "`async` is"));
            }
            _ if is_reserved(name) => {
                let message = format!("expected an expression, found the keyword `{name}`");
                return Err(SyntaxError::invalid(span, message));
            }
            _ => return self.identifier(name, span),
        };
        self.node(kind, span)
    }

    fn identifier(&mut self, name: &str, span: Span) -> Result<Node, SyntaxError> {
        if let Some(local) = self.local(name) {
            return self.node(local, span);
        }
        if builtin::is_namespace(name) && self.is(".") {
            let token = self.peek_at(1).clone();
            let Tok::Name(member) = &token.tok else {
                let message = "expected a name after `.`";
                return Err(SyntaxError::invalid(token.span, message));
            };
            let span = span.to(token.span);
            let Some(kind) = builtin::member(name, member) else {
                return Err(not_covered(span, &format!("`{name}.{member}` is")));
            };
            self.bump();
            self.bump();
            return self.node(kind, span);
        }
        if let Some(kind) = builtin::global(name) {
            return self.node(kind, span);
        }
        if builtin::is_namespace(name) || builtin::is_uncovered_global(name) {
            return Err(not_covered(span, &format!("`{name}` is")));
        }
        self.node(Kind::Global(name.into()), span)
    }

    fn local(&self, name: &str) -> Option<Kind> {
        self.scopes.iter().rev().enumerate().find_map(|(up, names)| {
            let slot = names.iter().rposition(|known| **known == *name)?;
            Some(Kind::Local {
                up: up as u16,
                slot: slot as u16,
            })
        })
    }

    fn object(&mut self, start: Span) -> Result<Node, SyntaxError> {
        let mut properties = Vec::new();
        while !self.is("}") {
            properties.push(self.property()?);
            if !self.is("}") {
                self.expect(",", "or `}`")?;
            }
        }
        let close = self.bump().span;
        self.node(Kind::Object(properties), start.to(close))
    }

    fn property(&mut self) -> Result<Property, SyntaxError> {
        let token = self.bump();
        let key = match &token.tok {
            Tok::Punct("...") => return Ok(Property::Spread(self.expression()?)),
            Tok::Punct("[") => {
                let key = self.expression()?;
                self.close("]", "after the computed name")?;
                self.refuse_method(&token)?;
                self.expect(":", "after the computed name")?;
                return Ok(Property::Computed(key, self.expression()?));
            }
            Tok::Name(name) => Literal::Text(name.clone()),
            Tok::Text(text) => text.clone(),
            Tok::Number(value) => Literal::Text(number::to_text(*value).into()),
            _ => {
                let found = self.describe(&token);
                let message = format!("expected a property name, found {found}");
                return Err(SyntaxError::invalid(token.span, message));
            }
        };
        if key == Literal::Text("__proto__".into()) {
            return Err(not_covered(token.span, "access to `__proto__` is"));
        }
        self.refuse_method(&token)?;
        if let (Tok::Name(name), true) = (&token.tok, self.is(",") || self.is("}")) {
            check_plain(name, token.span)?;
            let value = self.name(name, token.span)?;
            return Ok(Property::Named(key, value));
        }
        self.expect(":", "after the property name")?;
        Ok(Property::Named(key, self.expression()?))
    }

    /// `{ f() {} }`, `{ get f() {} }`.
    fn refuse_method(&self, key: &Token) -> Result<(), SyntaxError> {
        let accessor = matches!(&key.tok, Tok::Name(name) if matches!(&**name, "get" | "set" | "async"))
            && matches!(self.peek().tok, Tok::Name(_) | Tok::Text(_));
        if self.is("(") || accessor {
            return Err(not_covered(key.span, "methods in object literals are"));
        }
        Ok(())
    }

    /// An arrow function, if one begins here.
    pub fn arrow(&mut self) -> Result<Option<Node>, SyntaxError> {
        let start = self.peek().span;
        let parameters = match &self.peek().tok {
            Tok::Name(name) if self.arrow_follows(1) => {
                let name = name.clone();
                self.bump();
                check_plain(&name, start)?;
                vec![name]
            }
            Tok::Punct("(") if self.arrow_follows(self.past_parenthesis()) => self.parameters()?,
            _ => return Ok(None),
        };
        let token = self.bump();
        if token.newline {
            let message = "`=>` must be on the line of its parameters";
            return Err(SyntaxError::invalid(token.span, message));
        }
        if self.is("{") {
            let what = "function bodies with statements are";
            return Err(not_covered(self.peek().span, what));
        }
        let count = parameters.len() as u16;
        self.scopes.push(parameters);
        let body = self.expression();
        self.scopes.pop();
        let body = body?;
        let span = start.to(body.span);
        let arrow = Arrow {
            parameters: count,
            body,
        };
        self.node(Kind::Arrow(Box::new(arrow)), span).map(Some)
    }

    fn arrow_follows(&self, ahead: usize) -> bool {
        matches!(self.peek_at(ahead).tok, Tok::Punct("=>"))
    }

    /// How many tokens ahead the parenthesis that begins here is closed and passed.
    fn past_parenthesis(&self) -> usize {
        let mut open = 0usize;
        for ahead in 0.. {
            match self.peek_at(ahead).tok {
                Tok::Punct("(" | "[" | "{") => open += 1,
                Tok::Punct(")" | "]" | "}") => open = open.saturating_sub(1),
                Tok::End => return ahead,
                _ => {}
            }
            if open == 0 {
                return ahead + 1;
            }
        }
        0
    }

    fn parameters(&mut self) -> Result<Vec<Box<str>>, SyntaxError> {
        self.bump();
        let mut names: Vec<Box<str>> = Vec::new();
        loop {
            let token = self.bump();
            match token.tok {
                Tok::Punct(")") => return Ok(names),
                Tok::Name(name) => {
                    check_plain(&name, token.span)?;
                    if names.contains(&name) {
                        let message = format!("the parameter `{name}` occurs twice");
                        return Err(SyntaxError::invalid(token.span, message));
                    }
                    names.push(name);
                }
                Tok::Punct(punct @ ("{" | "[" | "...")) => {
                    let what = match punct {
                        "..." => "rest parameters are",
                        _ => "destructured parameters are",
                    };
                    return Err(not_covered(token.span, what));
                }
                _ => {
                    let found = self.describe(&token);
                    let message = format!("expected a parameter, found {found}");
                    return Err(SyntaxError::invalid(token.span, message));
                }
            }
            if self.is("=") {
                return Err(not_covered(self.peek().span, "default parameters are"));
            }
            if !self.is(")") {
                self.expect(",", "or `)` after a parameter")?;
            }
        }
    }
}

/// Refuses keywords as names.
fn check_plain(name: &str, span: Span) -> Result<(), SyntaxError> {
    if is_reserved(name) || matches!(name, "true" | "false" | "null" | "this") {
        let message = format!("the keyword `{name}` cannot be a name");
        return Err(SyntaxError::invalid(span, message));
    }
    Ok(())
}

/// Keywords that are never names.
fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        "break"
            | "case"
            | "catch"
            | "class"
            | "const"
            | "continue"
            | "debugger"
            | "default"
            | "delete"
            | "do"
            | "else"
            | "enum"
            | "export"
            | "extends"
            | "finally"
            | "for"
            | "function"
            | "if"
            | "import"
            | "in"
            | "instanceof"
            | "new"
            | "return"
            | "super"
            | "switch"
            | "throw"
            | "try"
            | "typeof"
            | "var"
            | "void"
            | "while"
            | "with"
    )
}
