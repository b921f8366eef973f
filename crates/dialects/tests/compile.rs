//! Compiling any document ends in time, and a document with errors never becomes a plan.

use fermata_core::plan::Takes;
use fermata_dialects::{AnyAction, Catalog, CatalogEntry, Dialect, Document, DocumentLimits, Settings, Stage, compile};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct NoAction;

impl Catalog for NoAction {
    fn find(&self, _action: &str) -> Option<CatalogEntry> {
        None
    }

    fn names(&self) -> Vec<String> {
        vec!["core.echo".to_owned()]
    }
}

fn document(value: &Value) -> Document {
    Document::parse(value.to_string().as_bytes(), "x.json", &DocumentLimits::default()).unwrap()
}

fn codes(value: &Value, settings: &Settings, stage: Stage) -> Vec<&'static str> {
    let list = match compile(&document(value), settings, &AnyAction, stage) {
        Ok(compiled) => compiled.warnings,
        Err(problems) => problems.into_list(),
    };
    list.into_iter().map(|problem| problem.code).collect()
}

fn workflow(nodes: Vec<Value>) -> Value {
    json!({ "id": "w", "displayName": "W", "startNode": "n0", "nodes": nodes })
}

#[test]
fn doubtful_triggers_and_keys_are_warned_about() {
    let mut value = workflow(vec![json!({ "id": "n0", "actionType": "core.echo" })]);
    value["concurrency"] = json!({ "limit": 5, "key": "customerId" });
    value["rate"] = json!({ "limit": "10/1m", "key": "all-of-{{ trigger.customerId }}" });
    value["triggers"] = json!([
        { "name": "a", "type": "manual", "condition": "payload.total = 100" },
        { "name": "b", "type": "manual", "condition": "paylod.total > 100 && request.method === 'POST'" },
        { "name": "c", "type": "manual", "condition": "trigger.total > 100" },
    ]);
    let compiled = compile(&document(&value), &Settings::default(), &AnyAction, Stage::Publish).unwrap();
    let mut shown: Vec<_> = compiled
        .warnings
        .iter()
        .map(|warning| (warning.pointer.as_str(), warning.code))
        .collect();
    shown.sort_unstable();
    let expected = [
        ("/concurrency/key", "CONSTANT_KEY"),
        ("/triggers/0/condition", "CONDITION_ASSIGNS"),
        ("/triggers/1/condition", "UNKNOWN_NAME"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_hundred_thousand_nodes_are_refused_quickly() {
    let nodes = (0..100_000).map(|at| json!({ "id": format!("n{at}"), "actionType": "x" }));
    let value = workflow(nodes.collect());
    let source = value.to_string();
    let started = Instant::now();
    let document = Document::parse(source.as_bytes(), "x.json", &DocumentLimits::default()).unwrap();
    let problems = compile(&document, &Settings::default(), &AnyAction, Stage::Save).unwrap_err();
    assert_eq!(problems.list()[0].code, "TOO_MANY_NODES");
    // Quadratic work takes far longer.
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

fn tasks(tasks: impl IntoIterator<Item = (String, Value)>) -> Value {
    let tasks: serde_json::Map<String, Value> = tasks.into_iter().collect();
    json!({ "name": "w", "tasks": tasks })
}

/// One document for each check that can report a thousand problems.
#[test]
fn problems_of_tasks_above_the_limit_are_counted() {
    let long = "x".repeat(60);
    let name = |at: usize| format!("t{at}");
    let needs = |of: usize| (0..of).map(name).collect::<Vec<_>>();
    let wrong_needs: Vec<String> = (0..100).map(|at| format!("{long}{at}")).collect();
    let text: String = (0..100_000).map(|at| format!("{{{{tasks.r{at}.body}}}}")).collect();
    let bad: Vec<Value> = (0..50_000).map(|_| json!("{{ x")).collect();
    let url = "https://example.com";
    let sleeps = (0..900).map(|at| (name(at), json!({ "sleep": 1 })));
    let reader = [("a".to_owned(), json!({ "url": url, "body": text }))];
    let cases = [
        tasks((0..500).map(|at| (format!("{at}{long}"), json!({ "url": url, "needs": wrong_needs })))),
        tasks(sleeps.clone().chain(reader)),
        tasks([("a".to_owned(), json!({ "url": url, "body": bad }))]),
        tasks((0..300).map(|at| (name(at), json!({ "sleep": "soon", "needs": needs(300) })))),
        tasks((0..1000).map(|at| {
            (
                format!("{at} {long}"),
                json!({ "sleep": 1, "wait_for_webhook": 5, "x": 1 }),
            )
        })),
        tasks((0..1000).map(|at| (name(at), json!({ "if": "a.b && c", "url": "x" })))),
    ];
    for (at, value) in cases.iter().enumerate() {
        let outcome = compile(&document(value), &Settings::default(), &NoAction, Stage::Publish);
        assert!(outcome.unwrap_err().render(false).contains("… and "), "case {at}");
    }
    let chain = tasks((0..500).map(|at| (name(at), json!({ "sleep": 1, "needs": needs(at) }))));
    assert_eq!(codes(&chain, &Settings::default(), Stage::Publish), Vec::<&str>::new());
    let again = json!({ "sleep": 1, "needs": vec!["t0"; 300_000] });
    let doubled = tasks(sleeps.chain([("a".to_owned(), again)]));
    let problems = codes(&doubled, &Settings::default(), Stage::Publish);
    assert!(problems.len() == 100 && problems.iter().all(|code| *code == "DOUBLED_NEED"));
}

#[test]
fn tasks_have_timeouts_retries_and_conditions() {
    let mut value = tasks([(
        "a".to_owned(),
        json!({ "url": "https://example.com", "retries": 2, "timeout": 1e3 }),
    )]);
    value["enabled"] = json!(false);
    value["description"] = json!("what for");
    value["max_duration_seconds"] = json!(6e1);
    let mut settings = Settings::default();
    settings.policies.retry.base_delay_ms = 77;
    settings.policies.rerender_on_retry = true;
    let compiled = compile(&document(&value), &settings, &AnyAction, Stage::Publish).unwrap();
    assert!(!compiled.enabled);
    assert_eq!(compiled.description.as_deref(), Some("what for"));
    assert_eq!(compiled.plan.timeout_ms, Some(60_000));
    let policies = compiled.plan.nodes[0].policies;
    assert_eq!((policies.timeout_ms, policies.rerender_on_retry), (1000, false));
    assert_eq!((policies.retry.max_attempts, policies.retry.base_delay_ms), (3, 77));
    value["enabled"] = json!(true);
    assert!(
        compile(&document(&value), &settings, &AnyAction, Stage::Publish)
            .unwrap()
            .enabled
    );
}

#[test]
fn requests_need_the_http_action() {
    struct Off;
    impl Catalog for Off {
        fn find(&self, _action: &str) -> Option<CatalogEntry> {
            Some(CatalogEntry {
                enabled: false,
                ..CatalogEntry::default()
            })
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let request = document(&tasks([("a".to_owned(), json!({ "url": "https://example.com" }))]));
    let sleep = document(&tasks([("a".to_owned(), json!({ "sleep": 1 }))]));
    let code = |catalog: &dyn Catalog, document: &Document| {
        let outcome = compile(document, &Settings::default(), catalog, Stage::Publish);
        outcome.err().map(|problems| problems.list()[0].code)
    };
    assert_eq!(code(&NoAction, &request), Some("UNKNOWN_ACTION"));
    assert_eq!(code(&Off, &request), Some("DISABLED_ACTION"));
    assert_eq!(code(&Off, &sleep), None);
}

#[test]
fn many_problems_take_little_time() {
    let long = "x".repeat(60);
    let fields: serde_json::Map<String, Value> = (0..100_000).map(|at| (format!("f{at}"), json!(1))).collect();
    let mut unknown_fields = workflow(vec![json!({ "id": "n0", "actionType": "x" })]);
    unknown_fields.as_object_mut().unwrap().extend(fields);
    let edges: Vec<Value> = (0..100)
        .map(|at| json!({ "targetNode": format!("{long}{at}") }))
        .collect();
    let wrong_edges = (0..300).map(|at| json!({ "id": format!("{at}{long}"), "actionType": "x", "edges": edges }));
    let conditions: Vec<String> = (0..5_000).map(|at| format!("a{at}")).collect();
    let conditions = json!([{ "targetNode": "n0", "condition": conditions.join("||") }]);
    let bad: serde_json::Map<String, Value> = (0..50_000).map(|at| (format!("p{at}"), json!("{{ x"))).collect();
    let text: String = (0..100_000).map(|at| format!("{{{{ r{at} }}}}")).collect();
    let complete: Vec<Value> = (0..300)
        .map(|at| {
            let edges: Vec<Value> = (at + 1..300)
                .map(|to| json!({ "targetNode": format!("n{to}") }))
                .collect();
            json!({ "id": format!("n{at}"), "actionType": "x", "edges": edges })
        })
        .collect();
    let cases = [
        unknown_fields,
        workflow(wrong_edges.collect()),
        workflow(vec![json!({ "id": "n0", "actionType": "x", "edges": conditions })]),
        workflow(vec![json!({ "id": "n0", "actionType": "x", "parameters": bad })]),
        workflow(vec![
            json!({ "id": "n0", "actionType": "x", "parameters": { "text": text } }),
        ]),
        workflow(complete),
    ];
    for (at, value) in cases.iter().enumerate() {
        let document = document(value);
        let started = Instant::now();
        let outcome = compile(&document, &Settings::default(), &NoAction, Stage::Publish);
        let drawn = outcome.unwrap_err().render(false);
        assert!(
            started.elapsed() < Duration::from_secs(90), // quadratic work takes far longer
            "case {at}: {:?}",
            started.elapsed()
        );
        assert!(drawn.contains("… and "), "case {at}");
    }
}

/// Warnings are capped; an error after them must still prevent the plan.
#[test]
fn warnings_do_not_hide_an_error() {
    let mut nodes: Vec<Value> = (0..900)
        .map(|at| {
            let next = format!("n{}", at + 1);
            json!({ "id": format!("n{at}"), "actionType": "none", "edges": [{ "targetNode": next }] })
        })
        .collect();
    nodes.push(json!({ "id": "n900", "actionType": "none", "parameters": { "a": "{{ broken" } }));
    let document = document(&workflow(nodes));
    let problems = compile(&document, &Settings::default(), &NoAction, Stage::Save).unwrap_err();
    assert!(problems.has_errors());
    assert!(problems.list().iter().any(|problem| problem.code == "TEMPLATE_SYNTAX"));
}

#[test]
fn long_conditions_are_refused() {
    let edges = json!([{ "targetNode": "n1", "condition": "1||".repeat(50_000) }]);
    let first = json!({ "id": "n0", "actionType": "x", "edges": edges });
    let value = workflow(vec![first, json!({ "id": "n1", "actionType": "x" })]);
    assert_eq!(codes(&value, &Settings::default(), Stage::Save), ["CONDITION_TOO_LONG"]);
    let condition = format!("trigger.body.a == '{}'", "x".repeat(5000));
    let value = tasks([("a".to_owned(), json!({ "sleep": 1, "if": condition }))]);
    assert_eq!(codes(&value, &Settings::default(), Stage::Save), ["CONDITION_TOO_LONG"]);
}

#[test]
fn unknown_actions_prevent_publishing_but_not_saving() {
    let document = document(&workflow(vec![json!({ "id": "n0", "actionType": "no.such.action" })]));
    assert!(compile(&document, &Settings::default(), &NoAction, Stage::Save).is_ok());
    assert!(compile(&document, &Settings::default(), &NoAction, Stage::Publish).is_err());
    assert!(compile(&document, &Settings::default(), &NoAction, Stage::Run).is_err());
}

#[test]
fn a_dry_run_accepts_the_documents_of_the_specification() {
    let mut settings = Settings {
        validate_parameter_templates: true,
        ..Settings::default()
    };
    let parameters = json!({
        "a": "{{ trigger.items[2].name }} {{ context.data['n0'].items.length }}",
        "b": "{{ trigger.a.b ?? vars.c }}",
        "c": ["{{ spec.answers }}"]
    });
    let first = json!({ "id": "n0", "actionType": "x", "edges": [{ "targetNode": "n1" }] });
    let value = workflow(vec![
        first.clone(),
        json!({ "id": "n1", "actionType": "x", "parameters": parameters }),
    ]);
    assert_eq!(codes(&value, &settings, Stage::Publish), Vec::<&str>::new());
    settings.templates.max_output_bytes = 5;
    let value = workflow(vec![
        first,
        json!({ "id": "n1", "actionType": "x", "parameters": { "a": "{{ trigger.a }} or longer" } }),
    ]);
    assert_eq!(codes(&value, &settings, Stage::Publish), ["TEMPLATE_RENDER"]);
}

#[test]
fn diagnostics_are_served_in_camel_case() {
    let document = document(&workflow(vec![json!({ "id": "n1", "actionType": "x" })]));
    let problems = compile(&document, &Settings::default(), &AnyAction, Stage::Save).unwrap_err();
    let served = serde_json::to_value(&problems).unwrap();
    assert_eq!(served[0]["code"], "UNKNOWN_NODE");
    assert_eq!(served[0]["severity"], "error");
    assert_eq!(served[0]["pointer"], "/startNode");
    assert_eq!(served[0]["line"], 1);
    assert!(served[0]["endColumn"].is_u64());
}

#[test]
fn only_the_first_dialect_has_drafts() {
    let all = [
        Dialect::DataWorkflows,
        Dialect::Runlater,
        Dialect::Jsondagapi,
        Dialect::EngineJs,
    ];
    assert_eq!(all.map(Dialect::has_drafts), [true, false, false, false]);
}

const BASES: [&str; 6] = [
    include_str!("../testdata/dataworkflows/spec-15-2-branching.json"),
    include_str!("../testdata/dataworkflows/spec-15-3-fan-out.json"),
    include_str!("../testdata/dataworkflows/actions.json"),
    include_str!("../testdata/runlater/spec-checkout-flow.json"),
    include_str!("../testdata/runlater/spec-api-create.json"),
    include_str!("../testdata/runlater/names.json"),
];

fn pointers(value: &Value, pointer: String, all: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| pointers(item, format!("{pointer}/{at}"), all));
        }
        Value::Object(map) => map
            .iter()
            .for_each(|(key, item)| pointers(item, format!("{pointer}/{key}"), all)),
        _ => {}
    }
    all.push(pointer);
}

fn stray() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("A")),
        Just(json!("D")),
        Just(json!(1e30)),
        Just(json!(-1)),
        Just(json!("{{ context.data['B'] ?? ")),
        Just(json!("{{tasks.charge.body}}")),
        Just(json!("tasks.charge.status == 'success'")),
        Just(json!(["charge", "later", 1])),
        Just(json!("1h")),
        Just(json!({ "id": "A", "edges": [{ "targetNode": "A" }] })),
        Just(json!({ "$ref": "#" })),
        any::<String>().prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damaged_documents_get_an_answer(
        base in 0..BASES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), stray()), 1..4),
        key in prop_oneof![
            Just("triggerSchema"), Just("contextSnapshot"), Just("nodes"), Just("tasks"), Just("name"), Just("other")
        ],
    ) {
        let mut value: Value = serde_json::from_str(BASES[base]).unwrap();
        for (at, stray) in damage {
            let mut all = Vec::new();
            pointers(&value, String::new(), &mut all);
            if let Some(place) = value.pointer_mut(at.get(&all[..]).as_str()) {
                *place = stray.clone();
            }
            if let Some(map) = value.as_object_mut().filter(|_| at.index(5) == 0) {
                map.insert(key.to_owned(), stray);
            }
        }
        let document = document(&value);
        for stage in [Stage::Save, Stage::Publish] {
            let settings = Settings { validate_parameter_templates: true, ..Settings::default() };
            match compile(&document, &settings, &AnyAction, stage) {
                Ok(compiled) => prop_assert!(!compiled.plan.nodes.is_empty()),
                Err(problems) => {
                    prop_assert!(problems.has_errors());
                    prop_assert!(problems.list().iter().all(|p| p.line >= 1 && p.column >= 1));
                    problems.render(true);
                }
            }
        }
    }
}

#[test]
fn urls_of_versions_without_a_stored_plan_are_not_encoded() {
    let value = json!({ "name": "w", "tasks": { "a": { "url": "https://example.com/{{trigger.body.id}}" } } });
    for (stage, takes) in [(Stage::Publish, Takes::Url), (Stage::Settle, Takes::Text)] {
        let compiled = compile(&document(&value), &Settings::default(), &AnyAction, stage).unwrap();
        let places = &compiled.plan.templates.places;
        let url = places.iter().find(|place| place.parameter == "/url");
        assert_eq!(url.map(|place| place.takes), Some(takes), "{stage:?}");
    }
}
