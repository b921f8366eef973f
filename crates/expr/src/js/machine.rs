//! Evaluates the tree of a condition.
//!
//! Counting rule: the expression is one statement, and every call of an arrow function is one more,
//! including those made by methods. Depth is the number of open calls of arrow functions. Memory is what strings,
//! arrays, objects and functions take when they are made.
//!
//! What must stay true: `eval` recurses along the tree and along calls only, and `nesting` bounds
//! the sum of both by [`MAX_NESTED_EVAL`], whatever the limits say; so no source can overflow the
//! stack.

use std::rc::Rc;

use serde_json::Value as Json;

use super::{
    ast::{Item, Kind, Literal, Logical, Node, Unary},
    text::Text,
    value::{Closure, Frame, Key, Value},
};
use crate::{
    data::DataRef,
    error::{EvalError, EvalErrorKind, Span},
    limits::{LimitHit, Limits, Meter},
};

/// The most nodes that are under evaluation at the same time.
pub(super) const MAX_NESTED_EVAL: u32 = 400;

/// Why an evaluation stops early.
#[derive(Debug)]
pub(super) enum Stop {
    /// `?.` met `null` or `undefined`: the whole chain is `undefined`.
    Short,
    Error(Box<EvalError>),
}

pub(super) type Outcome<T> = Result<T, Stop>;

pub(super) struct Machine<'a> {
    scope: DataRef<'a>,
    pub meter: Meter,
    pub frame: Option<Rc<Frame<'a>>>,
    nesting: u32,
    calls: u32,
}

impl<'a> Machine<'a> {
    pub fn new(scope: DataRef<'a>, limits: &Limits) -> Self {
        Self {
            scope,
            meter: Meter::new(limits),
            frame: None,
            nesting: 0,
            calls: 0,
        }
    }

    /// Evaluates the whole expression.
    pub fn run(&mut self, root: &'a Node) -> Result<Value<'a>, EvalError> {
        let counted = self.meter.statement();
        self.limit(counted, root.span)
            .and_then(|()| self.eval(root))
            .map_err(|stop| Self::report(stop, root.span))
    }

    pub fn report(stop: Stop, span: Span) -> EvalError {
        match stop {
            Stop::Error(error) => *error,
            Stop::Short => EvalError::new(EvalErrorKind::Thrown, span, "`?.` left its chain"),
        }
    }

    #[inline]
    pub fn limit(&self, counted: Result<(), LimitHit>, span: Span) -> Outcome<()> {
        match counted {
            Ok(()) => Ok(()),
            Err((kind, message)) => fail(kind, span, message),
        }
    }

    #[inline]
    pub fn step(&mut self, work: usize, span: Span) -> Outcome<()> {
        let counted = self.meter.step(work);
        self.limit(counted, span)
    }

    pub fn charge(&mut self, bytes: usize, span: Span) -> Outcome<()> {
        let counted = self.meter.memory(bytes);
        self.limit(counted, span)
    }

    /// Enters one more level of recursion; [`Machine::leave`] must follow.
    #[inline]
    pub fn enter(&mut self, span: Span) -> Outcome<()> {
        self.nesting += 1;
        if self.nesting > MAX_NESTED_EVAL {
            self.nesting -= 1;
            let message = format!("evaluation nests deeper than {MAX_NESTED_EVAL} levels");
            return fail(EvalErrorKind::DepthLimit, span, message);
        }
        Ok(())
    }

    #[inline]
    pub fn leave(&mut self) {
        self.nesting -= 1;
    }

    pub fn eval(&mut self, node: &'a Node) -> Outcome<Value<'a>> {
        self.step(1, node.span)?;
        self.enter(node.span)?;
        let value = match &node.kind {
            Kind::Undefined => Ok(Value::Undefined),
            Kind::Null => Ok(Value::Null),
            Kind::Bool(value) => Ok(Value::Bool(*value)),
            Kind::Number(number) => Ok(Value::Number(*number)),
            Kind::Text(literal) => Ok(Value::Text(literal_text(literal))),
            Kind::Global(name) => self.global(name, node.span),
            Kind::Local { up, slot } => Ok(self.local(*up, *slot)),
            Kind::Builtin(builtin) => Ok(Value::Builtin(*builtin)),
            Kind::Member { .. } | Kind::Index { .. } => match self.data_at(node) {
                Some(data) => Ok(Value::from_data(data)),
                None => self.property(node),
            },
            Kind::Call {
                callee,
                arguments,
                optional,
            } => self.call_node(node, callee, arguments, *optional),
            Kind::Chain(inner) => match self.eval(inner) {
                Err(Stop::Short) => Ok(Value::Undefined),
                other => other,
            },
            Kind::Unary(operator, operand) => self.unary(*operator, operand),
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right, node.span),
            Kind::Logical(operator, operands) => self.logical(*operator, operands),
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::Template { texts, parts } => self.template(texts, parts, node.span),
            Kind::Array(items) => self.array_literal(items, node.span),
            Kind::Object(properties) => self.object_literal(properties, node.span),
            Kind::Arrow(arrow) => self.closure(arrow, node.span),
        };
        self.leave();
        value
    }

    fn global(&mut self, name: &str, span: Span) -> Outcome<Value<'a>> {
        match self.scope.member(name) {
            Some(data) => Ok(Value::from_data(data)),
            None => throw(span, "ReferenceError", format!("{name} is not defined")),
        }
    }

    fn local(&self, up: u16, slot: u16) -> Value<'a> {
        let mut frame = self.frame.as_ref();
        for _ in 0..up {
            frame = frame.and_then(|frame| frame.outer.as_ref());
        }
        frame
            .and_then(|frame| frame.slots.get(usize::from(slot)))
            .cloned()
            .unwrap_or(Value::Undefined)
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Outcome<Value<'a>> {
        let [test, then, otherwise] = parts;
        if self.eval(test)?.truthy() {
            self.eval(then)
        } else {
            self.eval(otherwise)
        }
    }

    fn logical(&mut self, operator: Logical, operands: &'a [Node]) -> Outcome<Value<'a>> {
        let mut value = Value::Undefined;
        for (position, operand) in operands.iter().enumerate() {
            if position > 0 {
                let decided = match operator {
                    Logical::And => !value.truthy(),
                    Logical::Or => value.truthy(),
                    Logical::Coalesce => !value.is_nullish(),
                };
                if decided {
                    break;
                }
            }
            value = self.eval(operand)?;
        }
        Ok(value)
    }

    fn unary(&mut self, operator: Unary, operand: &'a Node) -> Outcome<Value<'a>> {
        if operator == Unary::TypeOf
            && let Kind::Global(name) = &operand.kind
        {
            // Only `typeof` may read a name that does not exist.
            let value = self.scope.member(name).map(Value::from_data);
            return Ok(Value::text(value.map_or("undefined", |v| v.type_of())));
        }
        let value = self.eval(operand)?;
        Ok(match operator {
            Unary::Not => Value::Bool(!value.truthy()),
            Unary::TypeOf => Value::text(value.type_of()),
            Unary::Void => Value::Undefined,
            Unary::Minus => Value::Number(-self.number_of(&value, operand.span)?),
            Unary::Plus => Value::Number(self.number_of(&value, operand.span)?),
            Unary::BitNot => {
                let number = self.number_of(&value, operand.span)?;
                Value::Number(f64::from(!crate::number::to_int32(number)))
            }
        })
    }

    /// A path through input objects and arrays only, which is what most conditions read. `None` means that the general
    /// evaluation must find the value or throw.
    fn data_at(&self, node: &Node) -> Option<DataRef<'a>> {
        match &node.kind {
            Kind::Global(name) => self.scope.member(name),
            Kind::Member { object, name, .. } => self.data_at(object)?.member(name),
            Kind::Index { object, key, .. } => match (self.data_at(object)?, &key.kind) {
                (DataRef::Json(Json::Array(items)), Kind::Number(index)) => match Key::from_number(*index) {
                    Key::Index(index) => items.get(index).map(DataRef::Json),
                    Key::Name(_) => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    /// `a.b` and `a[b]`.
    fn property(&mut self, node: &'a Node) -> Outcome<Value<'a>> {
        match &node.kind {
            Kind::Member {
                object, name, optional, ..
            } => {
                let object = self.eval(object)?;
                if *optional && object.is_nullish() {
                    return Err(Stop::Short);
                }
                self.member(&object, name, node.span)
            }
            Kind::Index { object, key, optional } => {
                let object = self.eval(object)?;
                if *optional && object.is_nullish() {
                    return Err(Stop::Short);
                }
                let key = self.eval(key)?;
                self.index(&object, &key, node.span)
            }
            _ => self.eval(node),
        }
    }

    /// A call; if the callee is a property, its object is the receiver.
    #[inline(never)]
    fn call_node(
        &mut self,
        node: &'a Node,
        callee: &'a Node,
        arguments: &'a [Item],
        optional: bool,
    ) -> Outcome<Value<'a>> {
        let reference = match &callee.kind {
            Kind::Chain(inner) => inner,
            _ => callee,
        };
        let (receiver, function) = match self.reference(reference) {
            Err(Stop::Short) if !std::ptr::eq(reference, callee) => (Value::Undefined, Value::Undefined),
            other => other?,
        };
        if optional && function.is_nullish() {
            return Err(Stop::Short);
        }
        let arguments = self.arguments(arguments, node.span)?;
        match function {
            Value::Method(class, method) if receiver.class() == Some(class) => {
                self.call_method(&receiver, method, &arguments, node.span)
            }
            Value::Method(..) => self.call(&function, &arguments, node.span),
            Value::Arrow(_) | Value::Builtin(_) => self.call(&function, &arguments, node.span),
            other => {
                let name = describe_callee(callee);
                let message = match other {
                    Value::Undefined if name.is_empty() => "undefined is not a function".to_owned(),
                    _ if name.is_empty() => "the value is not a function".to_owned(),
                    _ => format!("{name} is not a function"),
                };
                throw(callee.span, "TypeError", message)
            }
        }
    }

    /// The receiver and the function of a call.
    fn reference(&mut self, callee: &'a Node) -> Outcome<(Value<'a>, Value<'a>)> {
        let (object, optional) = match &callee.kind {
            Kind::Member { object, optional, .. } | Kind::Index { object, optional, .. } => (object, *optional),
            _ => return Ok((Value::Undefined, self.eval(callee)?)),
        };
        let receiver = self.eval(object)?;
        if optional && receiver.is_nullish() {
            return Err(Stop::Short);
        }
        let function = match &callee.kind {
            Kind::Member {
                method: Some(method), ..
            } if receiver
                .class()
                .is_some_and(|class| class != super::method::Class::Object && method.belongs_to(class)) =>
            {
                // Only objects can have an own member with the name of a method.
                Value::Method(receiver.class().unwrap_or(super::method::Class::Object), *method)
            }
            Kind::Member { name, .. } => self.member(&receiver, name, callee.span)?,
            Kind::Index { key, .. } => {
                let key = self.eval(key)?;
                self.index(&receiver, &key, callee.span)?
            }
            _ => Value::Undefined,
        };
        Ok((receiver, function))
    }

    pub fn arguments(&mut self, items: &'a [Item], span: Span) -> Outcome<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let value = self.eval(&item.node)?;
            if item.spread {
                self.spread(&value, &mut values, item.node.span)?;
            } else {
                values.push(value);
            }
        }
        self.step(values.len(), span)?;
        Ok(values)
    }

    fn spread(&mut self, value: &Value<'a>, out: &mut Vec<Value<'a>>, span: Span) -> Outcome<()> {
        if let Some(list) = value.list() {
            self.charge(list.len().saturating_mul(size_of::<Value<'_>>()), span)?;
            out.extend(list.iter());
            return Ok(());
        }
        if let Value::Text(text) = value {
            self.charge(text.bytes().saturating_mul(size_of::<Value<'_>>()), span)?;
            out.extend(text.code_points().into_iter().map(Value::Text));
            return Ok(());
        }
        let message = format!("{} is not iterable", describe(value));
        throw(span, "TypeError", message)
    }

    /// Calls a function value.
    pub fn call(&mut self, function: &Value<'a>, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        match function {
            Value::Arrow(closure) => self.call_arrow(closure, arguments, span),
            Value::Builtin(builtin) => self.call_builtin(*builtin, arguments, span),
            Value::Method(_, method) => {
                let message = format!("calling `{}` without its object", method.name());
                not_covered(span, &message)
            }
            other => throw(span, "TypeError", format!("{} is not a function", describe(other))),
        }
    }

    #[inline(never)]
    fn call_arrow(&mut self, closure: &Rc<Closure<'a>>, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        let counted = self.meter.statement();
        self.limit(counted, span)?;
        let counted = self.meter.depth(self.calls + 1);
        self.limit(counted, span)?;
        let mut slots = Vec::with_capacity(usize::from(closure.arrow.parameters));
        slots.extend(
            (0..usize::from(closure.arrow.parameters))
                .map(|slot| arguments.get(slot).cloned().unwrap_or(Value::Undefined)),
        );
        let deepest = slots.iter().map(Value::depth).max().unwrap_or(0);
        let depth = deepest.max(closure.depth) + 1;
        let frame = Rc::new(Frame {
            slots,
            outer: closure.frame.clone(),
            depth,
        });
        let caller = self.frame.replace(frame);
        self.calls += 1;
        let result = self.eval(&closure.arrow.body);
        self.calls -= 1;
        self.frame = caller;
        result
    }

    /// ToPropertyKey.
    pub fn key_of(&mut self, value: &Value<'a>, span: Span) -> Outcome<Key<'a>> {
        match value {
            Value::Number(number) => Ok(Key::from_number(*number)),
            Value::Text(text) => Ok(Key::from_text(text.clone())),
            other => Ok(Key::from_text(self.text_of(other, span)?)),
        }
    }
}

pub(super) fn literal_text(literal: &Literal) -> Text<'_> {
    match literal {
        Literal::Text(text) => Text::Borrowed(text),
        Literal::Wide(units) => Text::Wide(Rc::from(&**units)),
    }
}

/// Ends the evaluation.
#[cold]
pub(super) fn fail<T>(kind: EvalErrorKind, span: Span, message: String) -> Outcome<T> {
    Err(Stop::Error(Box::new(EvalError::new(kind, span, message))))
}

/// Throws an error of the program.
#[cold]
pub(super) fn throw<T>(span: Span, class: &str, message: String) -> Outcome<T> {
    fail(EvalErrorKind::Thrown, span, format!("{class}: {message}"))
}

/// Ends the evaluation, because a full engine is needed.
#[cold]
pub(super) fn not_covered<T>(span: Span, what: &str) -> Outcome<T> {
    let message = format!("{what} is not covered by the native expression subset");
    fail(EvalErrorKind::NotCovered, span, message)
}

/// A value in an error message: its kind, never its content.
pub(super) fn describe(value: &Value<'_>) -> &'static str {
    match value {
        Value::Undefined => "undefined",
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::Text(_) => "a string",
        Value::Items(_) | Value::Array(_) => "an array",
        Value::Arrow(_) | Value::Builtin(_) | Value::Method(..) => "a function",
        Value::Members(_) | Value::Parts(_) | Value::Object(_) => "an object",
    }
}

/// The name of a callee in an error message.
fn describe_callee(callee: &Node) -> String {
    match &callee.kind {
        Kind::Global(name) => name.to_string(),
        Kind::Member { object, name, .. } => match describe_callee(object) {
            object if object.is_empty() => format!("(…).{name}"),
            object => format!("{object}.{name}"),
        },
        Kind::Chain(inner) => describe_callee(inner),
        _ => String::new(),
    }
}
