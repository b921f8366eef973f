//! The operators, and the check of a rule.

use serde_json::{Map, Value};

use crate::{MAX_NESTING, SyntaxKind, suggest::nearest};

/// Which operators a rule may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operators {
    /// `==`, `!=`, `>`, `<`, `>=`, `<=`, `and`, `or`, `!` and `var`.
    Subset,
    /// All operators of JSONLogic.
    All,
}

/// The operators of [`Operators::Subset`].
const SUBSET: [&str; 10] = ["==", "!=", ">", "<", ">=", "<=", "and", "or", "!", "var"];

/// The other operators of JSONLogic.
const OTHERS: [&str; 24] = [
    "===",
    "!==",
    "!!",
    "if",
    "?:",
    "+",
    "-",
    "*",
    "/",
    "%",
    "max",
    "min",
    "cat",
    "substr",
    "in",
    "merge",
    "filter",
    "map",
    "reduce",
    "all",
    "some",
    "none",
    "missing",
    "missing_some",
];

/// More problems of one rule are not reported.
const MOST_PROBLEMS: usize = 20;

/// A problem of a rule and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RuleError {
    /// Whether the rule is invalid, or uses something that is left out or not allowed here.
    pub kind: SyntaxKind,
    /// The message.
    pub message: String,
    /// JSON pointer to the problem, from the root of the rule: to the member with the name of the operator, or to a value.
    pub pointer: String,
    /// What to do, such as "did you mean `>=`?".
    pub suggestion: Option<String>,
}

/// The result of a check.
pub(super) struct Found {
    /// Whether the rule uses the subset only.
    pub subset_only: bool,
    /// How many operations it has.
    pub operations: usize,
}

/// Checks a rule.
pub(super) fn check(rule: &Value, operators: Operators) -> Result<Found, Vec<RuleError>> {
    let mut check = Check {
        operators,
        found: Found {
            subset_only: true,
            operations: 0,
        },
        problems: Vec::new(),
    };
    check.value(rule, "", 0);
    match check.problems.is_empty() {
        true => Ok(check.found),
        false => Err(check.problems),
    }
}

struct Check {
    operators: Operators,
    found: Found,
    problems: Vec<RuleError>,
}

impl Check {
    fn report(&mut self, kind: SyntaxKind, pointer: &str, message: String, suggestion: Option<String>) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(RuleError {
                kind,
                message,
                pointer: pointer.to_owned(),
                suggestion,
            });
        }
    }

    fn invalid(&mut self, pointer: &str, message: impl Into<String>) {
        self.report(SyntaxKind::Invalid, pointer, message.into(), None);
    }

    fn value(&mut self, value: &Value, pointer: &str, depth: usize) {
        if depth > MAX_NESTING {
            return self.invalid(pointer, format!("the rule nests deeper than {MAX_NESTING} levels"));
        }
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.value(item, &format!("{pointer}/{at}"), depth + 1);
                }
            }
            Value::Object(members) => self.operation(members, pointer, depth),
            _ => {}
        }
    }

    fn operation(&mut self, members: &Map<String, Value>, pointer: &str, depth: usize) {
        let mut names = members.iter();
        let (operator, operand) = match (names.next(), names.next()) {
            (None, _) => return, // the literal {}
            (Some(operation), None) => operation,
            (Some((first, _)), Some((second, _))) => {
                let message = format!(
                    "an operation is an object with one member, the operator; this one has {}: `{}`, `{}`{}",
                    members.len(),
                    shown(first),
                    shown(second),
                    if members.len() > 2 { ", …" } else { "" }
                );
                return self.invalid(pointer, message);
            }
        };
        self.found.operations += 1;
        let at = format!("{pointer}/{}", operator.replace('~', "~0").replace('/', "~1"));
        if !self.operator(operator, &at) {
            return;
        }
        if self.operators == Operators::Subset {
            self.operands(operator, operand, &at);
        }
        // One level: JSONLogic counts the object, not the list of its operands.
        match operand {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.value(item, &format!("{at}/{index}"), depth + 1);
                }
            }
            single => self.value(single, &at, depth + 1),
        }
    }

    /// Whether the operator may be used.
    fn operator(&mut self, operator: &str, pointer: &str) -> bool {
        if SUBSET.contains(&operator) {
            return true;
        }
        self.found.subset_only = false;
        let known = OTHERS.contains(&operator);
        if known && self.operators == Operators::All {
            return true;
        }
        let subset = SUBSET.join(" ");
        if known {
            let message = format!("the operator `{operator}` is not in the v1 subset: {subset}");
            let hint = "set `strict_operators = false` in `[jsondagapi]` of the configuration to allow all operators of JSONLogic".to_owned();
            self.report(SyntaxKind::NotCovered, pointer, message, Some(hint));
            return false;
        }
        if operator == "log" {
            let message = "the operator `log` is left out: an expression has no effects".to_owned();
            self.report(SyntaxKind::NotCovered, pointer, message, None);
            return false;
        }
        let others: &[&str] = match self.operators {
            Operators::Subset => &[],
            Operators::All => &OTHERS,
        };
        let allowed = || SUBSET.iter().chain(others).copied();
        let near = nearest(operator, allowed()).or_else(|| alike(operator));
        let message = match self.operators {
            Operators::Subset => format!("unknown operator `{}`; the operators are {subset}", shown(operator)),
            Operators::All => format!("unknown operator `{}`", shown(operator)),
        };
        let suggestion = near.map(|near| format!("did you mean `{near}`?"));
        self.report(SyntaxKind::Invalid, pointer, message, suggestion);
        false
    }

    /// The number of operands, where a wrong one can only fail.
    fn operands(&mut self, operator: &str, operand: &Value, pointer: &str) {
        let list = operand.as_array();
        match operator {
            "==" | "!=" | ">" | "<" | ">=" | "<=" if list.is_none_or(|list| list.len() < 2) => {
                self.invalid(pointer, format!("`{operator}` compares a list of at least two values"));
            }
            "and" | "or" if list.is_none_or(Vec::is_empty) => {
                self.invalid(pointer, format!("`{operator}` needs a list of at least one value"));
            }
            _ => {}
        }
    }
}

/// Spellings of other languages.
fn alike(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "=" | "eq" | "equals" => "==",
        "<>" | "ne" | "neq" => "!=",
        "=>" | "gte" | "ge" => ">=",
        "=<" | "lte" | "le" => "<=",
        "gt" => ">",
        "lt" => "<",
        "&&" | "&" | "AND" => "and",
        "||" | "|" | "OR" => "or",
        "not" | "NOT" => "!",
        "val" | "get" | "state" | "$" => "var",
        _ => return None,
    })
}

/// A name of the document, shortened for a message.
fn shown(name: &str) -> String {
    match name.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
