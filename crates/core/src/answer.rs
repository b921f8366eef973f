//! What counts as the answer of a request, and what an answer means. Pure: the same payload always has the same meaning,
//! when it is received and when the run reads it.
//!
//! | rule | payload | reading |
//! | --- | --- | --- |
//! | `Any` | any JSON | output: the payload |
//! | `State` | `{"state": {…}}` | output: the object |
//! | `State` | `{"error": {"code", "message", "retriable"?}}` | failed attempt; retriable unless it says otherwise |
//! | `State` | anything else | failed: `INVALID_CALLBACK_PAYLOAD` |
//! | `Outcome` | `{"outcome": "…", "metadata"?: {…}}` | output: the payload without other members; the outcome is chosen |
//! | `Outcome` | an outcome that is not in the list | failed: `UNKNOWN_OUTCOME` |
//! | `Outcome` | `{"error": {"code", "message"}}` | failed, never retried |
//! | `Outcome` | anything else | failed: `INVALID_DECISION_RESPONSE` |
//! | `Approval` | `{"outcome"?: "…", "fields"?: {…}}` | output: the payload; the outcome is chosen |
//! | `Approval` | anything else | refused: the request stays open |
//! | `Child`, `Children` | anything | refused: only the ends of child runs answer |

use crate::{Each, Failure, code};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What counts as an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum AnswerRule {
    /// Any JSON value; it is the output.
    Any,
    /// New members of the state, or an error.
    State,
    /// One of these outcomes. A wrong answer fails the node.
    Outcome {
        /// The outcomes.
        outcomes: Vec<String>,
    },
    /// One of these outcomes, and the values of fields. A wrong answer is refused. Without outcomes, none may be given.
    Approval {
        /// The outcomes.
        outcomes: Vec<String>,
    },
    /// The end of an awaited child run.
    Child,
    /// The ends of awaited child runs, one for each item of a list.
    Children(Each),
}

impl AnswerRule {
    /// Whether the node waits for child runs.
    pub fn is_child(&self) -> bool {
        matches!(self, AnswerRule::Child | AnswerRule::Children(_))
    }
}

/// What a payload means.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// It is an answer.
    Answer(Answer),
    /// It changes nothing, for this reason.
    Refused(String),
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The output of the node, or why the attempt failed.
    pub result: Result<Value, Failure>,
    /// The outcome that was chosen.
    pub chosen: Option<String>,
}

/// The longest failure code that an answer may name. Codes are part of the journal.
const MAX_CODE: usize = 100;

/// Reads a payload by a rule.
pub fn read(rule: &AnswerRule, payload: Value) -> Reading {
    match rule {
        AnswerRule::Any => answer(Ok(payload)),
        AnswerRule::State => state(payload),
        AnswerRule::Outcome { outcomes } => outcome(outcomes, payload),
        AnswerRule::Approval { outcomes } => approval(outcomes, payload),
        AnswerRule::Child | AnswerRule::Children(_) => {
            Reading::Refused("this node is answered only by the end of its child run".to_owned())
        }
    }
}

fn answer(result: Result<Value, Failure>) -> Reading {
    Reading::Answer(Answer { result, chosen: None })
}

fn state(payload: Value) -> Reading {
    let wrong = |what: &str| {
        let message = format!(
            "the answer of a task must be {{\"state\": {{…}}}} or {{\"error\": {{\"code\", \"message\"}}}}: {what}"
        );
        answer(Err(Failure::permanent(code::INVALID_CALLBACK_PAYLOAD, message)))
    };
    let Value::Object(mut members) = payload else {
        return wrong("it is not an object");
    };
    match (members.remove("state"), members.get("error")) {
        (Some(_), Some(_)) => wrong("it has both `state` and `error`"),
        (None, None) => wrong("it has neither `state` nor `error`"),
        (Some(state @ Value::Object(_)), None) => answer(Ok(state)),
        (Some(_), None) => wrong("`state` is not an object"),
        (None, Some(error)) => match failure(error) {
            Ok(failure) => answer(Err(failure)),
            Err(what) => wrong(what),
        },
    }
}

/// The failure in `{"code", "message", "retriable"?}`.
fn failure(error: &Value) -> Result<Failure, &'static str> {
    let code = error["code"].as_str().filter(|code| !code.is_empty());
    let code = code.ok_or("`error.code` is not a text")?;
    let message = error["message"].as_str().ok_or("`error.message` is not a text")?;
    if code.len() > MAX_CODE {
        return Err("`error.code` is longer than 100 bytes");
    }
    let retriable = match error.get("retriable") {
        None | Some(Value::Null) => true,
        Some(Value::Bool(retriable)) => *retriable,
        Some(_) => return Err("`error.retriable` is not true or false"),
    };
    Ok(Failure {
        retriable,
        ..Failure::permanent(code, message)
    })
}

fn outcome(outcomes: &[String], payload: Value) -> Reading {
    let wrong = |what: &str| {
        let message = format!("the answer of a decision must be {{\"outcome\": \"…\", \"metadata\"?: {{…}}}}: {what}");
        answer(Err(Failure::permanent(code::INVALID_DECISION_RESPONSE, message)))
    };
    let Value::Object(mut members) = payload else {
        return wrong("it is not an object");
    };
    if let (None, Some(error)) = (members.get("outcome"), members.get("error")) {
        return match failure(error) {
            Ok(failure) => answer(Err(Failure {
                retriable: false,
                ..failure
            })),
            Err(what) => wrong(what),
        };
    }
    let Some(Value::String(chosen)) = members.remove("outcome") else {
        return wrong("`outcome` is not a text");
    };
    let metadata = members.remove("metadata").filter(|metadata| !metadata.is_null());
    if metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
        return wrong("`metadata` is not an object");
    }
    if !outcomes.contains(&chosen) {
        let message = format!(
            "the outcome `{}` is not one of: {}",
            short(&chosen),
            outcomes.join(", ")
        );
        return answer(Err(Failure::permanent(code::UNKNOWN_OUTCOME, message)));
    }
    let mut output = Map::from_iter([("outcome".to_owned(), json!(chosen))]);
    output.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
    Reading::Answer(Answer {
        result: Ok(Value::Object(output)),
        chosen: Some(chosen),
    })
}

fn approval(outcomes: &[String], payload: Value) -> Reading {
    let Value::Object(mut members) = payload else {
        return Reading::Refused("the answer must be an object with `outcome` and `fields`".to_owned());
    };
    let chosen = match (members.remove("outcome"), outcomes) {
        (None | Some(Value::Null), []) => None,
        (Some(_), []) => return Reading::Refused("this request has no outcomes; leave out `outcome`".to_owned()),
        (Some(Value::String(chosen)), _) if outcomes.contains(&chosen) => Some(chosen),
        _ => return Reading::Refused(format!("`outcome` must be one of: {}", outcomes.join(", "))),
    };
    let fields = match members.remove("fields") {
        None | Some(Value::Null) => json!({}),
        Some(fields @ Value::Object(_)) => fields,
        Some(_) => return Reading::Refused("`fields` must be an object".to_owned()),
    };
    if let Some(name) = members.keys().next() {
        return Reading::Refused(format!("`{}` is not expected; use `outcome` and `fields`", short(name)));
    }
    Reading::Answer(Answer {
        result: Ok(json!({ "outcome": chosen, "fields": fields })),
        chosen,
    })
}

/// A text of the payload that is quoted in a message.
fn short(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_CODE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short text for a reading.
    fn shown(reading: Reading) -> String {
        match reading {
            Reading::Refused(_) => "refused".to_owned(),
            Reading::Answer(Answer { result, chosen }) => match (result, chosen) {
                (Ok(output), None) => output.to_string(),
                (Ok(output), Some(chosen)) => format!("{chosen}: {output}"),
                (Err(failure), None) if failure.retriable => format!("{}, retriable", failure.code),
                (Err(failure), None) => failure.code,
                (Err(_), Some(_)) => "a failure that chose an outcome".to_owned(),
            },
        }
    }

    fn check(rule: &AnswerRule, cases: &[(&str, &str)]) {
        for (payload, expected) in cases {
            let value = serde_json::from_str(payload).unwrap();
            assert_eq!(shown(read(rule, value)), *expected, "{rule:?} of {payload}");
        }
    }

    #[test]
    fn any_payload_is_the_output() {
        check(
            &AnswerRule::Any,
            &[("null", "null"), (r#"{"a":1}"#, r#"{"a":1}"#), ("[]", "[]")],
        );
    }

    #[test]
    fn task_answers_with_state_or_error() {
        const INVALID: &str = code::INVALID_CALLBACK_PAYLOAD;
        check(
            &AnswerRule::State,
            &[
                (r#"{"state":{"a":1}}"#, r#"{"a":1}"#),
                (r#"{"state":{}}"#, "{}"),
                (r#"{"state":{"a":null},"more":1}"#, r#"{"a":null}"#),
                (r#"{"state":[]}"#, INVALID),
                (r#"{"state":null}"#, INVALID),
                (r#"{"error":{"code":"X","message":"x"}}"#, "X, retriable"),
                (
                    r#"{"error":{"code":"X","message":"x","retriable":true}}"#,
                    "X, retriable",
                ),
                (r#"{"error":{"code":"X","message":"x","retriable":false}}"#, "X"),
                (r#"{"error":{"code":"X","message":"x","retriable":"no"}}"#, INVALID),
                (r#"{"error":{"code":"X"}}"#, INVALID),
                (r#"{"error":{"code":"","message":"x"}}"#, INVALID),
                (r#"{"error":"x"}"#, INVALID),
                (r#"{"error":{"code":"X","message":"x"},"state":{}}"#, INVALID),
                ("{}", INVALID),
                ("7", INVALID),
                ("null", INVALID),
            ],
        );
        let long = json!({ "error": { "code": "X".repeat(101), "message": "x" } });
        assert_eq!(shown(read(&AnswerRule::State, long)), INVALID);
    }

    #[test]
    fn decision_answers_with_a_known_outcome() {
        const INVALID: &str = code::INVALID_DECISION_RESPONSE;
        let outcomes = vec!["approve".to_owned(), "reject".to_owned()];
        check(
            &AnswerRule::Outcome { outcomes },
            &[
                (r#"{"outcome":"approve"}"#, r#"approve: {"outcome":"approve"}"#),
                (
                    r#"{"outcome":"reject","metadata":{"by":"x"},"state":{"a":1}}"#,
                    r#"reject: {"outcome":"reject","metadata":{"by":"x"}}"#,
                ),
                (
                    r#"{"outcome":"approve","metadata":null}"#,
                    r#"approve: {"outcome":"approve"}"#,
                ),
                (r#"{"outcome":"Approve"}"#, code::UNKNOWN_OUTCOME),
                (r#"{"outcome":""}"#, code::UNKNOWN_OUTCOME),
                (r#"{"outcome":1}"#, INVALID),
                (r#"{"outcome":"approve","metadata":[]}"#, INVALID),
                (r#"{"outcomes":"approve"}"#, INVALID),
                (r#"{"error":{"code":"DOWN","message":"x","retriable":true}}"#, "DOWN"),
                (r#"{"error":{}}"#, INVALID),
                (r#""approve""#, INVALID),
                ("null", INVALID),
            ],
        );
    }

    #[test]
    fn wrong_approval_is_refused() {
        let outcomes = vec!["yes".to_owned(), "no".to_owned()];
        check(
            &AnswerRule::Approval { outcomes },
            &[
                (r#"{"outcome":"yes"}"#, r#"yes: {"outcome":"yes","fields":{}}"#),
                (
                    r#"{"outcome":"no","fields":{"why":"x"}}"#,
                    r#"no: {"outcome":"no","fields":{"why":"x"}}"#,
                ),
                (r#"{"outcome":"maybe"}"#, "refused"),
                (r#"{"fields":{}}"#, "refused"),
                (r#"{"outcome":"yes","fields":[]}"#, "refused"),
                (r#"{"outcome":"yes","comment":"x"}"#, "refused"),
                (r#""yes""#, "refused"),
            ],
        );
        let without = AnswerRule::Approval { outcomes: Vec::new() };
        check(
            &without,
            &[
                (r#"{"fields":{"a":1}}"#, r#"{"outcome":null,"fields":{"a":1}}"#),
                ("{}", r#"{"outcome":null,"fields":{}}"#),
                (r#"{"outcome":"yes"}"#, "refused"),
            ],
        );
    }

    #[test]
    fn nothing_from_outside_answers_for_a_child() {
        check(&AnswerRule::Child, &[("{}", "refused"), (r#"{"state":{}}"#, "refused")]);
    }
}
