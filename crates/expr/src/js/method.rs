//! The methods that values inherit, by name.
//!
//! What must stay true: for every class of value, a name is either covered (a [`Method`]), listed
//! as uncovered, or does not exist in ECMAScript; so `x.foo` is only `undefined` where it is
//! undefined in a real engine too. The one exception is deliberate: a *computed* `constructor` or
//! `__proto__` reads as `undefined`, because data must never reach a host object.

/// The kinds of value that have methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Array,
    Number,
    Bool,
    Object,
}

macro_rules! methods {
    ($($variant:ident $name:literal: $($class:ident)*;)*) => {
        /// A covered method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Method { $(#[allow(missing_docs)] $variant,)* }

        impl Method {
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Whether values of `class` inherit this method.
            pub fn belongs_to(self, class: Class) -> bool {
                match self { $(Self::$variant => matches!(class, $(Class::$class)|*),)* }
            }
        }
    };
}

methods! {
    At "at": Text Array;
    CharAt "charAt": Text;
    CharCodeAt "charCodeAt": Text;
    CodePointAt "codePointAt": Text;
    Concat "concat": Text Array;
    EndsWith "endsWith": Text;
    Every "every": Array;
    Filter "filter": Array;
    Find "find": Array;
    FindIndex "findIndex": Array;
    FindLast "findLast": Array;
    FindLastIndex "findLastIndex": Array;
    Flat "flat": Array;
    FlatMap "flatMap": Array;
    HasOwnProperty "hasOwnProperty": Text Array Number Bool Object;
    Includes "includes": Text Array;
    IndexOf "indexOf": Text Array;
    Join "join": Array;
    LastIndexOf "lastIndexOf": Text Array;
    Map "map": Array;
    PadEnd "padEnd": Text;
    PadStart "padStart": Text;
    Reduce "reduce": Array;
    ReduceRight "reduceRight": Array;
    Repeat "repeat": Text;
    Replace "replace": Text;
    ReplaceAll "replaceAll": Text;
    Slice "slice": Text Array;
    Some "some": Array;
    Split "split": Text;
    StartsWith "startsWith": Text;
    Substr "substr": Text;
    Substring "substring": Text;
    ToFixed "toFixed": Number;
    ToLowerCase "toLowerCase": Text;
    ToReversed "toReversed": Array;
    ToSorted "toSorted": Array;
    ToString "toString": Text Array Number Bool Object;
    ToUpperCase "toUpperCase": Text;
    Trim "trim": Text;
    TrimEnd "trimEnd": Text;
    TrimStart "trimStart": Text;
    ValueOf "valueOf": Text Array Number Bool Object;
}

/// Inherited by everything, but not covered.
const UNCOVERED_OBJECT: [&str; 7] = [
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
];
const UNCOVERED_TEXT: [&str; 25] = [
    "anchor",
    "big",
    "blink",
    "bold",
    "fixed",
    "fontcolor",
    "fontsize",
    "isWellFormed",
    "italics",
    "link",
    "localeCompare",
    "match",
    "matchAll",
    "normalize",
    "search",
    "small",
    "strike",
    "sub",
    "sup",
    "toLocaleLowerCase",
    "toLocaleUpperCase",
    "toWellFormed",
    "trimLeft",
    "trimRight",
    "toLocaleString",
];
const UNCOVERED_ARRAY: [&str; 16] = [
    "copyWithin",
    "entries",
    "fill",
    "forEach",
    "keys",
    "pop",
    "push",
    "reverse",
    "shift",
    "sort",
    "splice",
    "toLocaleString",
    "toSpliced",
    "unshift",
    "values",
    "with",
];
const UNCOVERED_NUMBER: [&str; 3] = ["toExponential", "toLocaleString", "toPrecision"];
/// Methods of functions and dates: refused when called by name.
const UNCOVERED_ELSEWHERE: [&str; 6] = ["call", "apply", "bind", "getTime", "toISOString", "exec"];

/// Names that reach the engine from data.
pub(super) fn leads_out(name: &str) -> bool {
    matches!(name, "constructor" | "__proto__" | "prototype")
}

/// Whether values of `class` inherit an uncovered member of this name.
pub(super) fn is_uncovered(class: Class, name: &str) -> bool {
    let own: &[&str] = match class {
        Class::Text => &UNCOVERED_TEXT,
        Class::Array => &UNCOVERED_ARRAY,
        Class::Number => &UNCOVERED_NUMBER,
        Class::Bool | Class::Object => &[],
    };
    own.contains(&name) || UNCOVERED_OBJECT.contains(&name)
}

/// Whether a call of a method of this name can only mean something uncovered.
pub(super) fn is_uncovered_call(name: &str) -> bool {
    UNCOVERED_ELSEWHERE.contains(&name)
        || [Class::Text, Class::Array, Class::Number]
            .into_iter()
            .any(|class| is_uncovered(class, name))
}

/// Whether values of `class` inherit a member of this name at all, for `in`.
pub(super) fn inherits(class: Class, name: &str) -> bool {
    Method::from_name(name).is_some_and(|method| method.belongs_to(class))
        || is_uncovered(class, name)
        || matches!(name, "constructor" | "__proto__")
}
