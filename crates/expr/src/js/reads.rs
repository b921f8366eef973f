//! The paths of the scope that a condition reads.
//!
//! What must stay true: every value that the evaluation can read is at or below a listed path.
//! `below` means that the value of a node is navigated further in a way the path does not show.

use super::{
    ast::{Item, Kind, Literal, Node, Property},
    builtin::Builtin,
    method::Method,
    value::array_index,
};
use crate::data::{ReadPath, Segment, merge_reads};

/// The paths, sorted and without duplicates.
pub(super) fn reads(root: &Node) -> Vec<ReadPath> {
    let mut out = Vec::new();
    collect(root, false, &mut out);
    merge_reads(out)
}

fn collect(node: &Node, below: bool, out: &mut Vec<ReadPath>) {
    match &node.kind {
        Kind::Global(_) | Kind::Member { .. } | Kind::Index { .. } => path(node, below, out),
        Kind::Call { callee, arguments, .. } => call(callee, arguments, out),
        Kind::Chain(inner) => collect(inner, below, out),
        Kind::Unary(_, operand) => collect(operand, false, out),
        Kind::Binary(_, left, right) => {
            collect(left, false, out);
            collect(right, false, out);
        }
        Kind::Logical(_, operands) => {
            operands.iter().for_each(|operand| collect(operand, below, out));
        }
        Kind::Conditional(parts) => {
            let [test, then, otherwise] = &**parts;
            collect(test, false, out);
            collect(then, below, out);
            collect(otherwise, below, out);
        }
        Kind::Template { parts, .. } => parts.iter().for_each(|part| collect(part, false, out)),
        Kind::Array(items) => items
            .iter()
            .for_each(|item| collect(&item.node, below || item.spread, out)),
        Kind::Object(properties) => properties.iter().for_each(|property| match property {
            Property::Named(_, value) => collect(value, below, out),
            Property::Computed(name, value) => {
                collect(name, false, out);
                collect(value, below, out);
            }
            Property::Spread(value) => collect(value, true, out),
        }),
        // What a function returns may be navigated by its caller.
        Kind::Arrow(arrow) => collect(&arrow.body, true, out),
        Kind::Undefined
        | Kind::Null
        | Kind::Bool(_)
        | Kind::Number(_)
        | Kind::Text(_)
        | Kind::Local { .. }
        | Kind::Builtin(_) => {}
    }
}

fn call(callee: &Node, arguments: &[Item], out: &mut Vec<ReadPath>) {
    let reference = match &callee.kind {
        Kind::Chain(inner) => inner,
        _ => callee,
    };
    let looks_inside = match &reference.kind {
        Kind::Builtin(builtin) => matches!(
            builtin,
            Builtin::ObjectKeys
                | Builtin::ObjectValues
                | Builtin::ObjectEntries
                | Builtin::ObjectHasOwn
                | Builtin::JsonStringify
        ),
        Kind::Member { object, method, .. } => {
            // The receiver is read, not the function.
            collect(object, true, out);
            !matches!(
                method,
                Some(
                    Method::At
                        | Method::EndsWith
                        | Method::HasOwnProperty
                        | Method::Includes
                        | Method::IndexOf
                        | Method::Join
                        | Method::LastIndexOf
                        | Method::PadEnd
                        | Method::PadStart
                        | Method::Repeat
                        | Method::Slice
                        | Method::Split
                        | Method::StartsWith
                        | Method::Substr
                        | Method::Substring
                        | Method::ToFixed
                )
            )
        }
        _ => {
            collect(reference, true, out);
            true
        }
    };
    for argument in arguments {
        collect(&argument.node, looks_inside || argument.spread, out);
    }
}

/// A chain of members and indices, from the root on.
fn path(node: &Node, below: bool, out: &mut Vec<ReadPath>) {
    let mut segments = Vec::new();
    let mut open = below;
    let mut at = node;
    loop {
        match &at.kind {
            Kind::Member { object, name, .. } => {
                segments.push(segment(name));
                at = object;
            }
            Kind::Index { object, key, .. } => {
                match &key.kind {
                    Kind::Number(number) if is_index(*number) => {
                        segments.push(Segment::Index(*number as usize));
                    }
                    _ => {
                        // Only known at run time: the rest of the path is part of the subtree.
                        if !matches!(key.kind, Kind::Text(Literal::Wide(_))) {
                            collect(key, false, out);
                        }
                        segments.clear();
                        open = true;
                    }
                }
                at = object;
            }
            Kind::Chain(inner) => at = inner,
            Kind::Global(name) => {
                segments.push(Segment::Key(name.to_string()));
                segments.reverse();
                out.push(ReadPath { segments, open });
                return;
            }
            _ => return collect(at, true, out),
        }
    }
}

pub(super) fn segment(name: &str) -> Segment {
    match array_index(name) {
        Some(index) => Segment::Index(index),
        None => Segment::Key(name.to_owned()),
    }
}

fn is_index(number: f64) -> bool {
    number >= 0.0 && number.fract() == 0.0 && number < 4_294_967_295.0
}
