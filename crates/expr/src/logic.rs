//! Conditions that name their language: `{"language": "jsonlogic" | "cel", "expression": …}`.
//!
//! Plans store such a condition as the JSON text of this object ([`encode`]). It is checked strictly when a document is
//! saved; loading a plan accepts everything that any release could have stored.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{ReadPath, cel, jsonlogic};

/// A language that a condition can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogicLanguage {
    /// JSONLogic.
    JsonLogic,
    /// The Common Expression Language.
    Cel,
}

/// The names of the languages in documents.
pub const LANGUAGES: [&str; 2] = ["jsonlogic", "cel"];

impl LogicLanguage {
    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            LogicLanguage::JsonLogic => "jsonlogic",
            LogicLanguage::Cel => "cel",
        }
    }

    /// The language with this name.
    pub fn find(name: &str) -> Option<LogicLanguage> {
        match name {
            "jsonlogic" => Some(LogicLanguage::JsonLogic),
            "cel" => Some(LogicLanguage::Cel),
            _ => None,
        }
    }
}

/// A language that the sandbox evaluates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLanguage {
    /// JavaScript.
    Js,
    /// JSONLogic.
    JsonLogic,
    /// The Common Expression Language.
    Cel,
}

impl From<LogicLanguage> for SandboxLanguage {
    fn from(language: LogicLanguage) -> SandboxLanguage {
        match language {
            LogicLanguage::JsonLogic => SandboxLanguage::JsonLogic,
            LogicLanguage::Cel => SandboxLanguage::Cel,
        }
    }
}

/// A parsed condition.
#[derive(Debug, Clone)]
pub enum Logic {
    /// A rule of JSONLogic.
    JsonLogic(jsonlogic::Rule),
    /// A source of CEL.
    Cel(cel::Expression),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    language: LogicLanguage,
    expression: Value,
}

/// The text of a condition, as a plan stores it. The expression of CEL is a string.
pub fn encode(language: LogicLanguage, expression: &Value) -> String {
    json!({ "language": language.name(), "expression": expression }).to_string()
}

/// The expression of a stored condition, for messages; a condition of another language as it is.
pub fn shown(condition: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Stored>(condition) {
        Ok(Stored {
            language: LogicLanguage::Cel,
            expression: Value::String(source),
        }) => Cow::Owned(source),
        Ok(stored) => Cow::Owned(stored.expression.to_string()),
        Err(_) => Cow::Borrowed(condition),
    }
}

impl Logic {
    /// Parses the text of a condition ([`encode`]). All operators of JSONLogic are accepted.
    ///
    /// # Errors
    /// The text is not such an object, or the expression is not valid.
    pub fn parse(text: &str) -> Result<Logic, String> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match (stored.language, &stored.expression) {
            (LogicLanguage::JsonLogic, rule) => {
                let parsed = jsonlogic::Rule::parse(rule, jsonlogic::Operators::All);
                parsed.map(Logic::JsonLogic).map_err(|errors| {
                    let texts = errors
                        .iter()
                        .map(|error| format!("{}: {}", error.pointer, error.message));
                    texts.collect::<Vec<_>>().join("; ")
                })
            }
            (LogicLanguage::Cel, Value::String(source)) => {
                let parsed = cel::Expression::parse(source);
                parsed.map(Logic::Cel).map_err(|error| error.message)
            }
            (LogicLanguage::Cel, _) => Err("an expression in CEL is a string".to_owned()),
        }
    }

    /// The language.
    pub fn language(&self) -> LogicLanguage {
        match self {
            Logic::JsonLogic(_) => LogicLanguage::JsonLogic,
            Logic::Cel(_) => LogicLanguage::Cel,
        }
    }

    /// The expression: JSON for JSONLogic.
    pub fn source(&self) -> &str {
        match self {
            Logic::JsonLogic(rule) => rule.source(),
            Logic::Cel(expression) => expression.source(),
        }
    }

    /// The paths of the data that it may read. A path without steps is the whole data.
    pub fn reads(&self) -> &[ReadPath] {
        match self {
            Logic::JsonLogic(rule) => rule.reads(),
            Logic::Cel(expression) => expression.reads(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_stored_as_text() {
        let text = encode(LogicLanguage::JsonLogic, &json!({ ">": [{ "var": "score" }, 0.8] }));
        let parsed = Logic::parse(&text).unwrap();
        assert_eq!(
            (parsed.language(), parsed.source()),
            (LogicLanguage::JsonLogic, r#"{">":[{"var":"score"},0.8]}"#)
        );
        assert_eq!(parsed.reads()[0].to_string(), "score");
        let parsed = Logic::parse(&encode(LogicLanguage::Cel, &json!("score > 0.8"))).unwrap();
        assert_eq!(
            (parsed.language(), parsed.source()),
            (LogicLanguage::Cel, "score > 0.8")
        );
        // Plans of all settings can be loaded.
        assert!(Logic::parse(&encode(LogicLanguage::JsonLogic, &json!({ "+": [1, 2] }))).is_ok());
        for wrong in [
            "",
            "score > 0.8",
            r#"{"language":"cel","expression":{}}"#,
            r#"{"language":"js","expression":"1"}"#,
        ] {
            assert!(Logic::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(shown(&encode(LogicLanguage::Cel, &json!("a == 'b'"))), "a == 'b'");
        assert_eq!(
            shown(&encode(LogicLanguage::JsonLogic, &json!({ "!": [1] }))),
            r#"{"!":[1]}"#
        );
        assert_eq!(shown("trigger.a > 1"), "trigger.a > 1");
        for name in LANGUAGES {
            assert_eq!(LogicLanguage::find(name).map(LogicLanguage::name), Some(name));
        }
    }
}
