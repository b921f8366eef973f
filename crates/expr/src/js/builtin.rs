//! The built-in names of conditions: global functions, and the members of `Math`, `Number`,
//! `Object`, `Array`, `String` and `JSON`.
//!
//! What must stay true: only functions whose result the standard defines exactly are here.
//! `Math.sin` and similar functions may differ between engines, `Math.random` and dates between runs.

use super::ast::Kind;

/// A built-in function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Builtin {
    Number,
    String,
    Boolean,
    ParseInt,
    ParseFloat,
    IsNaN,
    IsFinite,
    NumberIsInteger,
    NumberIsSafeInteger,
    NumberIsNaN,
    NumberIsFinite,
    ObjectKeys,
    ObjectValues,
    ObjectEntries,
    ObjectHasOwn,
    ArrayIsArray,
    JsonStringify,
    MathAbs,
    MathCeil,
    MathClz32,
    MathFloor,
    MathFround,
    MathImul,
    MathMax,
    MathMin,
    MathPow,
    MathRound,
    MathSign,
    MathSqrt,
    MathTrunc,
}

/// The meaning of a global name.
pub(super) fn global(name: &str) -> Option<Kind> {
    Some(match name {
        "undefined" => Kind::Undefined,
        "NaN" => Kind::Number(f64::NAN),
        "Infinity" => Kind::Number(f64::INFINITY),
        "Number" => Kind::Builtin(Builtin::Number),
        "String" => Kind::Builtin(Builtin::String),
        "Boolean" => Kind::Builtin(Builtin::Boolean),
        "parseInt" => Kind::Builtin(Builtin::ParseInt),
        "parseFloat" => Kind::Builtin(Builtin::ParseFloat),
        "isNaN" => Kind::Builtin(Builtin::IsNaN),
        "isFinite" => Kind::Builtin(Builtin::IsFinite),
        _ => return None,
    })
}

/// Whether a name is a global of which only members are covered.
pub(super) fn is_namespace(name: &str) -> bool {
    matches!(name, "Math" | "Number" | "Object" | "Array" | "String" | "JSON")
}

/// The meaning of `namespace.member`, if it is covered.
pub(super) fn member(namespace: &str, member: &str) -> Option<Kind> {
    use std::f64::consts;
    let constant = match (namespace, member) {
        ("Math", "PI") => consts::PI,
        ("Math", "E") => consts::E,
        ("Math", "LN2") => consts::LN_2,
        ("Math", "LN10") => consts::LN_10,
        ("Math", "LOG2E") => consts::LOG2_E,
        ("Math", "LOG10E") => consts::LOG10_E,
        ("Math", "SQRT2") => consts::SQRT_2,
        ("Math", "SQRT1_2") => consts::FRAC_1_SQRT_2,
        ("Number", "MAX_SAFE_INTEGER") => 9_007_199_254_740_991.0,
        ("Number", "MIN_SAFE_INTEGER") => -9_007_199_254_740_991.0,
        ("Number", "MAX_VALUE") => f64::MAX,
        ("Number", "MIN_VALUE") => 5e-324,
        ("Number", "EPSILON") => f64::EPSILON,
        ("Number", "POSITIVE_INFINITY") => f64::INFINITY,
        ("Number", "NEGATIVE_INFINITY") => f64::NEG_INFINITY,
        ("Number", "NaN") => f64::NAN,
        _ => return function(namespace, member).map(Kind::Builtin),
    };
    Some(Kind::Number(constant))
}

fn function(namespace: &str, member: &str) -> Option<Builtin> {
    Some(match (namespace, member) {
        ("Number", "isInteger") => Builtin::NumberIsInteger,
        ("Number", "isSafeInteger") => Builtin::NumberIsSafeInteger,
        ("Number", "isNaN") => Builtin::NumberIsNaN,
        ("Number", "isFinite") => Builtin::NumberIsFinite,
        ("Number", "parseInt") => Builtin::ParseInt,
        ("Number", "parseFloat") => Builtin::ParseFloat,
        ("Object", "keys") => Builtin::ObjectKeys,
        ("Object", "values") => Builtin::ObjectValues,
        ("Object", "entries") => Builtin::ObjectEntries,
        ("Object", "hasOwn") => Builtin::ObjectHasOwn,
        ("Array", "isArray") => Builtin::ArrayIsArray,
        ("JSON", "stringify") => Builtin::JsonStringify,
        ("Math", "abs") => Builtin::MathAbs,
        ("Math", "ceil") => Builtin::MathCeil,
        ("Math", "clz32") => Builtin::MathClz32,
        ("Math", "floor") => Builtin::MathFloor,
        ("Math", "fround") => Builtin::MathFround,
        ("Math", "imul") => Builtin::MathImul,
        ("Math", "max") => Builtin::MathMax,
        ("Math", "min") => Builtin::MathMin,
        ("Math", "pow") => Builtin::MathPow,
        ("Math", "round") => Builtin::MathRound,
        ("Math", "sign") => Builtin::MathSign,
        ("Math", "sqrt") => Builtin::MathSqrt,
        ("Math", "trunc") => Builtin::MathTrunc,
        _ => return None,
    })
}

/// Globals of a full engine that are not available in conditions.
pub(super) fn is_uncovered_global(name: &str) -> bool {
    matches!(
        name,
        "Date"
            | "RegExp"
            | "Function"
            | "eval"
            | "Symbol"
            | "BigInt"
            | "Map"
            | "Set"
            | "WeakMap"
            | "WeakSet"
            | "WeakRef"
            | "Promise"
            | "Proxy"
            | "Reflect"
            | "Intl"
            | "Error"
            | "TypeError"
            | "RangeError"
            | "SyntaxError"
            | "ReferenceError"
            | "EvalError"
            | "URIError"
            | "AggregateError"
            | "ArrayBuffer"
            | "SharedArrayBuffer"
            | "DataView"
            | "Atomics"
            | "Iterator"
            | "Int8Array"
            | "Uint8Array"
            | "Uint8ClampedArray"
            | "Int16Array"
            | "Uint16Array"
            | "Int32Array"
            | "Uint32Array"
            | "Float32Array"
            | "Float64Array"
            | "BigInt64Array"
            | "BigUint64Array"
            | "FinalizationRegistry"
            | "globalThis"
            | "arguments"
            | "escape"
            | "unescape"
            | "encodeURI"
            | "encodeURIComponent"
            | "decodeURI"
            | "decodeURIComponent"
    )
}
