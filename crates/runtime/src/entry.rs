//! The entry of a node: what later expressions see of it, in the form that its plan defines.

use fermata_core::{
    Failure, Kind, NodeIx, Plan,
    plan::{Form, Member},
};
use serde_json::{Map, Value};
use std::sync::Arc;

/// How a node ended, with its output.
pub(crate) enum NodeResult<'a> {
    /// It succeeded.
    Succeeded(Arc<Value>),
    /// It failed. It may have an output too, such as the response of a service.
    Failed(&'a Failure, Option<&'a Value>),
}

/// The member of a response that marks its body as truncated. Entries keep its name.
pub(crate) const TRUNCATED: &str = "isTruncated";
/// The member of a response that explains why its body, declared as JSON, is text. Entries keep its name.
pub(crate) const BODY_ERROR: &str = "bodyError";

/// What is known of a node that ended.
struct Known<'a> {
    node: &'a str,
    status: &'a str,
    output: Option<&'a Value>,
    failure: Option<&'a Failure>,
}

/// The entry of a node that ended.
pub(crate) fn entry(plan: &Plan, ix: NodeIx, result: NodeResult<'_>) -> Arc<Value> {
    let node = plan.node(ix);
    let (entries, words) = (&plan.scope.entries, &plan.scope.words);
    let known = Known {
        node: node.id.as_str(),
        status: words.success(&node.kind),
        output: None,
        failure: None,
    };
    match result {
        NodeResult::Succeeded(outputs) => {
            let form = match node.kind {
                Kind::Wait { .. } => &entries.answered,
                Kind::Action { .. } | Kind::Sleep { .. } | Kind::Request { .. } | Kind::Pass => &entries.succeeded,
            };
            if *form == Form::WHOLE {
                return outputs;
            }
            let output = Some(&*outputs);
            Arc::new(make(form, &Known { output, ..known }))
        }
        NodeResult::Failed(failure, output) => {
            let known = Known {
                status: words.failure(failure),
                output,
                failure: Some(failure),
                ..known
            };
            Arc::new(make(&entries.failed, &known))
        }
    }
}

/// The entry of a node that was skipped, if such nodes have one.
pub(crate) fn skipped(plan: &Plan, ix: NodeIx) -> Option<Value> {
    let known = Known {
        node: plan.node(ix).id.as_str(),
        status: &plan.scope.words.skipped,
        output: None,
        failure: None,
    };
    let form = plan.scope.entries.skipped.as_ref()?;
    Some(make(form, &known))
}

fn make(form: &Form, known: &Known<'_>) -> Value {
    match form {
        Form::Output(path) => {
            let found = |output| path.iter().try_fold(output, |value: &Value, step| value.get(step));
            known.output.and_then(found).cloned().unwrap_or_default()
        }
        Form::Status => known.status.into(),
        Form::Node => known.node.into(),
        Form::ErrorCode => known.failure.map(|failure| failure.code.as_str()).into(),
        Form::ErrorMessage => known.failure.map(|failure| failure.message.as_str()).into(),
        Form::Null => Value::Null,
        Form::Object(members) => Value::Object(
            members
                .iter()
                .filter_map(|member| make_member(member, known))
                .collect::<Map<_, _>>(),
        ),
    }
}

fn make_member(member: &Member, known: &Known<'_>) -> Option<(String, Value)> {
    let value = make(&member.form, known);
    let absent = member.optional && matches!(value, Value::Null | Value::Bool(false));
    (!absent).then(|| (member.name.clone(), value))
}
