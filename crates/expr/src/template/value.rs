//! A JSON value whose strings are templates: the parameters of a node.
//!
//! What must stay true: keys are not templates; a part without templates is copied whole; an error has
//! the JSON pointer of its string inside the value.

use serde_json::{Map, Value};

use super::{Options, Place, Rendered, Template, render::Renderer};
use crate::{
    data::{Data, ReadPath, merge_reads},
    error::{EvalError, Span, SyntaxError},
};

/// The deepest nesting of parameters.
const MAX_DEPTH: usize = 128;

/// A JSON value whose strings are templates, parsed once.
#[derive(Debug)]
pub struct ValueTemplate {
    root: Node,
    reads: Vec<ReadPath>,
}

#[derive(Debug)]
enum Node {
    Literal(Value),
    Template(Box<Template>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl ValueTemplate {
    /// Parses every string of `value`.
    ///
    /// # Errors
    /// All strings that are not valid templates, each with its JSON pointer inside `value`.
    pub fn parse(value: &Value, options: &Options) -> Result<Self, Vec<(String, SyntaxError)>> {
        Self::parse_at(value, options, &[])
    }

    /// As [`ValueTemplate::parse`], with the places of the strings at and below these pointers.
    ///
    /// # Errors
    /// All strings that are not valid templates, each with its JSON pointer inside `value`.
    pub fn parse_at(
        value: &Value,
        options: &Options,
        places: &[(&str, Place)],
    ) -> Result<Self, Vec<(String, SyntaxError)>> {
        let mut parser = Parser {
            options,
            places,
            pointer: String::new(),
            reads: Vec::new(),
            errors: Vec::new(),
        };
        let root = parser.node(value, MAX_DEPTH);
        if !parser.errors.is_empty() {
            return Err(parser.errors);
        }
        Ok(Self {
            root,
            reads: merge_reads(parser.reads),
        })
    }

    /// The paths of the scope that the templates may read, sorted, each once.
    pub fn reads(&self) -> &[ReadPath] {
        &self.reads
    }

    /// Whether the result does not depend on any data.
    pub fn is_literal(&self) -> bool {
        matches!(self.root, Node::Literal(_))
    }

    /// The value for this scope. The limits of `options` are for the value as a whole.
    ///
    /// # Errors
    /// The first template that cannot be rendered, with its JSON pointer inside the value.
    pub fn render(&self, scope: &Data<'_>, options: &Options) -> Result<Rendered, (String, EvalError)> {
        let mut renderer = Renderer::new(scope, options);
        let mut pointer = String::new();
        match render(&self.root, &mut renderer, &mut pointer) {
            Ok(value) => Ok(Rendered {
                value,
                references: renderer.references,
            }),
            Err(error) => Err((pointer, error)),
        }
    }
}

struct Parser<'o> {
    options: &'o Options,
    places: &'o [(&'o str, Place)],
    pointer: String,
    reads: Vec<ReadPath>,
    errors: Vec<(String, SyntaxError)>,
}

impl Parser<'_> {
    fn node(&mut self, value: &Value, depth: usize) -> Node {
        if depth == 0 {
            let message = format!("the value nests deeper than {MAX_DEPTH} levels");
            let error = SyntaxError::invalid(Span::default(), message);
            self.errors.push((self.pointer.clone(), error));
            return Node::Literal(Value::Null);
        }
        match value {
            Value::String(text) => self.template(text),
            Value::Array(items) => Node::array(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| self.below(&index.to_string(), item, depth))
                    .collect(),
            ),
            Value::Object(members) => Node::object(
                members
                    .iter()
                    .map(|(name, item)| (name.clone(), self.below(name, item, depth)))
                    .collect(),
            ),
            other => Node::Literal(other.clone()),
        }
    }

    fn below(&mut self, name: &str, value: &Value, depth: usize) -> Node {
        let length = self.pointer.len();
        push_pointer(&mut self.pointer, name);
        let node = self.node(value, depth - 1);
        self.pointer.truncate(length);
        node
    }

    /// The place of the string that is parsed now.
    fn place(&self) -> Place {
        let below = |root: &str| {
            let rest = self.pointer.strip_prefix(root);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let found = self.places.iter().find(|(root, _)| below(root));
        found.map_or(Place::Any, |(_, place)| *place)
    }

    fn template(&mut self, text: &str) -> Node {
        match Template::parse(text, self.options) {
            Ok(template) if template.is_literal() => Node::Literal(template.literal()),
            Ok(mut template) => {
                self.reads.extend_from_slice(template.reads());
                template.place = self.place();
                Node::Template(Box::new(template))
            }
            Err(error) => {
                self.errors.push((self.pointer.clone(), error));
                Node::Literal(Value::Null)
            }
        }
    }
}

impl Node {
    fn literal(&self) -> Option<&Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// An array, as a literal if all its items are.
    fn array(nodes: Vec<Node>) -> Self {
        let literal: Option<Vec<Value>> = nodes.iter().map(|node| node.literal().cloned()).collect();
        match literal {
            Some(items) => Self::Literal(Value::Array(items)),
            None => Self::Array(nodes),
        }
    }

    /// An object, as a literal if all its members are.
    fn object(nodes: Vec<(String, Node)>) -> Self {
        let literal: Option<Map<String, Value>> = nodes
            .iter()
            .map(|(name, node)| Some((name.clone(), node.literal()?.clone())))
            .collect();
        match literal {
            Some(members) => Self::Literal(Value::Object(members)),
            None => Self::Object(nodes),
        }
    }
}

/// On an error, `pointer` is left at the place of the error.
fn render<'a>(node: &'a Node, renderer: &mut Renderer<'a>, pointer: &mut String) -> Result<Value, EvalError> {
    match node {
        Node::Literal(value) => renderer.literal(value),
        Node::Template(template) => {
            let known = renderer.references.len();
            let value = renderer.template(template)?;
            let new = &mut renderer.references[known..];
            new.iter_mut()
                .for_each(|reference| reference.pointer.clone_from(pointer));
            Ok(value)
        }
        Node::Array(nodes) => {
            let mut items = Vec::with_capacity(nodes.len());
            for (index, node) in nodes.iter().enumerate() {
                let length = pointer.len();
                push_pointer(pointer, &index.to_string());
                items.push(render(node, renderer, pointer)?);
                pointer.truncate(length);
            }
            Ok(Value::Array(items))
        }
        Node::Object(nodes) => {
            let mut members = Map::with_capacity(nodes.len());
            for (name, node) in nodes {
                let length = pointer.len();
                push_pointer(pointer, name);
                members.insert(name.clone(), render(node, renderer, pointer)?);
                pointer.truncate(length);
            }
            Ok(Value::Object(members))
        }
    }
}

fn push_pointer(pointer: &mut String, name: &str) {
    pointer.push('/');
    pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
}
