//! Builds the plan of a document without errors.
//!
//! Nodes have the order of the tasks, and the edges of a node have the order of the tasks that need it.

use super::duration::{self, Unit, whole};
use super::max_duration_seconds;
use super::view::{Step, Task, View};
use crate::check::text;
use crate::compile::{Settings, Stage};
use crate::http_request::ACTION;
use crate::{flow, labels};
use fermata_core::plan::{
    ContextPolicy, Entries, Form, GraphError, Member, Name, Overflow, Place, Scope, Source, StoredPlan, Takes,
    Templates, Words,
};
use fermata_core::{
    Edge, Join, Kind, Language, Node, NodeIx, OnFailure, Plan, Policies, Retry, Route, RunOutputs, When, code,
};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// The action that a sleep is shown as.
const DELAY: &str = "core.delay";
const METHOD: &str = "POST";
const RETRIES: u64 = 5;
const TIMEOUT_MS: u64 = 30_000;

pub(super) fn build(view: &View, document: &Value, settings: &Settings, stage: Stage) -> Result<Plan, GraphError> {
    let mut nodes: Vec<Node> = view.tasks.iter().map(|task| build_node(task, settings)).collect();
    for (at, task) in view.tasks.iter().enumerate() {
        let needs: HashSet<&str> = task.needs.iter().map(|need| need.name).collect();
        for needed in needs.iter().filter_map(|name| view.by_name.get(name)) {
            nodes[*needed].edges.push(Edge {
                target: NodeIx(at as u32),
                when: match task.condition() {
                    Some(_) => When::Always,
                    None => When::Success,
                },
                condition: None,
                outcome: None,
            });
        }
    }
    let name = text(document, "name").unwrap_or_default().to_owned();
    Plan::new(StoredPlan {
        workflow: name.clone(),
        display_name: name,
        dialect: "runlater".to_owned(),
        nodes,
        on_failure: OnFailure::Continue,
        timeout_ms: Some(max_duration_seconds(document).saturating_mul(1000)),
        trigger_schema: None,
        trigger_defaults: None,
        context: ContextPolicy {
            // Each response is capped; the sum of all must not fail a run.
            overflow_behavior: Overflow::DropOversize,
            ..settings.context.clone()
        },
        scope: scope(),
        language: Language::Paths,
        templates: Templates {
            places: places(stage),
            ..settings.template_rules()
        },
        outputs: RunOutputs::Leaves,
        triggers: super::declared(document),
        empty_schedule_payload: true,
        flow: flow::control(document),
        tags: labels::list(document, "tags"),
        searchable: labels::list(document, "searchable"),
    })
}

/// Headers and URLs take text only. In versions that were published before values in URLs were encoded, they are not
/// encoded.
fn places(stage: Stage) -> Vec<Place> {
    let place = |parameter: &str, takes: Takes| Place {
        action: ACTION.to_owned(),
        parameter: parameter.to_owned(),
        takes,
    };
    let url = match stage {
        Stage::Settle => Takes::Text,
        Stage::Save | Stage::Publish | Stage::Run => Takes::Url,
    };
    vec![place("/url", url), place("/headers", Takes::Text)]
}

/// `trigger.body`, `trigger.headers`, `tasks.<node>` and `wait.<node>.url`. The entry of a task is its result; skipped tasks have one too.
fn scope() -> Scope {
    let entry = task();
    Scope {
        names: vec![
            Name::new("trigger.body", Source::Trigger),
            Name::new("trigger.headers", Source::RequestHeaders),
            Name::new("tasks", Source::Entries),
            Name::new("wait", Source::Waits),
        ],
        entries: Entries {
            succeeded: entry.clone(),
            answered: Form::object([
                ("status", Form::Status),
                ("status_code", Form::Null),
                ("body", Form::WHOLE),
                ("headers", Form::Null),
            ]),
            failed: entry.clone(),
            skipped: Some(entry),
        },
        words: words(),
    }
}

/// The entry of a task: the response of the service.
fn task() -> Form {
    let member = |name: &str, form: Form, optional: bool| Member {
        name: name.to_owned(),
        form,
        optional,
    };
    Form::Object(vec![
        member("status", Form::Status, false),
        member("status_code", Form::output("status"), false),
        member("body", Form::output("body"), false),
        member("headers", Form::output("headers"), false),
        member("isTruncated", Form::output("isTruncated"), true),
        member("bodyError", Form::output("bodyError"), true),
    ])
}

fn words() -> Words {
    let special = [
        (code::TEMPLATE_ERROR, "template_error"),
        (code::TIMEOUT, "timeout"),
        (code::WAIT_TIMEOUT, "timeout"),
    ];
    Words {
        succeeded: "success".to_owned(),
        answered: "received".to_owned(),
        failed_with: special.map(|(code, word)| (code.to_owned(), word.to_owned())).into(),
        ..Words::default()
    }
}

fn build_node(task: &Task, settings: &Settings) -> Node {
    let ms = |pointer: &str, unit| duration::parse(task.value.pointer(pointer)?, unit).ok();
    let mut policies = Policies {
        rerender_on_retry: false,
        ..settings.policies
    };
    let kind = match task.step {
        Step::Http => {
            let retries = task.value.get("retries").and_then(whole).unwrap_or(RETRIES);
            policies.timeout_ms = ms("/timeout", Unit::Milliseconds).unwrap_or(TIMEOUT_MS);
            policies.retry = Retry {
                max_attempts: u32::try_from(retries).unwrap_or(u32::MAX).saturating_add(1),
                ..settings.policies.retry
            };
            Kind::Action {
                action: ACTION.to_owned(),
                parameters: request(task.value),
            }
        }
        Step::Sleep => Kind::Sleep {
            action: DELAY.to_owned(),
            parameters: json!({ "durationMs": ms("/sleep", Unit::Seconds).unwrap_or_default() }),
            timeout_ms: None,
        },
        Step::Wait => Kind::Wait {
            timeout_ms: ms("/wait_for_webhook/timeout", Unit::Seconds),
        },
    };
    Node {
        id: task.name.into(),
        kind,
        join: match task.condition() {
            Some(condition) => Join::Guard(condition.to_owned()),
            None => Join::All,
        },
        route: Route::Parallel,
        merges_into_state: false,
        title: None,
        policies,
        edges: Vec::new(),
    }
}

/// The parameters of the request. A response body is parsed as JSON whatever its media type. A redirect that would change
/// the request or its origin is not followed: it is the response.
fn request(task: &Value) -> Value {
    let mut parameters = Map::new();
    let method = text(task, "method").unwrap_or(METHOD);
    parameters.insert("method".to_owned(), Value::from(method));
    for field in ["url", "headers", "body"] {
        if let Some(value) = task.get(field) {
            parameters.insert(field.to_owned(), value.clone());
        }
    }
    parameters.insert("parseBody".to_owned(), Value::from("json"));
    parameters.insert("redirects".to_owned(), Value::from("sameOrigin"));
    Value::Object(parameters)
}
