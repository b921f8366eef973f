//! The values of a condition while it is evaluated.
//!
//! What must stay true: input is borrowed, never copied. New values are immutable, so there are no
//! cycles, and each records how deep it nests; [`MAX_VALUE_DEPTH`] bounds that, so dropping and
//! writing values cannot overflow the stack.

use std::{collections::BTreeMap, collections::HashMap, rc::Rc};

use serde_json::Value as Json;

use super::{
    ast::Arrow,
    builtin::Builtin,
    method::{Class, Method},
    text::Text,
};
use crate::{
    data::{Data, DataRef},
    number,
};

/// The deepest nesting of new values, and of input that is written as JSON.
pub(super) const MAX_VALUE_DEPTH: u32 = 256;

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Undefined,
    Null,
    Bool(bool),
    Number(f64),
    Text(Text<'a>),
    /// An array of the input.
    Items(&'a Vec<Json>),
    /// An object of the input.
    Members(&'a serde_json::Map<String, Json>),
    /// An object of the input that is composed of parts.
    Parts(&'a BTreeMap<&'a str, Data<'a>>),
    Array(Rc<Array<'a>>),
    Object(Rc<Object<'a>>),
    Arrow(Rc<Closure<'a>>),
    Builtin(Builtin),
    /// A method that was read but not called.
    Method(Class, Method),
}

#[derive(Debug)]
pub(super) struct Array<'a> {
    pub items: Vec<Value<'a>>,
    pub depth: u32,
}

/// An arrow function and the parameters in its scope.
#[derive(Debug)]
pub(super) struct Closure<'a> {
    pub arrow: &'a Arrow,
    pub frame: Option<Rc<Frame<'a>>>,
    pub depth: u32,
}

/// The parameters of one call.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub slots: Vec<Value<'a>>,
    pub outer: Option<Rc<Frame<'a>>>,
    pub depth: u32,
}

/// An object that the evaluation made; members keep the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Object<'a> {
    pub members: Vec<(Text<'a>, Value<'a>)>,
    /// Positions by name, once there are enough members to make searching slow.
    index: HashMap<Text<'a>, usize>,
    pub depth: u32,
}

const INDEXED_FROM: usize = 16;

impl<'a> Object<'a> {
    pub fn get(&self, name: &Text<'_>) -> Option<&Value<'a>> {
        self.position(name).map(|at| &self.members[at].1)
    }

    fn position(&self, name: &Text<'_>) -> Option<usize> {
        if self.members.len() < INDEXED_FROM {
            return self.members.iter().position(|(known, _)| known == name);
        }
        self.index.get(name).copied()
    }

    pub fn insert(&mut self, name: Text<'a>, value: Value<'a>) {
        self.depth = self.depth.max(value.depth() + 1);
        if let Some(at) = self.position(&name) {
            self.members[at].1 = value;
            return;
        }
        self.members.push((name.clone(), value));
        if self.members.len() == INDEXED_FROM {
            let names = self.members.iter().enumerate();
            self.index = names.map(|(at, (name, _))| (name.clone(), at)).collect();
        } else if self.members.len() > INDEXED_FROM {
            self.index.insert(name, self.members.len() - 1);
        }
    }
}

impl<'a> Value<'a> {
    #[inline]
    pub fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(value) => Self::Number(number::of_json(value)),
            Json::String(text) => Self::Text(Text::Borrowed(text)),
            Json::Array(items) => Self::Items(items),
            Json::Object(members) => Self::Members(members),
        }
    }

    #[inline]
    pub fn from_data(data: DataRef<'a>) -> Self {
        match data {
            DataRef::Json(json) => Self::from_json(json),
            DataRef::Object(parts) => Self::Parts(parts),
        }
    }

    pub fn text(text: &'static str) -> Self {
        Self::Text(Text::Borrowed(text))
    }

    /// How deep a new value nests; input counts as flat, because it is borrowed.
    pub fn depth(&self) -> u32 {
        match self {
            Self::Array(array) => array.depth,
            Self::Object(object) => object.depth,
            Self::Arrow(closure) => closure.depth,
            _ => 0,
        }
    }

    pub fn is_nullish(&self) -> bool {
        matches!(self, Self::Undefined | Self::Null)
    }

    pub fn is_function(&self) -> bool {
        matches!(self, Self::Arrow(_) | Self::Builtin(_) | Self::Method(..))
    }

    pub fn is_object(&self) -> bool {
        !matches!(
            self,
            Self::Undefined | Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_)
        )
    }

    /// ToBoolean.
    #[inline]
    pub fn truthy(&self) -> bool {
        match self {
            Self::Undefined | Self::Null => false,
            Self::Bool(value) => *value,
            Self::Number(number) => !(*number == 0.0 || number.is_nan()),
            Self::Text(text) => !text.is_empty(),
            _ => true,
        }
    }

    pub fn type_of(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Arrow(_) | Self::Builtin(_) | Self::Method(..) => "function",
            _ => "object",
        }
    }

    /// The class whose methods the value inherits; functions, `null` and `undefined` have none here.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::Bool(_) => Some(Class::Bool),
            Self::Number(_) => Some(Class::Number),
            Self::Text(_) => Some(Class::Text),
            Self::Items(_) | Self::Array(_) => Some(Class::Array),
            Self::Members(_) | Self::Parts(_) | Self::Object(_) => Some(Class::Object),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<List<'a>> {
        match self {
            Self::Items(items) => Some(List::Input(items)),
            Self::Array(array) => Some(List::Made(Rc::clone(array))),
            _ => None,
        }
    }

    /// IsStrictlyEqual.
    #[inline]
    pub fn strictly_equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Undefined, Value::Undefined) | (Self::Null, Value::Null) => true,
            (Self::Bool(left), Value::Bool(right)) => left == right,
            (Self::Number(left), Value::Number(right)) => left == right,
            (Self::Text(left), Value::Text(right)) => left == right,
            _ => self.is_same_object(other),
        }
    }

    /// SameValueZero: like `===`, but NaN equals itself.
    pub fn same_value_zero(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Self::Number(left), Value::Number(right)) if left.is_nan() => right.is_nan(),
            _ => self.strictly_equals(other),
        }
    }

    fn is_same_object(&self, other: &Value<'_>) -> bool {
        fn same<T: ?Sized, U: ?Sized>(left: *const T, right: *const U) -> bool {
            left.cast::<()>() == right.cast::<()>()
        }
        match (self, other) {
            (Self::Items(left), Value::Items(right)) => same(*left, *right),
            (Self::Members(left), Value::Members(right)) => same(*left, *right),
            (Self::Parts(left), Value::Parts(right)) => same(*left, *right),
            (Self::Array(left), Value::Array(right)) => same(Rc::as_ptr(left), Rc::as_ptr(right)),
            (Self::Object(left), Value::Object(right)) => same(Rc::as_ptr(left), Rc::as_ptr(right)),
            (Self::Arrow(left), Value::Arrow(right)) => same(Rc::as_ptr(left), Rc::as_ptr(right)),
            (Self::Builtin(left), Value::Builtin(right)) => left == right,
            (Self::Method(class, left), Value::Method(other, right)) => left == right && class == other,
            _ => false,
        }
    }
}

/// An array of the input, or a new one.
#[derive(Debug, Clone)]
pub(super) enum List<'a> {
    Input(&'a Vec<Json>),
    Made(Rc<Array<'a>>),
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            Self::Input(items) => items.len(),
            Self::Made(array) => array.items.len(),
        }
    }

    #[inline]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Input(items) => items.get(index).map(Value::from_json),
            Self::Made(array) => array.items.get(index).cloned(),
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Undefined))
    }

    pub fn value(&self) -> Value<'a> {
        match self {
            Self::Input(items) => Value::Items(items),
            Self::Made(array) => Value::Array(Rc::clone(array)),
        }
    }
}

/// A property key: an index or a name.
#[derive(Debug, Clone)]
pub(super) enum Key<'a> {
    Index(usize),
    Name(Text<'a>),
}

impl<'a> Key<'a> {
    pub fn from_number(number: f64) -> Self {
        if (0.0..4_294_967_295.0).contains(&number) && number.fract() == 0.0 {
            return Self::Index(number as usize);
        }
        Self::Name(Text::owned(number::to_text(number)))
    }

    /// Names that are the canonical form of an array index are one.
    pub fn from_text(text: Text<'a>) -> Self {
        match text.as_str().and_then(array_index) {
            Some(index) => Self::Index(index),
            None => Self::Name(text),
        }
    }

    pub fn name(&self) -> Text<'a> {
        match self {
            Self::Index(index) => Text::owned(index.to_string()),
            Self::Name(name) => name.clone(),
        }
    }
}

/// The array index that `name` canonically writes, if it does.
pub(super) fn array_index(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    let digits = !bytes.is_empty() && bytes.len() <= 10 && bytes.iter().all(u8::is_ascii_digit);
    if !digits || (bytes[0] == b'0' && bytes.len() > 1) {
        return None;
    }
    name.parse::<u64>()
        .ok()
        .filter(|index| *index < u64::from(u32::MAX))
        .map(|index| index as usize)
}
