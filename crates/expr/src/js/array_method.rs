//! The array methods, for input arrays and new ones.
//!
//! What must stay true: no method changes an array in place; work is counted per element, and memory
//! is charged before it is used.

use super::{
    machine::{Machine, Outcome, describe, not_covered, throw},
    method::Method,
    text::{Builder, Text},
    value::{List, Value},
};
use crate::error::Span;

impl<'a> Machine<'a> {
    pub fn call_array_method(
        &mut self,
        list: &List<'a>,
        method: Method,
        arguments: &[Value<'a>],
        span: Span,
    ) -> Outcome<Value<'a>> {
        let first = arguments.first().unwrap_or(&Value::Undefined);
        let second = arguments.get(1).unwrap_or(&Value::Undefined);
        match method {
            Method::At => {
                let index = self.integer_of(first, span)?;
                let index = if index < 0.0 { index + list.len() as f64 } else { index };
                let found = (index >= 0.0).then(|| list.get(index as usize)).flatten();
                Ok(found.unwrap_or(Value::Undefined))
            }
            Method::Concat => self.array_concat(list, arguments, span),
            Method::Every | Method::Some => self.quantify(list, method, first, span),
            Method::Filter => self.filter(list, first, span),
            Method::Find | Method::FindIndex | Method::FindLast | Method::FindLastIndex => {
                self.find(list, method, first, span)
            }
            Method::Flat => {
                let depth = match first {
                    Value::Undefined => 1.0,
                    other => self.integer_of(other, span)?,
                };
                let mut out = Vec::new();
                self.flatten(list, depth, &mut out, span)?;
                self.array(out, span)
            }
            Method::FlatMap => self.flat_map(list, first, span),
            Method::Includes | Method::IndexOf => self.search(list, method, first, second, span),
            Method::LastIndexOf => self.search_back(list, arguments, span),
            Method::Join => {
                let separator = match first {
                    Value::Undefined => Text::Borrowed(","),
                    other => self.text_of(other, span)?,
                };
                self.join(&list.value(), &separator, span).map(Value::Text)
            }
            Method::Map => {
                let function = callable(first, span)?;
                let mut out = Vec::new();
                for index in 0..list.len() {
                    out.push(self.visit(function, list, index, span)?);
                }
                self.array(out, span)
            }
            Method::Reduce | Method::ReduceRight => self.reduce(list, method, arguments, span),
            Method::Slice => {
                let (start, end) = self.range(first, second, list.len(), span)?;
                self.take(list, start..end, span)
            }
            Method::ToReversed => {
                self.reserve(list.len(), span)?;
                let items = list.iter().rev().collect();
                self.array(items, span)
            }
            Method::ToSorted => self.sorted(list, first, span),
            other => not_covered(span, &format!("the method `{}`", other.name())),
        }
    }

    /// Charges the memory of this many elements.
    fn reserve(&mut self, count: usize, span: Span) -> Outcome<()> {
        self.step(count, span)?;
        self.charge(count.saturating_mul(size_of::<Value<'_>>()), span)
    }

    /// Calls `function(item, index, array)`.
    fn visit(&mut self, function: &Value<'a>, list: &List<'a>, index: usize, span: Span) -> Outcome<Value<'a>> {
        self.step(1, span)?;
        let item = list.get(index).unwrap_or(Value::Undefined);
        let arguments = [item, Value::Number(index as f64), list.value()];
        self.call(function, &arguments, span)
    }

    /// The start and end arguments of `slice`.
    pub fn range(&mut self, start: &Value<'a>, end: &Value<'a>, length: usize, span: Span) -> Outcome<(usize, usize)> {
        let start = relative(self.integer_of(start, span)?, length);
        let end = match end {
            Value::Undefined => length,
            other => relative(self.integer_of(other, span)?, length),
        };
        Ok((start, end.max(start)))
    }

    fn take(&mut self, list: &List<'a>, range: std::ops::Range<usize>, span: Span) -> Outcome<Value<'a>> {
        self.reserve(range.len(), span)?;
        let items = range.filter_map(|index| list.get(index)).collect();
        self.array(items, span)
    }

    fn array_concat(&mut self, list: &List<'a>, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        self.reserve(list.len(), span)?;
        let mut out: Vec<Value<'a>> = list.iter().collect();
        for argument in arguments {
            match argument.list() {
                Some(more) => {
                    self.reserve(more.len(), span)?;
                    out.extend(more.iter());
                }
                None => out.push(argument.clone()),
            }
        }
        self.array(out, span)
    }

    fn quantify(&mut self, list: &List<'a>, method: Method, function: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let function = callable(function, span)?;
        let decisive = method == Method::Some;
        for index in 0..list.len() {
            if self.visit(function, list, index, span)?.truthy() == decisive {
                return Ok(Value::Bool(decisive));
            }
        }
        Ok(Value::Bool(!decisive))
    }

    fn filter(&mut self, list: &List<'a>, function: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let function = callable(function, span)?;
        let mut out = Vec::new();
        for index in 0..list.len() {
            if self.visit(function, list, index, span)?.truthy() {
                out.extend(list.get(index));
            }
        }
        self.array(out, span)
    }

    fn find(&mut self, list: &List<'a>, method: Method, function: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let function = callable(function, span)?;
        let backwards = matches!(method, Method::FindLast | Method::FindLastIndex);
        let wants_index = matches!(method, Method::FindIndex | Method::FindLastIndex);
        for step in 0..list.len() {
            let index = if backwards { list.len() - 1 - step } else { step };
            if self.visit(function, list, index, span)?.truthy() {
                return Ok(if wants_index {
                    Value::Number(index as f64)
                } else {
                    list.get(index).unwrap_or(Value::Undefined)
                });
            }
        }
        Ok(if wants_index {
            Value::Number(-1.0)
        } else {
            Value::Undefined
        })
    }

    fn flatten(&mut self, list: &List<'a>, depth: f64, out: &mut Vec<Value<'a>>, span: Span) -> Outcome<()> {
        self.enter(span)?;
        for item in list.iter() {
            match item.list() {
                Some(inner) if depth >= 1.0 => self.flatten(&inner, depth - 1.0, out, span)?,
                _ => {
                    self.reserve(1, span)?;
                    out.push(item);
                }
            }
        }
        self.step(1, span)?;
        self.leave();
        Ok(())
    }

    fn flat_map(&mut self, list: &List<'a>, function: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        let function = callable(function, span)?;
        let mut out = Vec::new();
        for index in 0..list.len() {
            let value = self.visit(function, list, index, span)?;
            match value.list() {
                Some(inner) => {
                    self.reserve(inner.len(), span)?;
                    out.extend(inner.iter());
                }
                None => out.push(value),
            }
        }
        self.array(out, span)
    }

    fn search(
        &mut self,
        list: &List<'a>,
        method: Method,
        wanted: &Value<'a>,
        from: &Value<'a>,
        span: Span,
    ) -> Outcome<Value<'a>> {
        let start = relative(self.integer_of(from, span)?, list.len());
        self.step(list.len() - start, span)?;
        let includes = method == Method::Includes;
        let found = (start..list.len()).find(|index| {
            list.get(*index).is_some_and(|item| {
                if includes {
                    item.same_value_zero(wanted)
                } else {
                    item.strictly_equals(wanted)
                }
            })
        });
        Ok(match (includes, found) {
            (true, found) => Value::Bool(found.is_some()),
            (false, Some(index)) => Value::Number(index as f64),
            (false, None) => Value::Number(-1.0),
        })
    }

    fn search_back(&mut self, list: &List<'a>, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        let wanted = arguments.first().unwrap_or(&Value::Undefined);
        let length = list.len() as f64;
        let from = match arguments.get(1) {
            None => length - 1.0,
            Some(from) => match self.integer_of(from, span)? {
                from if from < 0.0 => length + from,
                from => from.min(length - 1.0),
            },
        };
        self.step(list.len(), span)?;
        let candidates = if from < 0.0 { 0 } else { from as usize + 1 };
        let found = (0..candidates)
            .rev()
            .find(|index| list.get(*index).is_some_and(|item| item.strictly_equals(wanted)));
        Ok(Value::Number(found.map_or(-1.0, |index| index as f64)))
    }

    /// Array.prototype.join, which is also how an array becomes a string.
    pub fn join(&mut self, array: &Value<'a>, separator: &Text<'a>, span: Span) -> Outcome<Text<'a>> {
        let Some(list) = array.list() else {
            return Ok(Text::Borrowed(""));
        };
        self.enter(span)?;
        let mut out = Builder::default();
        for (index, item) in list.iter().enumerate() {
            self.step(1, span)?;
            if index > 0 {
                self.charge(separator.bytes(), span)?;
                out.push(separator);
            }
            if !item.is_nullish() {
                let text = self.text_of(&item, span)?;
                self.charge(text.bytes(), span)?;
                out.push(&text);
            }
        }
        self.leave();
        Ok(out.finish())
    }

    fn reduce(&mut self, list: &List<'a>, method: Method, arguments: &[Value<'a>], span: Span) -> Outcome<Value<'a>> {
        let function = callable(arguments.first().unwrap_or(&Value::Undefined), span)?;
        let backwards = method == Method::ReduceRight;
        let position = |step: usize| if backwards { list.len() - 1 - step } else { step };
        let mut steps = 0..list.len();
        let mut result = match arguments.get(1) {
            Some(initial) => initial.clone(),
            None => match steps.next().and_then(|step| list.get(position(step))) {
                Some(item) => item,
                None => {
                    let message = "Reduce of empty array with no initial value".to_owned();
                    return throw(span, "TypeError", message);
                }
            },
        };
        for step in steps {
            self.step(1, span)?;
            let index = position(step);
            let item = list.get(index).unwrap_or(Value::Undefined);
            let arguments = [result, item, Value::Number(index as f64), list.value()];
            result = self.call(function, &arguments, span)?;
        }
        Ok(result)
    }

    /// A stable merge sort, because a comparator may stop the evaluation at any time.
    fn sorted(&mut self, list: &List<'a>, comparator: &Value<'a>, span: Span) -> Outcome<Value<'a>> {
        if !matches!(comparator, Value::Undefined) {
            callable(comparator, span)?;
        }
        self.reserve(list.len(), span)?;
        let (undefined, rest): (Vec<_>, Vec<_>) = list.iter().partition(|item| matches!(item, Value::Undefined));
        let mut keyed = Vec::with_capacity(rest.len());
        for item in rest {
            let key = match comparator {
                Value::Undefined => self.text_of(&item, span)?,
                _ => Text::Borrowed(""),
            };
            keyed.push((key, item));
        }
        let mut width = 1;
        while width < keyed.len() {
            keyed = self.merge_runs(keyed, width, comparator, span)?;
            width *= 2;
        }
        let items = keyed.into_iter().map(|(_, item)| item).chain(undefined);
        self.array(items.collect(), span)
    }

    fn merge_runs(
        &mut self,
        items: Vec<(Text<'a>, Value<'a>)>,
        width: usize,
        comparator: &Value<'a>,
        span: Span,
    ) -> Outcome<Vec<(Text<'a>, Value<'a>)>> {
        let mut merged = Vec::with_capacity(items.len());
        for pair in items.chunks(2 * width) {
            let (left, right) = pair.split_at(width.min(pair.len()));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                self.step(1, span)?;
                let after = match comparator {
                    Value::Undefined => a.0.compare(&b.0).is_gt(),
                    function => {
                        let order = self.call(function, &[a.1.clone(), b.1.clone()], span)?;
                        self.number_of(&order, span)? > 0.0
                    }
                };
                merged.extend(if after { right.next() } else { left.next() }.cloned());
            }
            merged.extend(left.chain(right).cloned());
        }
        Ok(merged)
    }
}

/// A position counted from the start, or from the end if negative, within `0..=length`.
pub(super) fn relative(position: f64, length: usize) -> usize {
    let position = if position < 0.0 {
        (position + length as f64).max(0.0)
    } else {
        position.min(length as f64)
    };
    position as usize
}

fn callable<'v, 'a>(value: &'v Value<'a>, span: Span) -> Outcome<&'v Value<'a>> {
    if value.is_function() {
        return Ok(value);
    }
    throw(span, "TypeError", format!("{} is not a function", describe(value)))
}
