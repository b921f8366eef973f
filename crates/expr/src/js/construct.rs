//! Makes values: literals, functions, strings.
//!
//! What must stay true: every new value is charged here, and nests no deeper than
//! [`MAX_VALUE_DEPTH`].

use std::rc::Rc;

use super::{
    ast::{Arrow, Item, Literal, Node, Property},
    machine::{Machine, Outcome, fail, literal_text},
    text::Text,
    value::{Array, Closure, MAX_VALUE_DEPTH, Object, Value},
};
use crate::error::{EvalErrorKind, Span};

impl<'a> Machine<'a> {
    pub fn closure(&mut self, arrow: &'a Arrow, span: Span) -> Outcome<Value<'a>> {
        let depth = self.frame.as_ref().map_or(0, |frame| frame.depth) + 1;
        self.check_depth(depth, span)?;
        self.charge(64, span)?;
        Ok(Value::Arrow(Rc::new(Closure {
            arrow,
            frame: self.frame.clone(),
            depth,
        })))
    }

    fn check_depth(&self, depth: u32, span: Span) -> Outcome<()> {
        if depth > MAX_VALUE_DEPTH {
            let message = format!("values nest deeper than {MAX_VALUE_DEPTH} levels");
            return fail(EvalErrorKind::DepthLimit, span, message);
        }
        Ok(())
    }

    /// A new array; its memory is charged here.
    pub fn array(&mut self, items: Vec<Value<'a>>, span: Span) -> Outcome<Value<'a>> {
        self.charge(48 + items.len() * size_of::<Value<'_>>(), span)?;
        let depth = items.iter().map(Value::depth).max().unwrap_or(0) + 1;
        self.check_depth(depth, span)?;
        Ok(Value::Array(Rc::new(Array { items, depth })))
    }

    /// A new string; its memory is charged here, so the caller charges only what is large.
    pub fn text(&mut self, text: String, span: Span) -> Outcome<Value<'a>> {
        self.charge(24 + text.len(), span)?;
        Ok(Value::Text(Text::owned(text)))
    }

    #[inline(never)]
    pub fn array_literal(&mut self, items: &'a [Item], span: Span) -> Outcome<Value<'a>> {
        let values = self.arguments(items, span)?;
        self.array(values, span)
    }

    #[inline(never)]
    pub fn object_literal(&mut self, properties: &'a [Property], span: Span) -> Outcome<Value<'a>> {
        let mut object = Object::default();
        self.charge(96, span)?;
        for property in properties {
            match property {
                Property::Named(name, value) => {
                    let value = self.eval(value)?;
                    self.add(&mut object, literal_text(name), value, span)?;
                }
                Property::Computed(name, value) => {
                    let name_value = self.eval(name)?;
                    let key = self.key_of(&name_value, name.span)?;
                    let value = self.eval(value)?;
                    self.add(&mut object, key.name(), value, span)?;
                }
                Property::Spread(source) => {
                    let source_value = self.eval(source)?;
                    for (name, value) in self.own_members(&source_value, source.span)? {
                        self.add(&mut object, name, value, span)?;
                    }
                }
            }
        }
        self.check_depth(object.depth, span)?;
        object.depth = object.depth.max(1);
        Ok(Value::Object(Rc::new(object)))
    }

    fn add(&mut self, object: &mut Object<'a>, name: Text<'a>, value: Value<'a>, span: Span) -> Outcome<()> {
        self.charge(112, span)?;
        object.insert(name, value);
        Ok(())
    }

    #[inline(never)]
    pub fn template(&mut self, texts: &'a [Literal], parts: &'a [Node], span: Span) -> Outcome<Value<'a>> {
        let mut result = texts.first().map_or(Text::Borrowed(""), literal_text);
        for (part, text) in parts.iter().zip(texts.iter().skip(1)) {
            let value = self.eval(part)?;
            let written = self.text_of(&value, part.span)?;
            let written = self.concat(&written, &literal_text(text), span)?;
            result = self.concat(&result, &written, span)?;
        }
        Ok(Value::Text(result))
    }

    /// The concatenation of two strings, charged.
    pub fn concat(&mut self, left: &Text<'a>, right: &Text<'a>, span: Span) -> Outcome<Text<'a>> {
        if right.is_empty() {
            return Ok(left.clone());
        }
        if left.is_empty() {
            return Ok(right.clone());
        }
        let bytes = left.bytes().saturating_add(right.bytes());
        self.charge(bytes.saturating_add(24), span)?;
        Ok(left.concat(right))
    }
}
