//! Which data a rule reads: the constant paths of `var`, `missing` and `missing_some`.

use serde_json::Value;

use crate::data::{ReadPath, Segment, merge_reads};

/// The paths that a checked rule may read. A path that is computed reads the whole data.
pub(super) fn reads(rule: &Value) -> Vec<ReadPath> {
    let mut reads = Vec::new();
    collect(rule, &mut reads);
    let whole = |read: &ReadPath| read.segments.is_empty();
    match reads.iter().any(whole) {
        true => vec![WHOLE],
        false => merge_reads(reads),
    }
}

const WHOLE: ReadPath = ReadPath {
    segments: Vec::new(),
    open: true,
};

/// Operators whose second operand is evaluated with an element of the first as its data. It cannot read anything else.
const ITERATORS: [&str; 6] = ["map", "filter", "reduce", "all", "some", "none"];

fn collect(value: &Value, reads: &mut Vec<ReadPath>) {
    let operation = match value {
        Value::Array(items) => return items.iter().for_each(|item| collect(item, reads)),
        Value::Object(members) => members.iter().next(),
        _ => None,
    };
    let Some((operator, operand)) = operation else { return };
    let operands = match operand {
        Value::Array(items) => items.as_slice(),
        single => std::slice::from_ref(single),
    };
    match operator.as_str() {
        "var" => {
            reads.push(operands.first().map_or(WHOLE, path));
            operands.iter().for_each(|operand| collect(operand, reads));
        }
        "missing" => names(operands, reads),
        "missing_some" => match operands.get(1) {
            Some(Value::Array(keys)) => names(keys, reads),
            _ => reads.push(WHOLE),
        },
        operator => {
            let outside = |at: &usize| !(ITERATORS.contains(&operator) && *at == 1);
            let seen = (0..operands.len()).filter(outside).map(|at| &operands[at]);
            seen.for_each(|operand| collect(operand, reads));
        }
    }
}

/// The keys of `missing`: each may be a list of keys.
fn names(keys: &[Value], reads: &mut Vec<ReadPath>) {
    for key in keys {
        match key {
            Value::Array(keys) => names(keys, reads),
            key => reads.push(path(key)),
        }
    }
}

/// The path that a constant names.
fn path(name: &Value) -> ReadPath {
    let text = match name {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return WHOLE,
    };
    if text.is_empty() {
        return WHOLE;
    }
    let step = |(at, step): (usize, &str)| match step.parse::<usize>() {
        Ok(index) if at > 0 && index.to_string() == step => Segment::Index(index),
        _ => Segment::Key(step.to_owned()),
    };
    ReadPath {
        segments: text.split('.').enumerate().map(step).collect(),
        open: false,
    }
}
